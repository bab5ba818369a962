package server

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/quota"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/server/access"
)

// as returns a request of an identity, with a body of unknown length if it is not a string.
func as(t *testing.T, who, method, path string, body io.Reader, contentType string) *http.Request {
	r := httptest.NewRequestWithContext(access.NewContext(t.Context(), access.Identity{Name: who, Role: access.RoleAdmin}),
		method, path, body)
	r.Header.Set("Content-Type", contentType)
	return r
}

// status makes a request and returns the status of its reply.
func (a *api) status(r *http.Request) (int, string) {
	w := httptest.NewRecorder()
	a.server.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// TestOneSenderCannotTakeAllPlaces has one identity take all places that it can get, of each kind, and another one get
// one, and an address without a name.
func TestOneSenderCannotTakeAllPlaces(t *testing.T) {
	for name, test := range map[string]struct {
		shrink              func(*Server)
		method, path, ctype string
	}{
		"waits":     {func(s *Server) { s.waits = newShare(8, "wait") }, "GET", "/v1/events", ""},
		"streams":   {func(s *Server) { s.streams = newShare(8, "stream") }, "POST", mail + "/batch", linesType},
		"transfers": {func(*Server) {}, "POST", "/v1/import", linesType},
		"bodies":    {func(s *Server) { s.bodies = newShare(8<<10, "bytes") }, "POST", mail, "text/plain"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newBubbleAPI(t, memstore.New())
				test.shrink(a.server)
				var ends []func()
				defer func() {
					for _, end := range ends {
						end()
					}
				}()
				ask := func(who string) (refused int) {
					body, to := io.Pipe()
					ends = append(ends, func() { to.Close() })
					r := as(t, who, test.method, test.path, body, test.ctype)
					if who == "" {
						r = r.WithContext(t.Context())
					}
					status := make(chan int, 1)
					go func() {
						code, _ := a.status(r)
						status <- code
						to.CloseWithError(io.ErrClosedPipe)
					}()
					go to.Write(bytes.Repeat([]byte(" "), 1<<10))
					synctest.Wait()
					select {
					case code := <-status:
						return code
					default:
						return 0
					}
				}
				for i := range 12 {
					if got, want := ask("greedy"), i >= 4; (got == http.StatusTooManyRequests) != want {
						t.Fatalf("request %d: %d", i, got)
					}
				}
				if got := ask("good"); got != 0 {
					t.Errorf("another identity: %d", got)
				}
				if got := ask(""); got != 0 {
					t.Errorf("an address: %d", got)
				}
				a.server.end()
			})
		})
	}
}

func TestBodiesThatTakeMuchMemoryAreRefused(t *testing.T) {
	a := newAPI(t)
	for name, value := range map[string]string{"objects": `{"":0},`, "lists": "[],", "numbers": "0,"} {
		payload := strings.Repeat(value, (7<<20)/len(value))
		body := `{"messages": [{"payload": [` + payload + `0]}]}`
		code, text := a.status(as(t, "x", "POST", mail+"/batch", strings.NewReader(body), jsonType))
		if code != http.StatusRequestEntityTooLarge || !strings.Contains(text, "MiB of memory") {
			t.Errorf("%s: %d %.300s", name, code, text)
		}
	}
	for _, share := range []share{a.server.bodies, a.server.decoded, a.server.replies} {
		if n := share.Taken(); n != 0 {
			t.Errorf("%d %s are still taken", n, share.what)
		}
	}
	large := strings.Repeat("x", 1<<20)
	body := `{"messages": [` + strings.Repeat(`{"payload_text": "`+large+`"},`, 14) + `{"payload": "x"}]}`
	code, text := a.status(as(t, "x", "POST", mail+"/batch", strings.NewReader(body), jsonType))
	if code != http.StatusOK {
		t.Errorf("a large batch: %d %.300s", code, text)
	}
}

// TestUsualBatchesDoNotWaitForHeavyWork has others take all places for work.
func TestUsualBatchesDoNotWaitForHeavyWork(t *testing.T) {
	a := newAPI(t)
	for i := range a.server.cpu.Limit() {
		r := as(t, fmt.Sprint("other ", i), "GET", "/", nil, "")
		if why := a.server.cpu.Take(access.SenderOf(r), 1); why != quota.None {
			t.Fatal(why)
		}
	}
	body := `{"messages": [` + strings.Repeat(`{"payload": {"order": 1, "text": "`+strings.Repeat("x", 400)+`"}},`, 99) +
		`{"payload": 1}]}`
	code, text := a.status(as(t, "x", "POST", mail+"/batch", strings.NewReader(body), jsonType))
	if code != http.StatusOK {
		t.Errorf("%d %.300s", code, text)
	}
}

