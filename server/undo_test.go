package server

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

// onEachStore runs a test with a server of each kind of store.
func onEachStore(t *testing.T, test func(a *api)) {
	for name, url := range map[string]func() string{
		"memory":   func() string { return "mem://" },
		"redis":    func() string { return redistest.Start(t).URL() },
		"embedded": func() string { return "file://" + t.TempDir() },
	} {
		t.Run(name, func(t *testing.T) { test(newAPIWith(t, url(), Config{})) })
	}
}

// change makes a request and returns the id of the change that its reply tells.
func (a *api) change(method, path string, body any) string {
	a.t.Helper()
	r := a.do(method, path, body)
	id := r.header.Get("Later-Change")
	if r.status >= 300 || id == "" {
		a.t.Fatalf("%s: %d %s tells no change", r.what, r.status, r.body)
	}
	return id
}

// undo undoes a change, and returns the result at the end of its operation.
func (a *api) undo(change string) map[string]any {
	a.t.Helper()
	result := a.do(http.MethodPost, "/v1/changes/"+change+"/undo", nil).is(http.StatusOK)
	if op, ok := result["operation"].(map[string]any); ok {
		return a.do(http.MethodGet, "/v1/operations/"+op["id"].(string)+"?wait=1m", nil).is(http.StatusOK)
	}
	return result
}

// refuses fails the test unless a change cannot be undone.
func (a *api) refuses(change string, parts ...string) {
	a.t.Helper()
	a.do(http.MethodPost, "/v1/changes/"+change+"/undo", nil).fails(http.StatusConflict, "conflict", "", parts...)
}

// infos returns messages of the queue mail as the store has them, without states that the clock alone changes.
func (a *api) infos(ids ...string) (all []store.Info) {
	a.t.Helper()
	infos, err := a.client.Store().Get(a.t.Context(), "mail", ids)
	if err != nil {
		a.t.Fatal(err)
	}
	for i, info := range infos {
		if info == nil {
			a.t.Fatalf("no message %q", ids[i])
		}
		all = append(all, *info)
	}
	return all
}

// variety sends messages of the queue mail with all that a message can have, and returns their ids: scheduled near and
// far, ready, failed, and dead ones.
func (a *api) variety() []string {
	a.t.Helper()
	q := a.client.Queue("mail")
	full := later.Outgoing{ID: "full", Payload: []byte{0, 1, 255}, Headers: map[string]string{"kind": "mail", "x": "ü"},
		When: later.In(90 * 24 * time.Hour), MaxAttempts: 7, Timeout: time.Minute, ExpireAfter: time.Hour,
		DedupWindow: time.Hour, Group: "g", Key: "k"}
	near := full
	near.ID, near.When, near.DedupWindow = "near", later.In(time.Second*30), 0
	made := later.Outgoing{Payload: []byte(`{"n": 1}`), When: later.In(time.Hour)}
	results, err := q.SendBatch(a.t.Context(), []later.Outgoing{full, near, made, {ID: "failed"}, {ID: "dead", Key: "k"}})
	if err != nil {
		a.t.Fatal(err)
	}
	for range 2 {
		d, err := q.Receive(a.t.Context(), 1)
		if err != nil || len(d) != 1 {
			a.t.Fatal(d, err)
		}
		if d[0].ID == "dead" {
			err = d[0].Bury(a.t.Context(), errors.New("no such address"))
		} else {
			err = d[0].Nack(a.t.Context(), time.Hour, errors.New("timeout"))
		}
		if err != nil {
			a.t.Fatal(err)
		}
	}
	a.send("mail", "ready")
	return []string{"full", "near", results[2].ID, "failed", "dead", "ready"}
}

// same fails the test unless messages are as they were.
func (a *api) same(before []store.Info) {
	a.t.Helper()
	for _, b := range before {
		after := a.infos(b.ID)[0]
		if !after.Same(&b) || after.State != b.State {
			a.t.Errorf("%s is not as before:\n got %+v\nwant %+v", b.ID, after, b)
		}
	}
}

func TestUndoOfACancelRestoresTheMessageAsItWas(t *testing.T) {
	onEachStore(t, func(a *api) {
		ids := a.variety()
		before := a.infos(ids...)
		for _, id := range ids {
			change := a.change(http.MethodDelete, mail+"/"+id+"?undoable=true", nil)
			a.do(http.MethodGet, mail+"/"+id, nil).fails(http.StatusNotFound, "not_found", "")
			if got := a.undo(change); got["changed"] != 1.0 || got["skipped"] != 0.0 {
				t.Errorf("%s: %v", id, got)
			}
			a.refuses(change, "it was undone by anyone")
		}
		a.same(before)
	})
}

