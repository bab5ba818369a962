package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

// foundLine is a line of the reply of find.
type foundLine struct {
	Stage    string
	Message  struct{ ID, Queue string }
	Name     *wire.FoundName
	Progress *wire.FindProgress
	Problem  *struct{ Code, Detail string }
}

// find returns what a search of all queues finds, as text, and its last line.
func (a *api) find(query string) (all string, last foundLine) {
	a.t.Helper()
	var found []string
	got := a.do(http.MethodGet, "/v1/find?"+query, nil)
	if got.status != http.StatusOK {
		a.t.Fatalf("%s: %d %s", query, got.status, got.body)
	}
	for text := range strings.Lines(got.body) {
		last = foundLine{}
		if err := json.Unmarshal([]byte(text), &last); err != nil {
			a.t.Fatalf("%s: %v in %s", query, err, text)
		}
		switch {
		case last.Message.ID != "":
			found = append(found, last.Stage+" "+last.Message.Queue+"/"+last.Message.ID)
		case last.Name != nil:
			found = append(found, last.Name.Kind+" "+last.Name.Name)
		}
	}
	return strings.Join(found, ", "), last
}

// order42 sends messages about an order to two queues.
func (a *api) order42() {
	a.do(http.MethodPost, "/v1/queues/orders/messages", `{"id": "cancel-order-42", "in": "1h", "payload": {"total": 12}}`).
		is(http.StatusCreated)
	a.do(http.MethodPost, mail, `{"id": "reminder", "in": "1h", "group": "order-42", "payload": "hello"}`).
		is(http.StatusCreated)
	a.do(http.MethodPost, mail, `{"id": "bill", "in": "30m", "payload": "for order 42", "headers": {"kind": "bill"}}`).
		is(http.StatusCreated)
}

func TestFindFindsOrder42(t *testing.T) {
	a := newAPI(t)
	a.order42()
	for query, want := range map[string]string{
		"q=order+42":              "group order-42, content mail/bill, content mail/reminder, content orders/cancel-order-42",
		"q=cancel-order-42":       "id orders/cancel-order-42",
		"q=order+42&queue=orders": "content orders/cancel-order-42",
		"q=order+42&limit=1":      "group order-42, content mail/bill",
		"q=total%3E%3D12":         "content orders/cancel-order-42",
		"q=header:kind%3Dbill":    "content mail/bill",
		"q=orders":                "queue orders",
		"q=nothing":               "",
	} {
		all, last := a.find(query)
		if all != want || last.Stage != "content" || last.Progress == nil ||
			last.Progress.Done == strings.Contains(query, "limit") || last.Progress.Done == (last.Progress.Next != "") {
			t.Errorf("%s: %s, then %+v; want %s", query, all, last.Progress, want)
		}
	}
	_, last := a.find("q=order+42&limit=1")
	all, last := a.find("q=order+42&cursor=" + last.Progress.Next)
	if all != "content mail/reminder, content orders/cancel-order-42" || !last.Progress.Done ||
		last.Progress.Looked.Scheduled != 2 || last.Progress.Messages.Scheduled != 3 || last.Progress.Queues != 2 {
		t.Errorf("%s, %+v", all, last.Progress)
	}
	got := a.do(http.MethodGet, "/v1/find?q=hello&preview=2", nil).body
	if !strings.Contains(got, `"payload_text":"\"h"`) || !strings.Contains(got, `"payload_bytes":7`) {
		t.Error(got)
	}
}

func TestFindRefusesBadInput(t *testing.T) {
	a := newAPI(t)
	for query, want := range map[string][2]string{
		"":                                     {"query.q", "required"},
		"q=":                                   {"query.q", "empty"},
		"q=+":                                  {"query.q", "is empty: give"},
		"q=" + strings.Repeat("a", 4097):       {"query.q", "4096"},
		"q=" + strings.Repeat("a+", 17):        {"query.q", "limit is 16"},
		"q=attempts%3C1":                       {"query.q", "attempts>=1"},
		"q=%ff":                                {"query.q", "UTF-8"},
		"q=a&cursor=x":                         {"query.cursor", "invalid"},
		"q=a&limit=0":                          {"query.limit", ">= 1"},
		"q=a&look=2000000":                     {"query.look", "<= 1e+06"},
		"q=a&queue=" + strings.Repeat("a", 99): {},
		"q=a&queue=%00":                        {"query.queue", "control"},
	} {
		if want[0] == "" { // it has no messages
			a.find(query)
			continue
		}
		got := a.do(http.MethodGet, "/v1/find?"+query, nil)
		if body := got.is(http.StatusBadRequest); body["field"] != want[0] || !strings.Contains(got.body, want[1]) {
			t.Errorf("%.40s: %s", query, got.body)
		}
	}
}

