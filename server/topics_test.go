package server

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/laterq/later"
	"github.com/laterq/later/server/access"
)

// as returns the same server for requests of another identity.
func (a *api) as(who access.Identity) *api {
	a.t.Helper()
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.server.ServeHTTP(w, r.WithContext(access.NewContext(r.Context(), who)))
	}))
	a.t.Cleanup(func() {
		a.server.Close() // a waiting request would keep it open
		h.Close()
	})
	return &api{t: a.t, client: a.client, server: a.server, url: h.URL, http: h.Client()}
}

// operator returns an identity with the role operate for some queues.
func operator(queues ...string) access.Identity {
	return access.Identity{Name: "ops", Role: access.RoleOperate, Queues: queues}
}

// distribute handles n messages of a subscribed queue with a worker, which also distributes the topics of the queue.
func (a *api) distribute(queue string, n int) {
	a.t.Helper()
	ctx, cancel := context.WithCancel(a.t.Context())
	defer cancel()
	left := n
	w := later.NewWorker(a.client, later.WorkerConfig{Concurrency: 1, Unlisted: true})
	w.Handle(queue, func(context.Context, *later.Message) error {
		if left--; left == 0 {
			cancel()
		}
		return nil
	})
	if err := w.Run(ctx); err != nil {
		a.t.Fatal(err)
	}
}

func TestTopicFromConfigurationToDelete(t *testing.T) {
	a := newAPI(t)
	const orders = "/v1/topics/orders"
	a.do(http.MethodGet, orders, nil).fails(http.StatusNotFound, "not_found", "")
	cfg := a.do(http.MethodPut, orders, `{"history_age": "1d", "history_count": 100}`).is(http.StatusOK)
	if cfg["history_age"] != "24h0m0s" || cfg["history_count"] != 100.0 || cfg["drop_unsubscribed"] != false {
		t.Errorf("%v", cfg)
	}
	sub := a.do(http.MethodPut, orders+"/subscriptions/mail", nil).is(http.StatusOK)
	if sub["subscribed"] != true || sub["queue"] != "mail" {
		t.Errorf("%v", sub)
	}
	a.do(http.MethodPut, orders+"/subscriptions/audit", `{"where": "region=eu"}`).is(http.StatusOK)
	if got := a.do(http.MethodGet, orders+"/subscriptions/audit", nil).is(http.StatusOK); got["where"] != "region=eu" {
		t.Errorf("%v", got)
	}

	sent := a.do(http.MethodPost, orders+"/messages", `{"payload": "one", "id": "1"}`).is(http.StatusCreated)
	if sent["id"] != "1" || sent["queue"] != "topic:orders" {
		t.Errorf("%v", sent)
	}
	a.do(http.MethodPost, orders+"/messages", "two", "Content-Type", "text/plain", "Later-Id", "2",
		"Later-Header-Region", "eu").is(http.StatusCreated)
	batch := a.do(http.MethodPost, orders+"/messages/batch", `{"messages": [{"payload": "3", "id": "3"}]}`).
		is(http.StatusOK)
	if list(batch, "results")[0]["outcome"] != "sent" {
		t.Errorf("%v", batch)
	}
	a.do(http.MethodPost, orders+"/messages/batch", `{"payload": "4", "id": "4", "in": "1h"}`,
		"Content-Type", "application/x-ndjson")
	a.distribute("mail", 3)

	got := a.do(http.MethodGet, orders, nil).is(http.StatusOK)
	subs := list(got, "subscriptions")
	if got["scheduled"] != 1.0 || got["history"] != 3.0 || len(subs) != 2 || subs[0]["queue"] != "audit" ||
		subs[0]["ready"] != 1.0 || subs[0]["where"] != "region=eu" {
		t.Errorf("%v", got)
	}
	listed := list(a.do(http.MethodGet, "/v1/topics", nil).is(http.StatusOK), "items")
	if len(listed) != 1 || fmt.Sprint(listed[0]["queues"]) != "[audit mail]" || listed[0]["history"] != 3.0 {
		t.Errorf("%v", listed)
	}

	page := a.do(http.MethodGet, orders+"/history?limit=2", nil).is(http.StatusOK)
	rest := a.do(http.MethodGet, orders+"/history?limit=2&cursor="+page["next"].(string), nil).is(http.StatusOK)
	if len(list(page, "items")) != 2 || len(list(rest, "items")) != 1 {
		t.Errorf("%v, then %v", page, rest)
	}
	rewound := a.do(http.MethodPost, orders+"/rewind", `{"queue": "audit", "from": "1970-01-01T00:00:00Z"}`).
		is(http.StatusOK)
	if rewound["sent"] != 0.0 || rewound["kept"] != 3.0 {
		t.Errorf("%v", rewound)
	}
	a.do(http.MethodPut, orders+"/subscriptions/search", `{"from": "1970-01-01T00:00:00Z"}`).is(http.StatusOK)
	if got := a.do(http.MethodGet, "/v1/queues/search", nil).is(http.StatusOK); got["ready"] != 3.0 {
		t.Errorf("%v", got)
	}

	gone := a.do(http.MethodDelete, orders+"/subscriptions/audit", nil).is(http.StatusOK)
	if gone["subscribed"] != false {
		t.Errorf("%v", gone)
	}
	a.do(http.MethodDelete, orders+"/subscriptions/audit", nil).fails(http.StatusNotFound, "not_found", "")
	a.do(http.MethodGet, orders+"/subscriptions/audit", nil).fails(http.StatusNotFound, "not_found", "")
	if got := a.do(http.MethodDelete, orders, nil).is(http.StatusOK); got["deleted"] != true {
		t.Errorf("%v", got)
	}
	a.do(http.MethodDelete, orders, nil).fails(http.StatusNotFound, "not_found", "")
	a.do(http.MethodGet, orders+"/history", nil).fails(http.StatusNotFound, "not_found", "")
}

