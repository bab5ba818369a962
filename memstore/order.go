package memstore

import (
	"github.com/laterq/later/store"
)

// ordered reports whether the messages of each key start in order.
func (q *queue) ordered() bool { return q.flow.Key.Order != store.OrderNone }

// setDue sets the due time of a message that is sent, and its place among the messages of its key. It reports whether
// the message arrives: it has no delay, and thus a place behind the earlier arrivals, whatever the clock says.
func (q *queue) setDue(now int64, m *message, due store.Due) (arrives bool) {
	if !q.ordered() || m.Key == "" || !due.At.IsZero() || due.Delay > 0 {
		m.setDue(q.dueAt(now, due))
		return false
	}
	m.place, m.arrived = q.flow.arrivals.Next(q.micros), true
	m.due = m.place / 1000
	return true
}

// setDue sets the due time of a message, and with it the place.
func (m *message) setDue(due int64) { m.due, m.place, m.arrived = due, due*1000, false }

// sendForwarded sends a message of another queue, in which it had a place.
func (q *queue) sendForwarded(now int64, out store.Outgoing, place int64) {
	sent := q.send(now, []store.Outgoing{out})
	if !sent[0].Duplicate && q.ordered() && out.Key != "" {
		q.messages[out.ID].place = place // the message is not sorted yet
	}
}

// countsKeys reports whether the messages of a lease count for their keys.
func (f *flow) countsKeys(l *lease) bool { return f.Fair && l.keyed == f.keyed }

// comeBack adds a message that has left a lease, and holds its key if it counted.
func (q *queue) comeBack(m *message, l *lease) {
	q.wait(m, false)
	if q.flow.countsKeys(l) {
		q.flow.keys.Keep(q.micros, m.leasedKey, m.ID)
	}
}

// comeBackUntouched adds a message that was released. It keeps its due time. If it holds a key with an order and the
// clock was set back behind the due time, it is due now: its key starts messages whatever the clock says.
func (q *queue) comeBackUntouched(now int64, m *message, l *lease) {
	if m.due > now && q.ordered() && q.flow.countsKeys(l) && m.leasedKey != "" {
		m.setDue(now)
	}
	q.comeBack(m, l)
}

// dieOf sets aside a message that has left a lease, and halts its key if it counted and the order is OrderHalt.
func (q *queue) dieOf(now int64, m *message, l *lease, reason store.DeadReason) {
	q.die(now, m, reason)
	if q.flow.countsKeys(l) {
		q.flow.keys.Halt(q.micros, m.leasedKey, m.ID)
	}
}

// dropHold has a message hold its key no longer. It returns the key that it halted, or "".
func (q *queue) dropHold(m *message) (resumed string) {
	if !q.flow.Fair {
		return ""
	}
	return q.flow.keys.Drop(q.micros, m.ID)
}

// halted returns the number of halted keys.
func (q *queue) halted() int64 {
	if !q.ordered() {
		return 0
	}
	return int64(q.flow.keys.Halted())
}

// firstDead returns the first dead message that halts no key, or an entry at never. It looks once at each that halts.
func (q *queue) firstDead() entry {
	if !q.ordered() {
		return q.dead.first()
	}
	for e := range q.dead.between(q.halts, never) {
		if _, halts := q.flow.keys.Holds(e.id); !halts {
			q.halts = e
			return e
		}
	}
	q.halts = entry{at: never}
	return q.halts
}

// haltsNot notes that a dead message may halt no key, or not any more.
func (q *queue) haltsNot(m *message) {
	if e := (entry{m.diedAt, m.ID}); e.less(q.halts) {
		q.halts = e
	}
}