func TestFindShowsOnlyQueuesOfTheCaller(t *testing.T) {
	a := newAPI(t)
	a.order42()
	a.do(http.MethodPut, "/v1/schedules/order-42", `{"queue": "orders", "every": "1h"}`).is(http.StatusOK)
	a.do(http.MethodPut, "/v1/schedules/order-43", `{"queue": "mail", "every": "1h"}`).is(http.StatusOK)
	mailer := a.as(access.Identity{Name: "m", Role: access.RoleRead, Queues: []string{"mail", "schedules:"}})
	if all, last := mailer.find("q=order+4"); all != "schedule order-43, content mail/bill, content mail/reminder" ||
		last.Progress.Queues != 1 || last.Progress.Messages.Scheduled != 2 {
		t.Errorf("%s, %+v", all, last.Progress)
	}
	if all, _ := mailer.find("q=cancel-order-42"); all != "" {
		t.Error(all)
	}
	mailer.do(http.MethodGet, "/v1/find?q=a&queue=orders", nil).fails(http.StatusForbidden, "forbidden", "query.queue")
	_, last := a.find("q=4&limit=1")
	cursor := last.Progress.Next
	if all, _ := mailer.find("q=42&cursor=" + cursor); strings.Contains(all, "orders") {
		t.Error(all)
	}
	other := a.as(access.Identity{Name: "m", Role: access.RoleRead, Queues: []string{"mail"}})
	if all, _ := other.find("q=order-4"); strings.Contains(all, "schedule") {
		t.Error(all)
	}
}

// dryRun is a bulk change that counts the scheduled messages that a text finds.
func dryRun(q string) string {
	return fmt.Sprintf(`{"filter": {"q": %q, "state": "scheduled"}, "action": "run", "dry_run": true}`, q)
}

func TestFindHidesContent(t *testing.T) {
	a := newAPI(t)
	a.order42()
	hider := a.as(access.Identity{Name: "h", Role: access.RoleOperate, HidePayloads: true})
	if all, last := hider.find("q=order+42"); all !=
		"group order-42, content mail/reminder, content orders/cancel-order-42" ||
		strings.Contains(last.Progress.Conditions, "payload") {
		t.Errorf("%s, %+v", all, last.Progress)
	}
	for _, q := range []string{"payload:hello", "error:x", "header:kind=bill", "total>=12", "pattern:x", "total=1 42"} {
		for method, request := range map[string][2]string{
			"GET":  {"/v1/find?q=" + url.QueryEscape(q)},
			"get":  {mail + "?q=" + url.QueryEscape(q)},
			"POST": {"/v1/queues/mail/bulk", dryRun(q)},
		} {
			if got := hider.do(strings.ToUpper(method), request[0], request[1]); got.status != http.StatusForbidden {
				t.Errorf("%s: %d %s", request, got.status, got.body)
			}
		}
	}
	for q, want := range map[string]int{"hello": 0, "order-42": 1} {
		got := hider.do(http.MethodGet, mail+"?q="+q, nil).is(http.StatusOK)
		if n := len(list(got, "items")); n != want {
			t.Errorf("%s: %d messages", q, n)
		}
		op := hider.do(http.MethodPost, "/v1/queues/mail/bulk", dryRun(q)).is(http.StatusAccepted)
		op = hider.do(http.MethodGet, "/v1/operations/"+op["id"].(string)+"?wait=1m", nil).is(http.StatusOK)
		if op["matched"] != float64(want) {
			t.Errorf("%s: %v", q, op)
		}
	}
}

