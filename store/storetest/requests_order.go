package storetest

import (
	"context"
	"reflect"
	"slices"
	"time"

	"github.com/laterq/later/store"
)

func (e requestEnv) request(number int64) context.Context {
	return store.WithRequest(e.t.Context(), store.Request{Session: "s:1", Number: number})
}

// sendKeyed sends messages of the key k.
func (e requestEnv) sendKeyed(ctx context.Context, ids ...string) {
	e.t.Helper()
	var msgs []store.Outgoing
	for _, id := range ids {
		m := plainMessage(id)
		m.Key = "k"
		msgs = append(msgs, m)
	}
	_, err := e.s.Send(ctx, "q", msgs)
	e.must(err)
}

// startsNext claims a message of the key k.
func (e requestEnv) startsNext(id string) store.Claimed {
	e.t.Helper()
	c, err := e.s.Claim(e.t.Context(), "q", store.ClaimRequest{Max: 5, Lease: time.Hour})
	if err != nil || len(c.Messages) != 1 || c.Messages[0].ID != id {
		e.t.Fatalf("claim = %+v, %v, want %s", c.Messages, err, id)
	}
	return c.Messages[0]
}

func (e requestEnv) settles(s store.Settlement) {
	e.t.Helper()
	settled, err := e.s.Settle(e.t.Context(), "q", []store.Settlement{s})
	if err != nil || settled[0].Err != nil {
		e.t.Fatal(settled, err)
	}
}

// repeatOrder repeats a send and a claim of a queue with an order. The messages keep their places, and the claim its
// fence.
func (e requestEnv) repeatOrder(again func() []store.Store) {
	e.t.Helper()
	e.must(e.s.SetFlow(e.t.Context(), "q", keyOrder(store.OrderContinue), nil))
	e.sendKeyed(e.request(7), "c", "b")
	e.sendKeyed(e.t.Context(), "a")
	req := store.ClaimRequest{Max: 5, Lease: time.Hour}
	first, err := e.s.Claim(e.request(8), "q", req)
	if err != nil || len(first.Messages) != 1 || first.Messages[0].ID != "c" || first.Messages[0].Fence == 0 {
		e.t.Fatal(first, err)
	}
	want, last := withoutClock(first).(store.Claim), e
	for _, s := range again() {
		last = requestEnv{e.t, s}
		last.claimsAgain(e.request(8), req, want)
	}
	fence := first.Messages[0].Fence
	for _, s := range again() {
		last = requestEnv{e.t, s}
		last.sendKeyed(e.request(9), "again")
		last.sendKeyed(e.request(9), "again")
	}
	last.settles(store.Settlement{Receipt: first.Messages[0].Receipt, Action: store.Ack})
	for _, id := range []string{"b", "a", "again"} {
		c := last.startsNext(id)
		if c.Fence <= fence {
			e.t.Errorf("fence of %s is %d after %d", id, c.Fence, fence)
		}
		fence = c.Fence
		last.settles(store.Settlement{Receipt: c.Receipt, Action: store.Ack})
	}
}

// repeatResume repeats a ResumeKey, which does not resume the key when another message has halted it since.
func (e requestEnv) repeatResume(again func() []store.Store) {
	e.t.Helper()
	e.must(e.s.SetFlow(e.t.Context(), "q", keyOrder(store.OrderHalt), nil))
	bury := func(e requestEnv, id string) {
		e.t.Helper()
		e.settles(store.Settlement{Receipt: e.startsNext(id).Receipt, Action: store.Bury, Reason: "no"})
	}
	e.sendKeyed(e.t.Context(), "a", "b")
	bury(e, "a")
	e.must(e.s.ResumeKey(e.request(7), "q", "k"))
	bury(e, "b")
	for _, s := range again() {
		last := requestEnv{e.t, s}
		e.must(s.ResumeKey(e.request(7), "q", "k"))
		if k := last.key(); !k.Halted || k.Holder != "b" {
			e.t.Errorf("the repetition resumed the key: %+v", k)
		}
	}
}

// repeatResumingPurge repeats a Purge, which returns the keys that its first call resumed.
func (e requestEnv) repeatResumingPurge(again func() []store.Store) {
	e.t.Helper()
	e.must(e.s.SetFlow(e.t.Context(), "q", keyOrder(store.OrderHalt), nil))
	e.sendKeyed(e.t.Context(), "a", "b")
	e.settles(store.Settlement{Receipt: e.startsNext("a").Receipt, Action: store.Bury, Reason: "no"})
	sel := store.Selection{State: store.StateDead}
	first, err := e.s.Purge(e.request(7), "q", sel)
	if err != nil || !slices.Equal(first.Resumed, []string{"k"}) {
		e.t.Fatal(first, err)
	}
	e.settles(store.Settlement{Receipt: e.startsNext("b").Receipt, Action: store.Bury, Reason: "no"})
	for _, s := range again() {
		last := requestEnv{e.t, s}
		result, err := s.Purge(e.request(7), "q", sel)
		if err != nil || !reflect.DeepEqual(result, first) {
			e.t.Errorf("first %+v, again %+v, %v", first, result, err)
		}
		if k := last.key(); !k.Halted || k.Holder != "b" {
			e.t.Errorf("the repetition resumed the key: %+v", k)
		}
	}
}
