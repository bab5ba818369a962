package server

import (
	"net/http"
	"slices"
	"testing"
)

func TestKeysOfAQueueAreListedAndLimited(t *testing.T) {
	const keys = "/v1/queues/mail/keys"
	a := newAPI(t)
	a.do(http.MethodPut, keys+"/a/flow", `{"concurrency": 2}`).fails(http.StatusNotFound, "not_found", "")
	for _, body := range []string{
		`{"messages": [{"id": "a1", "key": "a"}, {"id": "a2", "key": "a"}, {"id": "b1", "key": "b"}, {"id": "none"}]}`,
	} {
		a.do(http.MethodPost, mail+"/batch", body).is(http.StatusOK)
	}
	if got := list(a.do(http.MethodGet, keys, nil).is(http.StatusOK), "items"); len(got) != 0 {
		t.Errorf("keys of a plain queue are %v", got)
	}
	a.do(http.MethodPut, keys+"/a/flow", `{"concurrency": 2}`).fails(http.StatusBadRequest, "invalid", "path.queue")
	a.do(http.MethodGet, keys+"/a", nil).fails(http.StatusBadRequest, "invalid", "path.queue")

	flow := a.do(http.MethodPut, "/v1/queues/mail/flow", `{"key": {"concurrency": 1}}`).is(http.StatusOK)
	if key, _ := flow["key"].(map[string]any); flow["fair"] != true || key["concurrency"] != 1.0 {
		t.Errorf("flow is %v", flow)
	}
	if got := list(a.do(http.MethodPost, receivePath, `{"max": 1}`).is(http.StatusOK), "messages"); len(got) != 1 {
		t.Fatalf("received %v", got)
	}
	got := list(a.do(http.MethodGet, keys, nil).is(http.StatusOK), "items")
	if len(got) != 2 || got[0]["key"] != "a" || got[0]["waiting"] != 2.0 || got[0]["reason"] != "turn" ||
		got[1]["key"] != "b" || got[0]["since"] == nil {
		t.Errorf("keys are %v", got) // a claim has started the message without a key
	}
	page := a.do(http.MethodGet, keys+"?limit=1", nil).is(http.StatusOK)
	next := a.do(http.MethodGet, keys+"?cursor="+page["next"].(string), nil).is(http.StatusOK)
	if items := list(next, "items"); len(items) != 1 || items[0]["key"] != "b" {
		t.Errorf("the second page is %v", next)
	}

	a.do(http.MethodGet, keys+"?cursor=a/b", nil).fails(http.StatusBadRequest, "invalid", "query.cursor")

	set := a.do(http.MethodPut, keys+"/a/flow", `{"rate": {"n": 1, "per": "1h"}, "weight": 3}`).is(http.StatusOK)
	if override, _ := set["override"].(map[string]any); override["weight"] != 3.0 || set["weight"] != 3.0 ||
		set["concurrency"] != 1.0 || override["concurrency"] != nil {
		t.Errorf("set %v", set)
	}
	if got := list(a.do(http.MethodPost, receivePath, `{"max": 3}`).is(http.StatusOK), "messages"); len(got) != 2 {
		t.Errorf("received %v", got)
	}
	full := a.do(http.MethodGet, keys+"/a", nil).is(http.StatusOK)
	if full["reason"] != "full" || full["leased"] != 1.0 || full["waiting"] != 1.0 || full["next"] == nil {
		t.Errorf("a is %v", full)
	}
	why := a.do(http.MethodGet, mail+"/a2/why", nil).is(http.StatusOK)
	if key, _ := why["key"].(map[string]any); key["key"] != "a" && why["reason"] != "no_worker" {
		t.Errorf("a2 waits because of %v", why)
	}
	overridden := list(a.do(http.MethodGet, keys+"?overridden=true", nil).is(http.StatusOK), "items")
	if len(overridden) != 1 || overridden[0]["key"] != "a" {
		t.Errorf("keys with limits of their own are %v", overridden)
	}
	counts, _ := a.do(http.MethodGet, "/v1/queues/mail", nil).is(http.StatusOK)["flow"].(map[string]any)
	if waiting, _ := counts["keys"].(map[string]any); waiting["waiting"] != 1.0 || waiting["full"] != 1.0 {
		t.Errorf("state is %v", counts)
	}
	if inherited := a.do(http.MethodPut, keys+"/a/flow", `{}`).is(http.StatusOK); inherited["override"] != nil ||
		inherited["rate"] != nil {
		t.Errorf("after the override is removed, a is %v", inherited)
	}
	a.do(http.MethodPut, keys+"/a/flow", `{"weight": 0}`).fails(http.StatusBadRequest, "invalid", "weight")
	a.do(http.MethodPut, keys+"/a/flow", `{"concurrency": -1}`).fails(http.StatusBadRequest, "invalid", "concurrency")
}

