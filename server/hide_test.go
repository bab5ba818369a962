package server

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/laterq/later"
	"github.com/laterq/later/server/access"
)

// TestNoReplyShowsWhatIsHidden reads everything as a sender that may not see payloads, headers and error texts, and as
// a sender that may see them and finds them in many replies.
func TestNoReplyShowsWhatIsHidden(t *testing.T) {
	a := newAPI(t)
	const secret = "SECRET" // without a digit, which patterns of errors leave out
	message := map[string]any{"payload": secret + "-payload", "headers": map[string]string{"kind": secret + "-header"}}
	with := func(fields map[string]any) map[string]any {
		for name, value := range message {
			fields[name] = value
		}
		return fields
	}
	for id, in := range map[string]string{"none": "1h", "dead": "0s"} {
		a.do(http.MethodPost, mail, with(map[string]any{"id": id, "in": in, "group": "none"})).is(http.StatusCreated)
	}
	got := a.do(http.MethodPost, "/v1/queues/mail/receive", `{}`).is(http.StatusOK)
	a.do(http.MethodPost, "/v1/leases/"+list(got, "messages")[0]["token"].(string)+"/bury",
		map[string]any{"reason": secret + "-error"}).is(http.StatusNoContent)
	a.do(http.MethodPost, "/v1/queues/mail/series", with(map[string]any{"id": "series",
		"until": time.Now().Add(time.Hour), "offsets": []string{"-1m"}})).is(http.StatusCreated)
	a.do(http.MethodPut, "/v1/topics/none", `{"history_count": 10}`).is(http.StatusOK)
	a.do(http.MethodPut, "/v1/topics/none/subscriptions/sub", `{}`).is(http.StatusOK)
	a.do(http.MethodPost, "/v1/topics/none/messages", message).is(http.StatusCreated)
	a.distribute("sub", 1)
	a.do(http.MethodPut, "/v1/schedules/none", with(map[string]any{"queue": "mail", "every": "1h"})).is(http.StatusOK)
	operation := a.do(http.MethodPost, "/v1/queues/mail/bulk",
		`{"filter": {"state": "dead"}, "action": "cancel", "dry_run": true}`).is(http.StatusAccepted)["id"].(string)
	a.do(http.MethodGet, "/v1/operations/"+operation+"?wait=1m", nil).is(http.StatusOK)

	readers := map[bool]*api{true: a.as(access.Identity{Name: "h", Role: access.RoleOperate, HidePayloads: true}),
		false: a.as(access.Identity{Name: "o", Role: access.RoleOperate})}
	shown := map[string]bool{}
	ask := func(method, path string, body any) {
		for hide, reader := range readers {
			switch got := reader.do(method, path, body); {
			case !strings.Contains(got.body, secret):
			case hide:
				t.Errorf("%s %s: %s", method, path, got.body)
			default:
				shown[method+" "+path] = true
			}
		}
	}
	operationsOf(a.server.api.OpenAPI(), func(op *huma.Operation) {
		if op.Method != http.MethodGet || op.Path == "/v1/events" || op.Path == "/v1/overview/watch" {
			return // see TestEventsOfOthersAreNotShown
		}
		path := strings.NewReplacer("{operation}", operation, "/series/{id}", "/series/series", "{topic}", "none").
			Replace(op.Path)
		path = fill(path, "mail")
		ask(op.Method, path, nil)
	})
	ask(http.MethodGet, mail+"?state=dead", nil)
	ask(http.MethodGet, mail+"/dead", nil)
	ask(http.MethodGet, mail+"/dead/why", nil)
	ask(http.MethodGet, mail+"?group=none", nil)
	ask(http.MethodGet, "/v1/find?q=none", nil)
	ask(http.MethodGet, "/v1/find?q=%22non%22", nil)
	ask(http.MethodPatch, mail+"/none", `{"in": "2h"}`)
	ask(http.MethodPost, mail+"/none/run", nil)
	for _, path := range []string{"GET " + mail, "GET " + mail + "/none", "GET " + mail + "?state=dead",
		"GET " + mail + "/dead", "GET " + mail + "?group=none", "GET /v1/find?q=none", "GET /v1/find?q=%22non%22",
		"PATCH " + mail + "/none", "POST " + mail + "/none/run",
		"GET /v1/topics/none/history", "GET /v1/schedules", "GET /v1/schedules/none", "GET /v1/queues/mail/dead-errors",
		"GET /v1/dead-errors",
		"GET /v1/problems", "GET /v1/queues/mail/export", "GET /v1/operations/" + operation} {
		if !shown[path] {
			t.Errorf("%s shows nothing even to callers who may see it", path)
		}
	}
	if got, err := a.client.Queue("mail").Get(t.Context(), "none"); err != nil || got.State != later.StateReady {
		t.Error(got, err)
	}
}

