package diskstore

import (
	"cmp"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/laterq/later/internal/envelope"
	"github.com/laterq/later/store"
)

// found is a ready message that a claim has read.
type found struct {
	entry
	record  record
	message store.Message
	length  int              // bytes that were read of it
	death   store.DeadReason // set for one that is not delivered but dies
	gone    bool             // the message does not exist
}

func (t *tx) claim(q *queue, req store.ClaimRequest, now time.Time) (store.Claim, error) {
	if q.isLimited() && req.IsOver(t.now) {
		return store.Claim{Now: time.UnixMicro(t.micros), Limited: true}, nil
	}
	c := store.Claim{Now: later(now, time.UnixMilli(t.now)), Died: t.reap(q), Limited: q.isLimited()}
	if c.Limited {
		c.Now = time.UnixMicro(t.micros) // when its messages start
	}
	var err error
	var more bool
	if c.Dropped, more, err = t.dropDead(q); err != nil && len(c.Died) > 0 {
		c.More = true // the next claim returns the error; this one returns the dead
		return c, nil
	}
	if err != nil {
		return store.Claim{}, err
	}
	limit, bounded := t.mayStart(q, req), false
	if !q.paused && q.mayHaveReady(t.now, t.micros) {
		var deliverable int
		if q.lanes != nil {
			deliverable, bounded, err = t.readTurns(q, limit)
		} else {
			deliverable, bounded, err = t.readDue(q, limit, limit < req.Max)
		}
		defer func() { clear(t.ready) }() // so that the payloads can be collected
		if err != nil && len(c.Died)+len(c.Dropped) > 0 {
			c.More = true // the next claim returns the error; this one returns the dead
			return c, nil
		}
		if err != nil {
			return store.Claim{}, err
		}
		t.take(q, &c, deliverable, req)
		if q.isOrdered() {
			q.flow.Fences.Fence(t.micros, c.Messages)
		}
	}
	t.start(q, len(c.Messages))
	next, err := t.next(q)
	if err == nil && q.lanes != nil && !q.paused {
		c.Unsorted, err = t.isUnsorted(q)
	}
	c.More = next <= t.micros || bounded || more
	q.wake = q.wake || c.More
	c.More = c.More || c.Unsorted
	return c, err
}

func later(t, u time.Time) time.Time {
	if t.Before(u) {
		return u
	}
	return t
}

// readDue reads messages in order of due time. It returns how many are to be delivered, and reports whether it reached
// a bound before the first message that is held back.
func (t *tx) readDue(q *queue, limit int, limited bool) (deliverable int, bounded bool, err error) {
	rest, deliverable, held, err := t.readReady(q, limit, limited)
	if err != nil {
		return 0, false, err
	}
	q.due.startAt(rest, true)
	return deliverable, limited && !held && rest.at <= t.now, nil
}

// readReady reads the messages that a claim takes or sets aside into t.ready. It returns the first entry behind them,
// and how many are to be delivered. If limited is true, the limit is that of the queue's flow; then it sets messages
// aside up to the first one that is held back, and reports whether it has reached that one.
func (t *tx) readReady(q *queue, limit int, limited bool) (rest entry, deliverable int, held bool, err error) {
	t.ready = t.ready[:0]
	if err := t.flush(); err != nil {
		return entry{}, 0, false, err
	}
	var reader *messageReader
	defer func() {
		if reader != nil {
			err = t.end(reader.it, err)
		}
	}()
	from := q.due.first
	size := 0                // bytes of the messages to deliver
	dying, dyingSize := 0, 0 // the others, and their bytes
	for {
		// Expired messages make room for others, so more are read until the claim has all that it may handle or read.
		begin := len(t.ready)
		n := limit - deliverable
		if limited {
			n += 1 + dying
		}
		next, err := t.readWindow(q, from, min(n, store.MaxBatch-dying, q.window))
		window := t.ready[begin:]
		if err == nil && reader == nil && len(window) > 0 {
			reader, err = t.readMessages(q)
		}
		if err == nil {
			err = reader.read(window)
		}
		if errors.Is(err, errTooLong) {
			clear(window)
			t.ready = t.ready[:begin]
			q.window = max(1, q.window/8)
			continue
		}
		if err != nil {
			return entry{}, 0, false, err
		}
		read := 0
		for i := range window {
			f := &window[i]
			read += f.length
			if f.gone || f.death != "" {
				dying++
				dyingSize += f.length
			} else if size += f.length; deliverable == limit || size > store.MaxBatchBytes && deliverable > 0 {
				rest = f.entry
				clear(window[i:])
				t.ready = t.ready[:begin+i]
				return rest, deliverable, deliverable == limit, nil
			} else {
				deliverable++
			}
		}
		if read < store.MaxBatchBytes/2 && len(window) == q.window {
			q.window = min(store.MaxBatch, 2*q.window)
		}
		if next.at > t.now || deliverable == limit && !limited || dying >= store.MaxBatch ||
			dyingSize >= 2*store.MaxBatchBytes {
			return next, deliverable, false, nil
		}
		from = next
	}
}