func TestFindFindsIDsThatLookLikeConditions(t *testing.T) {
	a := newAPI(t)
	hider := a.as(access.Identity{Name: "h", Role: access.RoleOperate, HidePayloads: true})
	for _, id := range []string{"error:17", "attempts=0"} {
		a.do(http.MethodPost, mail, `{"id": "`+id+`", "in": "1h"}`).is(http.StatusCreated)
	}
	for query, want := range map[string]int{"error:17": http.StatusForbidden, "attempts=0": http.StatusBadRequest} {
		got := hider.do(http.MethodGet, "/v1/find?q="+url.QueryEscape(query), nil)
		lines := strings.Split(strings.TrimSpace(got.body), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], `"stage":"id"`) || !strings.Contains(lines[0], query) ||
			!strings.Contains(lines[1], fmt.Sprintf(`"status":%d`, want)) || !strings.Contains(lines[1], "in quotes") {
			t.Errorf("%s: %d %s", query, got.status, got.body)
		}
	}
	if got := hider.do(http.MethodGet, "/v1/find?q=error:18", nil); got.status != http.StatusForbidden ||
		!strings.Contains(got.body, "in quotes") {
		t.Error(got.body)
	}
}

func TestListsTakeTheTextOfASearch(t *testing.T) {
	a := newAPI(t)
	a.order42()
	for query, want := range map[string]int{"q=order+42": 2, "q=order+42&id=bill": 1, "q=kind": 0,
		"q=header:kind%3Dbill": 1, "q=group:order-42": 1, "q=hello&state=dead": 0} {
		got := a.do(http.MethodGet, mail+"?"+query, nil).is(http.StatusOK)
		if n := len(list(got, "items")); n != want {
			t.Errorf("%s: %d messages", query, n)
		}
	}
	got := a.do(http.MethodGet, "/v1/queues/mail/export?q=hello", nil)
	if !strings.Contains(got.body, "reminder") || strings.Contains(got.body, "bill") {
		t.Error(got.body)
	}
	for query, part := range map[string]string{"q=id:a&id=b": "id has, too", "q=a%3D1&json=b%3D2": "json has, too",
		"q=header:a%3D1&header=b%3D2": "headers has, too", "q=attempts%3C1": "attempts>=1",
		"q=attempts%3E2&min_attempts=2": "min_attempts has, too"} {
		got := a.do(http.MethodGet, mail+"?"+query, nil)
		got.fails(http.StatusBadRequest, "invalid", "q", part)
	}
	a.do(http.MethodPost, "/v1/queues/mail/bulk", `{"filter": {"state": "dead", "q": "id:a id:b"}, "action": "replay"}`).
		fails(http.StatusBadRequest, "invalid", "q", "twice")
}

// stuckStore has lists that wait until their caller leaves.
type stuckStore struct {
	store.Store
	waits chan struct{} // has a value for each list that waits
	left  chan error    // has why it ended
}

func (s *stuckStore) List(ctx context.Context, queue string, r store.ListRequest) (store.Page, error) {
	if r.State != store.StateScheduled {
		return s.Store.List(ctx, queue, r)
	}
	s.waits <- struct{}{}
	<-ctx.Done()
	s.left <- context.Cause(ctx)
	return store.Page{}, context.Cause(ctx)
}

func TestFindEndsWithItsClientAndTheServer(t *testing.T) {
	stuck := &stuckStore{memstore.New(), make(chan struct{}, 8), make(chan error, 8)}
	c, err := later.New(stuck)
	if err != nil {
		t.Fatal(err)
	}
	a := newAPIOver(t, c, Config{})
	a.order42()
	begin := func() (*http.Response, context.CancelFunc) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url+"/v1/find?q=order-42", nil)
		if err != nil {
			t.Fatal(err)
		}
		reply, err := a.http.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		<-stuck.waits
		<-stuck.waits // both queues
		return reply, cancel
	}
	reply, leave := begin()
	first := make([]byte, 20)
	if _, err := reply.Body.Read(first); err != nil || !strings.HasPrefix(string(first), `{"stage":"id"`) {
		t.Errorf("%s, %v: results are not written before the end", first, err)
	}
	leave()
	for range 2 {
		if err := <-stuck.left; err == nil {
			t.Error("the search goes on without its client")
		}
	}
	reply.Body.Close()

	reply, leave = begin()
	defer leave()
	defer reply.Body.Close()
	a.server.Close()
	var last foundLine
	for d := json.NewDecoder(reply.Body); d.More(); {
		last = foundLine{}
		if err := d.Decode(&last); err != nil {
			t.Fatal(err)
		}
	}
	if last.Problem == nil || last.Problem.Code != "closed" {
		t.Errorf("%+v", last)
	}
	w := httptest.NewRecorder()
	a.server.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/v1/find?q=a", nil))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
