package diskstore

import (
	"github.com/laterq/later/internal/envelope"
	"github.com/laterq/later/store"
)

// sendOneByOne sends messages that may change live ones, or repeat earlier sends. The caller has flushed. Each message
// is one step: a message with an unreadable place gets the error, and the others are sent.
func (t *tx) sendOneByOne(name string, msgs []store.Outgoing) ([]store.SendResult, error) {
	if err := t.checkRoom(); err != nil {
		return nil, err
	}
	if err := t.forget(t.s.queue(name)); err != nil {
		return nil, err
	}
	results := make([]store.SendResult, len(msgs))
	for i := range msgs {
		var err error
		if msgs[i].Once == nil {
			results[i], _, err = t.collapse(name, &msgs[i])
		} else {
			results[i], err = t.sendOnce(name, &msgs[i])
		}
		if err != nil {
			return nil, err
		}
	}
	return results, nil
}

// collapse sends one message, and returns when it is due if it was sent.
func (t *tx) collapse(name string, out *store.Outgoing) (result store.SendResult, due int64, err error) {
	q := t.s.queue(name)
	if _, ok := q.unread[out.ID]; ok { // sent by this call before
		if err := t.flush(); err != nil {
			return result, 0, err
		}
	}
	p, ok, err := t.place(q, out.ID)
	switch {
	case isFormatError(err):
		return store.SendResult{Err: err}, 0, nil
	case err != nil:
		return result, 0, err
	case ok:
		return t.replace(q, out, &p)
	case out.OnDuplicate.Unchanged != nil:
		return store.SendResult{Err: store.ErrNotFound}, 0, nil
	}
	return t.sendFirst(name, out)
}

// sendFirst sends a message with an id that is not live.
func (t *tx) sendFirst(name string, out *store.Outgoing) (result store.SendResult, due int64, err error) {
	taken, err := t.taken(t.s.queue(name), out.ID)
	if taken || err != nil {
		return store.SendResult{Duplicate: taken}, 0, err
	}
	q, err := t.create(name)
	if err != nil {
		return result, 0, err
	}
	m := *out
	if out.OnDuplicate.Collapses() {
		m.SentAt = store.Time(t.now)
	}
	t.add(q, &m)
	return result, t.dueAt(out.Due), nil
}

// replace puts a message in the place of a live one, if that is scheduled or ready, or behind it if that is leased.
// Everything is read before the first change.
func (t *tx) replace(q *queue, out *store.Outgoing, p *place) (result store.SendResult, due int64, err error) {
	state := p.state(t.now)
	switch {
	case !out.OnDuplicate.Collapses():
		return store.SendResult{Duplicate: true}, 0, nil
	case state == store.StateLeased && out.OnDuplicate.Mode != store.DuplicateFollow:
		return store.SendResult{Err: store.ErrLeased}, 0, nil
	case state == store.StateDead:
		return store.SendResult{Err: store.ErrDead}, 0, nil
	}
	if out.OnDuplicate.Unchanged != nil {
		info, err := t.info(q.number, out.ID, p, t.now)
		if err != nil {
			return result, 0, err
		}
		if info == nil || !info.Same(out.OnDuplicate.Unchanged) {
			return store.SendResult{Err: store.ErrConflict}, 0, nil
		}
	}
	text, _, _, err := t.envelope(q.number, out.ID)
	if err != nil {
		return result, 0, err
	}
	m := out.Message
	m.SentAt = store.Time(t.now)
	old := store.Message{ID: out.ID}
	first := state == store.StateLeased && !p.held.follows
	if !first && envelope.Decode(text, &old) == nil && !old.SentAt.IsZero() {
		m.SentAt = old.SentAt
	}
	if state == store.StateLeased {
		if first {
			t.keepOriginal(q, p.held, text)
		}
		t.follow(q, out, &m, p.held)
		return store.SendResult{Follows: true, Replaced: !first}, p.held.record.due, nil
	}
	r, before := &p.record, p.record.due
	switch {
	case out.OnDuplicate.Mode == store.DuplicateDebounce:
		limit := min(m.SentAt.UnixMilli(), t.now) + store.Millis(out.OnDuplicate.MaxWait)
		r.due = min(t.dueAt(out.Due), limit)
	case !out.OnDuplicate.KeepDue:
		r.due = t.dueAt(out.Due)
	}
	t.removeDue(q, entry{before, out.ID})
	t.leaveGroup(q, out.ID, groupIn(text))
	t.value = appendMessage(t.value[:0], r.due, &m)
	t.addMessage(q, out.ID, t.value)
	if r.stored {
		t.keep(q, out.ID, r)
	}
	t.addDue(q, out.ID, r)
	t.joinGroup(q, out.ID, groupNumber(m.Group))
	return store.SendResult{Replaced: true}, r.due, nil
}

// follow makes m, which was sent as out, the successor of a held message, or replaces its successor.
func (t *tx) follow(q *queue, out *store.Outgoing, m *store.Message, held *member) {
	due := held.record.due
	if !held.follows || !out.OnDuplicate.KeepDue {
		due = t.dueAt(out.Due)
	}
	if held.record.stored {
		t.remove(appendIDKey(t.key[:0], q.number, kindRecord, m.ID))
	}
	t.leaveGroup(q, m.ID, held.group)
	t.value = appendMessage(t.value[:0], due, m)
	t.addMessage(q, m.ID, t.value)
	held.record, held.group, held.follows = record{due: due}, groupNumber(m.Group), true
	t.joinGroup(q, m.ID, held.group)
	held.lease.rewrite = true
	t.touchLease(q, held.lease)
}
