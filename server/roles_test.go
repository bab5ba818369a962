package server

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

// mayDo has the roles that may do something, by their first letters, on three kinds of queues: queues of users, queues
// of topics, and the other queues that Later keeps for itself. It is written by hand, as a check of package access.
type mayDo struct{ queue, topic, kept string }

var (
	mayLook    = mayDo{"r--oa", "r--oa", "r--oa"}
	mayGet     = mayDo{"rswoa", "rswoa", "r--oa"}
	maySend    = mayDo{"-swoa", "-swoa", "---oa"}
	mayWork    = mayDo{"--w-a", "---oa", "---oa"}
	mayOperate = mayDo{"---oa", "---oa", "---oa"}
	mayRule    = mayDo{"----a", "----a", "----a"}
)

// routeRights are the routes, grouped by the roles that may use them.
var routeRights = []struct {
	may    mayDo
	routes string
}{
	{mayLook, `
		GET /v1/changes
		GET /v1/dead-errors
		GET /v1/events
		GET /v1/find
		GET /v1/operations
		GET /v1/operations/{operation}
		GET /v1/overview
		GET /v1/overview/queues
		GET /v1/overview/watch
		GET /v1/problems
		GET /v1/queues
		GET /v1/queues/{queue}
		GET /v1/queues/{queue}/activity
		GET /v1/queues/{queue}/dead-errors
		GET /v1/queues/{queue}/dead-retention
		GET /v1/queues/{queue}/export
		GET /v1/queues/{queue}/finished
		GET /v1/queues/{queue}/finished/{id}
		GET /v1/queues/{queue}/flow
		GET /v1/queues/{queue}/keys
		GET /v1/queues/{queue}/keys/{key}
		GET /v1/queues/{queue}/horizon
		GET /v1/queues/{queue}/messages
		GET /v1/messages
		GET /v1/queues/{queue}/shards
		GET /v1/schedules
		GET /v1/schedules-upcoming
		GET /v1/schedules/{schedule}
		GET /v1/schedules/{schedule}/next
		GET /v1/schedules/{schedule}/runs
		POST /v1/schedule-preview
		GET /v1/topics
		GET /v1/topics/{topic}
		GET /v1/topics/{topic}/history
		GET /v1/topics/{topic}/subscriptions/{queue}
		GET /v1/workers`},
	{mayGet, `
		GET /v1/queues/{queue}/messages/{id}
		GET /v1/queues/{queue}/messages/{id}/why
		GET /v1/queues/{queue}/series/{id}
		GET /v1/server
		POST /v1/changes/{change}/undo`},
	{maySend, `
		POST /v1/queues/{queue}/messages
		POST /v1/queues/{queue}/messages/batch
		DELETE /v1/queues/{queue}/messages/{id}
		PATCH /v1/queues/{queue}/messages/{id}
		POST /v1/queues/{queue}/messages/{id}/run
		POST /v1/queues/{queue}/series
		DELETE /v1/queues/{queue}/series/{id}
		PATCH /v1/queues/{queue}/series/{id}
		POST /v1/topics/{topic}/messages
		POST /v1/topics/{topic}/messages/batch`},
	{mayWork, `
		POST /v1/leases/settle
		POST /v1/leases/{token}/ack
		POST /v1/leases/{token}/bury
		POST /v1/leases/{token}/extend
		POST /v1/leases/{token}/nack
		POST /v1/leases/{token}/release
		POST /v1/leases/{token}/snooze
		POST /v1/queues/{queue}/receive
		POST /v1/receive`},
	{mayOperate, `
		DELETE /v1/operations/{operation}
		POST /v1/queues/{queue}/bulk
		PUT /v1/queues/{queue}/dead-retention
		PUT /v1/queues/{queue}/flow
		PUT /v1/queues/{queue}/shards
		PUT /v1/queues/{queue}/keys/{key}/flow
		POST /v1/queues/{queue}/keys/{key}/resume
		DELETE /v1/queues/{queue}/groups/{group}
		PATCH /v1/queues/{queue}/groups/{group}
		POST /v1/queues/{queue}/messages/{id}/replay
		POST /v1/queues/{queue}/pause
		POST /v1/queues/{queue}/purge
		POST /v1/queues/{queue}/replay
		POST /v1/queues/{queue}/resume
		POST /v1/schedules/apply
		DELETE /v1/schedules/{schedule}
		PUT /v1/schedules/{schedule}
		POST /v1/schedules/{schedule}/backfill
		POST /v1/schedules/{schedule}/pause
		POST /v1/schedules/{schedule}/resume
		POST /v1/schedules/{schedule}/trigger
		PUT /v1/topics/{topic}
		POST /v1/topics/{topic}/rewind
		DELETE /v1/topics/{topic}/subscriptions/{queue}
		PUT /v1/topics/{topic}/subscriptions/{queue}
		POST /v1/workers/{name}/drain
		POST /v1/workers/{name}/pause
		POST /v1/workers/{name}/restart
		POST /v1/workers/{name}/resume`},
	{mayRule, `
		POST /v1/import
		DELETE /v1/queues/{queue}
		DELETE /v1/topics/{topic}`},
}

