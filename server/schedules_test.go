package server

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/laterq/later"
	"github.com/laterq/later/recurrence"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

const nightly = "/v1/schedules/nightly"

func TestScheduleFromPutToDelete(t *testing.T) {
	a := newAPI(t)
	put := a.do(http.MethodPut, nightly, `{"queue": "reports", "cron": "0 2 * * *", "time_zone": "Europe/Berlin",
		"payload": {"kind": "daily"}, "missed_within": "1d", "headers": {"kind": "report"}}`).is(http.StatusOK)
	if put["result"] != "created" || put["schedule"] != "nightly" {
		t.Errorf("%v", put)
	}
	got := a.do(http.MethodGet, nightly, nil).is(http.StatusOK)
	if got["cron"] != "0 2 * * *" || !reflect.DeepEqual(got["payload"], map[string]any{"kind": "daily"}) ||
		got["missed_within"] != "24h0m0s" || got["finished"] != false || got["next_run"] == nil {
		t.Errorf("%v", got)
	}
	body := map[string]any{} // the settings that were read can be stored again
	for name := range humaSchema(t, a, "ScheduleSettings").Properties {
		if value, ok := got[name]; ok {
			body[name] = value
		}
	}
	if again := a.do(http.MethodPut, nightly, body).is(http.StatusOK); again["result"] != "unchanged" {
		t.Errorf("%v", again)
	}
	runs := list(a.do(http.MethodGet, nightly+"/next?limit=3", nil).is(http.StatusOK), "items")
	if len(runs) != 3 || runs[0]["time_zone"] != "Europe/Berlin" ||
		!strings.Contains(runs[0]["local"].(string), "T02:00") {
		t.Errorf("%v", runs)
	}
	a.do(http.MethodPost, nightly+"/pause", `{"note": "moving"}`).is(http.StatusOK)
	if got := a.do(http.MethodGet, nightly, nil).
		is(http.StatusOK); got["paused"] != true || got["pause_note"] != "moving" {
		t.Errorf("%v", got)
	}
	if runs := list(a.do(http.MethodGet, nightly+"/next", nil).is(http.StatusOK), "items"); len(runs) != 0 {
		t.Errorf("%v", runs)
	}
	a.do(http.MethodPost, nightly+"/resume", nil).is(http.StatusOK)
	run := a.do(http.MethodPost, nightly+"/trigger", nil).is(http.StatusOK)
	if run["cause"] != "triggered" || run["id"] == "" {
		t.Errorf("%v", run)
	}
	const week = `"from": "2026-01-01T00:00:00Z", "to": "2026-01-08T00:00:00Z"`
	if b := a.do(http.MethodPost, nightly+"/backfill", "{"+week+`, "dry_run": true}`).
		is(http.StatusOK); b["runs"] != 7.0 ||
		b["sent"] != 0.0 || b["dry_run"] != true {
		t.Errorf("%v", b)
	}
	a.do(http.MethodPost, nightly+"/backfill", "{"+week+"}").is(http.StatusOK)
	if b := a.do(http.MethodPost, nightly+"/backfill", "{"+week+"}").is(http.StatusOK); b["duplicates"] != 7.0 {
		t.Errorf("%v", b)
	}
	if got := a.do(http.MethodGet, "/v1/queues/reports", nil).is(http.StatusOK); got["ready"] != 8.0 {
		t.Errorf("%v", got)
	}
	a.do(http.MethodDelete, nightly, nil).is(http.StatusOK)
	for _, path := range []string{"", "/next"} {
		a.do(http.MethodGet, nightly+path, nil).fails(http.StatusNotFound, "not_found", "")
	}
	for _, action := range []string{"pause", "resume", "trigger"} {
		a.do(http.MethodPost, nightly+"/"+action, nil).fails(http.StatusNotFound, "not_found", "")
	}
	a.do(http.MethodDelete, nightly, nil).fails(http.StatusNotFound, "not_found", "")
}

