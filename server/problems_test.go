package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/inspect"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/recurrence"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

// problemsOf returns the problems that a caller sees, each as kind and subject.
func problemsOf(t *testing.T, a *api, query string) string {
	t.Helper()
	var list ProblemList
	got := a.do(http.MethodGet, "/v1/problems"+query, nil)
	got.is(http.StatusOK)
	if err := json.Unmarshal([]byte(got.body), &list); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, p := range list.Items {
		all = append(all, strings.TrimSpace(p.Kind+" "+p.Queue+p.Topic))
	}
	if list.Count != len(all) {
		t.Errorf("count is %d of %v", list.Count, all)
	}
	return strings.Join(all, ", ")
}

// troubled has a problem with an error in mail, and others in orders, a topic and a schedule.
func troubled(t *testing.T) *api {
	a := newAPI(t)
	old := time.Now().Add(-61 * time.Minute)
	a.sendDue("mail", old)
	a.bury("mail", "secret")
	a.sendDue("orders", old)
	if _, err := a.client.Topic("news").Publish(t.Context(), nil, later.At(old)); err != nil {
		t.Fatal(err)
	}
	past := later.Schedule{Name: "yearly", Queue: "orders", When: recurrence.Spec{Every: time.Hour}}
	if _, err := a.client.Schedules().Put(t.Context(), past); err != nil {
		t.Fatal(err)
	}
	return a
}

func TestProblemsAreOfVisibleQueuesAndWithoutHiddenErrors(t *testing.T) {
	a := troubled(t)
	const all = "no_worker orders, topic_unsubscribed news, dead mail"
	if got := problemsOf(t, a, ""); got != all {
		t.Errorf("got %s", got)
	}
	if got := problemsOf(t, a, "?severity=watch"); got != "dead mail" {
		t.Errorf("got %s", got)
	}
	if got := problemsOf(t, a, "?queue=orders"); got != "no_worker orders" {
		t.Errorf("got %s", got)
	}
	mailer := access.Identity{Name: "x", Role: access.RoleRead, Queues: []string{"mail"}}
	if got := problemsOf(t, a.as(mailer), ""); got != "dead mail" {
		t.Errorf("got %s", got)
	}
	if body := a.as(mailer).do(http.MethodGet, "/v1/problems", nil).body; !strings.Contains(body, "secret") {
		t.Error(body)
	}
	a.as(mailer).do(http.MethodGet, "/v1/problems?queue=orders", nil).
		fails(http.StatusForbidden, "forbidden", "query.queue")
	a.do(http.MethodGet, "/v1/problems?severity=bad", nil).fails(http.StatusBadRequest, "invalid", "query.severity")
	mailer.HidePayloads = true
	if body := a.as(mailer).do(http.MethodGet, "/v1/problems", nil).body; strings.Contains(body, "secret") ||
		!strings.Contains(body, `"kind":"dead"`) {
		t.Error(body)
	}
	stream := a.as(mailer).watch("/v1/overview/watch")
	block := ""
	for block == "" { // heartbeats
		block = stream.block()
	}
	if strings.Contains(block, "secret") || strings.Contains(block, "orders") ||
		!strings.Contains(block, `"kind":"dead"`) {
		t.Error(block)
	}
	sender := access.Identity{Name: "x", Role: access.RoleSend}
	a.as(sender).do(http.MethodGet, "/v1/problems", nil).fails(http.StatusForbidden, "forbidden", "")
}

func TestProblemsHaveAPlaceAndAnAction(t *testing.T) {
	a := troubled(t)
	got := a.do(http.MethodGet, "/v1/problems", nil).is(http.StatusOK)
	first := got["items"].([]any)[0].(map[string]any)
	if first["text"] != "queue orders has no worker: 1 message is due, the first for 1 h" ||
		fmt.Sprint(first["place"]) != "map[queue:orders state:ready]" ||
		fmt.Sprint(first["action"]) != "map[command:[stats orders] do:show shell:later stats orders]" {
		t.Errorf("%v", first)
	}
}

