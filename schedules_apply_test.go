package later

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/recurrence"
	"github.com/laterq/later/store"
)

// fullSchedule has a value for each field.
func fullSchedule() Schedule {
	return Schedule{
		Name: "full", Queue: "q", Payload: []byte(`{"a": 1}`), Headers: map[string]string{"kind": "x"}, MaxAttempts: 3,
		Timeout: time.Second, ExpireAfter: time.Minute, Group: "g", Key: "k", Urgency: UrgencyHigh,
		DedupWindow: 48 * time.Hour, Missed: MissedAll, MissedWithin: 90 * time.Minute, MissedMax: 7,
		Unfinished: UnfinishedAllow, Set: "set",
		When: recurrence.Spec{
			RRule: "FREQ=DAILY", TimeZone: "Europe/Berlin", Start: time.Date(2030, 1, 1, 9, 0, 0, 0, time.UTC),
			End: time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC), Exclude: []string{"2030-12-25"}, Jitter: time.Minute,
			MaxRuns: 9, Gap: recurrence.GapSkip, Overlap: recurrence.OverlapBoth,
		},
	}
}

func TestScheduleSurvivesJSON(t *testing.T) {
	binary := everyMinute("binary")
	binary.Payload = []byte{0xff, 0}
	series := everyMinute("series")
	series.When = recurrence.Spec{Series: &recurrence.Series{First: time.Hour, Factor: 2, Count: 3}}
	times := everyMinute("times")
	times.When = recurrence.Spec{Times: []time.Time{time.Date(2030, 1, 1, 9, 0, 0, 0, time.UTC)}}
	for _, s := range []Schedule{fullSchedule(), binary, series, times, everyMinute("plain")} {
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var got Schedule
		if err := json.Unmarshal(text, &got); err != nil || !reflect.DeepEqual(got, s) {
			t.Errorf("%s became %+v, %v; want %+v", text, got, err, s)
		}
	}
	full := reflect.ValueOf(fullSchedule())
	for i := range full.NumField() {
		if full.Field(i).IsZero() {
			t.Errorf("the test has no value for field %s", full.Type().Field(i).Name)
		}
	}
}

