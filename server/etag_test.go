package server

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/recurrence"
	"github.com/laterq/later/server/access"
)

func TestScheduleIsReplacedOnlyAsThePreconditionSays(t *testing.T) {
	a := newAPI(t)
	const body, other = `{"queue": "q", "every": "1h"}`, `{"queue": "q", "every": "2h"}`
	put := func(body string, headers ...string) *reply { return a.do(http.MethodPut, nightly, body, headers...) }
	refused := func(r *reply) {
		t.Helper()
		r.fails(http.StatusPreconditionFailed, "conflict", "", "read it again")
	}
	refused(put(body, "If-Match", "*"))
	created := put(body, "If-None-Match", "*")
	created.is(http.StatusOK)
	refused(put(body, "If-None-Match", "*"))
	got := a.do(http.MethodGet, nightly, nil)
	first := got.header.Get("ETag")
	if got.is(http.StatusOK); first == "" || created.header.Get("ETag") != first {
		t.Errorf("ETag %q, and %q of the PUT", first, created.header.Get("ETag"))
	}
	a.do(http.MethodPost, nightly+"/pause", nil).is(http.StatusOK)
	a.do(http.MethodPost, nightly+"/trigger", nil)
	changed := put(other, "If-Match", `"unknown", `+first)
	changed.is(http.StatusOK)
	if changed.header.Get("ETag") == first || changed.header.Get("ETag") == "" {
		t.Errorf("the ETag of another schedule is %q", changed.header.Get("ETag"))
	}
	refused(put(body, "If-Match", first))
	if again := a.do(http.MethodGet, nightly, nil); again.is(http.StatusOK)["every"] != "2h0m0s" ||
		again.header.Get("ETag") != changed.header.Get("ETag") {
		t.Errorf("%s %s", again.body, again.header)
	}
	put(body, "If-Match", "*").is(http.StatusOK)
	put(body, "If-Match", "abc").fails(http.StatusBadRequest, "invalid", "header.If-Match", "in its quotes")
	put(body, "If-None-Match", first).fails(http.StatusBadRequest, "invalid", "header.If-None-Match", "give *")
	hidden := a.as(access.Identity{Name: "page", Role: access.RoleRead, HidePayloads: true}).do(http.MethodGet, nightly, nil)
	if hidden.is(http.StatusOK); hidden.header.Get("ETag") != "" {
		t.Errorf("a hidden payload can be guessed by its ETag %q", hidden.header.Get("ETag"))
	}
}

// TestSchedulePreconditionIsCheckedInTheStepOfTheChange has somebody else replace the schedule between the check and the
// change.
func TestSchedulePreconditionIsCheckedInTheStepOfTheChange(t *testing.T) {
	a := newAPI(t)
	schedules := a.client.Schedules()
	schedule := later.Schedule{Name: "s", Queue: "q", When: recurrence.Spec{Every: time.Hour}}
	if _, err := schedules.Put(t.Context(), schedule); err != nil {
		t.Fatal(err)
	}
	mine, theirs := schedule, schedule
	mine.Set, theirs.Set = "mine", "theirs"
	var versions []string
	_, err := schedules.PutIf(t.Context(), mine, func(version string) bool {
		if versions = append(versions, version); len(versions) == 1 {
			if _, err := schedules.Put(t.Context(), theirs); err != nil {
				t.Error(err)
			}
		}
		return version == schedule.Version()
	})
	info, _ := schedules.Get(t.Context(), "s")
	if !errors.Is(err, later.ErrConflict) || info == nil || info.Set != "theirs" || len(versions) != 2 ||
		versions[1] != theirs.Version() {
		t.Errorf("%v, %+v, versions %q", err, info, versions)
	}
}
