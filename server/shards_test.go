package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/laterq/later"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

const shardsPath = "/v1/queues/mail/shards"

func TestTheNumberOfShardsIsChangedAndShown(t *testing.T) {
	a := newAPI(t)
	a.do(http.MethodGet, shardsPath, nil).fails(http.StatusNotFound, "not_found", "")
	a.do(http.MethodPost, mail, `{"id": "a"}`).is(http.StatusCreated)
	one := a.do(http.MethodGet, shardsPath, nil).is(http.StatusOK)
	if each := list(one, "each"); one["shards"] != 1.0 || one["moving"] != false || one["from"] != nil ||
		len(each) != 1 || each[0]["ready"] != 1.0 || each[0]["leaving"] != 0.0 {
		t.Errorf("a queue that was never changed has %v", one)
	}
	held := list(a.do(http.MethodPost, receivePath, `{"max": 1}`).is(http.StatusOK), "messages")

	for range 2 { // the second request changes nothing
		changed := a.do(http.MethodPut, shardsPath, `{"shards": 3}`).is(http.StatusAccepted)
		if each := list(changed, "each"); changed["shards"] != 3.0 || changed["from"] != 1.0 ||
			changed["since"] == nil || len(each) != 3 || each[2]["shard"] != 2.0 {
			t.Errorf("a queue that is changed has %v", changed)
		}
	}
	a.do(http.MethodPut, shardsPath, `{"shards": 2}`).fails(http.StatusConflict, "conflict", "")
	a.do(http.MethodPost, "/v1/leases/"+held[0]["token"].(string)+"/ack", nil).is(http.StatusNoContent)
	if err := a.client.Queue("mail").SetShards(t.Context(), 3); err != nil {
		t.Error(err)
	}
	if moved := a.do(http.MethodGet, shardsPath, nil).is(http.StatusOK); moved["moving"] != false {
		t.Errorf("the shards are %v", moved)
	}
	if stats := a.do(http.MethodGet, "/v1/queues/mail", nil).is(http.StatusOK); stats["shards"] != 3.0 {
		t.Errorf("the stats are %v", stats)
	}
	changes := list(a.do(http.MethodGet, "/v1/changes", nil).is(http.StatusOK), "items")
	if len(changes) != 1 || changes[0]["what"] != "number of shards set" || changes[0]["queue"] != "mail" {
		t.Errorf("changes are %v", changes)
	}
	a.do(http.MethodPut, "/v1/queues/limited/flow", `{"concurrency": 1}`).is(http.StatusOK)
	a.do(http.MethodPut, "/v1/queues/limited/shards", `{"shards": 2}`).
		fails(http.StatusBadRequest, "invalid", "shards")
}

// brokenShards is a store whose queues have shards that do not answer.
type brokenShards struct{ *memstore.Store }

func (brokenShards) SetShards(context.Context, string, int) error { return nil }

func (brokenShards) Shards(context.Context, string) (store.Shards, error) {
	return store.Shards{Number: 2, From: 2, Each: []store.Shard{
		{Server: "one:6379", Err: fmt.Errorf("dial: %w", store.ErrUnavailable)},
		{Server: "two:6379", Err: errors.New("stack")},
		{Server: "two:6379", Leaving: -1},
	}}, nil
}

func TestAShardThatDoesNotAnswerHasItsError(t *testing.T) {
	c, err := later.New(brokenShards{memstore.New()})
	if err != nil {
		t.Fatal(err)
	}
	a := newAPIOver(t, c, Config{})
	each := list(a.do(http.MethodGet, shardsPath, nil).is(http.StatusOK), "each")
	for i, code := range []string{"unavailable", "internal"} {
		if e, _ := each[i]["error"].(map[string]any); e["code"] != code || each[i]["server"] == nil ||
			each[i]["leaving"] != nil {
			t.Errorf("shard %d is %v", i, each[i])
		}
	}
	if each[2]["leaving"] != nil || each[2]["ready"] != 0.0 {
		t.Errorf("a shard of which it is not known how many leave is %v", each[2])
	}
}