// A change through the server shows soon, and the stream of overviews has the problems only when they change.
func TestProblemsAreReadOnceForAllUntilSomethingChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newBubbleAPI(t, memstore.New())
		a.sendDue("mail", time.Now().Add(-time.Hour))
		w := &overviewStream{}
		defer a.watchOverview(w, "")()
		want := func(times int, queues ...string) {
			t.Helper()
			synctest.Wait()
			w.mu.Lock()
			defer w.mu.Unlock()
			var list ProblemList
			if err := json.Unmarshal([]byte(w.problems), &list); err != nil || list.Count != len(queues) || w.times != times {
				t.Fatalf("%d times, %s, %v; want %d times, %v", w.times, w.problems, err, times, queues)
			}
			for i, queue := range queues {
				if list.Items[i].Queue != queue {
					t.Errorf("%s; want %v", w.problems, queues)
				}
			}
		}
		time.Sleep(time.Second)
		want(1, "mail")
		a.sendDue("orders", time.Now().Add(-time.Hour))
		time.Sleep(3 * time.Second)
		want(1, "mail")
		time.Sleep(3 * time.Second)
		want(2, "mail", "orders")
		time.Sleep(20 * time.Second) // read again, but the same
		want(2, "mail", "orders")
		if _, err := a.client.Queue("mail").Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		a.server.Changed(t.Context(), "messages purged")
		time.Sleep(2 * time.Second)
		want(3, "orders")
	})
}

// slowDeaths is a store that lists dead messages so slowly, while slow is set, that no reading of the problems ends in
// time. Overviews do not list them.
type slowDeaths struct {
	store.Store
	slow atomic.Bool
}

func (s *slowDeaths) List(ctx context.Context, queue string, r store.ListRequest) (store.Page, error) {
	if s.slow.Load() && r.State == store.StateDead {
		select {
		case <-time.After(1900 * time.Millisecond):
		case <-ctx.Done():
			return store.Page{}, context.Cause(ctx)
		}
	}
	return s.Store.List(ctx, queue, r)
}

// While readings of the problems fail, the stream of overviews has the last ones, with a mark once they are old. A
// client that comes after a time without clients gets new ones.
func TestOldProblemsAreMarked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowDeaths{Store: memstore.New()}
		a := newBubbleAPI(t, s)
		for i := range 50 {
			queue := fmt.Sprintf("q%02d", i)
			a.sendDue(queue, time.Now())
			a.bury(queue, "x")
		}
		want := func(w *overviewStream, stale bool) {
			t.Helper()
			synctest.Wait()
			w.mu.Lock()
			defer w.mu.Unlock()
			var list ProblemList
			if err := json.Unmarshal([]byte(w.problems), &list); err != nil || list.Count != 50 || list.Stale != stale {
				t.Errorf("%d problems, stale %v, %v; want 50, %v", list.Count, list.Stale, err, stale)
			}
		}
		w := &overviewStream{}
		end := a.watchOverview(w, "")
		time.Sleep(time.Second)
		want(w, false)
		s.slow.Store(true)
		time.Sleep(time.Minute)
		want(w, false)
		time.Sleep(90 * time.Second)
		want(w, true)
		a.get(t.Context(), "/v1/problems").fails(http.StatusServiceUnavailable, "unavailable", "")
		s.slow.Store(false)
		time.Sleep(time.Minute)
		want(w, false)
		a.get(t.Context(), "/v1/problems").is(http.StatusOK)
		end()
		time.Sleep(10 * time.Minute)
		w = &overviewStream{}
		end = a.watchOverview(w, "")
		want(w, false)
		if w.times != 1 {
			t.Errorf("problems came %d times", w.times)
		}
		end()
	})
}

func TestPauseThroughTheServerNamesTheSender(t *testing.T) {
	a := newAPI(t)
	ann := access.Identity{Name: "ann", Role: access.RoleOperate, Queues: []string{"mail"}}
	a.as(ann).do(http.MethodPost, "/v1/queues/mail/pause", nil).is(http.StatusOK)
	got := a.do(http.MethodGet, "/v1/problems", nil).is(http.StatusOK)
	first := got["items"].([]any)[0].(map[string]any)
	if first["kind"] != "paused" || first["by"] != "ann" || first["since"] == nil ||
		first["action"].(map[string]any)["do"] != "resume" {
		t.Errorf("%v", first)
	}
}

