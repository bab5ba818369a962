package memstore

import (
	"github.com/laterq/later/store"
)

// sendOneByOne sends messages that may change live ones, or repeat earlier sends. With ifKnown it adds none.
func (q *queue) sendOneByOne(now int64, msgs []store.Outgoing, ifKnown bool) []store.SendResult {
	q.dropDedup(now)
	return each(msgs, func(out store.Outgoing) store.SendResult {
		if out.Once != nil {
			if known := q.once[out.Once.Key]; known != nil && known.ends > now {
				return known.result(out.Once)
			}
		}
		m := q.messages[out.ID]
		waits := m != nil && m.lease == nil && m.deadReason == "" && out.OnDuplicate.Collapses()
		if ifKnown && (waits || !q.taken(now, out.ID)) {
			return store.SendResult{Err: store.ErrNotFound}
		}
		var result store.SendResult
		if out.OnDuplicate.Collapses() {
			result = q.collapse(now, &out)
		} else {
			result = q.sendOne(now, &out)
		}
		if out.Once != nil && result.Err == nil && !result.Duplicate {
			result.First = &store.FirstSend{ID: out.ID, Due: store.Time(q.messages[out.ID].due)}
			q.rememberOnce(now, out.Once, *result.First)
		}
		return result
	})
}

// once is a send that repetitions of it find.
type once struct {
	fingerprint string
	first       store.FirstSend
	ends        int64
}

// result returns the result of a further send with its key.
func (o *once) result(again *store.Once) store.SendResult {
	if o.fingerprint != again.Fingerprint {
		return store.SendResult{Err: store.ErrConflict}
	}
	first := o.first
	return store.SendResult{Duplicate: true, First: &first}
}

// rememberOnce remembers a send.
func (q *queue) rememberOnce(now int64, o *store.Once, first store.FirstSend) {
	q.addOnce(o.Key, &once{o.Fingerprint, first, now + store.Millis(store.OnceWindow)})
}

// addOnce remembers a send in place of another one with its key, which has ended.
func (q *queue) addOnce(key string, o *once) {
	if old := q.once[key]; old != nil {
		q.onceEnds.remove(old.ends, key)
	}
	q.once[key] = o
	q.onceEnds.add(o.ends, key)
}

func (q *queue) collapse(now int64, out *store.Outgoing) store.SendResult {
	m := q.messages[out.ID]
	fresh := normalize(out.Message)
	fresh.SentAt = store.Time(now)
	switch {
	case out.OnDuplicate.Unchanged != nil && m == nil:
		return store.SendResult{Err: store.ErrNotFound}
	case m == nil && q.taken(now, out.ID):
		return store.SendResult{Duplicate: true}
	case m == nil:
		q.addSent(now, &message{Message: fresh}, out.Due)
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
	q.replace(now, m, fresh, out)
	return store.SendResult{Replaced: true}
}

// replace replaces a message that is scheduled or ready.
func (q *queue) replace(now int64, m *message, fresh store.Message, out *store.Outgoing) {
	if !m.SentAt.IsZero() {
		fresh.SentAt = m.SentAt
	}
	sameKey := m.Key == fresh.Key
	if sameKey && m.Urgency == fresh.Urgency && out.OnDuplicate.KeepDue { // it stays in its lane
		q.erase(m)
		m.Message, m.raw = fresh, nil
		q.add(m)
		return
	}
	sorted := q.unwait(m)
	q.erase(m)
	if !sameKey {
		q.dropHold(m)
	}
	m.Message, m.raw = fresh, nil
	arrives := false
	switch {
	case out.OnDuplicate.Mode == store.DuplicateDebounce:
		limit := min(fresh.SentAt.UnixMilli(), now) + store.Millis(out.OnDuplicate.MaxWait)
		m.setDue(min(q.dueAt(now, out.Due), limit))
	case !out.OnDuplicate.KeepDue:
		arrives = q.setDue(now, m, out.Due)
	case sameKey:
		arrives = sorted // it keeps its place, also ahead of the clock, and while the order is removed
	default:
		m.setDue(m.due)
	}
	q.add(m)
	q.wait(m, arrives)
}

// follow makes a message the successor of the held one, or replaces its successor: m becomes it, and keeps the lease.
func (q *queue) follow(now int64, m *message, fresh store.Message, out *store.Outgoing) store.SendResult {
	replaced := m.follows
	q.held.remove(m.due, m.ID)
	q.erase(m)
	if replaced {
		fresh.SentAt = m.SentAt
	}
	due := m.due
	if !replaced || !out.OnDuplicate.KeepDue {
		due = q.dueAt(now, out.Due)
	}
	*m = message{Message: fresh, epoch: m.epoch, lease: m.lease, leasedKey: m.leasedKey, follows: true}
	m.setDue(due)
	q.add(m)
	q.held.add(m.due, m.ID)
	return store.SendResult{Follows: true, Replaced: replaced}
}
