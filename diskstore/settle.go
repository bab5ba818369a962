package diskstore

import "github.com/laterq/later/store"

// current gives a lease that has neither ended nor expired, else nil.
func (t *tx) current(q *queue, id string) *lease {
	if l := q.leases[id]; l != nil && l.deadline > t.now {
		return l
	}
	return nil
}

func (t *tx) settle(q *queue, s *store.Settlement) store.SettleResult {
	if s.Action < store.Ack || s.Action > store.Bury {
		return store.SettleResult{Err: store.Invalid("%v is no way to settle a message", s.Action)}
	}
	l, m := t.current(q, s.Receipt.Lease), q.held[s.Receipt.ID]
	if l == nil || m == nil || m.lease != l || s.Receipt.Epoch != 0 {
		return store.SettleResult{Err: store.ErrLeaseLost}
	}
	t.unhold(q, m)
	if l.left == 0 && len(l.cancelled) == 0 {
		t.end(q, l)
	}
	r := &m.record
	switch s.Action {
	case store.Ack:
		t.erase(q, m.id, r)
		if s.Remember > 0 {
			t.remember(q, m.id, t.now+store.Millis(s.Remember))
		}
		return store.SettleResult{}
	case store.Release:
		t.addDue(q, m.id, r)
		return store.SettleResult{State: t.waiting(r)}
	case store.Nack, store.Bury:
		r.attempts++
		r.lastError = store.CutReason(s.Reason)
	}
	r.delivered = true
	switch {
	case s.Action == store.Bury:
		t.die(q, m.id, r, store.DeadBuried)
		return store.SettleResult{State: store.StateDead}
	case s.Action == store.Nack && !attemptsLeft(r.attempts, m.maxAttempts):
		t.die(q, m.id, r, store.DeadFailed)
		return store.SettleResult{State: store.StateDead}
	}
	r.due = t.after(s.Delay)
	t.keep(q, m.id, r)
	t.addDue(q, m.id, r)
	return store.SettleResult{State: t.waiting(r)}
}

// waiting is the state of a message that is neither leased nor dead.
func (t *tx) waiting(r *record) store.State {
	if r.due > t.now {
		return store.StateScheduled
	}
	return store.StateReady
}

func (t *tx) extend(q *queue, e store.Extension) store.ExtendResult {
	l := t.current(q, e.Lease)
	if l == nil {
		return store.ExtendResult{Err: store.ErrLeaseLost}
	}
	var lost []store.Receipt
	for _, id := range l.cancelled {
		lost = append(lost, store.Receipt{Lease: l.id, ID: id})
	}
	l.cancelled = nil
	if l.left == 0 {
		t.end(q, l)
		return store.ExtendResult{Lost: lost, Err: store.ErrLeaseLost}
	}
	q.deadlines.Delete(entry{l.deadline, l.id})
	l.deadline = t.now + store.Millis(e.For)
	q.deadlines.Set(entry{l.deadline, l.id})
	l.rewrite = true
	t.touchLease(q, l)
	return store.ExtendResult{Deadline: store.Time(l.deadline), Lost: lost}
}

// place is where a living message is, and what became of it.
type place struct {
	message message
	record  record
	held    *member // nil for a message that is not leased
}

// place finds a living message by what was flushed; what this call has removed since is not found.
func (t *tx) place(q *queue, id string) (p place, ok bool, err error) {
	if _, ok := q.unread[id]; ok {
		return p, false, nil
	}
	if p.message, ok, err = t.message(q, id); !ok || err != nil {
		return p, ok, err
	}
	if p.held = q.held[id]; p.held != nil {
		p.record = p.held.record
		return p, true, nil
	}
	p.record, err = t.record(q, id, p.message.due)
	return p, true, err
}

func (t *tx) state(p *place) store.State {
	switch {
	case p.held != nil:
		return store.StateLeased
	case p.record.deadReason != "":
		return store.StateDead
	}
	return t.waiting(&p.record)
}

// cancel removes a message. A lease that held it is told by its next Extend. The caller has flushed.
func (t *tx) cancel(q *queue, id string) (store.CancelResult, error) {
	p, ok, err := t.place(q, id)
	if err != nil {
		return store.CancelResult{}, err
	}
	if !ok {
		return store.CancelResult{Err: store.ErrNotFound}, nil
	}
	state := t.state(&p)
	switch state {
	case store.StateLeased:
		l := p.held.lease
		t.unhold(q, p.held)
		l.leaving[len(l.leaving)-1] |= wasCancelled
		l.cancelled = append(l.cancelled, id)
	case store.StateDead:
		t.removeDead(q, entry{p.record.diedAt, id})
	default:
		t.removeDue(q, entry{p.record.due, id})
	}
	t.erase(q, id, &p.record)
	return store.CancelResult{State: state}, nil
}

// reschedule gives a message a new due time. The caller has flushed, and does each id once in between.
func (t *tx) reschedule(q *queue, id string, due store.Due) (refused, err error) {
	p, ok, err := t.place(q, id)
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return store.ErrNotFound, nil
	case p.held != nil:
		return store.ErrLeased, nil
	case p.record.deadReason != "":
		return store.ErrDead, nil
	}
	t.removeDue(q, entry{p.record.due, id})
	p.record.due = t.dueAt(due)
	t.keep(q, id, &p.record)
	t.addDue(q, id, &p.record)
	return nil, nil
}
