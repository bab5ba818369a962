package server

import (
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"
)

const mail = "/v1/queues/mail/messages"

func TestSendAnswersWithIDAndDueTime(t *testing.T) {
	a := newAPI(t)
	before := time.Now()
	sent := a.do(http.MethodPost, mail, `{"payload": "hello", "in": "30m", "id": "a"}`).is(http.StatusCreated)
	due, err := time.Parse(time.RFC3339, sent["due"].(string))
	if err != nil || sent["id"] != "a" || sent["outcome"] != "sent" {
		t.Fatalf("%v, %v", sent, err)
	}
	if d := due.Sub(before); d < 30*time.Minute || d > 31*time.Minute {
		t.Errorf("due in %v", d)
	}
	info, err := a.client.Queue("mail").Get(t.Context(), "a")
	if err != nil || string(info.Payload) != `"hello"` || info.Headers["content-type"] != jsonType {
		t.Fatalf("%+v, %v", info, err)
	}
}

func TestSendTakesEveryOption(t *testing.T) {
	a := newAPI(t)
	a.do(http.MethodPost, mail, `{"payload_base64": "/wA=", "id": "a", "at": "2100-01-01T00:00:00.5Z",
		"headers": {"kind": "x"}, "max_attempts": 3, "timeout": "10s", "expire_after": "1d", "dedup_window": "2h",
		"group": "g", "key": "k"}`).is(http.StatusCreated)
	want := `{"id":"a","queue":"mail","state":"scheduled","due":"2100-01-01T00:00:00.500Z",` +
		`"payload_base64":"/wA=","headers":{"kind":"x"},"max_attempts":3,"timeout":"10s",` +
		`"group":"g","key":"k","expire_after":"24h0m0s","dedup_window":"2h0m0s","attempts":0,"delivered":false`
	if got := a.do(http.MethodGet, mail+"/a", nil).body; !strings.HasPrefix(got, want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	a.do(http.MethodPost, mail, `{"payload": "b", "id": "a"}`).fails(http.StatusConflict, "duplicate", "")
	replaced := a.do(http.MethodPost, mail, `{"payload": {"n": 1}, "id": "a", "on_duplicate": "replace"}`).
		is(http.StatusCreated)
	if replaced["outcome"] != "replaced" {
		t.Errorf("%v", replaced)
	}
	got := a.do(http.MethodGet, mail+"/a", nil).is(http.StatusOK)
	if !reflect.DeepEqual(got["payload"], map[string]any{"n": 1.0}) {
		t.Errorf("%v", got)
	}
}

func TestSendTakesARawBody(t *testing.T) {
	a := newAPI(t)
	sent := a.do(http.MethodPost, mail, "hello \xff", "Content-Type", "text/plain", "Later-In", "1h", "Later-Id", "raw",
		"Later-Header-Kind", "greeting").is(http.StatusCreated)
	if sent["id"] != "raw" {
		t.Errorf("%v", sent)
	}
	info, err := a.client.Queue("mail").Get(t.Context(), "raw")
	if err != nil || string(info.Payload) != "hello \xff" || info.Headers["kind"] != "greeting" ||
		info.Headers["content-type"] != "text/plain" ||
		info.State != "scheduled" {
		t.Errorf("%+v, %v", info, err)
	}
	a.do(http.MethodPost, mail, "x", "Content-Type", "text/plain", "Later-Inn", "1h").
		fails(http.StatusBadRequest, "invalid", "header.Later-Inn", "unknown")
	a.do(http.MethodPost, mail, `{"payload": "x"}`, "Later-In", "1h").
		fails(http.StatusBadRequest, "invalid", "header.Later-In", "put the field into the JSON")
	a.do(http.MethodPost, mail, `{"payload": "x", "in": "1h"}`, "Content-Type", "application/x-www-form-urlencoded").
		fails(http.StatusBadRequest, "invalid", "header.Content-Type", "curl -H")
	a.do(http.MethodPost, mail, strings.Repeat("x", 1<<20+1), "Content-Type", "text/plain").
		fails(http.StatusRequestEntityTooLarge, "too_large", "body")
}

func TestSendBatchChecksAllBeforeTheFirst(t *testing.T) {
	a := newAPI(t)
	a.do(http.MethodPost, mail+"/batch", `{"messages": [{"payload": "1"}, {"payload": "2", "in": "soon"}]}`).
		fails(http.StatusBadRequest, "invalid", "messages[1].in", "in: give a duration")
	const body = `{"messages": [{"payload": "1", "id": "a"}, {"payload": "2", "id": "a"}]}`
	got := a.do(http.MethodPost, mail+"/batch", body).is(http.StatusOK)
	if results := list(got, "results"); results[0]["outcome"] != "sent" || results[1]["outcome"] != "duplicate" {
		t.Errorf("%v", results)
	}
}

func TestSendStreamAnswersEachLine(t *testing.T) {
	a := newAPI(t)
	const body = `{"payload": "1", "id": "a"}

{"payload": 2, "x": 1}
nonsense
{"payload": "3"}`
	got := a.do(http.MethodPost, mail+"/batch", body,
		"Content-Type", "application/x-ndjson")
	lines := strings.Split(strings.TrimSpace(got.body), "\n")
	if got.status != http.StatusOK || len(lines) != 4 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	for i, want := range []string{`"id":"a"`, `"field":"x"`, `not one JSON object`, `"outcome":"sent"`} {
		if !strings.Contains(lines[i], want) {
			t.Errorf("line %d: %s lacks %s", i, lines[i], want)
		}
	}
}
