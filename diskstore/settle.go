package diskstore

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/laterq/later/store"
)

// current returns a lease that has neither ended nor expired, else nil.
func (t *tx) current(q *queue, id string) *lease {
	if l := q.leases[id]; l != nil && l.deadline > t.now {
		return l
	}
	return nil
}

// holds reports whether a message is held under a receipt.
func (t *tx) holds(q *queue, r *store.Receipt) bool {
	l, m := t.current(q, r.Lease), q.held[r.ID]
	return l != nil && m != nil && m.lease == l && r.Epoch == 0
}

func (t *tx) settle(q *queue, s *store.Settlement) store.SettleResult {
	if err := s.Action.Check(); err != nil {
		return store.SettleResult{Err: err}
	}
	if !t.holds(q, &s.Receipt) {
		t.learn(q, &s.Receipt)
		return store.SettleResult{Err: store.ErrLeaseLost}
	}
	m := q.held[s.Receipt.ID]
	l := m.lease
	t.unhold(q, m)
	if l.left == 0 && len(l.cancelled) == 0 {
		t.endLease(q, l)
	}
	r := &m.record
	if m.follows {
		t.addDue(q, m.id, r)
		if s.Action == store.Ack {
			return store.SettleResult{}
		}
		return store.SettleResult{State: waitingState(r, t.now)}
	}
	var death store.DeadReason
	switch s.Action {
	case store.Ack:
		t.erase(q, m.id, r, m.group)
		if s.DedupWindow > 0 {
			t.remember(q, m.id, t.now+store.Millis(s.DedupWindow))
		}
		return store.SettleResult{}
	case store.Release:
		t.comeBackUntouched(q, l, m)
		return store.SettleResult{State: waitingState(r, t.now)}
	case store.Snooze:
		if s.ResetAttempts {
			r.attempts, r.lastError = 0, ""
		}
		r.forgetGivenBack()
	case store.GiveBack:
		if r.giveBack(t.now, s) {
			death = store.DeadUnreadable
		}
	case store.Nack:
		if r.fail(t.now, s); !attemptsLeft(r.attempts, m.maxAttempts) {
			death = store.DeadFailed
		}
	case store.Bury:
		r.fail(t.now, s)
		death = store.DeadBuried
	}
	r.delivered = true
	if death != "" {
		t.dieOf(q, l, m, death)
		return store.SettleResult{State: store.StateDead}
	}
	r.setDue(t.after(s.Delay))
	t.keep(q, m.id, r)
	t.comeBack(q, l, m)
	return store.SettleResult{State: waitingState(r, t.now)}
}

// settleThen acks a message and sends its follow-ups. Everything is read before the first change.
func (t *tx) settleThen(q *queue, s *store.Settlement) (store.SettleResult, error) {
	if err := s.CheckThen(t.s, q.name); err != nil {
		return store.SettleResult{Err: err}, nil
	}
	if !t.holds(q, &s.Receipt) {
		t.learn(q, &s.Receipt)
		return store.SettleResult{Err: store.ErrLeaseLost}, nil
	}
	var added []func()
	acked := q.held[s.Receipt.ID].record
	for name, then := range store.ByQueue(s.Then) {
		if err := t.s.queue(name).damage; err != nil {
			return store.SettleResult{Err: err}, nil
		}
		freed := "" // an id that is live only until the ack
		if name == q.name && !q.held[s.Receipt.ID].follows {
			freed = s.Receipt.ID
		}
		to, results, err := t.accept(name, freed, len(then), func(i int) string { return then[i].Message.ID })
		if errors.Is(err, store.ErrFull) {
			return store.SettleResult{Err: err}, nil
		}
		if err != nil {
			return store.SettleResult{}, err
		}
		for i := range then {
			if !results[i].Duplicate {
				added = append(added, func() { t.addThen(to, &then[i].Message, s.Receipt.ID, &acked) })
			}
		}
	}
	result := t.settle(q, s)
	for _, add := range added {
		add()
	}
	for i := range s.Then {
		t.notify(s.Then[i].Queue)
	}
	return result, nil
}