// rightsByRoute returns the roles that may use each route.
func rightsByRoute(t *testing.T) map[string]mayDo {
	all := map[string]mayDo{}
	for _, line := range routeRights {
		for route := range strings.SplitSeq(strings.TrimSpace(line.routes), "\n") {
			route = strings.TrimSpace(route)
			if _, twice := all[route]; twice {
				t.Errorf("%s is in the table twice", route)
			}
			all[route] = line.may
		}
	}
	return all
}

// of returns the roles that may do it with a queue, if they may use all queues.
func (m mayDo) of(queue string) string {
	switch prefix, rest := reserved.Cut(queue); {
	case prefix == "":
		return m.queue
	case prefix == reserved.Topic && rest != "":
		return m.topic
	}
	return m.kept
}

var allRoles = []access.Role{access.RoleRead, access.RoleSend, access.RoleWork, access.RoleOperate, access.RoleAdmin}

func isOneOf(role access.Role, letters string) bool {
	return strings.Contains(letters, string(role[:1]))
}

// keptQueues are queues of each kind that Later keeps for itself.
var keptQueues = []string{"topic:news", "topic-history:news", "topic:", "schedules:", "worker:", "worker:id"}

// everything are patterns of queues that seem to match keptQueues and do not.
var everything = []string{"mine", "t*", "topic-*", "s*", "w*", "schedules:", "topic:other"}

// refused reports whether the server refuses a request of an identity, with its whole reply or a part of it.
func (a *api) refused(who access.Identity, method, path, body string) bool {
	a.t.Helper()
	ctx := access.NewContext(a.t.Context(), who)
	if strings.HasPrefix(path, "/v1/events") || strings.HasPrefix(path, "/v1/overview/watch") { // replies without an end
		var end context.CancelFunc
		ctx, end = context.WithCancel(ctx)
		end()
	}
	r := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", jsonType)
	}
	w := httptest.NewRecorder()
	a.server.ServeHTTP(w, r)
	return w.Code == http.StatusForbidden || strings.Contains(w.Body.String(), `"status":403`)
}

func receiptOf(queue string) string {
	r := wire.Receipt{Queue: queue, Receipt: store.Receipt{Lease: "none", ID: "none"}}
	return r.String()
}

var pathParameter = regexp.MustCompile(`\{\w+\}`)

// fill returns a path with a queue, or a topic or receipt of it, and anything else for other parameters.
func fill(path, queue string) string {
	topic := cmp.Or(strings.TrimPrefix(queue, reserved.Topic), "none")
	path = strings.NewReplacer("{queue}", queue, "{token}", receiptOf(queue), "{topic}", topic).Replace(path)
	return pathParameter.ReplaceAllString(path, "none")
}

