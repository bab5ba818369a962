package server

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/laterq/later"
	"github.com/laterq/later/server/access"
)

// TestNoReplyShowsWhatIsHidden asks for everything as somebody whose payloads, headers and error texts are hidden, and as
// somebody else, to whom many replies show them.
func TestNoReplyShowsWhatIsHidden(t *testing.T) {
	a := newAPI(t)
	const secret = "S3CRET"
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
	operation := a.do(http.MethodPost, "/v1/queues/mail/bulk", `{"filter": {"state": "dead"}, "action": "cancel", "dry_run": true}`).
		is(http.StatusAccepted)["id"].(string)
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
	ask(http.MethodPatch, mail+"/none", `{"in": "2h"}`)
	ask(http.MethodPost, mail+"/none/run", nil)
	for _, path := range []string{"GET " + mail, "GET " + mail + "/none", "GET " + mail + "?state=dead", "GET " + mail + "/dead",
		"GET " + mail + "?group=none", "PATCH " + mail + "/none", "POST " + mail + "/none/run",
		"GET /v1/topics/none/history", "GET /v1/schedules", "GET /v1/schedules/none", "GET /v1/queues/mail/dead-errors",
		"GET /v1/queues/mail/export", "GET /v1/operations/" + operation} {
		if !shown[path] {
			t.Errorf("%s shows nothing even to somebody who may see it", path)
		}
	}
	if got, err := a.client.Queue("mail").Get(t.Context(), "none"); err != nil || got.State != later.StateReady {
		t.Error(got, err)
	}
}
