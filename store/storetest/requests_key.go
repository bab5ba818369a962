package storetest

import (
	"context"
	"fmt"
	"time"

	"github.com/laterq/later/store"
)

// key returns the state of the key k.
func (e requestEnv) key() store.KeyState {
	e.t.Helper()
	page, err := e.s.Keys(e.t.Context(), "q", store.KeysRequest{Key: "k", Limit: 1})
	if err != nil || len(page) != 1 {
		e.t.Fatalf("keys %+v, %v", page, err)
	}
	return page[0]
}

// repeatKeyedClaim repeats a claim, which counts once against the limits of a key.
func (e requestEnv) repeatKeyedClaim(again func() []store.Store) {
	e.t.Helper()
	ctx := store.WithRequest(e.t.Context(), store.Request{Session: "s:1", Number: 7})
	rate := store.Rate{N: 1, Per: time.Hour, Burst: 4}
	e.must(e.s.SetFlow(e.t.Context(), "q", store.Flow{Key: store.KeyFlow{Concurrency: 2, Rate: rate}}, nil))
	for i := range 6 {
		m := plainMessage(fmt.Sprint(i))
		m.Key = "k"
		_, err := e.s.Send(e.t.Context(), "q", []store.Outgoing{m})
		e.must(err)
	}
	req := store.ClaimRequest{Max: 5, Lease: time.Hour}
	first, err := e.s.Claim(ctx, "q", req)
	if err != nil || len(first.Messages) != 2 {
		e.t.Fatal(first, err)
	}
	want := withoutClock(first).(store.Claim)
	last := e
	for _, s := range again() {
		last = requestEnv{e.t, s}
		last.claimsAgain(ctx, req, want)
		if k := last.key(); k.Leased != 2 || k.Resting() {
			e.t.Errorf("after the repetition: %+v", k)
		}
	}
	for _, want := range []int{2, 0} { // the burst is used up then
		for _, m := range first.Messages {
			settled, err := last.s.Settle(e.t.Context(), "q",
				[]store.Settlement{{Receipt: m.Receipt, Action: store.Ack}})
			if err != nil || settled[0].Err != nil {
				e.t.Fatal(settled, err)
			}
		}
		first, err = last.s.Claim(e.t.Context(), "q", req)
		e.must(err)
		if k := last.key(); len(first.Messages) != want || k.Leased != want || !k.Resting() {
			e.t.Errorf("the next claim takes %d messages, want %d: %+v", len(first.Messages), want, k)
		}
	}
}

// repeatKeyFlow repeats a call of SetKeyFlow, which has changed nothing when another call has changed it since.
func (e requestEnv) repeatKeyFlow(again func() []store.Store) {
	e.t.Helper()
	e.must(e.s.SetFlow(e.t.Context(), "q", store.Flow{Fair: true}, nil))
	one, two := 1, 2
	request := func(number int64) context.Context {
		return store.WithRequest(e.t.Context(), store.Request{Session: "s:1", Number: number})
	}
	e.must(e.s.SetKeyFlow(request(7), "q", "k", store.KeyOverride{Weight: &two}))
	for _, s := range again() {
		last := requestEnv{e.t, s}
		e.must(s.SetKeyFlow(e.t.Context(), "q", "k", store.KeyOverride{Concurrency: &one}))
		e.must(s.SetKeyFlow(request(7), "q", "k", store.KeyOverride{Weight: &two}))
		if k := last.key(); k.Weight != 1 || k.Concurrency != 1 {
			e.t.Errorf("the repetition changed the override: %+v", k)
		}
	}
}
