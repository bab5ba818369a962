package storetest

import (
	"time"

	"pgregory.net/rapid"

	"github.com/laterq/later/store"
)

// someUrgencies are the urgencies of messages, half of them normal.
var someUrgencies = []store.Urgency{store.UrgencyNormal, store.UrgencyNormal, store.UrgencyHigh, store.UrgencyLow}

// drawRefused draws whether messages for a queue without urgencies have some nevertheless, at least the first one.
// Otherwise they lose them.
func (m *machine) drawRefused(r *rapid.T, msgs []store.Outgoing) bool {
	if m.model.flow.Urgency {
		return false
	}
	refused := rapid.IntRange(0, 5).Draw(r, "with urgencies if 0") == 0
	for i := range msgs {
		if !refused {
			msgs[i].Urgency = store.UrgencyNormal
		} else if i == 0 {
			msgs[i].Urgency = store.UrgencyLow
		}
	}
	return refused
}

// refused expects a Send of messages with urgencies to be refused. Check looks whether it has changed anything.
func (m *machine) refused(r *rapid.T, msgs []store.Outgoing) {
	_, err := m.store(r).Send(m.ctx, m.queue, msgs)
	m.sameError(r, "send of urgencies", err, store.ErrInvalid)
}

// checkUrgencies checks that messages start by their urgencies.
func (m *machine) checkUrgencies(r *rapid.T, ready []*modelMessage, ids []string, forwards bool) {
	m.model.sort()
	starts := m.model.startsOf(ready, forwards)
	for _, id := range ids {
		if wrong := starts.start(id); wrong != "" {
			r.Fatalf("message %s starts %s: %v", id, wrong, ids)
		}
	}
}

// ClaimAgainAndAgain starts one message after the other, so that urgencies are passed over often. Each is released.
func (m *machine) ClaimAgainAndAgain(r *rapid.T) {
	s, req := m.store(r), store.ClaimRequest{Max: 1, Lease: 50 * time.Millisecond}
	for range rapid.IntRange(1, 20).Draw(r, "times") {
		claimed := m.claim(r, s, req)
		if len(claimed) == 0 {
			return
		}
		m.settle(r, s, []store.Settlement{{Receipt: claimed[0].Receipt, Action: store.Release}})
	}
}