func TestTopicRequestsThatAreWrongNameTheField(t *testing.T) {
	a := newAPI(t)
	const orders = "/v1/topics/orders"
	a.do(http.MethodPut, orders, `{"history_age": "soon"}`).fails(http.StatusBadRequest, "invalid", "history_age")
	a.do(http.MethodPut, orders, `{"history_count": -1}`).fails(http.StatusBadRequest, "invalid", "history_count")
	a.do(http.MethodPut, "/v1/topics/"+strings.Repeat("x", 200), nil).
		fails(http.StatusBadRequest, "invalid", "path.topic")
	a.do(http.MethodPost, orders+"/messages", `{"in": "soon"}`).fails(http.StatusBadRequest, "invalid", "in")
	a.do(http.MethodPut, orders+"/subscriptions/mail", `{"where": "region="}`).
		fails(http.StatusBadRequest, "invalid", "where", "no value at byte 7")
	a.do(http.MethodPut, orders+"/subscriptions/mail", `{"from": "2026-01-01T00:00:00Z", "from_id": "a"}`).
		fails(http.StatusBadRequest, "invalid", "from", "give one of them")
	a.do(http.MethodPut, orders+"/subscriptions/mail", `{"from": "1960-01-01T00:00:00Z"}`).
		fails(http.StatusBadRequest, "invalid", "from", "1970")
	a.do(http.MethodPut, orders+"/subscriptions/topic:orders", nil).fails(http.StatusBadRequest, "invalid", "", "circle")
	a.do(http.MethodPost, orders+"/rewind", `{"queue": "mail"}`).fails(http.StatusBadRequest, "invalid", "from")
	a.do(http.MethodPost, orders+"/rewind", `{"queue": "mail", "from_id": "x"}`).
		fails(http.StatusNotFound, "not_found", "")
	a.do(http.MethodGet, orders+"/history?limit=0", nil).fails(http.StatusBadRequest, "invalid", "query.limit")
}

func TestTopicsOfOthersAreOutOfReach(t *testing.T) {
	a := newAPI(t)
	for _, topic := range []string{"orders", "other"} {
		for _, queue := range []string{"mail", "audit"} {
			a.do(http.MethodPut, "/v1/topics/"+topic+"/subscriptions/"+queue, nil).is(http.StatusOK)
		}
	}
	limited := a.as(operator("topic:orders", "mail"))
	topics := list(limited.do(http.MethodGet, "/v1/topics", nil).is(http.StatusOK), "items")
	if len(topics) != 1 || fmt.Sprint(topics[0]["queues"]) != "[mail]" {
		t.Errorf("%v", topics)
	}
	got := limited.do(http.MethodGet, "/v1/topics/orders", nil).is(http.StatusOK)
	if subs := list(got, "subscriptions"); len(subs) != 1 || subs[0]["queue"] != "mail" {
		t.Errorf("%v", got)
	}
	limited.do(http.MethodPut, "/v1/topics/orders/subscriptions/mail", `{"where": "!debug"}`).is(http.StatusOK)
	for _, queue := range list(limited.do(http.MethodGet, "/v1/queues", nil).is(http.StatusOK), "items") {
		if queue["queue"] != "mail" && queue["queue"] != "topic:orders" {
			t.Errorf("lists %v", queue)
		}
	}
	for _, refused := range [][3]string{
		{http.MethodGet, "/v1/topics/other"},
		{http.MethodPut, "/v1/topics/other"},
		{http.MethodPost, "/v1/topics/other/messages", `{"payload": "x"}`},
		{http.MethodGet, "/v1/topics/other/history"},
		{http.MethodPut, "/v1/topics/orders/subscriptions/audit"},
		{http.MethodPut, "/v1/topics/other/subscriptions/mail"},
		{http.MethodGet, "/v1/topics/orders/subscriptions/audit"},
		{http.MethodDelete, "/v1/topics/orders/subscriptions/audit"},
		{http.MethodDelete, "/v1/topics/orders"},
	} {
		limited.do(refused[0], refused[1], refused[2]).fails(http.StatusForbidden, "forbidden", "")
	}
	limited.do(http.MethodPost, "/v1/topics/orders/rewind", `{"queue": "audit", "from_id": "a"}`).
		fails(http.StatusForbidden, "forbidden", "queue")
	admin := access.Identity{Name: "admin", Role: access.RoleAdmin, Queues: []string{"topic:orders", "mail"}}
	a.as(admin).do(http.MethodDelete, "/v1/topics/orders", nil).fails(http.StatusForbidden, "forbidden", "")
	admin.Queues = append(admin.Queues, "audit")
	a.as(admin).do(http.MethodDelete, "/v1/topics/orders", nil).is(http.StatusOK)
	sender := access.Identity{Name: "shop", Role: access.RoleSend, Queues: []string{"topic:*"}}
	a.as(sender).do(http.MethodPost, "/v1/topics/orders/messages", `{"payload": "x"}`).is(http.StatusCreated)
	a.as(sender).do(http.MethodPut, "/v1/topics/orders", nil).fails(http.StatusForbidden, "forbidden", "")
}
