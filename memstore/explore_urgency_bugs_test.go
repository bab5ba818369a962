package memstore

import (
	"testing"

	"github.com/laterq/later/internal/turns"
	"github.com/laterq/later/store"
)

var (
	oneOfKey  = store.KeyFlow{Concurrency: 1}
	continues = store.KeyFlow{Order: store.OrderContinue}
)

// resort sorts a message again with an urgency, if it is sorted.
func (q *queue) resort(m *message, u store.Urgency) {
	if m != nil && q.flow.keys.Remove(q.micros, m.inLane()) {
		lane := m.inLane()
		lane.Urgency = u
		q.flow.keys.Sort(q.micros, lane)
	}
}

// resorts is a bug before a claim or after another step: the sorted messages have the urgencies that of returns.
func resorts(what string, of func(w *urgencyWorld, m *message) store.Urgency) *urgencyBug {
	f := func(w *urgencyWorld, q *queue, s step) {
		if s.what == what {
			for _, m := range q.messages {
				q.resort(m, of(w, m))
			}
		}
	}
	if what == "claim" {
		return &urgencyBug{before: f}
	}
	return &urgencyBug{after: f}
}

// passes is a bug after a claim: the starts that passed normal over are counted as f returns.
func passes(f func(w *urgencyWorld, passed int) int) *urgencyBug {
	return &urgencyBug{after: func(w *urgencyWorld, q *queue, s step) {
		if p := q.flow.keys.Passed(); s.what == "claim" {
			q.flow.keys.RestorePassed(turns.Passed{Normal: f(w, p.Normal)})
		}
	}}
}

var urgencyBugs = []struct {
	name   string
	limits store.KeyFlow
	bug    *urgencyBug
}{
	{"urgent messages wait as others do", oneOfKey, resorts("send",
		func(*urgencyWorld, *message) store.Urgency { return store.UrgencyNormal })},
	{"messages are sorted again when Urgency is removed", continues, resorts("calm",
		func(*urgencyWorld, *message) store.Urgency { return store.UrgencyNormal })},
	{"messages are sorted again when Urgency is set", oneOfKey, resorts("urge",
		func(_ *urgencyWorld, m *message) store.Urgency { return m.Urgency })},
	{"an edit leaves the message among the messages of its former urgency", continues, resorts("edit",
		func(w *urgencyWorld, m *message) store.Urgency {
			was := w.was[m.ID]
			return w.flow.UrgencyOf(&was.Message)
		})},
	{"an edit ends the hold of the message", continues, &urgencyBug{
		after: func(w *urgencyWorld, q *queue, s step) {
			m := q.messages[s.id]
			if s.what != "edit" || w.heldBefore(s.id) == "" {
				return
			}
			sorted := q.flow.keys.Has(m.inLane())
			if q.flow.keys.Drop(q.micros, s.id); sorted {
				q.sortOne(m)
			}
		},
	}},
	{"an urgent message goes before others of its key that has an order", continues, &urgencyBug{
		before: func(_ *urgencyWorld, q *queue, s step) {
			m := q.messages["b"]
			if s.what != "claim" || m == nil || m.Urgency != store.UrgencyHigh || !q.flow.keys.Remove(q.micros, m.inLane()) {
				return
			}
			q.flow.keys.Keep(q.micros, "k", "b")
			q.sortOne(m)
		},
	}},
	{"a key with an order waits with the urgency of another message", continues, resorts("claim",
		func(_ *urgencyWorld, m *message) store.Urgency {
			if m.Key == "k" {
				return store.UrgencyHigh
			}
			return store.UrgencyNormal
		})},
	{"each urgency of a key has its own slots", oneOfKey, &urgencyBug{
		before: func(w *urgencyWorld, q *queue, s step) {
			for _, h := range w.hands {
				if s.what == "claim" && h.ID == "a" && q.messages["a"] != nil && q.messages["a"].lease != nil {
					q.flow.keys.Free(q.micros, "k", 1)
				}
			}
		},
	}},
	{"normal messages are never owed a start", oneOfKey,
		passes(func(*urgencyWorld, int) int { return 0 })},
	{"a start of a normal message does not end the count", continues,
		passes(func(w *urgencyWorld, passed int) int {
			if passed == 0 && w.passed == 0 {
				return 7
			}
			return passed
		})},
	{"a normal message whose key may not start counts as passed over", oneOfKey,
		passes(func(w *urgencyWorld, passed int) int {
			a := w.queue().messages["a"]
			if a != nil && a.lease == nil && w.leased("k") {
				return passed + 1
			}
			return passed
		})},
	{"urgent messages do not start when Urgency was removed", oneOfKey, &urgencyBug{
		after: func(_ *urgencyWorld, q *queue, s step) {
			for _, m := range q.messages {
				if s.what == "calm" && m.Urgency == store.UrgencyHigh {
					q.flow.keys.Remove(q.micros, m.inLane())
				}
			}
		},
	}},
	{"a refused message is sent", oneOfKey, &urgencyBug{
		after: func(w *urgencyWorld, q *queue, s step) {
			if s.what == "send" && q.messages[s.id] == nil {
				q.send(w.now(), []store.Outgoing{{Message: store.Message{ID: s.id, Key: exploredKeys[s.id]}}})
			}
		},
	}},
	{"a refused edit is done", continues, &urgencyBug{
		after: func(w *urgencyWorld, q *queue, s step) {
			if m := q.messages[s.id]; s.what == "edit" && m.Urgency == store.UrgencyNormal && !w.flow.Urgency {
				m.Urgency = store.UrgencyHigh
			}
		},
	}},
}

// TestTheExplorerFindsSeededBugsOfUrgencies explores stores that each break one rule.
func TestTheExplorerFindsSeededBugsOfUrgencies(t *testing.T) {
	for _, b := range urgencyBugs {
		t.Run(b.name, func(t *testing.T) {
			if states, wrong := exploreUrgency(t, b.limits, 7, b.bug); wrong == "" {
				t.Errorf("it is not found in %d states", states)
			} else {
				t.Log(wrong)
			}
		})
	}
}