func TestOrderedKeysAreHaltedAndResumed(t *testing.T) {
	const keys = "/v1/queues/mail/keys"
	a := newAPI(t)
	a.do(http.MethodPut, "/v1/queues/mail/flow", `{"key": {"order": "sorted"}}`).
		fails(http.StatusBadRequest, "invalid", "key.order")
	a.do(http.MethodPut, "/v1/queues/mail/flow", `{"key": {"order": "halt", "concurrency": 2}}`).
		fails(http.StatusBadRequest, "invalid", "key.concurrency")
	flow := a.do(http.MethodPut, "/v1/queues/mail/flow", `{"key": {"order": "halt"}}`).is(http.StatusOK)
	if key, _ := flow["key"].(map[string]any); key["order"] != "halt" || key["concurrency"] != 1.0 {
		t.Errorf("flow is %v", flow)
	}
	a.do(http.MethodPut, keys+"/a/flow", `{"concurrency": 2}`).fails(http.StatusBadRequest, "invalid", "concurrency")
	a.do(http.MethodPost, mail+"/batch", `{"messages": [{"id": "a1", "key": "a"}, {"id": "a2", "key": "a"}]}`).
		is(http.StatusOK)
	receive := func(id string) map[string]any {
		t.Helper()
		got := list(a.do(http.MethodPost, receivePath, `{"max": 3}`).is(http.StatusOK), "messages")
		if len(got) != 1 || got[0]["id"] != id || got[0]["fence"] == nil {
			t.Fatalf("received %v, want %s", got, id)
		}
		return got[0]
	}
	bury := func(m map[string]any) {
		t.Helper()
		a.do(http.MethodPost, "/v1/leases/"+m["token"].(string)+"/bury", `{"reason": "bad"}`).is(http.StatusNoContent)
	}
	bury(receive("a1"))
	halted := list(a.do(http.MethodGet, keys+"?halted=true", nil).is(http.StatusOK), "items")
	if len(halted) != 1 || halted[0]["key"] != "a" || halted[0]["halted"] != true || halted[0]["holder"] != "a1" ||
		halted[0]["reason"] != "halted" || halted[0]["waiting"] != 1.0 {
		t.Errorf("halted keys are %v", halted)
	}
	stats, _ := a.do(http.MethodGet, "/v1/queues/mail", nil).is(http.StatusOK)["flow"].(map[string]any)
	if counts, _ := stats["keys"].(map[string]any); counts["halted"] != 1.0 || counts["full"] != 1.0 {
		t.Errorf("state is %v", stats)
	}
	purged := a.do(http.MethodPost, "/v1/queues/mail/purge", `{"states": ["dead"], "ids": ["a1"]}`).is(http.StatusOK)
	if resumed, _ := purged["resumed"].([]any); purged["purged"] != 1.0 || len(resumed) != 1 || resumed[0] != "a" {
		t.Errorf("purged %v", purged)
	}
	bury(receive("a2"))
	if got := a.do(http.MethodPost, keys+"/a/resume", nil).is(http.StatusOK); got["halted"] != nil {
		t.Errorf("a is %v", got)
	}
	a.do(http.MethodPost, keys+"/a/resume", nil).fails(http.StatusNotFound, "not_found", "")
	a.do(http.MethodGet, keys+"?halted=true&overridden=true", nil).fails(http.StatusBadRequest, "invalid", "halted")
}

func TestUrgentMessagesAreReceivedFirst(t *testing.T) {
	a := newAPI(t)
	a.do(http.MethodPost, mail, `{"id": "a", "urgency": "high"}`).fails(http.StatusBadRequest, "invalid", "urgency")
	a.do(http.MethodPost, mail, `{"id": "a", "urgency": "urgent"}`).fails(http.StatusBadRequest, "invalid", "urgency")
	flow := a.do(http.MethodPut, "/v1/queues/mail/flow", `{"urgency": true}`).is(http.StatusOK)
	if flow["urgency"] != true || flow["fair"] != true {
		t.Errorf("flow is %v", flow)
	}
	a.do(http.MethodPost, mail+"/batch", `{"messages": [{"id": "low", "urgency": "low"}, {"id": "normal"},
		{"id": "high", "urgency": "high"}]}`).is(http.StatusOK)
	var ids, urgencies []any
	for _, m := range list(a.do(http.MethodPost, receivePath, `{"max": 3}`).is(http.StatusOK), "messages") {
		ids, urgencies = append(ids, m["id"]), append(urgencies, m["urgency"])
	}
	if !slices.Equal(ids, []any{"high", "normal", "low"}) || !slices.Equal(urgencies, []any{"high", nil, "low"}) {
		t.Errorf("received %v with urgencies %v", ids, urgencies)
	}
	if m := a.do(http.MethodGet, mail+"/high", nil).is(http.StatusOK); m["urgency"] != "high" {
		t.Errorf("the message is %v", m)
	}
}
