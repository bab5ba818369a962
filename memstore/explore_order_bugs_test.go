package memstore

import (
	"testing"

	"github.com/laterq/later/store"
)

// heldBefore returns the key that a message held before the step.
func (w *orderWorld) heldBefore(id string) string {
	for key, holder := range w.held {
		if holder == id {
			return key
		}
	}
	return ""
}

// losesHolds is a bug of a step, after which messages that came back hold no key.
func losesHolds(what string) *orderBug {
	return &orderBug{after: func(w *orderWorld, q *queue, s step) {
		for key, id := range w.holds {
			if s.what == what && w.held[key] == "" {
				q.flow.keys.Drop(q.micros, id)
			}
		}
	}}
}

// keepsHold is a bug of a step that ends the hold of its message.
func keepsHold(what string, keeps func(w *orderWorld, q *queue, key, id string)) *orderBug {
	return &orderBug{after: func(w *orderWorld, q *queue, s step) {
		if key := w.heldBefore(s.id); s.what == what && key != "" {
			keeps(w, q, key, s.id)
		}
	}}
}

func keep(_ *orderWorld, q *queue, key, id string) { q.flow.keys.Keep(q.micros, key, id) }

var orderBugs = []struct {
	name  string
	order store.Order
	bug   *orderBug
}{
	{"a nacked message holds no key", store.OrderContinue, losesHolds("nack")},
	{"a released message holds no key", store.OrderContinue, losesHolds("release")},
	{"a message holds no key when its lease has ended", store.OrderHalt, &orderBug{
		after: func(w *orderWorld, q *queue, s step) {
			for _, id := range w.holds {
				if m := q.messages[id]; s.what == "claim" && m != nil && m.lastError == store.LeaseExpiredText {
					q.flow.keys.Drop(q.micros, id)
				}
			}
		},
	}},
	{"a cancelled message holds its key", store.OrderContinue, keepsHold("cancel", keep)},
	{"a message that is sent again inherits the hold of the cancelled one", store.OrderContinue, &orderBug{
		after: func(w *orderWorld, q *queue, s step) {
			if key := w.heldBefore(s.id); s.what == "cancel" && key != "" {
				w.seeded[s.id] = key
			}
			if key := w.seeded[s.id]; s.what == "schedule" && key != "" {
				q.flow.keys.Keep(q.micros, key, s.id)
			}
		},
	}},
	{"a key is not looked at when the message that holds it is cancelled", store.OrderHalt, keepsHold("cancel",
		func(_ *orderWorld, q *queue, key, _ string) { q.flow.keys.Hold(q.micros, key, 1) })},
	{"a message with another key holds its former one", store.OrderContinue, keepsHold("move", keep)},
	{"a message starts before one that was due earlier and is not sorted", store.OrderContinue, &orderBug{
		before: func(w *orderWorld, q *queue, s step) {
			if s.what == "claim" {
				w.hidden, q.flow.unsorted = q.flow.unsorted, newIndex()
			}
		},
		after: func(w *orderWorld, q *queue, s step) {
			if s.what == "claim" {
				for e := range q.flow.unsorted.between(start, never) {
					w.hidden.add(e.at, e.id)
				}
				q.flow.unsorted = w.hidden
			}
		},
	}},
	{"messages of one millisecond start in the order of their ids", store.OrderHalt, &orderBug{
		after: func(w *orderWorld, q *queue, s step) {
			if m := q.messages[s.id]; s.what == "send" {
				q.flow.keys.Remove(q.micros, m.inLane())
				m.setDue(m.due)
				q.flow.keys.Sort(q.micros, m.inLane())
			}
		},
	}},
	{"a death halts no key", store.OrderHalt, losesHolds("bury")},
	{"a death halts a key although the order continues", store.OrderContinue, &orderBug{
		after: func(w *orderWorld, q *queue, s step) {
			for id, m := range q.messages {
				if s.what == "bury" && m.deadReason != "" && w.was[id].deadReason == "" {
					q.flow.keys.Keep(q.micros, m.Key, id)
				}
			}
		},
	}},
	{"a replayed message does not go first", store.OrderHalt, keepsHold("replay",
		func(_ *orderWorld, q *queue, _, id string) { q.flow.keys.Drop(q.micros, id) })},
	{"a replayed message halts its key", store.OrderHalt, keepsHold("replay",
		func(_ *orderWorld, q *queue, key, id string) { q.flow.keys.Halt(q.micros, key, id) })},
	{"a resumed key is halted", store.OrderHalt, &orderBug{
		after: func(w *orderWorld, q *queue, s step) {
			if s.what == "resume" {
				q.flow.keys.Halt(q.micros, "k", w.held["k"])
			}
		},
	}},
	{"a nack that comes too late holds the key", store.OrderContinue, &orderBug{
		after: func(w *orderWorld, q *queue, s step) {
			for _, h := range w.hands {
				if s.what == "nack" && h.over && h.deadline <= w.now() {
					q.flow.keys.Keep(q.micros, h.key, h.ID)
				}
			}
		},
	}},
	{"a message holds its key when it has started", store.OrderHalt, &orderBug{
		after: func(w *orderWorld, q *queue, s step) {
			for _, h := range w.hands {
				if s.what == "claim" && h.live(w.now()) {
					q.flow.keys.Keep(q.micros, h.key, h.ID)
				}
			}
		},
	}},
	{"a message that is leased anew frees its key", store.OrderContinue, &orderBug{
		after: func(w *orderWorld, q *queue, s step) {
			for key := range w.held {
				if s.what == "claim" && w.holds[key] == "" {
					q.flow.keys.Free(q.micros, key, 1)
				}
			}
		},
	}},
}

// TestTheExplorerFindsSeededBugsOfTheOrder explores stores that each break one rule.
func TestTheExplorerFindsSeededBugsOfTheOrder(t *testing.T) {
	for _, b := range orderBugs {
		t.Run(b.name, func(t *testing.T) {
			if states, wrong := exploreOrder(t, b.order, 7, b.bug); wrong == "" {
				t.Errorf("it is not found in %d states", states)
			} else {
				t.Log(wrong)
			}
		})
	}
}
