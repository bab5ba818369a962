package server

import (
	"errors"
	"net/http"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"

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
	hidden := a.as(access.Identity{Name: "page", Role: access.RoleRead, HidePayloads: true}).
		do(http.MethodGet, nightly, nil)
	if hidden.is(http.StatusOK); !strings.HasPrefix(hidden.header.Get("ETag"), "W/") { // the ETag of the visible part
		t.Errorf("a hidden payload can be guessed by its ETag %q", hidden.header.Get("ETag"))
	}
}

// A sender that gives a precondition must not change a newer version because the precondition is empty or not checked.
func TestEveryChangeChecksOrRefusesPreconditions(t *testing.T) {
	a := newAPI(t)
	a.send("none", "none")
	got := a.do(http.MethodPost, "/v1/queues/none/receive", `{}`).is(http.StatusOK)
	token := list(got, "messages")[0]["token"].(string)
	checked, refused := 0, 0
	operationsOf(a.server.api.OpenAPI(), func(op *huma.Operation) {
		if op.Method == http.MethodGet || op.Extensions["x-mounted"] != nil {
			return
		}
		path := regexp.MustCompile(`\{\w+\}`).ReplaceAllString(strings.ReplaceAll(op.Path, "{token}", token), "none")
		for _, name := range []string{"If-Match", "If-None-Match"} {
			value, want := `"x"`, "leave it out of this request"
			if slices.ContainsFunc(op.Parameters, func(p *huma.Param) bool { return p.Name == name }) {
				value, want = "", "is empty"
				checked++
			} else {
				refused++
			}
			body := `{}`
			if op.OperationID == "putSchedule" {
				body = `{"queue": "none", "every": "1h"}`
			}
			a.do(op.Method, path, body, name, value).
				fails(http.StatusBadRequest, "invalid", "header."+name, want)
		}
	})
	if checked != 10 || refused < 60 {
		t.Errorf("%d are checked and %d refused", checked, refused)
	}
}

// A sender that may not see payloads cannot guess the payload of a schedule without replacing it.
func TestHiddenPayloadOfAScheduleIsNotCompared(t *testing.T) {
	a := newAPI(t)
	const body = `{"queue": "q", "every": "1h", "payload": "secret"}`
	put := a.do(http.MethodPut, nightly, body)
	put.is(http.StatusOK)
	b := a.as(access.Identity{Name: "page", Role: access.RoleOperate, HidePayloads: true})
	name := strings.TrimPrefix(nightly, "/v1/schedules/")
	for _, guess := range []string{"secret", "other"} {
		apply := `{"schedules": [{"name": "` + name + `", ` + strings.Replace(body, "secret", guess, 1)[1:] + `], "dry_run": `
		b.do(http.MethodPost, "/v1/schedules/apply", apply+"true}").fails(http.StatusForbidden, "forbidden", "dry_run")
		a.do(http.MethodPost, "/v1/schedules/apply", apply+"true}").is(http.StatusOK)
	}
	b.do(http.MethodPut, nightly, body, "If-Match", put.header.Get("ETag")).
		fails(http.StatusForbidden, "forbidden", "header.If-Match")
	b.do(http.MethodPut, nightly, body, "If-Match", "*").is(http.StatusOK)
	b.do(http.MethodPut, nightly, body, "If-None-Match", "*").fails(http.StatusPreconditionFailed, "conflict", "")
}

func TestWhatAClientHasIsNotSentAgain(t *testing.T) {
	a := newAPI(t)
	a.send("mail", strings.Fields("a b c d e f g h i j k l m n o p")...)
	const path = mail + "?state=ready"
	first := a.do(http.MethodGet, path, nil)
	tag := first.header.Get("ETag")
	if first.is(http.StatusOK); !strings.HasPrefix(tag, `W/"`) || first.header.Get("Cache-Control") != "no-store" {
		t.Fatalf("ETag %s, %v", tag, first.header)
	}
	for _, match := range []string{tag, `"other", ` + tag, strings.TrimPrefix(tag, "W/"), "*"} {
		for _, coding := range []string{"gzip", "identity"} {
			r := a.do(http.MethodGet, path, nil, "If-None-Match", match, "Accept-Encoding", coding)
			if r.status != http.StatusNotModified || r.body != "" || r.header.Get("ETag") != tag ||
				r.header.Get("Vary") != "Accept-Encoding" || r.header.Get("Content-Encoding") != "" {
				t.Errorf("%s, %s: %d %v %s", match, coding, r.status, r.header, r.body)
			}
		}
	}
	for _, match := range []string{`W/"other"`, tag[:9] + `"`, ""} {
		if r := a.do(http.MethodGet, path, nil, "If-None-Match", match); r.status != http.StatusOK || r.body != first.body {
			t.Errorf("%s: %d %s", match, r.status, r.body)
		}
	}
	a.send("mail", "q")
	changed := a.do(http.MethodGet, path, nil, "If-None-Match", tag)
	if changed.is(http.StatusOK); changed.header.Get("ETag") == tag {
		t.Error("another list has the same ETag")
	}
	none := a.do(http.MethodGet, "/v1/queues/none", nil, "If-None-Match", "*")
	if none.status != http.StatusNotFound || none.header.Get("ETag") != "" {
		t.Errorf("%d %v", none.status, none.header)
	}
}

