package memstore

import (
	"slices"

	"github.com/laterq/later/store"
)

// lease is the right to settle the messages of one claim.
type lease struct {
	id        string
	deadline  int64
	uncounted bool
	flow      int64 // the number of the flow that its messages count for, or 0
	keyed     int64 // the same of the limits of keys
	members   map[string]*message
	cancelled []cancelled // since the last Extend
}

// cancelled is a member of a lease that was cancelled.
type cancelled struct {
	store.Receipt
	key string // at the claim
}

// reap ends expired leases, until it has handled a bounded number of messages. It returns the ids of the messages that
// died.
func (q *queue) reap(now int64) (died []string) {
	for handled := 0; handled < store.MaxBatch; {
		e := q.deadlines.first()
		if e.at > now {
			break
		}
		l := q.leases[e.id]
		handled += 1 + len(l.members)
		q.freeCancelled(l)
		for _, m := range l.members {
			q.free(l, m.leasedKey)
			if q.unhold(m) {
				q.wait(m, false)
				continue
			}
			if l.uncounted {
				q.comeBackUntouched(now, m, l)
				continue
			}
			m.delivered = true
			m.attempts++
			m.setDue(l.deadline)
			m.lastError = store.LeaseExpiredText
			m.failures = store.AddFailure(store.LeaseExpired(store.Time(l.deadline), m.attempts), m.failures)
			if m.attemptsLeft() {
				q.comeBack(m, l)
				continue
			}
			q.dieOf(now, m, l, store.DeadLeaseExpired)
			died = append(died, m.ID)
		}
		q.endLease(l)
	}
	return died
}

// hold moves a ready message into a lease.
func (q *queue) hold(m *message, l *lease) store.Claimed {
	if q.flow.Fair {
		q.flow.keys.Start(q.micros, m.inLane(), l.keyed != 0)
	}
	q.due.remove(m.due, m.ID)
	q.held.add(m.due, m.ID)
	m.lease, m.leasedKey = l, m.Key
	l.members[m.ID] = m
	if q.flow.counts(l) {
		q.flow.counted++
	}
	return store.Claimed{
		Message: clone(m.Message),
		Receipt: store.Receipt{Lease: l.id, ID: m.ID, Epoch: m.epoch},
		Due:     store.Time(m.due),
		Attempt: m.attempts + 1,
	}
}

// unhold takes a message out of its lease. The caller adds it to another index, and ends the lease if it is empty.
// It reports whether the message is the successor of the one that was held.
func (q *queue) unhold(m *message) (follows bool) {
	q.held.remove(m.due, m.ID)
	delete(m.lease.members, m.ID)
	follows = m.follows
	m.lease, m.follows = nil, false
	m.setDue(m.due) // it has no place among the arrivals any more
	m.epoch++
	return follows
}

func (q *queue) endLease(l *lease) {
	delete(q.leases, l.id)
	q.deadlines.remove(l.deadline, l.id)
}

// postponeLeases moves the deadlines of all leases by a number of milliseconds.
func (q *queue) postponeLeases(by int64) {
	q.deadlines = newIndex()
	for _, l := range q.leases {
		l.deadline += by
		q.deadlines.add(l.deadline, l.id)
	}
}

// current returns the lease, or nil if it has ended or expired.
func (q *queue) current(now int64, id string) *lease {
	if l := q.leases[id]; l != nil && l.deadline > now {
		return l
	}
	return nil
}

// lose has the holder of a message learn that it was cancelled.
func (l *lease) lose(m *message) {
	r := store.Receipt{Lease: l.id, ID: m.ID, Epoch: m.epoch}
	l.cancelled = append(l.cancelled, cancelled{r, m.leasedKey})
}