// The error of a schedule that cannot be read has its name, which only a sender that sees all queues may know.
func TestProblemsOfUnreadableSchedulesAreForThoseWhoSeeAll(t *testing.T) {
	a := newAPI(t)
	a.do(http.MethodPut, "/v1/schedules/s1", `{"queue": "q", "every": "1h"}`).is(http.StatusOK)
	_, err := a.client.Store().Send(t.Context(), "schedules:", []store.Outgoing{{
		Message: store.Message{ID: "payroll-of-ann", Payload: []byte("nonsense"), Group: "schedules", MaxAttempts: 1},
		Due:     store.Due{At: time.Now().Add(time.Hour)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if body := a.do(http.MethodGet, "/v1/problems", nil).body; !strings.Contains(body, "payroll") {
		t.Error(body)
	}
	limited := a.as(operator("schedules:", "q"))
	if body := limited.do(http.MethodGet, "/v1/problems", nil).body; strings.Contains(body, "payroll") {
		t.Error(body)
	}
}

// A client that receives without the name of a worker counts as one while it does, and for some time afterwards.
func TestReceiversOverHTTPAreListedAsAWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newBubbleAPI(t, memstore.New())
		post := func(path, body string) *reply { return a.post(t.Context(), path, body) }
		a.sendDue("mail", time.Now().Add(-time.Hour), time.Now().Add(-time.Hour))
		post("/v1/queues/mail/receive", `{}`).is(http.StatusOK)
		synctest.Wait()
		a.post(t.Context(), "/v1/receive", `{"queues":[{"name":"orders"}]}`).is(http.StatusOK)
		time.Sleep(20 * time.Second)
		workers, err := a.client.Workers(t.Context())
		if err != nil || len(workers) != 1 || fmt.Sprint(workers[0].Queues) != "[mail orders]" ||
			!strings.HasSuffix(workers[0].Name, " over HTTP") {
			t.Fatalf("%+v, %v", workers, err)
		}
		ready, err := a.client.Queue("mail").List(t.Context(), later.ListOptions{State: later.StateReady})
		if err != nil {
			t.Fatal(err)
		}
		e, err := inspect.Explain(t.Context(), a.client, "mail", ready.Messages[0].ID)
		if err != nil || e.Reason != inspect.WhyWaiting || e.Running != 1 {
			t.Errorf("%+v, %v", e, err)
		}
		if _, err := a.client.ControlWorkers(t.Context(), later.CommandPause, workers[0].Name); err == nil ||
			!strings.Contains(err.Error(), "give the field worker") {
			t.Errorf("a pause of clients that take no commands: %v", err)
		}
		if _, err := a.client.ControlWorkers(t.Context(), later.CommandRestart, workers[0].Name); err != nil {
			t.Error(err)
		}
		time.Sleep(3 * time.Minute)
		if workers, err := a.client.Workers(t.Context()); err != nil || len(workers) != 0 {
			t.Errorf("%+v, %v", workers, err)
		}
	})
}

// A list that is soon too old is read again in the background, unless something was changed through the server.
func TestARequestForProblemsHardlyEverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowStore{Store: memstore.New()}
		a := newBubbleAPI(t, s)
		a.sendDue("mail", time.Now().Add(time.Hour))
		s.takes = 50 * time.Millisecond
		read := func() (took time.Duration, now string) {
			begin := time.Now()
			reply := a.get(t.Context(), "/v1/problems").is(http.StatusOK)
			return time.Since(begin), reply["now"].(string)
		}
		first, before := read()
		time.Sleep(minProblemsEvery + time.Second)
		second, same := read()
		time.Sleep(time.Second)
		third, after := read()
		if first == 0 || second > 0 || same != before || third > 0 || after == before {
			t.Errorf("lists took %v, %v and %v, of %s, %s and %s", first, second, third, before, same, after)
		}
		a.post(t.Context(), "/v1/queues/mail/pause", "").is(http.StatusOK)
		time.Sleep(minProblemsEvery)
		if took, _ := read(); took == 0 {
			t.Error("after a change, a list from before is returned")
		}
		time.Sleep(time.Minute)
		if took, _ := read(); took == 0 {
			t.Error("a list of a minute ago is returned")
		}
	})
}
