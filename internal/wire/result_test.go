package wire

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/internal/jsontext"
	"github.com/laterq/later/internal/message"
	"github.com/laterq/later/store"
)

func TestWireResults(t *testing.T) {
	at := time.Date(2030, 12, 31, 23, 59, 59, 1_000_000, time.FixedZone("", 3600))
	n := 3
	full := store.Info{
		Message: store.Message{
			ID: "a", Payload: []byte("<ü>"), Headers: map[string]string{"k": "v"}, MaxAttempts: 5, Timeout: time.Minute,
			ExpireAfter: time.Second, DedupWindow: time.Hour, Group: "g", Key: "k", Urgency: store.UrgencyHigh,
			SentAt: at,
		},
		State: store.StateLeased, Due: at, LeaseDeadline: at, Attempts: 1, LastError: "no", Delivered: true,
		Follows: true,
	}
	dead := store.Info{
		Message: store.Message{ID: "d"}, State: store.StateDead, Due: at, DeadReason: store.DeadUnreadable, DiedAt: at,
		Raw: []byte{0xff},
	}
	for _, test := range []struct {
		value any
		want  string
	}{
		{NewInfo("q", &full), `{"id":"a","queue":"q","state":"leased","due":"2030-12-31T22:59:59.001Z",` +
			`"payload_text":"<ü>","headers":{"k":"v"},"max_attempts":5,"timeout":"1m0s",` +
			`"group":"g","key":"k","urgency":"high","expire_after":"1s","dedup_window":"1h0m0s","attempts":1,` +
			`"delivered":true,"sent_at":"2030-12-31T22:59:59.001Z",` +
			`"lease_deadline":"2030-12-31T22:59:59.001Z","follows":true,"last_error":"no"}`},
		{NewInfo("q", &dead), `{"id":"d","queue":"q","state":"dead","due":"2030-12-31T22:59:59.001Z",` +
			`"attempts":0,"delivered":false,"dead_reason":"unreadable",` +
			`"died_at":"2030-12-31T22:59:59.001Z","raw_base64":"/w=="}`},
		{message.NewPayload([]byte{0xff}, nil), `{"payload_base64":"/w=="}`},
		{Delivery{ID: "a", Queue: "q", Payload: message.NewPayload(nil, nil), Due: FormatTime(at),
			Lateness: Measured(1234567 * time.Nanosecond), Attempt: 1, MaxAttempts: 25},
			`{"id":"a","queue":"q","payload_text":"","due":"2030-12-31T22:59:59.001Z","lateness":"1.234ms","attempt":1,` +
				`"max_attempts":25}`},
		{NewStats("q", store.Stats{Scheduled: 1, Ready: 2, Leased: 3, Dead: 4, NextDue: at, Paused: true, Now: at}),
			`{"queue":"q","scheduled":1,"ready":2,"leased":3,"dead":4,"next_due":"2030-12-31T22:59:59.001Z",` +
				`"paused":true,"now":"2030-12-31T22:59:59.001Z"}`},
		{Retained{Queue: "q", Retention: NewRetention(store.Stats{Dropped: 7,
			DeadRetention: store.Retention{MaxAge: time.Second, MaxCount: 2}})},
			`{"queue":"q","dead_max_age":"1s","dead_max_count":2,"dead_dropped":7}`},
		{CheckResult(store.CheckResult{Severity: store.SeverityError, Check: "counters", Text: "x", Count: 1}),
			`{"severity":"error","check":"counters","text":"x","count":1,"repaired":false}`},
		{NewFailure(fmt.Errorf("queue %q: %w", "q", store.ErrNotFound)),
			`{"error":{"code":"not_found","message":"queue \"q\": not found"}}`},
		{NewFailure(errors.New("x")), `{"error":{"code":"internal","message":"x"}}`},
		{Changed{Queue: "q", Purged: &n}, `{"queue":"q","purged":3}`},
	} {
		if got := string(jsontext.Append(nil, test.value)); got != test.want {
			t.Errorf("%T\n got  %s\n want %s", test.value, got, test.want)
		}
	}
}

// One convention for all names: snake case, and durations are texts.
func TestWireNames(t *testing.T) {
	name := regexp.MustCompile(`^[a-z]+(_[a-z0-9]+)*$`)
	for _, value := range []any{
		wireMessage{}, Info{}, message.Payload{}, Delivery{}, Sent{}, Rescheduled{}, RescheduledGroup{}, Cancelled{},
		CancelledGroup{},
		Stats{}, Queue{}, Paused{}, Deleted{}, SentSeries{}, SeriesMessage{}, MovedSeries{}, CancelledSeries{}, Run{},
		Retained{}, Retention{}, Flow{}, FlowState{}, Rate{}, Limited{}, DeadErrors{}, Explanation{},
		Changed{}, CheckResult{}, Failure{}, Error{}, Note{},
	} {
		for _, field := range reflect.VisibleFields(reflect.TypeOf(value)) {
			tag, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if field.Anonymous {
				continue
			}
			if !name.MatchString(tag) {
				t.Errorf("%T.%s is called %q", value, field.Name, tag)
			}
			if field.Type.Kind() == reflect.Float64 || strings.HasSuffix(tag, "_ms") {
				t.Errorf("%T.%s is a number with a unit: durations are texts", value, field.Name)
			}
		}
	}
}