// TestNoConditionTellsWhatIsHidden sends each condition on the content of messages, in every request that takes
// conditions, as a sender that may not see the content. The number of matching messages would tell the content.
func TestNoConditionTellsWhatIsHidden(t *testing.T) {
	a := newAPI(t)
	a.do(http.MethodPost, mail, `{"id": "none", "in": "1h", "payload": {"a": 1}, "headers": {"k": "v"}}`).
		is(http.StatusCreated)
	a.do(http.MethodPut, "/v1/topics/t", `{"history_count": 10}`).is(http.StatusOK)
	shown := []string{"state", "group", "due_after", "due_before", "id", "min_attempts", "max_attempts",
		"q"} // see TestFindHidesContent
	values := map[string]string{"json": "a = 1", "header": "k=v"}
	hider := a.as(access.Identity{Name: "h", Role: access.RoleOperate, HidePayloads: true})
	other := a.as(access.Identity{Name: "o", Role: access.RoleOperate})
	refused := func(method, path, body string) {
		t.Helper()
		if got := other.do(method, path, body); got.status >= 300 {
			t.Errorf("%s %s %s: %d %s", method, path, body, got.status, got.body)
		}
		if got := hider.do(method, path, body); got.status != http.StatusForbidden {
			t.Errorf("%s %s %s: %d %s", method, path, body, got.status, got.body)
		}
	}
	tried := 0
	operationsOf(a.server.api.OpenAPI(), func(op *huma.Operation) {
		for _, p := range op.Parameters {
			if _, condition := typeOf[FilterQuery]().FieldByNameFunc(func(name string) bool {
				f, _ := typeOf[FilterQuery]().FieldByName(name)
				tag, _, _ := strings.Cut(f.Tag.Get("query"), ",")
				return tag == p.Name
			}); condition && op.Path != "/v1/events" && p.In == "query" && !slices.Contains(shown, p.Name) {
				tried++
				refused(op.Method, fill(op.Path, "mail")+"?"+p.Name+"="+url.QueryEscape(cmp.Or(values[p.Name], "x")), "")
			}
		}
	})
	filter := typeOf[Filter]()
	for i := range filter.NumField() {
		name, _, _ := strings.Cut(filter.Field(i).Tag.Get("json"), ",")
		if slices.Contains(shown, name) {
			continue
		}
		value := any(cmp.Or(values[name], "x"))
		if name == "headers" {
			value = map[string]string{"k": "v"}
		}
		text, err := json.Marshal(map[string]any{"state": "scheduled", name: value})
		if err != nil {
			t.Fatal(err)
		}
		tried++
		refused(http.MethodPost, "/v1/queues/mail/bulk", `{"action": "run", "dry_run": true, "filter": `+string(text)+`}`)
	}
	refused(http.MethodPut, "/v1/topics/t/subscriptions/sub", `{"where": "k=v"}`)
	hider.do(http.MethodPut, "/v1/topics/t/subscriptions/sub", `{}`).is(http.StatusOK)
	if tried != 20 {
		t.Errorf("%d conditions", tried)
	}
}