// readWindow appends up to limit entries that are due to t.ready, and returns the entry behind them.
func (t *tx) readWindow(q *queue, from entry, limit int) (next entry, err error) {
	begin := len(t.ready)
	for e, value := range t.each(&err, q, &q.due, from, lastTime) {
		if e.at > t.now || len(t.ready)-begin == limit {
			return e, err
		}
		t.ready = append(t.ready, found{entry: e, record: dueRecord(e, value)})
	}
	return entry{at: never}, err
}

// messageReader reads many messages of a queue in order of id with one iterator: neighbours are in one block of the
// file, and a lookup for each would find and check that block each time.
type messageReader struct {
	t  *tx
	q  *queue
	it *pebble.Iterator
}

func (t *tx) readMessages(q *queue) (*messageReader, error) {
	it, err := t.iterate(appendKey(nil, q.number, kindMessage), appendKey(nil, q.number, kindMessage+1))
	if err != nil {
		return nil, err
	}
	return &messageReader{t, q, it}, nil
}

// errTooLong stops the reading of a window that is much longer than a claim may be.
var errTooLong = errors.New("the window is too long")

// read reads ready messages and finds out which of them die instead of being delivered.
func (r *messageReader) read(window []found) error {
	byID := make([]*found, len(window))
	for i := range window {
		byID[i] = &window[i]
	}
	slices.SortFunc(byID, func(a, b *found) int { return cmp.Compare(a.id, b.id) })
	size := 0
	for i, f := range byID {
		if err := r.readOne(f); err != nil {
			return err
		}
		if size += f.length; size > 2*store.MaxBatchBytes && i+1 < len(byID) {
			return errTooLong
		}
	}
	return nil
}

// seek returns a stored message, which is valid until the next one, and reports whether it exists.
func (r *messageReader) seek(id string) (value []byte, ok bool, err error) {
	r.t.key = appendIDKey(r.t.key[:0], r.q.number, kindMessage, id)
	if !r.it.SeekGE(r.t.key) || string(r.it.Key()) != string(r.t.key) {
		return nil, false, r.it.Error()
	}
	value, err = r.it.ValueAndErr()
	return value, err == nil, err
}

func (r *messageReader) readOne(f *found) error {
	t := r.t
	value, ok, err := r.seek(f.id)
	if !ok || err != nil {
		f.gone = err == nil
		return t.s.unreadable(err)
	}
	f.length = len(value)
	m, bad := parseMessage(value)
	if bad != nil {
		m.due = f.at
	}
	if k := f.record.rank; f.record.stored {
		f.record, err = t.record(r.q.number, f.id, m.due)
		f.record.rank = k
		if isFormatError(err) {
			f.record, bad = record{due: f.at}, err
		} else if err != nil {
			return err
		}
	}
	f.message.ID = f.id
	switch {
	case bad != nil, envelope.Decode(m.envelope, &f.message) != nil:
		f.death = store.DeadUnreadable
	case !f.record.delivered && f.message.Expired(f.record.due, t.now):
		f.death = store.DeadExpired
	}
	if f.death != "" {
		f.message = store.Message{} // it stays where it is, and is not returned
	}
	return nil
}

