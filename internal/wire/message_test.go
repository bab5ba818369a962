package wire

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/laterq/later/internal/wire/wiretest"
	"github.com/laterq/later/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// roundTrip encodes a message and decodes it, which must not change it.
func roundTrip(t interface {
	Helper()
	Fatalf(string, ...any)
}, queue string, info *store.Info,
) []byte {
	t.Helper()
	line := AppendMessage([]byte("before"), queue, info)
	line, ok := bytes.CutPrefix(line, []byte("before"))
	if !ok || bytes.ContainsAny(line, "\n\r") || len(line) > MaxMessage {
		t.Fatalf("encoded to %d bytes: %.200q", len(line), line)
	}
	gotQueue, got, err := DecodeMessage(line)
	if err != nil {
		t.Fatalf("%v: %.200s", err, line)
	}
	if gotQueue != queue || !got.Same(info) || got.State != info.State || (got.Raw == nil) != (info.Raw == nil) {
		t.Fatalf("message\n  %+v\nbecame\n  %+v\nby %s", info, got, line)
	}
	return line
}

func TestEveryMessageIsDecodedAsItWasEncoded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		info := wiretest.Info("id").Draw(t, "info")
		if err := info.Check(); err != nil {
			t.Fatalf("the message that was drawn is refused: %v", err)
		}
		roundTrip(t, rapid.SampledFrom([]string{"q", "größe 🙂", `a"b\c`, "<&>"}).Draw(t, "queue"), &info)
	})
}

func TestLongestMessagesFit(t *testing.T) {
	long := store.Info{
		Message: store.Message{
			ID: strings.Repeat(`"`, store.MaxID), Payload: make([]byte, store.MaxPayload),
			Headers: map[string]string{"k": strings.Repeat("\x01", store.MaxHeaderBytes-1)},
		},
		State: store.StateDead, Due: time.UnixMilli(1), DeadReason: store.DeadFailed, DiedAt: time.UnixMilli(1),
		LastError: strings.Repeat("\x02", store.MaxReason), Attempts: store.MaxAttempts,
		Failures: slices.Repeat([]store.Failure{{
			Time: time.UnixMilli(1), Attempt: 1, Duration: store.MaxDelay,
			Worker: strings.Repeat(`"`, store.MaxWorkerName),
			Error:  strings.Repeat(`"`, store.MaxFailureText),
		}}, store.MaxFailures),
	}
	line := roundTrip(t, strings.Repeat("q", store.MaxQueueName), &long)
	if len(line) < 6*store.MaxPayload {
		t.Errorf("the longest message has %d bytes only", len(line))
	}
	raw := store.Info{Message: store.Message{ID: "raw"}, State: store.StateReady, Due: time.UnixMilli(1),
		Raw: make([]byte, store.MaxBatchBytes)}
	roundTrip(t, "q", &raw)
	if _, _, err := DecodeMessage(make([]byte, MaxMessage+1)); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("a longer line is %v", err)
	}
}