func TestUndoOfABulkCancelRestoresEachMessageAsItWas(t *testing.T) {
	onEachStore(t, func(a *api) {
		ids := a.variety()
		before := a.infos(ids...)
		for _, state := range []string{"scheduled", "ready", "dead"} {
			op := a.bulk(`{"filter": {"state": "` + state + `"}, "action": "cancel"}`)
			if got := a.undo(op["change"].(string)); got["changed"] != op["changed"] || got["skipped"] != 0.0 {
				t.Errorf("%s: %v, was %v", state, got, op)
			}
		}
		a.same(before)
		if got := a.undo(a.change(http.MethodDelete, "/v1/queues/mail/groups/g?undoable=true", nil)); got["changed"] != 2.0 {
			t.Errorf("%v", got)
		}
		a.same(before)
	})
}

func TestUndoOfMovesGivesEachMessageItsFormerDueTime(t *testing.T) {
	onEachStore(t, func(a *api) {
		ids := a.variety()
		before := a.infos(ids...)
		for _, at := range []string{`"in": "2h"`, `"at": "2100-01-01T00:00:00.001Z"`, `"at": "2001-01-01T00:00:00Z"`} {
			for _, id := range []string{"full", "failed", ids[2], "ready"} {
				if got := a.undo(a.change(http.MethodPatch, mail+"/"+id+"?undoable=true", "{"+at+"}")); got["changed"] != 1.0 {
					t.Errorf("%s %s: %v", at, id, got)
				}
			}
			a.same(before)
			group := a.change(http.MethodPatch, "/v1/queues/mail/groups/g?undoable=true", "{"+at+"}")
			if got := a.undo(group); got["changed"] != 2.0 {
				t.Errorf("%s: %v", at, got)
			}
			a.same(before)
			op := a.bulk(`{"filter": {"state": "scheduled"}, "action": "reschedule", ` + at + `}`)
			if got := a.undo(op["change"].(string)); got["changed"] != 4.0 || got["skipped"] != 0.0 {
				t.Errorf("%s: %v", at, got)
			}
			a.same(before)
		}
		op := a.bulk(`{"filter": {"state": "scheduled"}, "action": "shift", "by": "-10m"}`)
		if got := a.undo(op["change"].(string)); got["changed"] != 4.0 {
			t.Errorf("%v", got)
		}
		a.same(before)
	})
}

func TestUndoOfAnEditPutsTheMessageBack(t *testing.T) {
	onEachStore(t, func(a *api) {
		ids := a.variety()
		before := a.infos(ids...)
		for _, body := range []string{`{"payload": {"new": 1}}`, `{"headers": {"a": "b"}, "in": "3h"}`,
			`{"payload_text": "x", "at": "2100-01-01T00:00:00Z"}`, `{"payload_text": "x", "in": "0s"}`} {
			for _, id := range []string{"full", "failed", ids[2]} {
				change := a.change(http.MethodPatch, mail+"/"+id+"?undoable=true", body)
				if got := a.undo(change); got["changed"] != 1.0 {
					t.Errorf("%s of %s: %v", body, id, got)
				}
			}
			a.same(before)
		}
		change := a.change(http.MethodPatch, mail+"/full?undoable=true", `{"payload": 1}`)
		a.do(http.MethodPatch, mail+"/full", `{"payload": 2}`).is(http.StatusOK)
		a.refuses(change, `message "full" is no longer as the change left it`)
		a.do(http.MethodPatch, mail+"/full", `{"payload": 1}`).is(http.StatusOK)
		if got := a.undo(change); got["changed"] != 1.0 { // it was refused, so it can be tried again
			t.Errorf("%v", got)
		}
		a.same(before)
	})
}

