package server

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/laterq/later"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

// takesKey are the operations that honour Idempotency-Key. All others that may change something refuse it.
var takesKey = []string{
	"POST /v1/queues/{queue}/messages", "POST /v1/queues/{queue}/messages/batch",
	"POST /v1/topics/{topic}/messages", "POST /v1/topics/{topic}/messages/batch",
}

func TestEveryRequestHonoursOrRefusesIdempotencyKey(t *testing.T) {
	a := newAPI(t)
	if _, err := a.client.Queue("q").Send(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	got, err := a.client.Queue("q").Receive(t.Context(), 1, later.NoWait())
	if err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	names := strings.NewReplacer("{token}", got[0].Receipt(), "{queue}", "q", "{topic}", "q")
	parameter := regexp.MustCompile(`\{\w+\}`)
	honoured, refused := 0, 0
	operationsOf(a.server.api.OpenAPI(), func(op *huma.Operation) {
		if op.Method == http.MethodGet || op.Extensions["x-mounted"] != nil {
			return
		}
		body := `{"payload": "x"}`
		if strings.HasSuffix(op.Path, "/batch") {
			body = `{"messages": [{"payload": "x"}]}`
		}
		for _, contentType := range []string{jsonType, linesType} {
			path := parameter.ReplaceAllString(names.Replace(op.Path), "none")
			r := a.do(op.Method, path, body, "Content-Type", contentType, "Idempotency-Key", `""`)
			r.fails(http.StatusBadRequest, "invalid", "header.Idempotency-Key")
			want := "leave it out of this one"
			if slices.Contains(takesKey, op.Method+" "+op.Path) &&
				(contentType == jsonType || !strings.HasSuffix(op.Path, "/batch")) { // lines are a payload, or a stream
				want = "is empty"
				honoured++
			} else {
				refused++
			}
			if !strings.Contains(r.body, want) {
				t.Errorf("%s %s, %s: %s, want %q", op.Method, op.Path, contentType, r.body, want)
			}
		}
	})
	if honoured != len(takesKey)+2 || refused < 60 {
		t.Errorf("%d are honoured and %d refused", honoured, refused)
	}
}

// keyed are requests that send with a key: the same message in each form.
func keyed(queue string) map[string]func(a *api, key string) *reply {
	path := "/v1/queues/" + queue + "/messages"
	return map[string]func(a *api, key string) *reply{
		"fast": func(a *api, key string) *reply {
			return a.do(http.MethodPost, path, `{"payload": "x", "in": "1h"}`, "Idempotency-Key", key)
		},
		"described": func(a *api, key string) *reply { // with a field that only huma knows
			return a.do(http.MethodPost, path, `{"payload": "x", "id": "i", "on_duplicate": "keep", "in": "1h"}`,
				"Idempotency-Key", key)
		},
		"raw": func(a *api, key string) *reply {
			return a.do(http.MethodPost, path, "x", "Content-Type", "text/plain", "Later-In", "1h", "Idempotency-Key", key)
		},
	}
}

func TestSendWithIdempotencyKeyCanBeRepeated(t *testing.T) {
	a := newAPI(t)
	for form, send := range keyed("mail") {
		first := send(a, `"`+form+`"`).is(http.StatusCreated)
		queue := a.client.Queue("mail")
		id, _ := first["id"].(string)
		if id == form || first["outcome"] != "sent" {
			t.Errorf("%s: %v", form, first)
		}
		for _, after := range []func() error{
			func() error { return nil },
			func() error { return queue.Reschedule(t.Context(), id, later.In(2*time.Hour)) },
			func() error { _, err := queue.Cancel(t.Context(), id); return err },
		} {
			if err := after(); err != nil {
				t.Fatal(err)
			}
			again := send(a, form).is(http.StatusCreated) // in quotes or without
			if again["id"] != id || again["outcome"] != "duplicate" || again["due"] != first["due"] {
				t.Errorf("%s: %v, then %v", form, first, again)
			}
		}
	}
	a.do(http.MethodPost, mail, `{"payload": "x", "in": "1h"}`, "Idempotency-Key", "mail").is(http.StatusCreated)
	a.do(http.MethodPost, mail, `{"payload": "x", "id": "mail"}`).is(http.StatusCreated) // a key does not take an id
}

func TestIdempotencyKeyOfAnotherRequestIsRefused(t *testing.T) {
	a := newAPI(t)
	const message = `{"payload": "x"}`
	for name, c := range map[string]struct{ first, other func() *reply }{
		"body": {
			func() *reply { return a.do(http.MethodPost, mail, message, "Idempotency-Key", "body") },
			func() *reply { return a.do(http.MethodPost, mail, `{"payload": "y"}`, "Idempotency-Key", "body") },
		},
		"delay": {
			func() *reply { return a.do(http.MethodPost, mail, message, "Idempotency-Key", "delay") },
			func() *reply {
				return a.do(http.MethodPost, mail, `{"payload": "x", "in": "1h"}`, "Idempotency-Key", "delay")
			},
		},
		"header": {
			func() *reply {
				return a.do(http.MethodPost, mail, "x", "Content-Type", "text/plain", "Later-In", "1h", "Idempotency-Key", "h")
			},
			func() *reply {
				return a.do(http.MethodPost, mail, "x", "Content-Type", "text/plain", "Later-In", "2h", "Idempotency-Key", "h")
			},
		},
		"type": {
			func() *reply { return a.do(http.MethodPost, mail, message, "Idempotency-Key", "type") },
			func() *reply {
				return a.do(http.MethodPost, mail, message, "Content-Type", "text/plain", "Idempotency-Key", "type")
			},
		},
		"batch after one": {
			func() *reply { return a.do(http.MethodPost, mail, message, "Idempotency-Key", "batch") },
			func() *reply {
				return a.do(http.MethodPost, mail+"/batch", `{"messages": [{"payload": "x"}, {"payload": "y"}]}`,
					"Idempotency-Key", "batch")
			},
		},
		"longer batch": {
			func() *reply {
				return a.do(http.MethodPost, mail+"/batch", `{"messages": [{"payload": "x"}]}`, "Idempotency-Key", "longer")
			},
			func() *reply {
				return a.do(http.MethodPost, mail+"/batch", `{"messages": [{"payload": "x"}, {"payload": "y"}]}`,
					"Idempotency-Key", "longer")
			},
		},
		"topic": {
			func() *reply {
				return a.do(http.MethodPost, "/v1/topics/t/messages", message, "Idempotency-Key", "topic")
			},
			func() *reply {
				return a.do(http.MethodPost, "/v1/topics/t/messages", `{"payload": "y"}`, "Idempotency-Key", "topic")
			},
		},
	} {
		before := a.sent()
		if r := c.first(); r.status >= 300 {
			t.Errorf("%s: %d %s", name, r.status, r.body)
		}
		sent := a.sent()
		c.other().fails(http.StatusUnprocessableEntity, "conflict", "header.Idempotency-Key", "another request")
		if after := a.sent(); sent == before || after != sent {
			t.Errorf("%s: %d messages, then %d, then %d", name, before, sent, after)
		}
	}
}

// sent returns the number of messages in the queue of these tests and in their topic.
func (a *api) sent() (n int64) {
	a.t.Helper()
	for _, q := range []*later.Queue{a.client.Queue("mail"), a.client.Topic("t").Queue()} {
		stats, err := q.Stats(a.t.Context())
		if err != nil {
			a.t.Fatal(err)
		}
		n += stats.Ready + stats.Scheduled
	}
	return n
}

func TestIdempotencyKeyHasLimits(t *testing.T) {
	a := newAPI(t)
	const field = "header.Idempotency-Key"
	for key, want := range map[string]string{
		"": "is empty", `""`: "is empty", strings.Repeat("k", 256): "256 characters", "k\tk": "printable ASCII",
		"ké": "printable ASCII", `"k`: "begins with a quote",
	} {
		for _, contentType := range []string{jsonType, "text/plain"} {
			a.do(http.MethodPost, mail, `{}`, "Idempotency-Key", key, "Content-Type", contentType).
				fails(http.StatusBadRequest, "invalid", field, want)
		}
		a.do(http.MethodPost, mail+"/batch", `{"messages": [{}]}`, "Idempotency-Key", key).
			fails(http.StatusBadRequest, "invalid", field, want)
	}
	for _, path := range []string{mail, mail + "/batch"} {
		for _, body := range []any{nil, "", "{"} {
			a.do(http.MethodPost, path, body, "Idempotency-Key", "k").is(http.StatusBadRequest)
		}
	}
	a.do(http.MethodPost, mail, `{}`, "Idempotency-Key", "a", "Idempotency-Key", "b").
		fails(http.StatusBadRequest, "invalid", field, "given twice")
	a.do(http.MethodPost, mail, `{}`, "Idempotency-Key", strings.Repeat("k", 255)).is(http.StatusCreated)
}

func TestBatchWithIdempotencyKeyIsSentOnce(t *testing.T) {
	a := newAPI(t)
	var messages []string
	for i := range 600 {
		messages = append(messages, fmt.Sprintf(`{"payload": "%d", "in": "1h"}`, i))
	}
	body := `{"messages": [` + strings.Join(messages, ",") + `]}`
	for _, path := range []string{mail + "/batch", "/v1/topics/t/messages/batch"} {
		before := a.sent()
		first := list(a.do(http.MethodPost, path, body, "Idempotency-Key", "k").is(http.StatusOK), "results")
		again := list(a.do(http.MethodPost, path, body, "Idempotency-Key", "k").is(http.StatusOK), "results")
		if n := a.sent() - before; n != 600 || len(again) != 600 {
			t.Errorf("%d were sent", n)
		}
		for i := range first {
			if first[i]["outcome"] != "sent" || again[i]["outcome"] != "duplicate" || first[i]["id"] != again[i]["id"] ||
				first[i]["due"] != again[i]["due"] {
				t.Fatalf("message %d: %v, then %v", i, first[i], again[i])
			}
		}
	}
	a.do(http.MethodPost, mail+"/batch", `{"messages": [{"payload": "1"}, {"payload": "2", "in": "200000d"}]}`,
		"Idempotency-Key", "l").fails(http.StatusBadRequest, "invalid", "messages[1].in")
}

// The first messages of a batch may be refused because of their ids. Another request with its key sends nothing even
// so.
func TestBatchWhoseFirstMessageIsRefusedHasItsIdempotencyKey(t *testing.T) {
	a := newAPI(t)
	for _, id := range []string{"a", "b"} {
		a.do(http.MethodPost, mail, `{"id": "`+id+`", "payload": "x", "in": "1h"}`).is(http.StatusCreated)
	}
	batch := func(messages string) *reply {
		return a.do(http.MethodPost, mail+"/batch", `{"messages": [`+messages+`]}`, "Idempotency-Key", "k")
	}
	const refused, sent = `{"id": "a"}, {"id": "b"}, `, `{"id": "c", "in": "1h"}, {"payload": "d", "in": "1h"}`
	outcomes := func(want ...string) (ids []any) {
		t.Helper()
		var got []string
		for _, result := range list(batch(refused+sent).is(http.StatusOK), "results") {
			got = append(got, fmt.Sprint(result["outcome"]))
			ids = append(ids, result["id"])
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		return ids
	}
	first := outcomes("duplicate", "duplicate", "sent", "sent")
	for _, id := range []string{"a", "c"} { // which are free then
		if _, err := a.client.Queue("mail").Cancel(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	before := a.sent()
	if again := outcomes("duplicate", "duplicate", "duplicate", "duplicate"); !slices.Equal(again, first) {
		t.Errorf("%v, then %v", first, again)
	}
	for _, other := range []string{
		refused + `{"id": "e"}`, `{"id": "b"}, {"id": "f"}, {"id": "g"}, {"id": "h"}, {"id": "i"}`, sent,
	} {
		batch(other).fails(http.StatusUnprocessableEntity, "conflict", "header.Idempotency-Key")
	}
	a.do(http.MethodPost, mail, `{"id": "j"}`, "Idempotency-Key", "k").
		fails(http.StatusUnprocessableEntity, "conflict", "header.Idempotency-Key")
	if n := a.sent() - before; n != 0 {
		t.Errorf("%d messages of other requests were sent", n)
	}
}

func TestConcurrentRequestsWithAnIdempotencyKeySendOne(t *testing.T) {
	a := newAPI(t)
	var sent, duplicate atomic.Int64
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			switch r := a.do(http.MethodPost, mail, `{"payload": "x"}`, "Idempotency-Key", "k"); {
			case r.status == http.StatusCreated && strings.Contains(r.body, `"sent"`):
				sent.Add(1)
			case r.status == http.StatusCreated && strings.Contains(r.body, `"duplicate"`):
				duplicate.Add(1)
			default:
				t.Errorf("%d %s", r.status, r.body)
			}
		})
	}
	all.Wait()
	if sent.Load() != 1 || duplicate.Load() != 19 {
		t.Errorf("%d sent, %d duplicate", sent.Load(), duplicate.Load())
	}
}

// A key tells nothing about requests of other senders: neither that a request exists nor its payload.
func TestIdempotencyKeyIsOfItsSender(t *testing.T) {
	a := newAPI(t)
	send := func(who string, payload string) map[string]any {
		return a.as(access.Identity{Name: who, Role: access.RoleSend, HidePayloads: true}).
			do(http.MethodPost, mail, `{"payload": "`+payload+`"}`, "Idempotency-Key", "k").is(http.StatusCreated)
	}
	first := send("ann", "secret")
	for who, payload := range map[string]string{"bob": "secret", "eve": "guess"} {
		if got := send(who, payload); got["outcome"] != "sent" || got["id"] == first["id"] {
			t.Errorf("%s: %v", who, got)
		}
	}
	if got := send("ann", "secret"); got["outcome"] != "duplicate" || got["id"] != first["id"] {
		t.Errorf("ann: %v", got)
	}
}

func TestDedupWindowOfASenderDoesNotShortenItsIdempotencyKey(t *testing.T) {
	at := memstore.NewManualClock(time.Now())
	c, err := later.New(memstore.New(memstore.WithClock(at)))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := New(c, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	send := func() string {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, mail,
			strings.NewReader(`{"payload": "x", "id": "i", "dedup_window": "1ms"}`))
		r.Header.Set("Idempotency-Key", "k")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return regexp.MustCompile(`"outcome":"(\w*)"`).FindString(w.Body.String())
	}
	var got []string
	got = append(got, send())
	d, err := c.Queue("mail").Receive(t.Context(), 1, later.NoWait())
	if err != nil || len(d) != 1 || d[0].Ack(t.Context()) != nil {
		t.Fatal(d, err)
	}
	at.Advance(2 * time.Millisecond) // the window is over
	got = append(got, send())
	at.Advance(store.OnceWindow - 3*time.Millisecond)
	got = append(got, send())
	at.Advance(time.Millisecond)
	got = append(got, send())
	const sent, duplicate = `"outcome":"sent"`, `"outcome":"duplicate"`
	if want := []string{sent, duplicate, duplicate, sent}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