func TestJSONOfAMessage(t *testing.T) {
	at := time.Date(2030, 12, 31, 23, 59, 59, 1_000_001, time.FixedZone("", 3600))
	for _, test := range []struct {
		info store.Info
		want string
	}{
		{store.Info{Message: store.Message{ID: "a"}, State: store.StateReady, Due: at},
			`{"queue":"q","id":"a","state":"ready","due":"2030-12-31T22:59:59.002Z"}`},
		{store.Info{Message: store.Message{ID: "a", Payload: []byte("<🙂\x00>")}, State: store.StateLeased, Due: at,
			LeaseDeadline: at},
			`{"queue":"q","id":"a","state":"leased","due":"2030-12-31T22:59:59.002Z","payload_text":"<🙂\u0000>"}`},
		{store.Info{
			Message: store.Message{
				ID: "a", Payload: []byte{0xff}, Headers: map[string]string{"k": "v"}, MaxAttempts: 3,
				Timeout:     time.Microsecond,
				ExpireAfter: time.Second, DedupWindow: time.Minute, Group: "g", Key: "k",
				Urgency: store.UrgencyLow, SentAt: at,
			},
			State: store.StateDead, Due: at, Attempts: 2, Delivered: true, LastError: "no",
			Failures: []store.Failure{
				{Time: at, Attempt: 2, Duration: time.Microsecond, Worker: "host:1", Error: "no"},
				{Time: at, Attempt: 1},
			},
			DeadReason: store.DeadBuried, DiedAt: at,
		}, `{"queue":"q","id":"a","state":"dead","due":"2030-12-31T22:59:59.002Z","payload_base64":"/w==",` +
			`"headers":{"k":"v"},` +
			`"max_attempts":3,"timeout":"1ms","group":"g","key":"k","urgency":"low","expire_after":"1s","dedup_window":"1m0s",` +
			`"sent_at":"2030-12-31T22:59:59.002Z",` +
			`"attempts":2,"delivered":true,"last_error":"no","failures":[` +
			`{"time":"2030-12-31T22:59:59.002Z","attempt":2,"duration":"1ms","worker":"host:1","error":"no"},` +
			`{"time":"2030-12-31T22:59:59.002Z","attempt":1}],"dead_reason":"buried","died_at":"2030-12-31T22:59:59.002Z"}`},
		{store.Info{Message: store.Message{ID: "a"}, State: store.StateReady, Due: at, Raw: []byte{}},
			`{"queue":"q","id":"a","state":"ready","due":"2030-12-31T22:59:59.002Z","raw_base64":""}`},
	} {
		if got := string(AppendMessage(nil, "q", &test.info)); got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
}

func TestDecodedMessageIsWhatAStoreAccepts(t *testing.T) {
	const most = `"queue":"q","id":"a","state":"ready"`
	const all = most + `,"due":"2030-12-31T23:59:59Z"`
	for _, test := range []struct{ line, want string }{
		{``, "not one JSON object"},
		{`queue,id,state`, "not one JSON object"},
		{`{` + all, "not one JSON object"},
		{`{` + all + `}x`, "not one JSON object"},
		{`{` + all + `}{}`, "not one JSON object"},
		{`[]`, "not a JSON object but a list"},
		{`null`, "not a JSON object"},
		{`"a"`, "not a JSON object"},
		{"{\"queue\":\"\xff\"}", "not UTF-8"},
		{`{` + most + `}`, `field "due" is missing`},
		{`{"id":"a","state":"ready","due":"2030-12-31T23:59:59Z"}`, `field "queue" is missing`},
		{`{` + all + `,"Payload":"x"}`, `field "Payload" is unknown: did you mean payload?`},
		{`{` + all + `,"id":"b"}`, `field "id" is given twice`},
		{`{` + all + `,"payload_text":null}`, `field "payload_text" is null: must be a text, in quotes`},
		{`{` + all + `,"payload_text":{"a":1}}`, `field "payload_text" is an object: must be a text, in quotes`},
		{`{` + all + `,"payload":` + strings.Repeat("[", 61) + strings.Repeat("]", 61) + `}`, "more than 60 deep"},
		{`{` + all + `,"payload":1,"headers":{"content-type":"text/plain"}}`,
			"payload is JSON, and the header content-type"},
		{`{` + all + `,"payload":"\ud800"}`, "half of a surrogate pair"},
		{`{` + all + `,"payload":"\udc00\ud800"}`, "half of a surrogate pair"},
		{`{` + all + `,"payload":"\ud83dx"}`, "half of a surrogate pair"},
		{`{` + all + `,"payload":"x","payload_base64":"eA=="}`, "give one of payload, payload_text"},
		{`{` + all + `,"payload_text":"x","payload_base64":""}`, "give one of payload, payload_text"},
		{`{` + all + `,"payload":null,"payload_text":""}`, "give one of payload, payload_text"},
		{`{` + all + `,"payload_base64":"eA"}`, `field "payload_base64" is not in base64`},
		{`{` + all + `,"raw_base64":"eA==","payload":"x"}`, `field "payload" is given beside "raw_base64"`},
		{`{` + all + `,"attempts":"1"}`, `field "attempts" is a text: must be a whole number`},
		{`{` + all + `,"attempts":1.5}`, `field "attempts" is 1.5: must be a whole number`},
		{`{` + all + `,"attempts":-1}`, `field "attempts" is -1`},
		{`{` + all + `,"attempts":65536}`, "attempts is 65536: must be 0 to 65535"},
		{`{` + all + `,"max_attempts":99999999999999999999}`, `field "max_attempts" is 99999999999999999999`},
		{`{` + all + `,"timeout":1}`, `field "timeout" is a number: must be a duration such as`},
		{`{` + all + `,"timeout":"36501d"}`, `field "timeout": give a duration such as 500ms, 30s, 1h30m or ` +
			`2d12h: the units are ms, s, m, h and d, and the limit is 36500d`},
		{`{` + all + `,"timeout":"86400001ms"}`, "timeout is 24h0m0.001s: must be 0 (none) to 24h0m0s"},
		{`{` + all + `,"delivered":"yes"}`, `field "delivered" is of type string: must be true or false`},
		{`{` + all + `,"expire_at":"tomorrow"}`, `field "expire_at" is "tomorrow": must be a time such as`},
		{`{` + all + `,"expire_at":""}`, `field "expire_at" is ""`},
		{`{` + all + `,"expire_at":"0001-01-01T00:00:00Z"}`, "must be a time after 1970"},
		{`{` + all + `,"expire_at":"2200-01-01T00:00:00Z"}`, "give a time from 1970 to 2199"},
		{`{` + all + `,"expire_at":"2100-01-01T00:00:00Z","expire_after":"1ms"}`, "expiry is given twice"},
		{`{` + all + `,"headers":["a"]}`, `field "headers" is a list: must be an object of texts`},
		{`{` + all + `,"headers":{"a":1}}`, `field "headers" has a number under "a": must be an object of texts`},
		{`{` + all + `,"headers":{"a":"1","a":"2"}}`, `field "headers" has "a" twice`},
		{`{` + all + `,"headers":{"":"1"}}`, "header name is empty"},
		{`{` + all + `,"dead_reason":"failed"}`, "given for a message that is ready: leave them out"},
		{`{` + strings.Replace(all, "ready", "dead", 1) + `}`, "dead reason is"},
		{`{` + strings.Replace(all, "ready", "gone", 1) + `}`, `state is "gone"`},
		{`{` + strings.Replace(all, `"q"`, `"{q}"`, 1) + `}`, "holds a brace"},
		{`{` + strings.Replace(all, `"a"`, `""`, 1) + `}`, "id is empty"},
	} {
		_, _, err := DecodeMessage([]byte(test.line))
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s\n  got  %v\n  want %s", test.line, err, test.want)
		}
	}
	big := `{` + all + `,"payload_text":"` + strings.Repeat("x", store.MaxPayload+1) + `"}`
	if _, _, err := DecodeMessage([]byte(big)); !errors.Is(err, store.ErrTooLarge) ||
		!strings.Contains(err.Error(), "1048576") {
		t.Errorf("a payload over its limit is %v", err)
	}
	if _, info, err := DecodeMessage([]byte(" { " + all + ` , "payload_text":"\ud83d\ude42\\ud800\ufffd"}` +
		"\r")); err != nil || string(info.Payload) != `🙂\ud800`+"\ufffd" {
		t.Errorf("got %q, %v", info.Payload, err)
	}
}