func TestUndoLeavesWhatHasChangedSince(t *testing.T) {
	onEachStore(t, func(a *api) {
		a.fill(3)
		q := a.client.Queue("mail")
		moved := a.change(http.MethodPatch, mail+"/000?undoable=true", `{"in": "50h"}`)
		a.do(http.MethodPatch, mail+"/000", `{"in": "60h"}`).is(http.StatusOK)
		a.refuses(moved, `message "000" is no longer as the change left it`)
		gone := a.change(http.MethodPatch, mail+"/001?undoable=true", `{"in": "50h"}`)
		a.do(http.MethodDelete, mail+"/001", nil).is(http.StatusOK)
		a.refuses(gone, `message "001"`)

		cancelled := a.bulk(`{"filter": {"state": "scheduled"}, "action": "cancel"}`)["change"].(string)
		if _, err := q.Send(t.Context(), []byte("new"), later.WithID("000")); err != nil {
			t.Fatal(err)
		}
		if got := a.undo(cancelled); got["changed"] != 1.0 || got["skipped"] != 1.0 {
			t.Errorf("%v", got)
		}
		if m := a.infos("000")[0]; string(m.Payload) != "new" {
			t.Errorf("%+v", m)
		}
		one := a.change(http.MethodDelete, mail+"/002?undoable=true", nil)
		a.send("mail", "002")
		a.refuses(one, `the id "002" is no longer`)
		a.do(http.MethodDelete, mail+"/002", nil).is(http.StatusOK)
		if got := a.undo(one); got["changed"] != 1.0 {
			t.Errorf("%v", got)
		}
	})
}

func TestLeasedMessagesAreCancelledWithoutACopy(t *testing.T) {
	onEachStore(t, func(a *api) {
		a.send("mail", "1", "2")
		if d, err := a.client.Queue("mail").Receive(t.Context(), 2); err != nil || len(d) != 2 {
			t.Fatal(d, err)
		}
		r := a.do(http.MethodDelete, mail+"/1?undoable=true", nil)
		if r.is(http.StatusOK)["was"] != "leased" || r.header.Get("Later-Undoable") != "" {
			t.Errorf("%s %v", r.body, r.header)
		}
		a.refuses(r.header.Get("Later-Change"), "keeps nothing for that")
		op := a.bulk(`{"filter": {"state": "leased"}, "action": "cancel"}`)
		if op["changed"] != 1.0 {
			t.Errorf("%v", op)
		}
		a.refuses(op["change"].(string))
	})
}

func TestCancelThatKeepsTheIDIsNotUndoneWithinTheWindow(t *testing.T) {
	onEachStore(t, func(a *api) {
		a.variety()
		r := a.do(http.MethodDelete, mail+"/full?undoable=true&keep_id=true", nil)
		if r.is(http.StatusOK); r.header.Get("Later-Undoable") != "" {
			t.Error("it tells that it can be undone")
		}
		a.refuses(r.header.Get("Later-Change"))
		if got := a.undo(a.change(http.MethodDelete, mail+"/near?undoable=true&keep_id=true", nil)); got["changed"] != 1.0 {
			t.Errorf("without a window: %v", got)
		}
	})
}

func TestChangesWithoutAnUndoSaySo(t *testing.T) {
	a := newAPI(t)
	a.send("mail", "1", "2")
	for _, c := range []string{
		a.change(http.MethodPost, mail+"/1/run", nil),
		a.change(http.MethodPatch, mail+"/1", `{"in": "1h"}`), // which did not ask for it
		a.change(http.MethodDelete, mail+"/1", nil),
		a.bulk(`{"filter": {"state": "ready"}, "action": "run"}`)["change"].(string),
	} {
		a.refuses(c, "it left nothing to undo it with")
	}
	for _, c := range list(a.do(http.MethodGet, "/v1/changes", nil).is(http.StatusOK), "items") {
		if c["undo"] != nil {
			t.Errorf("%v", c)
		}
	}
}

