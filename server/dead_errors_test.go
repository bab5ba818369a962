package server

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

func TestDeadErrorsCanBeReplayedByGroup(t *testing.T) {
	a := newAPI(t)
	for i, text := range []string{"order 1 is gone", "order 2 is gone", "timeout"} {
		a.send("mail", fmt.Sprint(i))
		a.bury("mail", text)
	}
	page := a.do(http.MethodGet, "/v1/queues/mail/dead-errors", nil).is(http.StatusOK)
	groups := list(page, "items")
	if len(groups) != 2 || groups[0]["pattern"] != "order # is gone" || groups[0]["count"] != 2.0 ||
		groups[0]["reason"] != "buried" || page["looked"] != 3.0 || page["next"] != nil {
		t.Fatalf("%v", page)
	}
	a.do(http.MethodGet, "/v1/queues/mail/dead-errors?look=1", nil).is(http.StatusOK)
	found := a.do(http.MethodGet, "/v1/queues/mail/messages?state=dead&error_pattern=timeout", nil).is(http.StatusOK)
	if messages := list(found, "items"); len(messages) != 1 || messages[0]["id"] != "2" {
		t.Errorf("%v", found)
	}
	started := a.do(http.MethodPost, "/v1/queues/mail/bulk", map[string]any{
		"action": "replay", "filter": map[string]any{"state": "dead", "error_pattern": groups[0]["pattern"]},
	}).is(http.StatusAccepted)
	done := a.do(http.MethodGet, fmt.Sprintf("/v1/operations/%s?wait=1m", started["id"]), nil).is(http.StatusOK)
	if done["changed"] != 2.0 || done["state"] != "done" {
		t.Errorf("%v", done)
	}
	reader := a.as(access.Identity{Name: "x", Role: access.RoleRead, HidePayloads: true})
	reader.do(http.MethodGet, "/v1/queues/mail/dead-errors", nil).fails(http.StatusForbidden, "forbidden", "")
	reader.do(http.MethodGet, "/v1/queues/mail/messages?state=dead&error_pattern=x", nil).
		fails(http.StatusForbidden, "forbidden", "")
}

func TestDeadErrorsOfAllQueuesAreThoseThatTheSenderSees(t *testing.T) {
	a := newAPI(t)
	for i, queue := range []string{"mail", "mail", "orders", "secret"} {
		a.send(queue, fmt.Sprint(i))
		a.bury(queue, fmt.Sprintf("HTTP %d", i))
	}
	a.send("empty", "x")
	page := a.do(http.MethodGet, "/v1/dead-errors", nil).is(http.StatusOK)
	groups := list(page, "items")
	if len(groups) != 1 || groups[0]["count"] != 4.0 || groups[0]["queue"] != nil || page["dead"] != 4.0 ||
		page["looked"] != 4.0 || page["queues"] != 4.0 || page["hours_complete"] != true || page["next"] != nil {
		t.Fatalf("%v", page)
	}
	if got := fmt.Sprint(groups[0]["queues"]); got != "[map[count:2 queue:mail] map[count:1 queue:orders] "+
		"map[count:1 queue:secret]]" {
		t.Error(got)
	}
	hours := groups[0]["hours"].([]any)
	if len(hours) != 24 || hours[23].(float64)+hours[22].(float64) != 4 { // an hour may have begun meanwhile
		t.Errorf("%v", hours)
	}
	clerk := a.as(access.Identity{Name: "c", Role: access.RoleRead, Queues: []string{"mail", "orders"}})
	page = clerk.do(http.MethodGet, "/v1/dead-errors", nil).is(http.StatusOK)
	if groups := list(page, "items"); len(groups) != 1 || groups[0]["count"] != 3.0 || page["dead"] != 3.0 ||
		len(groups[0]["queues"].([]any)) != 2 {
		t.Errorf("%v", page)
	}
	clerk.do(http.MethodGet, "/v1/dead-errors?queue=secret", nil).fails(http.StatusForbidden, "forbidden", "query.queue")
	page = a.do(http.MethodGet, "/v1/dead-errors?queue=orders&queue=mail&look=1", nil).is(http.StatusOK)
	if page["looked"] != 1.0 || page["dead"] != 3.0 || page["hours_complete"] != false || page["next"] == nil {
		t.Errorf("%v", page)
	}
	hider := a.as(access.Identity{Name: "x", Role: access.RoleRead, HidePayloads: true})
	hider.do(http.MethodGet, "/v1/dead-errors", nil).fails(http.StatusForbidden, "forbidden", "")
}

// BenchmarkDeadErrors groups 100,000 dead messages of 1,000 queues on Redis with 20 kinds of errors, as the page does:
// 2,500 in the first request and 10,000 in each further one. It reports the median and the 99th percentile of the time
// of a request over HTTP.
//
//	go test ./server -run '^$' -bench DeadErrors -benchtime 100x
func BenchmarkDeadErrors(b *testing.B) {
	c, h := newBenchServer(b)
	for i := range 1000 {
		var dead []store.Info
		for j := range 100 {
			died := time.Now().Add(-time.Duration(j) * time.Hour)
			dead = append(dead, store.Info{Message: store.Message{ID: fmt.Sprint(j), Payload: make([]byte, 200)},
				State: store.StateDead, Due: died, DiedAt: died, Attempts: 1, DeadReason: store.DeadFailed,
				LastError: fmt.Sprintf("%c: order %d is refused", 'a'+j%20, i)})
		}
		if _, err := c.Store().Restore(b.Context(), fmt.Sprintf("queue-%04d", i), dead); err != nil {
			b.Fatal(err)
		}
	}
	for _, look := range []int{2500, 10_000} {
		b.Run(fmt.Sprint("look=", look), func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				begin := time.Now()
				var page struct{ Looked int }
				getJSON(b, fmt.Sprint(h.URL, "/v1/dead-errors?look=", look), &page)
				if page.Looked != look {
					b.Fatal(page.Looked)
				}
				took = append(took, time.Since(begin))
			}
			reportTimes(b, took, "")
		})
	}
}
