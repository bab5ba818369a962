package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"github.com/laterq/later"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// FuzzOutgoing checks that each body is refused as invalid or too large, or fits its description, and that
// encoding/json decodes it to the same message.
func FuzzOutgoing(f *testing.F) {
	for _, body := range []string{
		`{"payload": "hello", "in": "30m"}`, `{"payload": {"a": [1, "é"]}, "id": "a", "headers": {"k": "v"}}`,
		`{"payload": [1e999, -0]}`, `{"max_attempts": 1e999}`, `{"Payload": "x"}`,
		`{"payload": null, "at": "2100-01-01T00:00:00Z", "max_attempts": 3, "group": "g"}`,
		`{"payload": "x", "payload": "y"}`, `{"max_attempts": 1e1}`, `{"max_attempts": 0}`, `{"timeout": "", "id": "\u0061"}`,
		`{"headers": {"a": "b", "a": "c"}}`, `{"dedup_window": "1h", "timeout": "1s"}`, `[]`, `{`, "{\"id\": \"\xff\"}",
		`{"payload": "\ud800"}`, `{"payload_text": "a\n"}`, `{"payload_text": 1}`, `{"payload_base64": "eA=="}`,
		`{"in": 5}`, `{"i\u006e": "1h"}`, `{"payload": 1, "PAYLOAD": 2}`,
		`{"durable": {"replicas": 1, "timeout": "2s"}, "on_duplicate": "debounce", "wait": "1s", "max_wait": "2s"}`,
	} {
		f.Add([]byte(body))
	}
	registry := newRegistry()
	schema := registry.Schema(typeOf[Outgoing](), true, "")
	f.Fuzz(func(t *testing.T, body []byte) {
		var got, want Outgoing
		if err := decodeBody(body, false, &got); err != nil {
			if code := store.CodeOf(err); code != store.ErrInvalid.Code && code != store.ErrTooLarge.Code {
				t.Fatalf("%q: %v", body, err)
			}
			return
		}
		var value any
		if err := json.Unmarshal(body, &value); err != nil { // a payload has a number beyond the range of a float64
			return
		}
		if fields, ok := value.(map[string]any); ok && fields["payload_base64"] == "" {
			delete(fields, "payload_base64") // base64 of no bytes, which huma does not take for base64
		}
		var result huma.ValidateResult
		huma.Validate(registry, schema, huma.NewPathBuffer(nil, 0), huma.ModeWriteToServer, value, &result)
		if err := json.Unmarshal(body, &want); err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		if o, err := got.outgoing(); len(result.Errors) > 0 && err == nil && o.Check() == nil {
			t.Fatalf("%q is taken, and does not fit its description: %v", body, result.Errors)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%q: %+v, want %+v", body, got, want)
		}
	})
}

func TestSentIsAppendedAsItIsEncoded(t *testing.T) {
	for _, sent := range []Sent{
		{ID: "a", Queue: "mail", Due: "2100-01-01T00:00:00.000Z", Outcome: later.SendSent},
		{ID: "\"\\\n\x00\x7fé\u2028😀\xff", Queue: "topic:x", Outcome: later.SendDuplicate},
	} {
		var want bytes.Buffer
		if err := encodeJSON(&want, sent); err != nil {
			t.Fatal(err)
		}
		var got, decoded Sent
		text := sent.appendJSON(nil)
		if err := errors.Join(json.Unmarshal(text, &got), json.Unmarshal(want.Bytes(), &decoded)); err != nil ||
			got != decoded {
			t.Errorf("%q, %v; want %q", text, err, want.Bytes())
		}
	}
}

func TestSendFastAnswersSendsAsJSONOnly(t *testing.T) {
	a := newAPI(t)
	for _, c := range []struct {
		method, path, body, contentType string
		fast                            bool
	}{
		{"POST", mail, `{"payload": "x"}`, "", true},
		{"POST", mail, `{"payload": "x"}`, "application/json; charset=utf-8", true},
		{"POST", "/v1/topics/news/messages", `{"payload": "x"}`, jsonType, true},
		{"GET", mail, "", "", false},
		{"POST", mail + "?in=1h", `{"payload": "x"}`, jsonType, false},
		{"POST", mail, `{"payload_text": "x"}`, jsonType, true},
		{"POST", mail, `{"payload_base64": "eA=="}`, jsonType, true},
		{"POST", mail, "x", "text/plain", false},
		{"POST", mail + "/", `{"payload": "x"}`, jsonType, false},
		{"POST", "/v1/queues/a%2Fb/messages", `{"payload": "x"}`, jsonType, false},
		{"POST", "/v1/queues/mail%2Fmessages", `{"payload": "x"}`, jsonType, false},
		{"POST", "/v1%2Fqueues/mail/messages", `{"payload": "x"}`, jsonType, false},
		{"POST", "/v1/queues/../messages", `{"payload": "x"}`, jsonType, false},
	} {
		r := httptest.NewRequest(c.method, c.path, strings.NewReader(c.body))
		r.Header.Set("Content-Type", c.contentType)
		if got := a.server.sendFast(httptest.NewRecorder(), r); got != c.fast {
			t.Errorf("%s %s %s, %s: answered %v", c.method, c.path, c.body, c.contentType, got)
		}
		if body, _ := io.ReadAll(r.Body); !c.fast && string(body) != c.body {
			t.Errorf("%s %s: its route gets the body %q; want %q", c.method, c.path, body, c.body)
		}
	}
	a.do(http.MethodPost, mail+"?in=1h", `{"payload": "x"}`).fails(http.StatusBadRequest, "invalid", "query.in", "")
}

// keeper is a store that returns an error for each send and keeps the payload, because a failed send may still go on.
type keeper struct {
	store.Store
	kept []byte
}

func (k *keeper) Send(_ context.Context, _ string, msgs []store.Outgoing) ([]store.SendResult, error) {
	k.kept = msgs[0].Payload
	return nil, store.ErrUnavailable
}

func TestBodyOfAFailedSendIsNotUsedAgain(t *testing.T) {
	k := &keeper{Store: memstore.New()}
	c, err := later.New(k)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := New(c, Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	send := func(payload string) {
		r := httptest.NewRequest("POST", mail, strings.NewReader(`{"payload": `+payload+`}`))
		if s.ServeHTTP(httptest.NewRecorder(), r); string(k.kept) != payload {
			t.Fatalf("sent %q, want %q", k.kept, payload)
		}
	}
	send("1111")
	first := k.kept
	for range 100 {
		send("2222")
	}
	if string(first) != "1111" {
		t.Errorf("the payload of a failed send became %q", first)
	}
}
