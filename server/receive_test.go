package server

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/server/access"
)

const receivePath = "/v1/queues/mail/receive"

func TestReceiveHoldsMessagesUntilTheyAreSettled(t *testing.T) {
	a := newAPI(t)
	a.do(http.MethodPost, mail, `{"payload": "hello", "id": "a", "group": "g", "key": "k", "timeout": "5s",
		"headers": {"kind": "x"}}`).is(http.StatusCreated)
	got := list(a.do(http.MethodPost, receivePath, `{"max": 5, "lease": "1m"}`).is(http.StatusOK), "messages")
	if len(got) != 1 || got[0]["payload"] != "hello" || got[0]["attempt"] != 1.0 || got[0]["group"] != "g" ||
		got[0]["key"] != "k" || got[0]["timeout"] != "5s" {
		t.Fatalf("%v", got)
	}
	if again := list(a.do(http.MethodPost, receivePath, nil).is(http.StatusOK), "messages"); len(again) != 0 {
		t.Errorf("%v is held, and was delivered again", again)
	}
	lease := "/v1/leases/" + got[0]["token"].(string)
	a.do(http.MethodPost, lease+"/extend", `{"lease": "2m"}`).is(http.StatusNoContent)
	a.do(http.MethodPost, lease+"/nack", `{"delay": "1h", "reason": "no such user"}`).is(http.StatusNoContent)
	a.do(http.MethodPost, lease+"/ack", nil).fails(http.StatusConflict, "lease_lost", "")
	info := a.do(http.MethodGet, mail+"/a", nil).is(http.StatusOK)
	if info["state"] != "scheduled" || info["attempts"] != 1.0 || info["last_error"] != "no such user" {
		t.Errorf("%v", info)
	}
}

func TestAckSendsFollowUpsInTheSameStep(t *testing.T) {
	a := newAPI(t)
	a.do(http.MethodPost, mail, `{"payload": "order"}`).is(http.StatusCreated)
	got := list(a.do(http.MethodPost, receivePath, nil).is(http.StatusOK), "messages")
	ack := "/v1/leases/" + got[0]["token"].(string) + "/ack"
	a.do(http.MethodPost, ack, `{"then": [{"queue": "invoices", "payload": "x", "in": "soon"}]}`).
		fails(http.StatusBadRequest, "invalid", "then[0].in")
	a.do(http.MethodPost, ack, `{"then": [{"queue": "invoices", "payload": {"n": 7}, "in": "1h"}]}`).
		is(http.StatusNoContent)
	stats := a.do(http.MethodGet, "/v1/queues/invoices", nil).is(http.StatusOK)
	if left := a.do(http.MethodGet, "/v1/queues/mail", nil).is(http.StatusOK); stats["scheduled"] != 1.0 ||
		left["leased"] != 0.0 {
		t.Errorf("%v, %v", stats, left)
	}
}

func TestSettleManyAnswersEach(t *testing.T) {
	a := newAPI(t)
	a.fill(2)
	a.bulk(`{"filter": {"state": "scheduled"}, "action": "run"}`)
	got := list(a.do(http.MethodPost, receivePath, `{"max": 2}`).is(http.StatusOK), "messages")
	body := map[string]any{"messages": []map[string]any{
		{"token": got[0]["token"], "action": "ack"}, {"token": got[1]["token"], "action": "bury", "reason": "bad"},
		{"token": "nonsense", "action": "ack"}, {"token": got[0]["token"], "action": "ack", "delay": "1s"},
	}}
	results := list(a.do(http.MethodPost, "/v1/leases/settle", body).is(http.StatusOK), "results")
	if results[0]["error"] != nil || results[1]["error"] != nil {
		t.Errorf("%v", results[:2])
	}
	for _, refused := range results[2:] {
		if e, _ := refused["error"].(map[string]any); e["code"] != "invalid" {
			t.Errorf("%v", refused)
		}
	}
}

// waiting begins a request that waits, and returns its reply when it comes.
func (a *api) waiting() <-chan *httptest.ResponseRecorder {
	done := make(chan *httptest.ResponseRecorder, 1)
	before := a.server.waits.Taken()
	go func() {
		w := httptest.NewRecorder()
		a.server.ServeHTTP(w, httptest.NewRequestWithContext(a.t.Context(), http.MethodPost, receivePath,
			strings.NewReader(`{"wait": "5m"}`)))
		done <- w
	}()
	for a.server.waits.Taken() == before {
		runtime.Gosched()
	}
	return done
}

