package server

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/laterq/later"
)

// fill sends messages 000, 001 and so on, due an hour apart, with their number as payload.
func (a *api) fill(n int) {
	a.t.Helper()
	msgs := make([]later.Outgoing, n)
	for i := range msgs {
		msgs[i] = later.Outgoing{ID: fmt.Sprintf("%03d", i), Payload: fmt.Appendf(nil, `{"n": %d}`, i),
			When: later.In(time.Duration(i+1) * time.Hour)}
	}
	if _, err := a.client.Queue("mail").SendBatch(a.t.Context(), msgs); err != nil {
		a.t.Fatal(err)
	}
}

// bulk makes a bulk change and returns its operation when it has ended.
func (a *api) bulk(body string) map[string]any {
	a.t.Helper()
	started := a.do(http.MethodPost, "/v1/queues/mail/bulk", body)
	started.is(http.StatusAccepted)
	return a.do(http.MethodGet, started.header.Get("Location")+"?wait=1m", nil).is(http.StatusOK)
}

func TestBulkDryRunChangesNothing(t *testing.T) {
	a := newAPI(t)
	a.fill(30)
	op := a.bulk(`{"filter": {"state": "scheduled", "json": "n >= 10"}, "action": "cancel", "dry_run": true}`)
	if op["state"] != "done" || op["matched"] != 20.0 || op["looked"] != 30.0 || op["changed"] != 0.0 ||
		len(list(op, "examples")) != 10 || list(op, "examples")[0]["id"] != "010" {
		t.Errorf("%v", op)
	}
	if stats, err := a.client.Queue("mail").Stats(t.Context()); err != nil || stats.Scheduled != 30 {
		t.Errorf("%+v, %v", stats, err)
	}
}

func TestBulkShiftIsUndoneByItsOpposite(t *testing.T) {
	a := newAPI(t)
	a.fill(600)
	due := func(id string) time.Time {
		info, err := a.client.Queue("mail").Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return info.Due
	}
	before := [2]time.Time{due("000"), due("599")}
	op := a.bulk(`{"filter": {"state": "scheduled"}, "action": "shift", "by": "2d"}`)
	if op["changed"] != 600.0 || op["skipped"] != 0.0 || op["state"] != "done" {
		t.Fatalf("%v", op)
	}
	if got := due("599").Sub(before[1]); got != 48*time.Hour {
		t.Errorf("moved by %v", got)
	}
	a.bulk(`{"filter": {"state": "scheduled"}, "action": "shift", "by": "-2d"}`)
	if after := [2]time.Time{due("000"), due("599")}; after != before {
		t.Errorf("%v, was %v", after, before)
	}
}

func TestUndoOfAShiftMovesBackExactlyWhatItMoved(t *testing.T) {
	a := newAPI(t)
	a.fill(30)
	q := a.client.Queue("mail")
	dues := func() (all []time.Time) {
		for i := range 30 {
			info, err := q.Get(t.Context(), fmt.Sprintf("%03d", i))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, info.Due)
		}
		return all
	}
	before := dues()
	// The first ten messages move among the others. A shift back by the same duration would move the others, too.
	shift := a.bulk(`{"filter": {"state": "scheduled", "json": "n < 10"}, "action": "shift", "by": "10h"}`)
	if shift["changed"] != 10.0 {
		t.Fatalf("%v", shift)
	}
	moved := before[3].Add(time.Hour)
	if err := q.Reschedule(t.Context(), "003", later.At(moved)); err != nil {
		t.Fatal(err)
	}
	change := "/v1/changes/" + shift["change"].(string) + "/undo"
	undone := a.do(http.MethodPost, change, nil).is(http.StatusOK)
	if undone["changed"] != 9.0 || undone["skipped"] != 1.0 || undone["operation"] != nil {
		t.Errorf("%v", undone)
	}
	before[3] = moved
	if after := dues(); !slices.EqualFunc(after, before, time.Time.Equal) {
		t.Errorf("due %v, want %v", after, before)
	}
	a.do(http.MethodPost, change, nil).fails(http.StatusConflict, "conflict", "", "it was undone by anyone")
	a.do(http.MethodPost, "/v1/changes/none/undo", nil).fails(http.StatusNotFound, "not_found", "")
}