func TestUndoOfSettings(t *testing.T) {
	onEachStore(t, func(a *api) {
		a.send("mail", "1")
		q := a.client.Queue("mail")
		undone := func(change string) {
			t.Helper()
			if got := a.undo(change); got["changed"] != 1.0 {
				t.Errorf("%v", got)
			}
		}
		paused := func() bool {
			s, err := q.Stats(t.Context())
			return s.Paused && err == nil
		}
		pause := a.change(http.MethodPost, "/v1/queues/mail/pause", nil)
		properties := func() map[string]string {
			p, err := a.client.Store().Properties(t.Context(), "mail")
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		before := properties()
		resume := a.change(http.MethodPost, "/v1/queues/mail/resume", nil)
		a.refuses(pause, "the queue is no longer as the change left it")
		if undone(resume); !paused() || !reflect.DeepEqual(properties(), before) {
			t.Errorf("paused %v with %v, was %v", paused(), properties(), before)
		}
		again := a.change(http.MethodPost, "/v1/queues/mail/pause", nil)
		a.refuses(again, "left nothing to undo it with") // it was paused before
		if undone(pause); paused() {
			t.Error("it is still paused")
		}

		flow := "/v1/queues/mail/flow"
		a.do(http.MethodPut, flow, `{"concurrency": 3, "rate": {"n": 5, "per": "1s", "burst": 2}}`).is(http.StatusOK)
		was := a.do(http.MethodGet, flow, nil).body
		set := a.change(http.MethodPut, flow, `{"fair": true, "key": {"concurrency": 1}}`)
		if undone(set); a.do(http.MethodGet, flow, nil).body != was {
			t.Error(a.do(http.MethodGet, flow, nil).body, was)
		}
		set = a.change(http.MethodPut, flow, `{}`)
		a.do(http.MethodPut, flow, `{"concurrency": 4}`).is(http.StatusOK)
		a.refuses(set, "the flow of the queue")

		retain := "/v1/queues/mail/dead-retention"
		a.do(http.MethodPut, retain, `{"max_age": "240h"}`).is(http.StatusOK)
		was = a.do(http.MethodGet, retain, nil).body
		set = a.change(http.MethodPut, retain, `{"max_count": 5}`)
		if undone(set); a.do(http.MethodGet, retain, nil).body != was {
			t.Error(a.do(http.MethodGet, retain, nil).body)
		}
	})
}

func TestFlowThatRemovedOverridesIsNotUndone(t *testing.T) {
	a := newAPI(t)
	a.send("mail", "1")
	a.do(http.MethodPut, "/v1/queues/mail/flow", `{"fair": true}`).is(http.StatusOK)
	a.do(http.MethodPut, "/v1/queues/mail/keys/k/flow", `{"weight": 5}`).is(http.StatusOK)
	a.refuses(a.change(http.MethodPut, "/v1/queues/mail/flow", `{}`), "left nothing to undo it with")
}

func TestUndoOfSchedules(t *testing.T) {
	onEachStore(t, func(a *api) {
		const one = "/v1/schedules/daily"
		a.do(http.MethodPut, one, `{"queue": "mail", "every": "24h", "payload": {"secret": 1}}`).is(http.StatusOK)
		was := a.do(http.MethodGet, one, nil).header.Get("ETag")
		set := a.change(http.MethodPut, one, `{"queue": "mail", "every": "1h", "payload": {"secret": 2}}`)
		if a.undo(set); a.do(http.MethodGet, one, nil).header.Get("ETag") != was {
			t.Error(a.do(http.MethodGet, one, nil).body)
		}
		set = a.change(http.MethodPut, one, `{"queue": "mail", "every": "2h"}`)
		a.do(http.MethodPut, one, `{"queue": "mail", "every": "3h"}`).is(http.StatusOK)
		a.refuses(set, `schedule "daily" is no longer`)

		pause := a.change(http.MethodPost, one+"/pause", `{"note": "holidays"}`)
		resume := a.change(http.MethodPost, one+"/resume", nil)
		a.refuses(pause, `schedule "daily"`)
		a.undo(resume)
		if got := a.do(http.MethodGet, one, nil).is(http.StatusOK); got["paused"] != true || got["pause_note"] != "holidays" {
			t.Errorf("%v", got)
		}
		a.change(http.MethodPost, one+"/resume", nil)
		pause = a.change(http.MethodPost, one+"/pause", nil)
		a.undo(pause)
		if got := a.do(http.MethodGet, one, nil).is(http.StatusOK); got["paused"] != false {
			t.Errorf("%v", got)
		}
		created := a.change(http.MethodPut, "/v1/schedules/new", `{"queue": "mail", "every": "24h"}`)
		a.refuses(created, "left nothing to undo it with")
		infos, err := a.client.Store().List(t.Context(), reserved.Changes,
			store.ListRequest{State: store.StateScheduled, Limit: 100})
		if err != nil || len(infos.Messages) == 0 {
			t.Fatal(infos, err)
		}
		for _, m := range infos.Messages {
			if bytes.Contains(m.Payload, []byte("secret")) {
				t.Errorf("%s", m.Payload)
			}
		}
	})
}

func TestUndoNeedsTheRightOfTheChange(t *testing.T) {
	a := newAPI(t)
	a.send("mail", "1", "2", "3")
	a.do(http.MethodPut, "/v1/schedules/daily", `{"queue": "mail", "every": "24h"}`).is(http.StatusOK)
	one := a.change(http.MethodDelete, mail+"/1?undoable=true", nil)
	bulk := a.bulk(`{"filter": {"state": "ready", "id": "2"}, "action": "cancel"}`)["change"].(string)
	schedule := a.change(http.MethodPost, "/v1/schedules/daily/pause", nil)
	for _, c := range []struct {
		who    access.Identity
		change string
		status int
	}{
		{access.Identity{Role: access.RoleRead}, one, http.StatusForbidden},
		{access.Identity{Role: access.RoleSend, Queues: []string{"other"}}, one, http.StatusNotFound},
		{access.Identity{Role: access.RoleSend}, bulk, http.StatusNotFound}, // it sees no list
		{access.Identity{Role: access.RoleOperate, Queues: []string{"other"}}, bulk, http.StatusNotFound},
		{operator("mail"), schedule, http.StatusNotFound},
		{access.Identity{Role: access.RoleRead}, schedule, http.StatusForbidden},
		{access.Identity{Role: access.RoleSend, Queues: []string{"mail"}}, one, http.StatusOK},
		{access.Identity{Role: access.RoleOperate, Queues: []string{"mail"}, HidePayloads: true}, bulk, http.StatusOK},
		{operator("mail", "schedules:"), schedule, http.StatusOK},
	} {
		c.who.Name = "x"
		b := a.as(c.who)
		shows := false
		if access.CheckRole(access.NewContext(t.Context(), c.who), access.Look) == nil {
			for _, listed := range list(b.do(http.MethodGet, "/v1/changes", nil).is(http.StatusOK), "items") {
				shows = shows || listed["id"] == c.change && listed["undo"] != nil
			}
			if shows != (c.status == http.StatusOK) {
				t.Errorf("%+v is shown that %s can be undone: %v", c.who, c.change, shows)
			}
		}
		if r := b.do(http.MethodPost, "/v1/changes/"+c.change+"/undo", nil); r.status != c.status {
			t.Errorf("%+v: %d %s, want %d", c.who, r.status, r.body, c.status)
		} else if strings.Contains(r.body, "payload") {
			t.Errorf("it shows payloads: %s", r.body)
		}
	}
}

func TestUndoOfASeries(t *testing.T) {
	onEachStore(t, func(a *api) {
		a.do(http.MethodPost, "/v1/queues/mail/series", `{"id": "s", "offsets": ["-24h", "-1h", "0s"],
			"until": "2100-01-01T00:00:00Z", "payload": {"order": 1}}`).is(http.StatusCreated)
		const one = "/v1/queues/mail/series/s"
		before := a.do(http.MethodGet, one, nil).body
		for method, body := range map[string]any{http.MethodDelete: nil,
			http.MethodPatch: `{"until": "2100-02-01T00:00:00Z"}`} {
			change := a.change(method, one+"?undoable=true", body)
			if got := a.undo(change); got["changed"] != 3.0 {
				t.Errorf("%s: %v", method, got)
			}
			if after := a.do(http.MethodGet, one, nil).body; after != before {
				t.Errorf("%s\nhas %s\nwant %s", method, after, before)
			}
		}
	})
}

func TestUndoOfAPauseOfAWorker(t *testing.T) {
	a := newAPI(t)
	w := later.NewWorker(a.client, later.WorkerConfig{Name: "w", Logger: slog.New(slog.DiscardHandler)})
	w.Handle("mail", func(context.Context, *later.Message) error { return nil })
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	state := func() any {
		all := list(a.do(http.MethodGet, "/v1/workers?report=true", nil).is(http.StatusOK), "items")
		if len(all) != 1 {
			return nil
		}
		return all[0]["state"]
	}
	for state() == nil {
		runtime.Gosched()
	}
	pause := a.change(http.MethodPost, "/v1/workers/w/pause", nil)
	if got := state(); got != "paused" {
		t.Error(got)
	}
	if a.undo(pause); state() != "running" {
		t.Error(state())
	}
	pause = a.change(http.MethodPost, "/v1/workers/w/pause", nil)
	resume := a.change(http.MethodPost, "/v1/workers/w/resume", nil)
	a.refuses(pause, "the worker is no longer as the change left it")
	if a.undo(resume); state() != "paused" {
		t.Error(state())
	}
	drain := a.change(http.MethodPost, "/v1/workers/w/drain", nil)
	a.refuses(drain, "left nothing to undo it with")
}