func FuzzDecodeMessage(f *testing.F) {
	f.Add([]byte(
		`{"queue":"q","id":"a","state":"dead","due":"2030-12-31T22:59:59.002Z","payload_base64":"/w==","headers":{"k":"v"},` +
			`"max_attempts":3,"timeout":"1ms","expire_after":"1s","dedup_window":"1m0s",` +
			`"sent_at":"2030-12-31T22:59:59.002Z",` +
			`"attempts":2,"delivered":true,"last_error":"no","dead_reason":"buried","died_at":"2030-12-31T22:59:59.002Z"}`))
	f.Add([]byte(`{"queue":"q","id":"a","state":"ready","due":"2030-12-31T22:59:59.002Z","raw_base64":""}`))
	f.Add([]byte(`{"queue":"q","id":"a","state":"leased","due":"1970-01-01T00:00:00.001Z",` +
		`"payload_text":"\ud83d\ude42\u0000",` +
		`"expire_at":"2199-12-31T23:59:59Z"}`))
	f.Add([]byte(`{"queue":"q","id":"a","state":"ready","due":"1970-01-01T00:00:00.001Z","payload":[1e999, "<"],` +
		`"headers":{"content-type":"application/x+json"}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		queue, info, err := DecodeMessage(line)
		if err != nil {
			if !errors.Is(err, store.ErrInvalid) && !errors.Is(err, store.ErrTooLarge) {
				t.Fatalf("error is %v", err)
			}
			return
		}
		if err := info.Check(); err != nil {
			t.Fatalf("accepted a message that is refused: %v", err)
		}
		roundTrip(t, queue, &info)
	})
}