func TestEveryRoleMayDoWhatTheTableSays(t *testing.T) {
	a := newAPI(t)
	rights := rightsByRoute(t)
	cells := 0
	check := func(op *huma.Operation, who access.Identity, queue string, allowed bool) {
		cells++
		if path := fill(op.Path, queue); a.refused(who, op.Method, path, "") == allowed {
			t.Errorf("%s %s by %s of %q: allowed is %v", op.Method, path, who.Role, who.Queues, !allowed)
		}
	}
	left := maps.Clone(rights)
	operationsOf(a.server.api.OpenAPI(), func(op *huma.Operation) {
		route := op.Method + " " + op.Path
		if op.Extensions["x-mounted"] != nil { // not by a Server
			return
		}
		may, known := rights[route]
		if !known {
			t.Errorf("%s is not in the table", route)
			return
		}
		delete(left, route)
		named := strings.Contains(op.Path, "{queue}") || strings.Contains(op.Path, "{token}")
		topic := strings.Contains(op.Path, "{topic}")
		for _, role := range allRoles {
			all, ok := access.Identity{Name: "all", Role: role}, isOneOf(role, may.queue)
			some := access.Identity{Name: "some", Role: role, Queues: []string{"mine", "topic:mine", "schedules:"}}
			check(op, all, "mine", ok)
			check(op, some, "mine", ok && route != "POST /v1/import") // which is for all queues
			if named || topic {
				check(op, some, "other", false)
			}
			if !named {
				continue
			}
			limited := access.Identity{Name: "limited", Role: role, Queues: everything}
			publisher := access.Identity{Name: "publisher", Role: role, Queues: []string{"topic:news"}}
			for _, queue := range keptQueues {
				ok := isOneOf(role, may.of(queue))
				check(op, all, queue, ok)
				if !topic {
					check(op, limited, queue, false)
					check(op, publisher, queue, ok && strings.HasSuffix(queue, ":news"))
				}
			}
		}
	})
	for route := range left {
		t.Errorf("%s is in the table and no route", route)
	}
	if cells < 3000 {
		t.Errorf("%d cells", cells)
	}
}

// namedIn has each place where a request names a queue other than in its path: a query or body that names the queue as
// QUEUE there, and the roles that may name it. The sender of the request may do everything else.
var namedIn = map[string]struct {
	query, body string
	may         mayDo
}{
	"GET /v1/dead-errors query.queue":     {query: "queue=QUEUE", may: mayLook},
	"GET /v1/events query.queue":          {query: "queue=QUEUE", may: mayLook},
	"GET /v1/find query.queue":            {query: "q=x&queue=QUEUE", may: mayLook},
	"GET /v1/messages query.queue":        {query: "queue=QUEUE", may: mayLook},
	"GET /v1/overview query.queue":        {query: "queue=QUEUE", may: mayLook},
	"GET /v1/overview/queues query.queue": {query: "queue=QUEUE&to=2030-01-01T00:00:00Z", may: mayLook},
	"GET /v1/overview/watch query.queue":  {query: "queue=QUEUE", may: mayLook},
	"GET /v1/problems query.queue":        {query: "queue=QUEUE", may: mayLook},
	"POST /v1/leases/{token}/ack body.then.queue": {
		body: `{"then": [{"queue": "QUEUE"}]}`, may: mayDo{"--w-a", "--w-a", "----a"}},
	"POST /v1/leases/settle body.messages.then.queue": {
		body: `{"messages": [{"action": "ack", "token": "TOKEN", "then": [{"queue": "QUEUE"}]}]}`,
		may:  mayDo{"--w-a", "--w-a", "----a"}},
	"POST /v1/leases/settle body.messages.token": {
		body: `{"messages": [{"action": "release", "token": "OTHER"}]}`, may: mayDo{"--w-a", "----a", "----a"}},
	"POST /v1/receive body.queues": {
		body: `{"queues": [{"name": "QUEUE"}]}`, may: mayDo{"--w-a", "----a", "----a"}},
	"POST /v1/topics/{topic}/rewind body.queue": {
		body: `{"queue": "QUEUE", "from_id": "x"}`, may: mayOperate},
	"PUT /v1/schedules/{schedule} body.queue": {body: `{"queue": "QUEUE", "every": "1h"}`, may: mayOperate},
	"POST /v1/schedules/apply body.schedules.queue": {
		body: `{"schedules": [{"name": "none", "queue": "QUEUE", "every": "1h"}]}`, may: mayOperate},
}

