package diskstore

import (
	"crypto/rand"
	"errors"
	"time"

	"github.com/laterq/later/store"
)

// found is a ready message that a claim has read.
type found struct {
	entry
	record  record
	message store.Message
	length  int              // bytes that were read of it
	death   store.DeadReason // set for one that is not given but dies
	gone    bool             // there is no such message
}

func (t *tx) claim(q *queue, req store.ClaimRequest, now time.Time) (store.Claim, error) {
	c := store.Claim{Now: later(now, time.UnixMilli(t.now)), Died: t.reap(q)}
	if !q.paused && q.first.at <= t.now {
		ready, rest, err := t.ready(q, req.Max)
		if err != nil && len(c.Died) > 0 {
			c.More = true // it is the next claim's to tell the error; this one tells what died
			return c, nil
		}
		if err != nil {
			return store.Claim{}, err
		}
		t.take(q, &c, ready, store.Millis(req.Lease))
		q.startAt(rest, true)
	}
	next, err := t.next(q)
	c.More = next <= t.now
	q.roused = q.roused || c.More
	return c, err
}

func later(t, u time.Time) time.Time {
	if t.Before(u) {
		return u
	}
	return t
}

// ready reads the messages that a claim takes or sets aside, and gives the first entry behind them.
func (t *tx) ready(q *queue, limit int) (all []found, rest entry, err error) {
	if err := t.flush(); err != nil {
		return nil, entry{}, err
	}
	var reader *messageReader
	from := q.first
	given, size := 0, 0      // messages to be given, and their bytes
	dying, dyingSize := 0, 0 // the others
	for {
		// Expired messages make room for others, so more are looked for until all that the claim may handle, or read,
		// is found. Long messages are read few at a time, since not many of them are taken.
		few := max(1, 2*store.MaxBatchBytes/int(max(q.longest, 1)))
		window, next, err := t.window(q, from, min(limit-given, store.MaxBatch-dying, few))
		if err == nil && reader == nil && len(window) > 0 {
			reader, err = t.readMessages(q)
		}
		if err == nil && len(window) > 0 {
			err = reader.read(window)
		}
		if err != nil {
			return nil, entry{}, errors.Join(err, reader.close())
		}
		for i := range window {
			f := &window[i]
			if f.gone || f.death != "" {
				dying++
				dyingSize += f.length
			} else if size += f.length; size > store.MaxBatchBytes && given > 0 {
				return append(all, window[:i]...), f.entry, reader.close()
			} else {
				given++
			}
		}
		all = append(all, window...)
		if next.at > t.now || given == limit || dying >= store.MaxBatch || dyingSize >= 2*store.MaxBatchBytes {
			return all, next, reader.close()
		}
		from = next
	}
}

// window gives up to limit entries that are due, and the entry behind them.
func (t *tx) window(q *queue, from entry, limit int) (window []found, next entry, err error) {
	next = entry{at: never}
	err = t.each(q, kindDue, from, lastTime, func(e entry, value []byte) (bool, error) {
		if e.at > t.now || len(window) == limit {
			next = e
			return false, nil
		}
		window = append(window, found{entry: e, record: record{stored: len(value) > 0, due: e.at}})
		return true, nil
	})
	return window, next, err
}

// take moves messages into a new lease, or to dead.
func (t *tx) take(q *queue, c *store.Claim, ready []found, length int64) {
	l := &lease{id: rand.Text(), deadline: t.now + length}
	for i := range ready {
		f := &ready[i]
		t.removeDue(q, f.entry)
		if f.gone {
			t.s.logger.Error("later: a message was due and does not exist; its entry is removed", "dir", t.s.dir, "queue", q.name, "id", f.id)
			t.erase(q, f.id, &f.record)
			continue
		}
		if f.death != "" {
			f.record.lastError = store.UnreadableText
			if f.death == store.DeadExpired {
				f.record.lastError = store.ExpiredText
				c.Expired = append(c.Expired, f.id)
			}
			t.die(q, f.id, &f.record, f.death)
			c.Died = append(c.Died, f.id)
			continue
		}
		m := &member{lease: l, position: len(l.members), id: f.id, maxAttempts: f.message.MaxAttempts, record: f.record}
		l.members = append(l.members, m)
		q.held[m.id] = m
		c.Messages = append(c.Messages, store.Claimed{
			Message: f.message,
			Receipt: store.Receipt{Lease: l.id, ID: m.id},
			Due:     store.Time(f.at),
			Attempt: m.record.attempts + 1,
		})
	}
	if l.left = len(l.members); l.left > 0 {
		q.leases[l.id] = l
		q.deadlines.Set(entry{l.deadline, l.id})
		t.touchLease(q, l)
		c.Deadline = store.Time(l.deadline)
	}
}

// reap ends leases whose deadline has passed, until it has handled a bounded number of messages. It gives the
// ids that died.
func (t *tx) reap(q *queue) (died []string) {
	for handled := 0; handled < store.MaxBatch && q.firstDeadline() <= t.now; {
		e, _ := q.deadlines.Min()
		l := q.leases[e.id]
		handled += 1 + l.left
		for _, m := range l.members {
			if m == nil {
				continue
			}
			t.unhold(q, m)
			r := &m.record
			r.delivered = true
			r.attempts++
			r.due = l.deadline
			r.lastError = store.LeaseExpiredText
			if attemptsLeft(r.attempts, m.maxAttempts) {
				t.keep(q, m.id, r)
				t.addDue(q, m.id, r)
				continue
			}
			t.die(q, m.id, r, store.DeadLeaseExpired)
			died = append(died, m.id)
		}
		t.end(q, l)
	}
	return died
}

// unhold takes a message out of its lease; the caller puts it elsewhere, and ends the lease if it is done.
func (t *tx) unhold(q *queue, m *member) {
	l := m.lease
	delete(q.held, m.id)
	l.members[m.position] = nil
	l.left--
	l.leaving = append(l.leaving, uint16(m.position))
	t.touchLease(q, l)
}

// end removes a lease that holds nothing.
func (t *tx) end(q *queue, l *lease) {
	l.cancelled = nil
	delete(q.leases, l.id)
	q.deadlines.Delete(entry{l.deadline, l.id})
	t.touchLease(q, l)
}