func TestReceiveWaitsForAMessage(t *testing.T) {
	a := newAPI(t)
	waiting := a.waiting()
	a.do(http.MethodPost, mail, `{"payload": "hello", "in": "1ms"}`).is(http.StatusCreated)
	if w := <-waiting; w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"payload":"hello"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	none := a.do(http.MethodPost, receivePath, `{"wait": "10ms"}`).is(http.StatusOK)
	if len(list(none, "messages")) != 0 {
		t.Errorf("%v", none)
	}
}

func TestRequestsThatWaitAreLimited(t *testing.T) {
	a := newAPIWith(t, "mem://", Config{MaxWaits: 1})
	waiting := a.waiting()
	a.do(http.MethodPost, receivePath, `{"wait": "1s"}`).
		fails(http.StatusServiceUnavailable, "unavailable", "", "1 requests")
	a.do(http.MethodPost, mail, `{"payload": "hello"}`).is(http.StatusCreated)
	<-waiting
	a.do(http.MethodPost, receivePath, nil).is(http.StatusOK)
}

func TestCloseEndsRequestsThatWait(t *testing.T) {
	a := newAPI(t)
	waiting := a.waiting()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		a.server.Close()
	}()
	if w := <-waiting; w.Code != http.StatusOK || w.Body.String() != "{\"messages\":[]}\n" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	select {
	case <-closed:
	case <-time.After(time.Minute):
		t.Fatal("Close hangs")
	}
	a.do(http.MethodPost, receivePath, nil).fails(http.StatusServiceUnavailable, "closed", "")
}

func TestReceivesAreDecodedAsTheDescriptionAllows(t *testing.T) {
	for body, allowed := range map[string]bool{
		`{}`: true,
		`{"max": 500, "lease": "30s", "wait": "0s"}`: true,
		` {"wait":"1m30s"} `:                         true,
		``:                                           true,
		`[]`:                                         false,
		`{"max": 0}`:                                 false,
		`{"max": 501}`:                               false,
		`{"max": 1.5}`:                               false,
		`{"max": "1"}`:                               false,
		`{"max": 1, "max": 2}`:                       false,
		`{"wait": 5}`:                                false,
		`{"wait": ""}`:                               false,
		`{"leases": "30s"}`:                          false,
		`{"lease": "\ud800"}`:                        false,
	} {
		if err := decodeBody([]byte(body), true, new(ReceiveOptions)); (err == nil) != allowed {
			t.Errorf("%s: %v, want %v", body, err, allowed)
		}
	}
}

func TestReceiveFromSeveralQueues(t *testing.T) {
	a := newAPI(t)
	a.send("mail", "m")
	a.send("orders", "o")
	const both = `{"queues": [{"name": "mail", "weight": 3}, {"name": "orders"}], "max": 10, "wait": "1m"}`
	got := list(a.do(http.MethodPost, "/v1/receive", both).is(http.StatusOK), "messages")
	if len(got) != 2 || got[0]["queue"] == got[1]["queue"] {
		t.Errorf("%v", got)
	}
	for _, m := range got {
		a.do(http.MethodPost, "/v1/leases/"+m["token"].(string)+"/ack", nil).is(http.StatusNoContent)
	}
	a.do(http.MethodPost, "/v1/receive", `{"queues": []}`).fails(http.StatusBadRequest, "invalid", "queues")
	a.do(http.MethodPost, "/v1/receive", `{"queues": [{"name": "mail", "weight": 1001}]}`).
		fails(http.StatusBadRequest, "invalid", "queues[0].weight")
	a.do(http.MethodPost, "/v1/receive", `{"queues": [{"name": "mail"}, {"name": "mail"}]}`).
		fails(http.StatusBadRequest, "invalid", "queues[1].name", "a second time")
	a.do(http.MethodPost, "/v1/receive", `{"queues": [{"name": "a{"}]}`).
		fails(http.StatusBadRequest, "invalid", "queues[0].name")
	a.do(http.MethodPost, "/v1/receive", `{"queues": [`+strings.Repeat(`{"name": "mail"}, `, 16)+`{"name": "q"}]}`).
		fails(http.StatusBadRequest, "invalid", "queues", "the limit is 16")
	worker := a.as(access.Identity{Name: "w", Role: access.RoleWork, Queues: []string{"mail"}})
	worker.do(http.MethodPost, "/v1/receive", both).fails(http.StatusForbidden, "forbidden", "queues[1].name")
	worker.do(http.MethodPost, "/v1/receive", `{"queues": [{"name": "mail"}]}`).is(http.StatusOK)
}