// namesNoQueue are places that are called so and do not have others do anything with a queue.
var namesNoQueue = []string{
	"POST /v1/schedule-preview body.queue", // nothing is stored or read
	"POST /v1/leases/{token}/nack body.then.queue", "POST /v1/leases/{token}/snooze body.then.queue",
	"POST /v1/leases/{token}/bury body.then.queue", "POST /v1/leases/{token}/release body.then.queue",
	"POST /v1/leases/{token}/extend body.then.queue", // which take no follow-ups
}

// placesOf returns where requests of an operation name queues, other than in the path.
func placesOf(api *huma.OpenAPI, op *huma.Operation) (places []string) {
	for _, p := range op.Parameters {
		if p.In != "path" && namesQueue(p.Name) {
			places = append(places, p.In+"."+p.Name)
		}
	}
	var walk func(where string, s *huma.Schema, depth int)
	walk = func(where string, s *huma.Schema, depth int) {
		for s != nil && s.Ref != "" {
			s = api.Components.Schemas.SchemaFromRef(s.Ref)
		}
		if s == nil || depth > 8 {
			return
		}
		walk(where, s.Items, depth+1)
		for name, property := range s.Properties {
			if namesQueue(name) {
				places = append(places, where+"."+name)
			}
			walk(where+"."+name, property, depth+1)
		}
	}
	if op.RequestBody != nil {
		for _, media := range op.RequestBody.Content {
			walk("body", media.Schema, 0)
		}
	}
	slices.Sort(places)
	return slices.Compact(places)
}

func namesQueue(field string) bool {
	return strings.Contains(field, "queue") || strings.Contains(field, "token") || strings.Contains(field, "topic")
}

func TestQueuesAreCheckedWhereverARequestNamesThem(t *testing.T) {
	a := newAPI(t)
	found := map[string]bool{}
	operationsOf(a.server.api.OpenAPI(), func(op *huma.Operation) {
		if op.Extensions["x-mounted"] != nil {
			return
		}
		for _, where := range placesOf(a.server.api.OpenAPI(), op) {
			place := op.Method + " " + op.Path + " " + where
			found[place] = true
			named, known := namedIn[place]
			if !known {
				if !slices.Contains(namesNoQueue, place) {
					t.Errorf("%s names a queue and is not in the table", place)
				}
				continue
			}
			request := func(queue string) (path, body string) {
				fields := strings.NewReplacer("QUEUE", queue, "TOKEN", receiptOf("mine"), "OTHER", receiptOf(queue))
				return fill(op.Path, "mine") + "?" + fields.Replace(named.query), fields.Replace(named.body)
			}
			for _, role := range allRoles {
				all := access.Identity{Name: "all", Role: role}
				limited := access.Identity{Name: "limited", Role: role, Queues: append([]string{"topic:mine"}, everything...)}
				for _, queue := range append([]string{"mine", "other"}, keptQueues...) {
					ok := isOneOf(role, named.may.of(queue))
					path, body := request(queue)
					if a.refused(all, op.Method, path, body) == ok {
						t.Errorf("%s with %q by %s: allowed is %v", place, queue, role, !ok)
					}
					if a.refused(limited, op.Method, path, body) == (ok && queue == "mine") {
						t.Errorf("%s with %q by %s limited to %q: allowed is wrong", place, queue, role, limited.Queues)
					}
				}
			}
		}
	})
	for place := range namedIn {
		if !found[place] {
			t.Errorf("%s is in the table and no place", place)
		}
	}
	for _, place := range namesNoQueue {
		if !found[place] {
			t.Errorf("%s is in the list and no place", place)
		}
	}
}