// waiting returns the state of a message that is neither leased nor dead.
func waitingState(r *record, now int64) store.State {
	if r.due > now {
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
	for _, c := range l.cancelled {
		lost = append(lost, store.Receipt{Lease: l.id, ID: c.id})
	}
	q.learned(t.micros, l)
	if l.left == 0 {
		t.endLease(q, l)
		return store.ExtendResult{Lost: lost, Err: store.ErrLeaseLost}
	}
	if e.For > 0 {
		q.deadlines.Delete(entry{l.deadline, l.id})
		l.deadline = t.now + store.Millis(e.For)
		q.deadlines.Set(entry{l.deadline, l.id})
	}
	if e.For > 0 || len(lost) > 0 {
		l.rewrite = true
		t.touchLease(q, l)
	}
	return store.ExtendResult{Deadline: store.Time(l.deadline), Lost: lost}
}

// place is where a live message is, with its record.
type place struct {
	record record
	held   *member // nil for a message that is not leased
	group  int64   // number of its group, as far as the caller needs it
}

// place finds a live message in the flushed changes; it does not find messages that this call has removed since. It
// does not read the message itself, because that may be long. If the place cannot be read it returns a formatError.
func (t *tx) place(q *queue, id string) (p place, ok bool, err error) {
	if _, ok := q.unread[id]; ok {
		return p, false, nil
	}
	if p.held = q.held[id]; p.held != nil {
		p.record = p.held.record
		return p, true, nil
	}
	p.record, ok, err = t.find(q.number, id)
	return p, ok, namingMessage(q.name, id, err)
}

// find returns the record of a message that is not leased.
func (r *reader) find(queue uint32, id string) (rec record, ok bool, err error) {
	if rec, err = r.record(queue, id, 0); rec.stored || err != nil {
		return rec, err == nil, err
	}
	rec.due, ok, err = r.sentDue(queue, id)
	return rec, ok, err
}

// namingMessage adds the message to a formatError, with its fate.
func namingMessage(queue, id string, err error) error {
	if !isFormatError(err) {
		return err
	}
	return fmt.Errorf("message %q of queue %q: %w; a claim moves it to dead when it is due", id, queue, err)
}

func (p *place) state(now int64) store.State {
	switch {
	case p.held != nil:
		return store.StateLeased
	case p.record.deadReason != "":
		return store.StateDead
	}
	return waitingState(&p.record, now)
}

// places finds live messages. A message without a place, or with one that cannot be read, has an error instead.
func (t *tx) places(q *queue, ids []string) (places []place, failed []error, err error) {
	places, failed = make([]place, len(ids)), make([]error, len(ids))
	for i, id := range ids {
		p, ok, err := t.place(q, id)
		switch {
		case isFormatError(err):
			failed[i] = err
		case err != nil:
			return nil, nil, err
		case !ok:
			failed[i] = store.ErrNotFound
		}
		places[i] = p
	}
	return places, failed, nil
}

// cancelAll removes messages. Everything is read before the first change; the caller has flushed.
func (t *tx) cancelAll(q *queue, req store.CancelRequest) ([]store.CancelResult, error) {
	ids := req.IDs
	places, failed, err := t.places(q, ids)
	if err != nil {
		return nil, err
	}
	windows := make([]time.Duration, len(ids))
	for i, id := range ids {
		if failed[i] != nil {
			continue
		}
		if places[i].group, err = t.groupOf(q, id); err == nil && req.KeepIDs {
			windows[i], err = t.dedupWindow(q.number, id)
		}
		if err != nil {
			return nil, err
		}
	}
	results := make([]store.CancelResult, len(ids))
	for i, id := range ids {
		if results[i].Err = failed[i]; failed[i] != nil {
			continue
		}
		results[i] = t.cancel(q, id, &places[i])
		if results[i].Err == nil && windows[i] > 0 {
			t.remember(q, id, t.now+store.Millis(windows[i]))
		}
	}
	return results, nil
}

// cancel removes a message. The holder of a lease learns of it by its next Extend.
func (t *tx) cancel(q *queue, id string, p *place) store.CancelResult {
	if _, ok := q.unread[id]; ok {
		return store.CancelResult{Err: store.ErrNotFound} // named twice
	}
	state := p.state(t.now)
	switch state {
	case store.StateLeased:
		t.takeLeased(q, p.held)
	case store.StateDead:
		t.removeEntry(q, &q.dead, entry{p.record.diedAt, id})
	default:
		t.removeDue(q, entry{p.record.due, id})
	}
	t.erase(q, id, &p.record, p.group)
	return store.CancelResult{State: state}
}

// rescheduleAll sets a new due time for messages. Everything is read before the first change; the caller has flushed.
func (t *tx) rescheduleAll(q *queue, ids []string, due store.Due) ([]error, error) {
	places, refused, err := t.places(q, ids)
	if err != nil {
		return nil, err
	}
	for i, id := range ids {
		r := &places[i].record
		switch {
		case refused[i] != nil:
		case places[i].held != nil:
			refused[i] = store.ErrLeased
		case r.deadReason != "":
			refused[i] = store.ErrDead
		case !slices.Contains(ids[:i], id): // else it is there already
			t.removeDue(q, entry{r.due, id})
			r.setDue(t.dueAt(due))
			t.keep(q, id, r)
			t.addDue(q, id, r)
		}
	}
	return refused, nil
}