func TestScheduleJSONThatIsNotAllowed(t *testing.T) {
	for text, want := range map[string]string{
		`[]`:                                      "not a JSON object",
		`{"name":"a","crom":"* * * * *"}`:         `schedule "a": field "crom" is unknown: did you mean cron?`,
		`{"name":"a","timeout":"5 min"}`:          `schedule "a": field "timeout": give a duration such as`,
		`{"name":"a","every":5}`:                  `schedule "a": field "every"`,
		`{"name":7}`:                              `schedule: field "name"`,
		`{"payload":"a","payload_base64":"YQ=="}`: "give one of payload, payload_text",
	} {
		var s Schedule
		err := json.Unmarshal([]byte(text), &s)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestPayloadInScheduleJSON(t *testing.T) {
	for text, want := range map[string]string{
		`{"payload": {"a": [1, "<b>"]}}`: `{"a":[1,"<b>"]}`, `{"payload": "a"}`: `"a"`, `{"payload_text": "[ 1]"}`: "[ 1]",
		`{"payload_base64": "/w=="}`: "\xff", `{}`: "",
	} {
		var s, again Schedule
		err := json.Unmarshal([]byte(text), &s)
		if isJSON := strings.HasPrefix(text, `{"payload"`); err != nil || string(s.Payload) != want ||
			isJSON != (s.Headers["content-type"] == "application/json") {
			t.Errorf("%s: payload is %q, %v, %v", text, s.Payload, s.Headers, err)
		}
		shown, err := json.Marshal(s)
		if err == nil {
			err = json.Unmarshal(shown, &again)
		}
		if err != nil || string(again.Payload) != strings.NewReplacer("<", `\u003c`, ">", `\u003e`).Replace(want) {
			t.Errorf("%s became %q, by %s, %v", text, again.Payload, shown, err)
		}
	}
}

// putsClose closes the client during the first change of a schedule.
type putsClose struct {
	store.Store
	client *Client
	closed chan error
}

func (s *putsClose) Send(ctx context.Context, queue string, msgs []store.Outgoing) ([]store.SendResult, error) {
	if s.closed == nil {
		s.closed = make(chan error, 1)
		go func() { s.closed <- s.client.Close() }()
		<-s.client.ending.Done()
	}
	return s.Store.Send(ctx, queue, msgs)
}

// Close waits for the call that Apply makes, and not for the ones that would follow.
func TestCloseEndsApply(t *testing.T) {
	s := &putsClose{Store: memstore.New()}
	var err error
	if s.client, err = New(s); err != nil {
		t.Fatal(err)
	}
	schedules := []Schedule{everyMinute("a"), everyMinute("b"), everyMinute("c")}
	changes, err := s.client.Schedules().Apply(t.Context(), schedules, ApplyOptions{})
	if !errors.Is(err, ErrClosed) || len(changes) != 1 || changes[0].Result != PutCreated {
		t.Errorf("Apply = %v, %v, want one change and ErrClosed", changes, err)
	}
	if err := <-s.closed; err != nil {
		t.Error(err)
	}
}

func TestSchedulesOutsideTheLimitsAreRefused(t *testing.T) {
	c := newClientOn(t, memstore.New())
	for name, change := range map[string]func(s *Schedule){
		"Timeout":     func(s *Schedule) { s.Timeout = -time.Second },
		"ExpireAfter": func(s *Schedule) { s.ExpireAfter = -time.Second },
		"DedupWindow": func(s *Schedule) { s.DedupWindow = store.MaxDelay + time.Hour },
		"MaxAttempts": func(s *Schedule) { s.MaxAttempts = -1 },
	} {
		s := everyMinute("a")
		change(&s)
		if result, err := c.Schedules().Put(t.Context(), s); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: Put = %v, %v", name, result, err)
		}
	}
}

func TestSchedulesApply(t *testing.T) {
	c := newClientOn(t, memstore.New())
	apply := func(o ApplyOptions, schedules ...Schedule) string {
		t.Helper()
		changes, err := c.Schedules().Apply(t.Context(), schedules, o)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		for _, change := range changes {
			fmt.Fprintf(&b, "%s %s", change.Result, change.Name)
			if change.Result == PutChanged {
				fmt.Fprintf(&b, " %v", change.Fields)
			}
			b.WriteString("; ")
		}
		return b.String()
	}
	want := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("applied %q, want %q", got, want)
		}
	}
	put(t, c, everyMinute("others"), PutCreated)
	a, b := everyMinute("a"), everyMinute("b")
	set := ApplyOptions{Set: "x", Prune: true}
	dry := ApplyOptions{Set: "x", Prune: true, DryRun: true}
	want(apply(dry, b, a), "created a; created b; ")
	if _, err := c.Schedules().Get(t.Context(), "a"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a dry run stored a schedule: %v", err)
	}
	want(apply(set, b, a), "created a; created b; ")
	want(apply(set, b, a), "unchanged a; unchanged b; ")
	a.When.Cron, a.Headers = "0 9 * * *", map[string]string{"kind": "x"}
	changed := `changed a [{cron "* * * * *" "0 9 * * *"} {headers  {"kind":"x"}}]; deleted b; `
	want(apply(dry, a), changed)
	want(apply(set, a), changed)
	if _, err := c.Schedules().Get(t.Context(), "b"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a pruned schedule is there: %v", err)
	}
	getSchedule(t, c, "others")
	want(apply(ApplyOptions{Set: "y"}, everyMinute("others")), `changed others [{set  "y"}]; `)

	for text, err := range map[string]error{
		"without a set": second(c.Schedules().Apply(t.Context(), nil, ApplyOptions{Prune: true})),
		"given twice":   second(c.Schedules().Apply(t.Context(), []Schedule{a, a}, ApplyOptions{})),
		`schedule 2: schedule name is empty`: second(c.Schedules().Apply(t.Context(),
			[]Schedule{everyMinute("new"), {}}, ApplyOptions{})),
		`in set "x" already`: second(c.Schedules().Apply(t.Context(), []Schedule{a}, ApplyOptions{Set: "z"})),
		`is in set "full"`: second(c.Schedules().Apply(t.Context(), []Schedule{func() Schedule {
			s := everyMinute("new")
			s.Set = "full"
			return s
		}()}, ApplyOptions{Set: "z"})),
	} {
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
	var names []string
	for info, err := range c.Schedules().All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, info.Name)
	}
	if !slices.Equal(names, []string{"a", "others"}) {
		t.Errorf("the schedules are %q", names)
	}
}