func TestBulkActionsChangeWhatMatches(t *testing.T) {
	a := newAPI(t)
	a.fill(10)
	q := a.client.Queue("mail")
	if op := a.bulk(`{"filter": {"state": "scheduled", "id": "00"}, "action": "reschedule", "at": "2100-01-01T00:00:00Z",
		"per_second": 1000}`); op["changed"] != 10.0 {
		t.Errorf("%v", op)
	}
	if op := a.bulk(`{"filter": {"state": "scheduled", "json": "n < 4"}, "action": "run"}`); op["changed"] != 4.0 {
		t.Errorf("%v", op)
	}
	got, err := q.Receive(t.Context(), 4)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range got {
		if err := d.Bury(t.Context(), fmt.Errorf("no room")); err != nil {
			t.Fatal(err)
		}
	}
	op := a.bulk(`{"filter": {"state": "dead", "error": "room"}, "action": "replay", "in": "1h"}`)
	if op["changed"] != 4.0 {
		t.Errorf("%v", op)
	}
	if op := a.bulk(`{"filter": {"state": "scheduled"}, "action": "cancel"}`); op["changed"] != 10.0 {
		t.Errorf("%v", op)
	}
	all := a.do(http.MethodGet, "/v1/operations", nil).is(http.StatusOK)
	if len(list(all, "items")) != 4 {
		t.Errorf("%v", all)
	}
}

func TestBulkCanBeStopped(t *testing.T) {
	a := newAPI(t)
	a.fill(100)
	started := a.do(http.MethodPost, "/v1/queues/mail/bulk",
		`{"filter": {"state": "scheduled"}, "action": "cancel", "per_second": 1}`)
	started.is(http.StatusAccepted)
	one := started.header.Get("Location")
	a.do(http.MethodDelete, one, nil).is(http.StatusOK)
	op := a.do(http.MethodGet, one+"?wait=1m", nil).is(http.StatusOK)
	if op["state"] != "stopped" || op["changed"].(float64) > 50 {
		t.Errorf("%v", op)
	}
	a.do(http.MethodGet, "/v1/operations/none", nil).fails(http.StatusNotFound, "not_found", "")
}

func TestBulkRefusesWhatAnActionDoesNotTake(t *testing.T) {
	a := newAPI(t)
	for body, field := range map[string]string{
		`{"filter": {"state": "dead"}, "action": "cancel", "in": "1h"}`:                               "in",
		`{"filter": {"state": "dead"}, "action": "reschedule"}`:                                       "in",
		`{"filter": {"state": "dead"}, "action": "shift"}`:                                            "by",
		`{"filter": {"state": "dead"}, "action": "shift", "by": "2x"}`:                                "by",
		`{"filter": {"state": "dead"}, "action": "run", "keep_id": true}`:                             "keep_id",
		`{"filter": {"state": "dead", "json": "nonsense"}, "action": "cancel"}`:                       "json",
		`{"filter": {"state": "gone"}, "action": "cancel"}`:                                           "filter.state",
		`{"filter": {"state": "dead"}, "action": "explode"}`:                                          "action",
		`{"filter": {"state": "dead"}, "action": "replay", "in": "1h", "at": "2100-01-01T00:00:00Z"}`: "in",
	} {
		a.do(http.MethodPost, "/v1/queues/mail/bulk", body).fails(http.StatusBadRequest, "invalid", field)
	}
	a.do(http.MethodPost, "/v1/queues/mail/bulk", `{"filter": {}, "action": "cancel"}`).
		fails(http.StatusBadRequest, "invalid", "", "state")
}
