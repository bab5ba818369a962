package server

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"github.com/laterq/later"
	"github.com/laterq/later/server/access"
)

// TestEveryRoleMayDoWhatItsRightsSay makes a request of every operation with every role, for a queue that the role is
// limited to and for another one.
func TestEveryRoleMayDoWhatItsRightsSay(t *testing.T) {
	a := newAPI(t)
	rights := map[access.Role][]string{
		access.RoleRead: {"look", "get"}, access.RoleSend: {"get", "send"}, access.RoleWork: {"get", "send", "work"},
		access.RoleOperate: {"look", "get", "send", "operate"},
		access.RoleAdmin:   {"look", "get", "send", "work", "operate", "administer"},
	}
	var token [2]string
	queues := []string{"mine", "other"}
	for i, queue := range queues {
		if _, err := a.client.Queue(queue).Send(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		got, err := a.client.Queue(queue).Receive(t.Context(), 1, later.NoWait())
		if err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		token[i] = got[0].Receipt()
	}
	parameter := regexp.MustCompile(`\{\w+\}`)
	cells := 0
	operationsOf(a.server.api.OpenAPI(), func(op *huma.Operation) {
		if op.Path == "/v1/events" || op.Path == "/v1/overview/watch" || op.Extensions["x-mounted"] != nil {
			// The replies of the first two have no end; see TestEventsOfOthersAreNotShown and
			// TestOverviewHasOnlyVisibleQueues. The others are not routes of a Server.
			return
		}
		for role, has := range rights {
			for i, queue := range queues {
				path := strings.NewReplacer("{queue}", queue, "{token}", token[i], "{topic}", queue).Replace(op.Path)
				path = parameter.ReplaceAllString(path, "none")
				who := access.Identity{Name: "somebody", Role: role, Queues: []string{"mine", "topic:mine", "schedules:"}}
				r := httptest.NewRequestWithContext(access.NewContext(t.Context(), who), op.Method, path, nil)
				w := httptest.NewRecorder()
				a.server.ServeHTTP(w, r)
				named := strings.Contains(op.Path, "{queue}") || strings.Contains(op.Path, "{token}") ||
					strings.Contains(op.Path, "{topic}")
				right, _ := op.Extensions["x-right"].(string)
				allowed := slices.Contains(has, right) && (!named || queue == "mine") && op.Path != "/v1/import" // for all queues
				if refused := w.Code == http.StatusForbidden; refused == allowed {
					t.Errorf("%s %s by %s: %d %s", op.Method, path, role, w.Code, w.Body)
				}
				cells++
			}
		}
	})
	if cells < 500 {
		t.Errorf("%d cells", cells)
	}
}
