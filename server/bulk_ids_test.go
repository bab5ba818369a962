package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/laterq/later"
	"github.com/laterq/later/server/access"
)

func TestBulkChangeOfIdsChangesTheseOnly(t *testing.T) {
	a := newAPI(t)
	a.fill(60)
	q := a.client.Queue("mail")
	if err := q.RunNow(t.Context(), "003"); err != nil { // it is ready
		t.Fatal(err)
	}
	var all []string
	for i := range 40 {
		all = append(all, fmt.Sprintf("%03d", i))
	}
	ids := `["` + strings.Join(all, `", "`) + `", "001", "gone"]` // one of them twice
	const rest = `"state": "scheduled"}, "action": "shift", "by": "24h"`
	dry := a.bulk(`{"filter": {"ids": ` + ids + `, ` + rest + `, "dry_run": true}`)
	if dry["looked"] != 41.0 || dry["matched"] != 39.0 || dry["skipped"] != 2.0 || dry["changed"] != 0.0 ||
		len(list(dry, "examples")) != maxExamples {
		t.Errorf("the dry run: %v", dry)
	}
	op := a.bulk(`{"filter": {"ids": ` + ids + `, ` + rest + `}`)
	if op["changed"] != 39.0 || op["skipped"] != 2.0 || op["state"] != "done" || op["undo"] == nil {
		t.Errorf("%v", op)
	}
	if back := a.undo(op["change"].(string)); back["changed"] != 39.0 {
		t.Errorf("undone: %v", back)
	}
	if op := a.bulk(`{"filter": {"ids": ["003", "004"], "state": "ready"}, "action": "cancel"}`); op["changed"] != 1.0 {
		t.Errorf("of ready ones: %v", op)
	}
	if stats, err := q.Stats(t.Context()); err != nil || stats.Scheduled != 59 || stats.Ready != 0 {
		t.Errorf("%+v, %v", stats, err)
	}
	changes := a.do(http.MethodGet, "/v1/changes", nil).is(http.StatusOK)
	if text := fmt.Sprint(list(changes, "items")); !strings.Contains(text, "id_count:42") ||
		strings.Contains(text, " 030") {
		t.Errorf("the changes are %s", text)
	}
}

func TestIdsOfABulkChangeMatchTheWholeFilter(t *testing.T) {
	a := newAPI(t)
	q := a.client.Queue("mail")
	for id, group := range map[string]string{"a": "g", "b": "g", "c": "h"} {
		if _, err := q.Send(t.Context(), []byte(`{"id": "`+id+`"}`), later.WithID(id), later.Group(group)); err != nil {
			t.Fatal(err)
		}
	}
	held, err := q.Receive(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range held {
		if err := d.Bury(t.Context(), fmt.Errorf("no room for %s", d.ID)); err != nil {
			t.Fatal(err)
		}
	}
	const ids = `"ids": ["a", "b", "c"]`
	for filter, want := range map[string]float64{
		`"group": "g"`:                                                    2,
		`"state": "dead", "error": "for b"`:                               1,
		`"state": "dead", "json": "id = c"`:                               1,
		`"state": "dead", "q": "group:h"`:                                 0, // a group has no state
		`"state": "dead", "due_before": "2000-01-01T00:00:00Z"`:           0,
		`"state": "dead", "due_after": "2000-01-01T00:00:00Z"`:            3,
		`"state": "scheduled"`:                                            0,
		`"state": "dead", "id": "a", "due_after": "2000-01-01T00:00:00Z"`: 1,
	} {
		body := `{"filter": {` + ids + `, ` + filter + `}, "action": "replay", "dry_run": true}`
		if strings.Contains(filter, "group:h") {
			a.do(http.MethodPost, "/v1/queues/mail/bulk", body).fails(http.StatusBadRequest, "invalid", "")
			continue
		}
		if op := a.bulk(body); op["matched"] != want {
			t.Errorf("%s: %v match, want %v", filter, op["matched"], want)
		}
	}
}

func TestBulkChangeRefusesWrongIds(t *testing.T) {
	a := newAPI(t)
	a.fill(1)
	many := make([]string, 1001)
	for i := range many {
		many[i] = fmt.Sprintf(`"%d"`, i)
	}
	for ids, field := range map[string]string{
		`[]`:                                   "filter.ids",
		`[` + strings.Join(many, ",") + `]`:    "filter.ids",
		`["000", ""]`:                          "filter.ids[1]",
		`["` + strings.Repeat("x", 129) + `"]`: "filter.ids[0]",
		`"000"`:                                "filter.ids",
		`[7]`:                                  "filter.ids[0]",
	} {
		a.do(http.MethodPost, "/v1/queues/mail/bulk", `{"filter": {"state": "scheduled", "ids": `+ids+`}, "action": "run"}`).
			fails(http.StatusBadRequest, "invalid", field)
	}
	a.do(http.MethodPost, "/v1/queues/mail/bulk", `{"filter": {"ids": ["000"]}, "action": "run"}`).
		fails(http.StatusBadRequest, "invalid", "", "state")
	a.do(http.MethodGet, "/v1/queues/mail/messages?ids=000", nil).fails(http.StatusBadRequest, "invalid", "query.ids")
}

func TestBulkChangeOfIdsNeedsTheSameRights(t *testing.T) {
	a := newAPI(t)
	a.fill(2)
	const body = `{"filter": {"state": "scheduled", "ids": ["000"]}, "action": "cancel"}`
	for name, who := range map[string]access.Identity{
		"a reader":                 {Name: "r", Role: access.RoleRead},
		"a sender":                 {Name: "s", Role: access.RoleSend},
		"an operator of something": {Name: "o", Role: access.RoleOperate, Queues: []string{"other"}},
	} {
		if got := a.as(who).do(http.MethodPost, "/v1/queues/mail/bulk", body); got.status != http.StatusForbidden {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	secretary := a.as(access.Identity{Name: "h", Role: access.RoleOperate, HidePayloads: true})
	secretary.do(http.MethodPost, "/v1/queues/mail/bulk", `{"filter": {"state": "scheduled",
		"ids": ["000"], "payload": "0"},
		"action": "cancel"}`).is(http.StatusForbidden)
	dry := secretary.do(http.MethodPost, "/v1/queues/mail/bulk", `{"filter": {"state": "scheduled", "ids": ["000"]},
		"action": "cancel", "dry_run": true}`)
	dry.is(http.StatusAccepted)
	op := secretary.do(http.MethodGet, dry.header.Get("Location")+"?wait=1m", nil).is(http.StatusOK)
	if _, shown := list(op, "examples")[0]["payload"]; shown || op["matched"] != 1.0 {
		t.Errorf("the dry run: %v", op)
	}
	if stats, err := a.client.Queue("mail").Stats(t.Context()); err != nil || stats.Scheduled != 2 {
		t.Errorf("%+v, %v", stats, err)
	}
}
