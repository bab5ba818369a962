package diskstore

import (
	"slices"

	"github.com/laterq/later/internal/turns"
	"github.com/laterq/later/store"
)

// class is the urgency with which a message was sorted; see store.Flow.Urgency. A message keeps it while it is sorted,
// also when the flow changes and the store is opened again: claims sort it again, by the class in the value of its due
// entry. The class is stored when a message arrives, or by the claim that sorts a message and does not start it. It
// counts until the queue is not Fair any more: with the urgency, it has a part of flow.keyed.
//
// The class of a message of normal urgency is always the same, and stored as 0. Unsorted messages have the class 0,
// too.
type class uint16

// urgencies are in the lower bits of a class as their index here, and 1 more.
var urgencies = []store.Urgency{store.UrgencyNormal, store.UrgencyHigh, store.UrgencyLow}

const urgencyBits = 3

// classCounts counts messages by the lower bits of their classes.
type classCounts [1 + urgencyBits]int

func (c class) isSound() bool { return c == 0 || c&urgencyBits != 0 }

func (c class) urgency() store.Urgency {
	if c == 0 {
		return store.UrgencyNormal
	}
	return urgencies[c&urgencyBits-1]
}

// hasClass reports whether a message with the class was sorted since the queue became Fair.
func (f *flow) hasClass(c class) bool {
	return c != 0 && f.Keyed != 0 && c&^urgencyBits == class(f.Keyed)&^urgencyBits
}

// classFor returns the class of a message that is to be sorted, or was.
func (q *queue) classFor(u store.Urgency, was class) class {
	switch {
	case q.flow.hasClass(was):
		return was
	case u == store.UrgencyNormal:
		return 0
	}
	index := slices.Index(urgencies, q.flow.UrgencyOf(&store.Message{Urgency: u}))
	return class(q.flow.Keyed)&^urgencyBits | class(index+1)
}

// classAgain returns the class of a message that gets another urgency in its place. If it is sorted, it stays so.
func (q *queue) classAgain(id string, u store.Urgency, was class) class {
	if q.lanes == nil {
		return 0
	}
	if _, ok := q.lanes.sorted[id]; !ok && !q.flow.hasClass(was) {
		return 0
	}
	return q.classFor(u, 0)
}

// inLane returns the message as it is sorted, without its place.
func inLane(m *store.Message) turns.Message { return turns.Message{Key: m.Key, Urgency: m.Urgency} }

// sort adds a message to the lane of its key and class.
func (q *queue) sort(now int64, m turns.Message, e lateEntry) {
	c := q.classFor(m.Urgency, e.rank.class)
	m.Urgency, m.Place, m.ID = c.urgency(), e.place(), e.id
	key := q.lanes.order.Sort(now, m)
	q.lanes.sorted[e.id] = sorted{key: key, micros: e.rank.micros, class: c, stored: e.stored}
	q.lanes.classes[c&urgencyBits]++
}

// keepClasses stores the classes of messages that a claim has sorted and not started.
func (t *tx) keepClasses(q *queue, all []lateEntry) {
	for _, e := range all {
		if s, ok := q.lanes.sorted[e.id]; ok && !s.started && s.class != e.rank.class {
			e.rank.class = s.class
			t.value = appendDueValue(t.value[:0], &record{stored: e.stored, rank: e.rank})
			t.set(appendTimeKey(t.key[:0], q.number, kindDue, e.entry), t.value)
		}
	}
}