// TestListsThatDoNotChangeHaveTheSameETag tests the lists that the page requests regularly.
func TestListsThatDoNotChangeHaveTheSameETag(t *testing.T) {
	a := newAPI(t)
	a.send("mail", "a")
	a.do(http.MethodPut, "/v1/topics/orders/subscriptions/mail", nil)
	a.do(http.MethodPut, nightly, `{"queue": "q", "every": "1h"}`).is(http.StatusOK)
	a.do(http.MethodPost, receivePath, `{"worker": "w"}`).is(http.StatusOK)
	for _, path := range []string{"/v1/queues", "/v1/queues/mail",
		mail + "?state=ready", mail + "/a", "/v1/queues/mail/activity", "/v1/overview", "/v1/topics?limit=500",
		"/v1/workers", "/v1/schedules?limit=500", "/v1/schedules-upcoming?limit=20", "/v1/changes?limit=200",
		"/v1/operations", "/v1/server", "/v1/openapi.json"} {
		first := a.do(http.MethodGet, path, nil)
		first.is(http.StatusOK)
		for before := time.Now().UnixMilli(); time.Now().UnixMilli() == before; { // another time of the reply
			runtime.Gosched()
		}
		r := a.do(http.MethodGet, path, nil, "If-None-Match", first.header.Get("ETag"))
		if r.status != http.StatusNotModified {
			t.Errorf("%s: %d, first %s, then %s", path, r.status, first.body, r.body)
		}
	}
}

// TestSchedulePreconditionIsCheckedInTheStepOfTheChange replaces the schedule between the check of a precondition and
// the change.
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
	_, err := schedules.Put(t.Context(), mine, func(version string) bool {
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

// TestWhatIsPutIsReplacedOnlyAsThePreconditionSays tests the PUT routes other than the one of schedules.
func TestWhatIsPutIsReplacedOnlyAsThePreconditionSays(t *testing.T) {
	for path, bodies := range map[string][3]string{
		"/v1/topics/orders":                    {`{}`, `{"history_count": 5}`, `{"drop_unsubscribed": true}`},
		"/v1/topics/orders/subscriptions/mail": {`{}`, `{"where": "a=b"}`, `{"where": "c"}`},
		"/v1/queues/mail/dead-retention":       {`{}`, `{"max_age": "1h"}`, `{"max_count": 3}`},
		"/v1/queues/mail/flow":                 {`{}`, `{"concurrency": 3}`, `{"key": {"concurrency": 3}}`},
	} {
		t.Run(path, func(t *testing.T) {
			a := newAPI(t)
			put := func(body string, headers ...string) *reply { return a.do(http.MethodPut, path, body, headers...) }
			tag := func(r *reply) string {
				t.Helper()
				if r.is(http.StatusOK); r.header.Get("ETag") == "" {
					t.Error("no ETag")
				}
				return r.header.Get("ETag")
			}
			got := func() string { t.Helper(); return tag(a.do(http.MethodGet, path, nil)) }
			refused := func(r *reply) {
				t.Helper()
				r.fails(http.StatusPreconditionFailed, "conflict", "", "read it again")
			}
			refused(put(bodies[0], "If-Match", "*"))
			refused(put(bodies[0], "If-Match", `"x"`))
			a.do(http.MethodGet, path, nil).fails(http.StatusNotFound, "not_found", "")
			first := tag(put(bodies[0], "If-None-Match", "*"))
			if got() != first {
				t.Errorf("ETag %s, and %s of the PUT", got(), first)
			}
			refused(put(bodies[1], "If-None-Match", "*"))
			second := tag(put(bodies[1], "If-Match", `"unknown", `+first))
			refused(put(bodies[2], "If-Match", first))
			if second == first || got() != second {
				t.Errorf("ETag %s, then %s, and %s after a PUT that is refused", first, second, got())
			}
			third := tag(put(bodies[2], "If-Match", "*"))
			if third == second || third == first || got() != third {
				t.Errorf("ETags %s, %s, %s, %s", first, second, third, got())
			}
			if again := tag(put(bodies[0])); again != first {
				t.Errorf("ETag %s of what has been %s before", again, first)
			}
		})
	}
}

func TestETagOfATopicStaysWithItsSubscriptionsAndMessages(t *testing.T) {
	a := newAPI(t)
	const orders = "/v1/topics/orders"
	first := a.do(http.MethodPut, orders, `{"history_count": 5}`).header.Get("ETag")
	a.do(http.MethodPut, orders+"/subscriptions/mail", nil).is(http.StatusOK)
	a.do(http.MethodPost, orders+"/messages", `{"payload": "x"}`).is(http.StatusCreated)
	a.do(http.MethodPut, orders, `{"history_count": 6}`, "If-Match", first).is(http.StatusOK)
}

func TestRetentionIsReadAsItIsPut(t *testing.T) {
	a := newAPI(t)
	const path = "/v1/queues/mail/dead-retention"
	a.do(http.MethodPut, path, `{"max_age": "7d", "max_count": 10}`).is(http.StatusOK)
	got := a.do(http.MethodGet, path, nil)
	if v := got.is(http.StatusOK); v["max_age"] != "168h0m0s" || v["max_count"] != 10.0 {
		t.Errorf("%s", got.body)
	}
	a.do(http.MethodPut, path, string(got.body), "If-Match", got.header.Get("ETag")).is(http.StatusOK)
	a.do(http.MethodPut, path, `{}`).is(http.StatusOK)
	if none := a.do(http.MethodGet, path, nil); len(none.is(http.StatusOK)) != 0 {
		t.Errorf("%s", none.body)
	}
}
