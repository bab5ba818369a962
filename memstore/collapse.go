package memstore

import (
	"github.com/laterq/later/store"
)

// collapse sends messages that may change live ones.
func (q *queue) collapse(now int64, msgs []store.Outgoing) []store.SendResult {
	q.dropDedup(now)
	return each(msgs, func(out store.Outgoing) store.SendResult { return q.collapseOne(now, &out) })
}

func (q *queue) collapseOne(now int64, out *store.Outgoing) store.SendResult {
	m := q.messages[out.ID]
	fresh := normalize(out.Message)
	fresh.SentAt = store.Time(now)
	switch {
	case out.OnDuplicate.Unchanged != nil && m == nil:
		return store.SendResult{Err: store.ErrNotFound}
	case m == nil && q.taken(now, out.ID):
		return store.SendResult{Duplicate: true}
	case m == nil:
		m = &message{Message: fresh, due: q.dueAt(now, out.Due)}
		q.add(m)
		q.due.add(m.due, m.ID)
		return store.SendResult{}
	case m.lease != nil && out.OnDuplicate.Mode == store.DuplicateFollow:
		return q.follow(now, m, fresh, out)
	case m.lease != nil:
		return store.SendResult{Err: store.ErrLeased}
	case m.deadReason != "":
		return store.SendResult{Err: store.ErrDead}
	case out.OnDuplicate.Unchanged != nil && !q.get(now, m.ID).Same(out.OnDuplicate.Unchanged):
		return store.SendResult{Err: store.ErrConflict}
	}
	q.due.remove(m.due, m.ID)
	q.erase(m)
	if !m.SentAt.IsZero() {
		fresh.SentAt = m.SentAt
	}
	switch {
	case out.OnDuplicate.Mode == store.DuplicateDebounce:
		limit := min(fresh.SentAt.UnixMilli(), now) + store.Millis(out.OnDuplicate.MaxWait)
		m.due = min(q.dueAt(now, out.Due), limit)
	case !out.OnDuplicate.KeepDue:
		m.due = q.dueAt(now, out.Due)
	}
	m.Message, m.raw = fresh, nil
	q.add(m)
	q.due.add(m.due, m.ID)
	return store.SendResult{Replaced: true}
}

// follow makes a message the successor of the held one, or replaces its successor: m becomes it, and keeps the lease.
func (q *queue) follow(now int64, m *message, fresh store.Message, out *store.Outgoing) store.SendResult {
	replaced := m.follows
	q.held.remove(m.due, m.ID)
	q.erase(m)
	if replaced {
		fresh.SentAt = m.SentAt
	}
	if !replaced || !out.OnDuplicate.KeepDue {
		m.due = q.dueAt(now, out.Due)
	}
	*m = message{Message: fresh, due: m.due, epoch: m.epoch, lease: m.lease, follows: true}
	q.add(m)
	q.held.add(m.due, m.ID)
	return store.SendResult{Follows: true, Replaced: replaced}
}