// TestListsAreBoundedByBytes reads large messages from all lists of messages, page by page.
func TestListsAreBoundedByBytes(t *testing.T) {
	a := newAPI(t)
	topic := a.client.Topic("news")
	if err := topic.Configure(t.Context(), later.TopicConfig{HistoryCount: 1000}); err != nil {
		t.Fatal(err)
	}
	const n = 12
	payload := bytes.Repeat([]byte{1}, 1_000_000) // each byte has six as JSON
	for i := range n {
		for _, queue := range []string{"mail", "topic-history:news"} {
			if _, err := a.client.Queue(queue).Send(t.Context(), payload, later.WithID(fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
		}
	}
	topics := "/v1/topics/news/history"
	if _, err := topic.Queue().Send(t.Context(), nil, later.In(time.Hour)); err != nil {
		t.Fatal(err)
	}
	for path, most := range map[string]int{mail + "?state=ready&limit=500": 1, topics + "?limit=500": 1,
		mail + "?state=ready&limit=500&preview=100": n} {
		seen := map[string]bool{}
		for cursor := ""; ; {
			r := a.do("GET", path+cursor, nil)
			page := r.is(http.StatusOK)
			if len(r.body) > maxPageBytes {
				t.Fatalf("%s: %d bytes", path, len(r.body))
			}
			for _, m := range list(page, "items") {
				seen[m["id"].(string)] = true
			}
			next, more := page["next"].(string)
			if len(list(page, "items")) > most || (page["truncated"] == true) != more {
				t.Errorf("%s: %d messages, truncated: %v", path, len(list(page, "items")), page["truncated"])
			}
			if cursor = "&cursor=" + next; !more {
				break
			}
		}
		if len(seen) != n {
			t.Errorf("%s: %d messages", path, len(seen))
		}
	}
}

// TestFeedsAndOperationsKeepFewBytes has them see messages with long headers, errors and payloads.
func TestFeedsAndOperationsKeepFewBytes(t *testing.T) {
	f := &feed{epoch: "e"}
	for i := range 2 * maxRecent {
		f.add(wire.Event{Kind: later.EventNacked, ID: fmt.Sprint(i), Error: strings.Repeat("\x01", 2000)})
	}
	kept := 0
	for i := range f.recent {
		kept += len(f.recent[i].text)
	}
	events, missed := f.read(0, f.streams.join())
	if kept != f.bytes || kept > maxRecentBytes || kept < maxRecentBytes/2 || events[0].ID != fmt.Sprint(missed) ||
		len(events) > 3 {
		t.Errorf("%d and %d bytes are kept, %d events read after %d missed", kept, f.bytes, len(events), missed)
	}
	a := newAPI(t)
	for range 12 {
		large := bytes.Repeat([]byte("x"), 1<<20)
		if _, err := a.client.Queue("mail").Send(t.Context(), large, later.In(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	op := a.bulk(`{"filter": {"state": "scheduled"}, "action": "run", "dry_run": true}`)
	example := list(op, "examples")[0]
	if payload, _ := example["payload"].(string); len(payload) > maxExample || example["payload_bytes"] != float64(1<<20) {
		t.Errorf("an example has %d bytes, payload_bytes %v", len(payload), example["payload_bytes"])
	}
	a.server.matched = newShare(1000, "matches")
	op = a.bulk(`{"filter": {"state": "scheduled"}, "action": "run"}`)
	if op["state"] != "failed" || a.server.matched.Taken() != 0 {
		t.Errorf("%v, %d are taken", op["state"], a.server.matched.Taken())
	}
}

func TestRepliesThatNobodyTakesAreBounded(t *testing.T) {
	a := newAPI(t)
	a.server.replies = newShare(600_000, "bytes of replies")
	if _, err := a.client.Queue("mail").Send(t.Context(), bytes.Repeat([]byte("x"), 200_000)); err != nil {
		t.Fatal(err)
	}
	path := mail + "?state=ready"
	w := &stalled{ResponseRecorder: httptest.NewRecorder(), writing: make(chan struct{}), release: make(chan error)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		a.server.ServeHTTP(w, as(t, "slow", "GET", path, nil, ""))
	}()
	<-w.writing
	if code, text := a.status(as(t, "slow", "GET", path, nil, "")); code != http.StatusTooManyRequests {
		t.Errorf("%d %.100s", code, text)
	}
	if code, _ := a.status(as(t, "good", "GET", path, nil, "")); code != http.StatusTooManyRequests {
		t.Errorf("the sum is exceeded: %d", code)
	}
	w.release <- nil
	<-ended
	if code, _ := a.status(as(t, "slow", "GET", path, nil, "")); code != http.StatusOK || a.server.replies.Taken() != 0 {
		t.Errorf("%d", code)
	}
}