func TestSchedulesAreListedAlsoIfTheyCannotBeRead(t *testing.T) {
	a := newAPI(t)
	for i := range 3 {
		a.do(http.MethodPut, fmt.Sprintf("/v1/schedules/s%d", i), `{"queue": "q", "every": "1h"}`).is(http.StatusOK)
	}
	_, err := a.client.Store().Send(t.Context(), "schedules:", []store.Outgoing{{
		Message: store.Message{ID: "bad", Payload: []byte("nonsense"), Group: "schedules", MaxAttempts: 1},
		Due:     store.Due{At: time.Now().Add(time.Hour)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	page := a.do(http.MethodGet, "/v1/schedules?limit=2", nil).is(http.StatusOK)
	bad := list(page, "unreadable")
	if len(bad) != 1 || bad[0]["code"] != "corrupt" || len(list(page, "items")) != 1 {
		t.Fatalf("%v", page)
	}
	rest := a.do(http.MethodGet, "/v1/schedules?limit=2&cursor="+page["next"].(string), nil).is(http.StatusOK)
	if schedules := list(rest, "items"); len(schedules) != 2 || schedules[1]["name"] != "s2" {
		t.Errorf("%v", rest)
	}
	limited := a.as(operator("schedules:", "q"))
	limited.do(http.MethodDelete, "/v1/schedules/bad", nil).fails(http.StatusForbidden, "forbidden", "")
	if _, ok := limited.do(http.MethodGet, "/v1/schedules", nil).is(http.StatusOK)["unreadable"]; ok {
		t.Error("somebody limited to queues learns of a schedule of nobody knows which")
	}
	a.as(operator()).do(http.MethodDelete, "/v1/schedules/bad", nil).is(http.StatusOK)
	runs := list(a.do(http.MethodGet, "/v1/schedules-upcoming?limit=5", nil).is(http.StatusOK), "items")
	if len(runs) != 5 || runs[0]["schedule"] == runs[1]["schedule"] {
		t.Errorf("%v", runs)
	}
}

func TestScheduleRequestsThatAreWrongNameTheField(t *testing.T) {
	a := newAPI(t)
	for _, c := range []struct{ body, field, text string }{
		{`{"cron": "0 2 * * *"}`, "queue", "is empty"},
		{`{"queue": "q", "cron": "0 25 * * *"}`, "cron", "25"},
		{`{"queue": "q"}`, "schedule", "exactly one"},
		{`{"queue": "q", "every": "soon"}`, "every", `field "every"`},
		{`{"queue": "q", "series": {"first": "1h", "factor": -1, "count": 3}}`, "series.factor", "above 0"},
		{`{"queue": "q", "cron": "@daily", "time_zone": "Mars"}`, "time_zone", "unknown"},
		{`{"queue": "q", "every": "1h", "missed": "some"}`, "missed", "one of"},
		{`{"queue": "q", "every": "1h", "evry": "1h"}`, "evry", "did you mean every?"},
		{`{"queue": "q", "every": "1h", "name": "other"}`, "name", "omit it"},
		{`{"queue": "q", "every": "1h", "missed": "all"}`, "", "unfinished"},
		{`{"queue": "topic-history:x", "every": "1h"}`, "", "belongs to a topic"},
	} {
		a.do(http.MethodPut, nightly, c.body).fails(http.StatusBadRequest, "invalid", c.field, c.text)
	}
	a.do(http.MethodPut, nightly, `{"queue": "q", "every": "1h"}`).is(http.StatusOK)
	a.do(http.MethodPost, nightly+"/backfill", `{"from": "2026-01-02T00:00:00Z", "to": "2026-01-01T00:00:00Z"}`).
		fails(http.StatusBadRequest, "invalid", "to")
	a.do(http.MethodPost, nightly+"/pause", `{"note": 5}`).fails(http.StatusBadRequest, "invalid", "note")
	a.do(http.MethodGet, nightly+"/next?limit=0", nil).fails(http.StatusBadRequest, "invalid", "query.limit")
	a.do(http.MethodPost, "/v1/schedule-preview", `{"rrule": "FREQ=SOMETIMES"}`).
		fails(http.StatusBadRequest, "invalid", "rrule")
	a.do(http.MethodPost, "/v1/schedules/apply", `{"schedules": [], "prune": true}`).
		fails(http.StatusBadRequest, "invalid", "set")
	a.do(http.MethodPost, "/v1/schedules/apply",
		`{"schedules": [{"name": "a", "queue": "q", "every": "1h"}, {"cron": "x"}]}`).
		fails(http.StatusBadRequest, "invalid", "schedules[1].cron", "cron")
}

func TestScheduleRunsHaveTheirStates(t *testing.T) {
	a := newAPI(t)
	a.do(http.MethodPut, "/v1/schedules/daily", `{"queue": "mail", "cron": "0 9 * * *", "time_zone": "Europe/Berlin"}`).
		is(http.StatusOK)
	got := a.do(http.MethodGet, "/v1/schedules/daily/runs?from=2050-07-01T00:00:00Z&to=2050-07-03T00:00:00Z", nil).
		is(http.StatusOK)
	runs := list(got, "items")
	if len(runs) != 2 || runs[1]["nominal"] != "2050-07-02T07:00:00.000Z" || runs[1]["state"] != "planned" ||
		runs[1]["local"] != "2050-07-02T09:00:00.000+02:00" || runs[1]["id"] == "" {
		t.Errorf("%v", got)
	}
	got = a.do(http.MethodGet, "/v1/schedules/daily/runs?limit=3", nil).is(http.StatusOK)
	if len(list(got, "items")) != 3 {
		t.Errorf("%v", got)
	}
	past := a.do(http.MethodGet, "/v1/schedules/daily/runs?from=2000-01-01T00:00:00Z&to=2001-01-01T00:00:00Z", nil)
	if past.body != `{"items":[]}`+"\n" {
		t.Error(past.body)
	}
}

func TestSchedulePreviewStoresNothing(t *testing.T) {
	a := newAPI(t)
	got := a.do(http.MethodPost, "/v1/schedule-preview?limit=2&after=2030-03-30T12:00:00Z",
		`{"name": "x", "cron": "30 2 * * *", "time_zone": "Europe/Berlin"}`).is(http.StatusOK)
	runs := list(got, "items")
	if len(runs) != 2 || runs[0]["local"] != "2030-03-31T03:30:00.000+02:00" ||
		runs[1]["due"] != "2030-04-01T00:30:00.000Z" {
		t.Errorf("%v", runs)
	}
	if all := list(a.do(http.MethodGet, "/v1/schedules", nil).is(http.StatusOK), "items"); len(all) != 0 {
		t.Errorf("%v", all)
	}
}

func TestApplySaysWhatItChanges(t *testing.T) {
	a := newAPI(t)
	apply := func(body string) []map[string]any {
		t.Helper()
		return list(a.do(http.MethodPost, "/v1/schedules/apply", body).is(http.StatusOK), "schedules")
	}
	const both = `{"set": "s", "schedules": [
		{"name": "b", "queue": "q", "every": "1h"}, {"name": "a", "queue": "q", "every": "1h"}]`
	if dry := apply(both + `, "dry_run": true}`); len(dry) != 2 || dry[0]["result"] != "created" ||
		dry[0]["dry_run"] != true {
		t.Errorf("%v", dry)
	}
	a.do(http.MethodGet, "/v1/schedules/a", nil).fails(http.StatusNotFound, "not_found", "")
	apply(both + "}")
	got := apply(`{"set": "s", "prune": true, "schedules": [{"name": "a", "queue": "q", "every": "2h"}]}`)
	if len(got) != 2 || got[0]["result"] != "changed" || got[1]["result"] != "deleted" {
		t.Fatalf("%v", got)
	}
	if fields := list(got[0], "fields"); len(fields) != 1 || fields[0]["old"] != "1h0m0s" ||
		fields[0]["new"] != "2h0m0s" {
		t.Errorf("%v", fields)
	}
}

func TestSchedulesOfOthersAreOutOfReach(t *testing.T) {
	a := newAPI(t)
	for name, queue := range map[string]string{"mine": "mail", "theirs": "orders"} {
		body := fmt.Sprintf(`{"queue": %q, "every": "1h", "set": "s", "payload": "secret"}`, queue)
		a.do(http.MethodPut, "/v1/schedules/"+name, body).
			is(http.StatusOK)
	}
	a.as(operator("mail")).do(http.MethodGet, "/v1/schedules", nil).fails(http.StatusForbidden, "forbidden", "")
	a.as(operator("mail")).do(http.MethodGet, "/v1/schedules/mine", nil).fails(http.StatusForbidden, "forbidden", "")
	limited := a.as(operator("mail", "schedules:"))
	if all := list(limited.do(http.MethodGet, "/v1/schedules", nil).is(http.StatusOK), "items"); len(all) != 1 ||
		all[0]["name"] != "mine" || all[0]["payload"] != "secret" {
		t.Errorf("%v", all)
	}
	runs := list(limited.do(http.MethodGet, "/v1/schedules-upcoming?limit=4", nil).is(http.StatusOK), "items")
	if len(runs) != 4 || slices.ContainsFunc(runs, func(r map[string]any) bool { return r["schedule"] != "mine" }) {
		t.Errorf("%v", runs)
	}
	limited.do(http.MethodPut, "/v1/schedules/new", `{"queue": "mail", "every": "1h"}`).is(http.StatusOK)
	limited.do(http.MethodPut, "/v1/schedules/new", `{"queue": "orders", "every": "1h"}`).
		fails(http.StatusForbidden, "forbidden", "queue")
	limited.do(http.MethodPut, "/v1/schedules/theirs", `{"queue": "mail", "every": "1h"}`).
		fails(http.StatusForbidden, "forbidden", "")
	limited.do(http.MethodGet, "/v1/schedules/theirs", nil).fails(http.StatusForbidden, "forbidden", "")
	limited.do(http.MethodGet, "/v1/schedules/theirs/next", nil).fails(http.StatusForbidden, "forbidden", "")
	limited.do(http.MethodDelete, "/v1/schedules/theirs", nil).fails(http.StatusForbidden, "forbidden", "")
	for _, action := range []string{"pause", "resume", "trigger"} {
		limited.do(http.MethodPost, "/v1/schedules/theirs/"+action, nil).fails(http.StatusForbidden, "forbidden", "")
	}
	limited.do(http.MethodPost, "/v1/schedules/theirs/backfill",
		`{"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"}`).
		fails(http.StatusForbidden, "forbidden", "")
	for _, body := range []string{
		`{"schedules": [{"name": "x", "queue": "orders", "every": "1h"}]}`,
		`{"set": "s", "schedules": [{"name": "theirs", "queue": "mail", "every": "1h"}]}`,
		`{"set": "s", "prune": true, "schedules": []}`,
	} {
		if got := limited.do(http.MethodPost, "/v1/schedules/apply", body); got.status != http.StatusForbidden {
			t.Errorf("%s: %d %s", body, got.status, got.body)
		}
	}
	reader := access.Identity{Name: "page", Role: access.RoleRead, HidePayloads: true}
	if got := a.as(reader).do(http.MethodGet, "/v1/schedules/mine", nil).is(http.StatusOK); got["payload"] != nil {
		t.Errorf("%v", got)
	}
	a.as(reader).do(http.MethodPut, "/v1/schedules/mine", `{"queue": "mail", "every": "1h"}`).
		fails(http.StatusForbidden, "forbidden", "")
}

// humaSchema returns a schema of the description.
func humaSchema(t *testing.T, a *api, name string) *huma.Schema {
	t.Helper()
	schema := a.server.api.OpenAPI().Components.Schemas.Map()[name]
	if schema == nil {
		t.Fatalf("no schema %s", name)
	}
	return schema
}

func TestScheduleSchemaHasTheFieldsOfItsJSON(t *testing.T) {
	a := newAPI(t)
	now, day := time.Now(), 24*time.Hour
	schedule := later.Schedule{
		Name: "n", Queue: "q", Set: "s", Payload: []byte("x"), Headers: map[string]string{"k": "v"}, MaxAttempts: 1,
		Timeout: day, ExpireAfter: day, Group: "g", Key: "k", Urgency: later.UrgencyLow, DedupWindow: day,
		Missed: later.MissedAll, MissedWithin: day,
		MissedMax: 1, Unfinished: later.UnfinishedAllow,
		When: recurrence.Spec{Cron: "c", Every: day, RRule: "r", Times: []time.Time{now}, TimeZone: "z", Start: now,
			End:    now,
			Series: &recurrence.Series{First: day, Factor: 2, Min: day, Max: day, Count: 1}, Exclude: []string{"e"},
			Jitter: day, MaxRuns: 1, Gap: recurrence.GapSkip, Overlap: recurrence.OverlapBoth},
	}
	info := later.ScheduleInfo{Schedule: schedule, Created: now, Changed: now, NextRun: later.Run{Nominal: now},
		LastRun: later.Run{Nominal: now}, PauseNote: "p", PausedAt: now, Buffered: now,
		LastMissed: now, LastSkipped: now}
	for name, value := range map[string]any{"ScheduleSettings": schedule, "Schedule": info} {
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]any
		if err := json.Unmarshal(text, &fields); err != nil {
			t.Fatal(err)
		}
		fields["payload"], fields["payload_base64"] = "in place of payload_text", ""
		got, want := slices.Sorted(maps.Keys(humaSchema(t, a, name).Properties)), slices.Sorted(maps.Keys(fields))
		if !slices.Equal(got, want) {
			t.Errorf("%s has %v, its JSON %v", name, got, want)
		}
	}
	got := slices.Sorted(maps.Keys(humaSchema(t, a, "ScheduleSeries").Properties))
	if !slices.Equal(got, []string{"count", "factor", "first", "max", "min"}) {
		t.Errorf("series: %v", got)
	}
}