// take moves the messages of t.ready into a new lease, or to dead. deliverable is how many are to be delivered.
func (t *tx) take(q *queue, c *store.Claim, deliverable int, req store.ClaimRequest) {
	l := &lease{id: rand.Text(), deadline: t.now + store.Millis(req.Lease), flow: q.flow.ID, keyed: q.flow.Keyed,
		members: make([]*member, 0, deliverable)}
	c.Messages = make([]store.Claimed, 0, deliverable)
	if req.Uncounted {
		l.id = store.UncountedLease + l.id
	}
	for i := range t.ready {
		f := &t.ready[i]
		t.removeDue(q, f.entry)
		if f.gone {
			t.s.logger.Error("later: a message was due and does not exist; its entry is removed", "dir", t.s.dir,
				"queue", q.name, "id", f.id)
			t.erase(q, f.id, &f.record, 0)
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
		m := &member{lease: l, position: len(l.members), id: f.id, maxAttempts: f.message.MaxAttempts,
			record: f.record, group: groupNumber(f.message.Group)}
		if q.lanes != nil {
			m.key = f.message.Key
		}
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
		if q.isCounted(l) { // the lanes have counted them for their keys
			q.leased += l.left
		}
		t.touchLease(q, l)
		c.Deadline = store.Time(l.deadline)
	}
}

// dropDead removes a bounded number of dead messages that exceed the retention and returns their ids. It reports
// whether it may have left some. Messages that halt keys stay, and do not count.
func (t *tx) dropDead(q *queue) (dropped []string, more bool, err error) {
	reached, excess := int64(-1), int64(0) // died at this time or earlier; number beyond the maximum
	if q.retention.MaxAge > 0 {
		reached = t.now - store.Millis(q.retention.MaxAge)
	}
	if q.retention.MaxCount > 0 {
		excess = q.dead.n - q.halted() - q.retention.MaxCount
	}
	first := q.firstDead()
	if q.dead.n == 0 || first.at > reached && excess <= 0 {
		return nil, false, nil
	}
	if err := t.flush(); err != nil {
		return nil, false, err
	}
	var all []entry
	rest, passed := entry{at: never}, 0
	for e := range t.each(&err, q, &q.dead, first, lastTime) {
		more = len(all) == store.MaxBatch || passed == maxPassed
		if more || e.at > reached && int64(len(all)) >= excess {
			rest = e
			break
		}
		if q.halts(e.id) {
			passed++
		} else {
			all = append(all, e)
		}
	}
	if err != nil {
		return nil, false, err
	}
	groups := make([]int64, len(all)) // everything is read before the first change
	for i, e := range all {
		if groups[i], err = t.groupOf(q, e.id); err != nil {
			return nil, false, err
		}
	}
	for i, e := range all {
		t.removeEntry(q, &q.dead, e)
		t.erase(q, e.id, &record{stored: true}, groups[i])
		dropped = append(dropped, e.id)
	}
	q.dropped += int64(len(dropped))
	if q.lanes != nil {
		q.lanes.halts = rest
	}
	if passed == 0 && first == q.dead.first {
		q.dead.startAt(rest, true)
	}
	return dropped, more, nil
}

// reap ends leases after their deadline, until it has handled a bounded number of messages. It returns the ids that
// died.
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
			if m.follows {
				t.addDue(q, m.id, r)
				continue
			}
			if strings.HasPrefix(l.id, store.UncountedLease) {
				t.comeBackUntouched(q, l, m)
				continue
			}
			r.delivered = true
			r.attempts++
			r.setDue(l.deadline)
			r.lastError = store.LeaseExpiredText
			r.addFailure(store.LeaseExpired(store.Time(l.deadline), r.attempts))
			if attemptsLeft(r.attempts, m.maxAttempts) {
				t.keep(q, m.id, r)
				t.comeBack(q, l, m)
				continue
			}
			t.dieOf(q, l, m, store.DeadLeaseExpired)
			died = append(died, m.id)
		}
		t.endLease(q, l)
	}
	return died
}
