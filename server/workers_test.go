package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/laterq/later"
	"github.com/laterq/later/server/access"
)

// startWorker runs a worker with handlers that wait until it drains or the test ends.
func (a *api) startWorker(cfg later.WorkerConfig, queues ...string) (handling chan string, ended chan error) {
	a.t.Helper()
	handling, ended = make(chan string, 16), make(chan error, 1)
	ctx, cancel := context.WithCancel(a.t.Context())
	w := later.NewWorker(a.client, cfg)
	for _, queue := range queues {
		w.Handle(queue, func(ctx context.Context, m *later.Message) error {
			handling <- m.ID
			<-ctx.Done()
			return ctx.Err()
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		ended <- w.Run(ctx)
	}()
	a.t.Cleanup(func() { cancel(); <-done })
	return handling, ended
}

func TestWorkersAreListedAndObey(t *testing.T) {
	a := newAPI(t)
	handling, _ := a.startWorker(later.WorkerConfig{Name: "w1", ShutdownTimeout: -1}, "mail", "orders")
	a.send("mail", "m")
	a.send("orders", "o")
	<-handling
	<-handling
	for len(list(a.do(http.MethodGet, "/v1/workers", nil).is(http.StatusOK), "items")) == 0 {
		runtime.Gosched() // it handles messages before it is listed
	}
	workers := list(a.do(http.MethodGet, "/v1/workers?report=true", nil).is(http.StatusOK), "items")
	if len(workers) != 1 || workers[0]["name"] != "w1" || workers[0]["held_count"] != 2.0 ||
		workers[0]["queue_count"] != 2.0 {
		t.Fatalf("%v", workers)
	}
	limited := a.as(operator("mail"))
	seen := list(limited.do(http.MethodGet, "/v1/workers?report=true", nil).is(http.StatusOK), "items")
	if len(seen) != 1 || fmt.Sprint(seen[0]["queues"]) != "[mail]" || seen[0]["held_count"] != 1.0 {
		t.Errorf("%v", seen)
	}
	if held := list(seen[0], "held"); len(held) != 1 || held[0]["id"] != "m" {
		t.Errorf("%v", held)
	}
	if none := list(a.as(operator("audit")).do(http.MethodGet, "/v1/workers", nil).
		is(http.StatusOK), "workers"); len(none) != 0 {
		t.Errorf("%v", none)
	}
	limited.do(http.MethodPost, "/v1/workers/w1/pause", nil).fails(http.StatusForbidden, "forbidden", "")
	a.as(access.Identity{Role: access.RoleRead}).do(http.MethodPost, "/v1/workers/w1/pause", nil).
		fails(http.StatusForbidden, "forbidden", "")

	told := list(a.as(operator("mail", "orders")).do(http.MethodPost, "/v1/workers/w1/pause", nil).
		is(http.StatusOK), "workers")
	if len(told) != 1 || told[0]["command"] != "pause" || told[0]["error"] != nil || told[0]["id"] != workers[0]["id"] {
		t.Errorf("%v", told)
	}
	state := func() any {
		return list(a.do(http.MethodGet, "/v1/workers", nil).is(http.StatusOK), "items")[0]["state"]
	}
	if got := state(); got != "paused" {
		t.Errorf("%v", got)
	}
	a.do(http.MethodPost, "/v1/workers/"+told[0]["id"].(string)+"/resume", nil).is(http.StatusOK)
	if got := state(); got != "running" {
		t.Errorf("%v", got)
	}
	a.do(http.MethodPost, "/v1/workers/w2/pause", nil).fails(http.StatusNotFound, "not_found", "", `"w2"`)
	a.do(http.MethodPost, "/v1/workers/w1/dance", nil).fails(http.StatusNotFound, "not_found", "")
	a.do(http.MethodGet, "/v1/workers?report=maybe", nil).fails(http.StatusBadRequest, "invalid", "query.report")
}

// A worker that uses the name or the id of another one as its name does not keep senders from commanding the other one.
// A sender that may not see its queues does not learn their names.
func TestWorkersOfOthersDoNotShadow(t *testing.T) {
	a := newAPI(t)
	register := func(queue, name string) {
		t.Helper()
		a.do(http.MethodPost, "/v1/receive", `{"queues": [{"name": "`+queue+`"}], "worker": "`+name+`"}`).is(http.StatusOK)
	}
	ids := func(b *api, name string) (ids []string) {
		for _, w := range list(b.do(http.MethodGet, "/v1/workers", nil).is(http.StatusOK), "items") {
			if w["name"] == name {
				ids = append(ids, w["id"].(string))
			}
		}
		return ids
	}
	register("mail", "w")
	id := ids(a, "w")[0]
	b := a.as(access.Identity{Name: "eve", Role: access.RoleWork, Queues: []string{"secret"}})
	for _, name := range []string{"w", id} {
		b.do(http.MethodPost, "/v1/receive", `{"queues": [{"name": "secret"}], "worker": "`+name+`"}`).is(http.StatusOK)
	}
	limited := a.as(operator("mail"))
	for _, name := range []string{"w", id} {
		told, err := limited.server.mayTell(access.NewContext(t.Context(), operator("mail")), name)
		if err != nil || !slices.Equal(slices.Collect(maps.Keys(told)), []string{id}) {
			t.Errorf("%s: %v, %v", name, told, err)
		}
	}
	a.do(http.MethodPost, "/v1/receive", `{"queues": [{"name": "mail"}, {"name": "secret"}], "worker": "both"}`).
		is(http.StatusOK)
	r := limited.do(http.MethodPost, "/v1/workers/both/pause", nil)
	if r.fails(http.StatusForbidden, "forbidden", ""); strings.Contains(r.body, "secret") {
		t.Errorf("%s names a queue of others", r.body)
	}
	for _, other := range ids(a, "w") {
		if other != id {
			limited.do(http.MethodPost, "/v1/workers/"+other+"/pause", nil).fails(http.StatusNotFound, "not_found", "")
		}
	}
}

func TestWorkersDrainRestartAndRefuse(t *testing.T) {
	a := newAPI(t)
	_, drained := a.startWorker(later.WorkerConfig{Name: "w1"}, "mail")
	_, restarted := a.startWorker(later.WorkerConfig{Name: "w2"}, "mail")
	a.startWorker(later.WorkerConfig{Name: "w3", OnCommand: func(later.WorkerCommand) error {
		return errors.New("not today")
	}}, "mail")
	for len(list(a.do(http.MethodGet, "/v1/workers", nil).is(http.StatusOK), "items")) < 3 {
		runtime.Gosched() // they are listed soon after they start
	}
	a.do(http.MethodPost, "/v1/workers/w1/drain", nil).is(http.StatusOK)
	if err := <-drained; err != nil {
		t.Error(err)
	}
	a.do(http.MethodPost, "/v1/workers/w2/restart", nil).is(http.StatusOK)
	if err := <-restarted; !errors.Is(err, later.ErrRestart) {
		t.Error(err)
	}
	told := list(a.do(http.MethodPost, "/v1/workers/w3/drain", nil).is(http.StatusOK), "workers")
	refused, _ := told[0]["error"].(map[string]any)
	if refused["detail"] != "refused: not today" || refused["status"] != 409.0 {
		t.Errorf("%v", told)
	}
}