func (q *queue) settle(now int64, s store.Settlement) store.SettleResult {
	if err := s.Action.Check(); err != nil {
		return store.SettleResult{Err: err}
	}
	l := q.current(now, s.Receipt.Lease)
	if l == nil {
		return store.SettleResult{Err: store.ErrLeaseLost}
	}
	m := l.members[s.Receipt.ID]
	if m == nil || m.epoch != s.Receipt.Epoch {
		q.learn(l, &s.Receipt)
		return store.SettleResult{Err: store.ErrLeaseLost}
	}
	follows := q.unhold(m)
	q.free(l, m.leasedKey)
	if len(l.members) == 0 && len(l.cancelled) == 0 {
		q.endLease(l)
	}
	if follows {
		q.wait(m, false)
		if s.Action == store.Ack {
			return store.SettleResult{}
		}
		return store.SettleResult{State: m.state(now)}
	}
	m.delivered = m.delivered || s.Action != store.Release
	var death store.DeadReason
	switch s.Action {
	case store.Ack:
		q.erase(m)
		if s.DedupWindow > 0 {
			q.startDedup(m.ID, now+store.Millis(s.DedupWindow))
		}
		return store.SettleResult{}
	case store.Release:
		q.comeBackUntouched(now, m, l)
		return store.SettleResult{State: m.state(now)}
	case store.Nack:
		if q.fail(now, m, &s); !m.attemptsLeft() {
			death = store.DeadFailed
		}
	case store.Snooze:
		if s.ResetAttempts {
			m.attempts, m.lastError = 0, ""
		}
		if _, ok := store.GivenBack(m.failures); ok {
			m.failures, m.lastError = store.WithoutGivenBack(m.failures), ""
		}
	case store.Bury:
		q.fail(now, m, &s)
		death = store.DeadBuried
	case store.GiveBack:
		failures, since := s.GiveBack(store.Time(now), m.failures)
		if s.Within >= 0 && now-since.UnixMilli() >= store.Millis(s.Within) {
			m.failures = store.WithoutGivenBack(m.failures)
			q.fail(now, m, &s)
			death = store.DeadUnreadable
			break
		}
		m.failures, m.lastError = failures, store.CutReason(s.Reason)
	}
	if death != "" {
		q.dieOf(now, m, l, death)
		return store.SettleResult{State: store.StateDead}
	}
	m.setDue(q.dueAt(now, store.Due{Delay: s.Delay}))
	q.comeBack(m, l)
	return store.SettleResult{State: m.state(now)}
}

// learn says that the holder of a message that counts has learned that it was cancelled, if it was.
func (q *queue) learn(l *lease, r *store.Receipt) {
	i := slices.IndexFunc(l.cancelled, func(c cancelled) bool { return c.ID == r.ID && c.Epoch == r.Epoch })
	if i < 0 || !q.flow.counts(l) {
		return
	}
	q.free(l, l.cancelled[i].key)
	l.cancelled = slices.Delete(l.cancelled, i, i+1)
	if len(l.members) == 0 && len(l.cancelled) == 0 {
		q.endLease(l)
	}
}

// fail counts a failed attempt.
func (q *queue) fail(now int64, m *message, s *store.Settlement) {
	m.attempts++
	m.lastError = store.CutReason(s.Reason)
	m.failures = store.AddFailure(store.NewFailure(store.Time(now), m.attempts, s), m.failures)
}

func (q *queue) extend(now int64, e store.Extension) store.ExtendResult {
	l := q.current(now, e.Lease)
	if l == nil {
		return store.ExtendResult{Err: store.ErrLeaseLost}
	}
	lost := q.freeCancelled(l)
	l.cancelled = nil
	if len(l.members) == 0 {
		q.deadlines.remove(l.deadline, l.id)
		delete(q.leases, l.id)
		return store.ExtendResult{Lost: lost, Err: store.ErrLeaseLost}
	}
	if e.For > 0 {
		q.deadlines.remove(l.deadline, l.id)
		l.deadline = now + store.Millis(e.For)
		q.deadlines.add(l.deadline, l.id)
	}
	return store.ExtendResult{Deadline: store.Time(l.deadline), Lost: lost}
}