func TestWaitOnSeveralQueuesIsOneWait(t *testing.T) {
	a := newAPIWith(t, "mem://", Config{MaxWaits: 1})
	done := make(chan *httptest.ResponseRecorder, 1)
	go func() {
		w := httptest.NewRecorder()
		a.server.ServeHTTP(w, httptest.NewRequestWithContext(a.t.Context(), http.MethodPost, "/v1/receive",
			strings.NewReader(`{"queues": [{"name": "a"}, {"name": "b"}, {"name": "mail"}], "wait": "5m"}`)))
		done <- w
	}()
	for a.server.waits.Taken() == 0 {
		runtime.Gosched()
	}
	a.do(http.MethodPost, mail, `{"payload": "hello"}`).is(http.StatusCreated)
	if w := <-done; w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"queue":"mail"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestNamedWorkerIsListedAndObeys(t *testing.T) {
	a := newAPI(t)
	polled := make(chan *reply, 1)
	poll := func(by *api, path, fields string) {
		go func() {
			polled <- by.do(http.MethodPost, path, `{"wait": "5m", "worker": "py", "version": "v7"`+fields+`}`)
		}()
	}
	listed := func(state string) map[string]any {
		for {
			all := list(a.do(http.MethodGet, "/v1/workers", nil).is(http.StatusOK), "items")
			if len(all) == 1 && all[0]["state"] == state {
				return all[0]
			}
			runtime.Gosched()
		}
	}
	poll(a, receivePath, `, "concurrency": 4`)
	if w := listed("running"); w["name"] != "py" || w["version"] != "v7" || w["concurrency"] != 4.0 ||
		fmt.Sprint(w["queues"]) != "[mail]" {
		t.Errorf("%v", w)
	}
	told := list(a.do(http.MethodPost, "/v1/workers/py/pause", nil).is(http.StatusOK), "workers")
	if len(told) != 1 || told[0]["error"] != nil {
		t.Errorf("%v", told)
	}
	a.send("mail", "m")
	listed("paused")
	if why := a.do(http.MethodGet, mail+"/m/why", nil).is(http.StatusOK); why["workers"] != 1.0 || why["running"] != 0.0 {
		t.Errorf("%v", why)
	}
	got := a.do(http.MethodPost, receivePath, `{"worker": "py"}`).is(http.StatusOK)
	if got["command"] != "pause" || len(list(got, "messages")) != 0 {
		t.Errorf("%v", got)
	}
	a.do(http.MethodPost, "/v1/workers/py/resume", nil).is(http.StatusOK)
	if got := (<-polled).is(http.StatusOK); len(list(got, "messages")) != 1 || got["command"] != nil {
		t.Errorf("%v", got)
	}
	poll(a, "/v1/receive", `, "queues": [{"name": "mail"}, {"name": "orders"}]`)
	for fmt.Sprint(listed("running")["queues"]) != "[mail orders]" {
		runtime.Gosched()
	}
	a.do(http.MethodPost, "/v1/workers/py/drain", nil).is(http.StatusOK)
	if got := (<-polled).is(http.StatusOK); len(list(got, "messages")) != 0 || got["command"] != "drain" {
		t.Errorf("%v", got)
	}
	// A worker of the same name with another token is another worker.
	other := a.as(access.Identity{Name: "other", Role: access.RoleWork})
	if got := other.do(http.MethodPost, receivePath, `{"worker": "py"}`).is(http.StatusOK); got["command"] != nil {
		t.Errorf("%v", got)
	}
	a.do(http.MethodPost, receivePath, `{"concurrency": 3}`).fails(http.StatusBadRequest, "invalid", "worker")
	for _, name := range []string{`a\u0000`, ".", "..", strings.Repeat("é", 128)} {
		a.do(http.MethodPost, receivePath, `{"worker": "`+name+`"}`).fails(http.StatusBadRequest, "invalid", "worker")
	}
	a.do(http.MethodPost, receivePath, `{"worker": "w", "version": "a\u0000"}`).
		fails(http.StatusBadRequest, "invalid", "version")
}
