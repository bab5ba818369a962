package diskstore

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/tidwall/btree"

	"github.com/laterq/later/store"
)

// queue is what the writer keeps in memory of one queue.
type queue struct {
	meta
	name   string
	number uint32 // 0 for one that does not exist
	damage error  // why it is refused; nil when it is not

	// first is the earliest entry of kindDue when exact is set, else a lower bound of it. Scans begin there:
	// before it are only the tombstones of what was claimed.
	first entry
	exact bool
	gaps  []gap // in which there is nothing else either; some of them, in order

	firstDead entry // lower bound of kindDead

	counting *recount // of what fell due since the mark; nil when nobody counts

	held      map[string]*member
	leases    map[string]*lease
	deadlines *btree.BTreeG[entry] // leases by deadline

	// unread tells of ids whose message was written (true) or removed since the last flush.
	unread   map[string]bool
	roused   bool   // something became ready, or a claim left something, since the waiters were told
	highest  string // no living message has a higher id
	forgetAt int64  // lower bound of the first kindForget
}

func newQueue(name string, number uint32) *queue {
	return &queue{
		name:      name,
		number:    number,
		first:     entry{at: never},
		exact:     true,
		held:      map[string]*member{},
		leases:    map[string]*lease{},
		deadlines: btree.NewBTreeGOptions(entry.less, btree.Options{NoLocks: true}),
		unread:    map[string]bool{},
		forgetAt:  never,
	}
}

// queue gives the queue of a name, or an empty one that nobody has yet.
func (s *Store) queue(name string) *queue {
	if q := s.queues[name]; q != nil {
		return q
	}
	return newQueue(name, 0)
}

// create gives the queue of a name and makes it if need be.
func (t *tx) create(name string) (*queue, error) {
	if q := t.s.queues[name]; q != nil {
		return q, nil
	}
	number, err := t.freeNumber()
	if err != nil {
		return nil, err
	}
	q := newQueue(name, number)
	t.key = appendIDKey(t.key[:0], 0, kindName, name)
	t.value = binary.BigEndian.AppendUint32(t.value[:0], q.number)
	if err := t.batch.Set(t.key, t.value, nil); err != nil {
		return nil, t.s.fail(err)
	}
	t.touch(q)
	t.s.queues[name] = q
	return q, nil
}

// freeNumber gives the number of a new queue. They go up until the last is used, and from then on those are sought that
// have no key, of a queue or of what lost its name.
func (t *tx) freeNumber() (uint32, error) {
	const last = math.MaxUint32 - 1 // so that each queue's range of keys has an end
	if t.s.lastNumber < last && !t.s.numbersReused {
		t.s.lastNumber++
		return t.s.lastNumber, nil
	}
	t.s.numbersReused = true
	if err := t.flush(); err != nil {
		return 0, err
	}
	it, err := t.s.db.NewIter(nil)
	if err != nil {
		return 0, t.s.unreadable(err)
	}
	number, taken := t.s.lastNumber, true
	for n := 0; taken && n < last && it.Error() == nil; n++ {
		if number++; number > last {
			number = 1
		}
		taken = it.SeekGE(binary.BigEndian.AppendUint32(t.key[:0], number)) && binary.BigEndian.Uint32(it.Key()) == number
	}
	if err := it.Close(); err != nil {
		return 0, t.s.unreadable(err)
	}
	if taken {
		return 0, fmt.Errorf("%w: %s has %d queues: delete some", store.ErrFull, t.s.dir, last)
	}
	t.s.lastNumber = number
	return number, nil
}

// touch has the queue's counters stored.
func (t *tx) touch(q *queue) { t.touched[q] = struct{}{} }

func (t *tx) touchLease(q *queue, l *lease) {
	t.touch(q)
	if !l.touched {
		l.touched = true
		t.leases = append(t.leases, touchedLease{q, l})
	}
}

// A write to a batch fails only when its memory does, so errors of it stop the store.

func (t *tx) set(key, value []byte) {
	t.key = key
	if err := t.batch.Set(key, value, nil); err != nil {
		t.s.fail(err)
	}
}

func (t *tx) remove(key []byte) {
	t.key = key
	if err := t.batch.Delete(key, nil); err != nil {
		t.s.fail(err)
	}
}

// keep stores the record of a message.
func (t *tx) keep(q *queue, id string, r *record) {
	r.stored = true
	t.value = appendRecord(t.value[:0], r)
	t.set(appendIDKey(t.key[:0], q.number, kindRecord, id), t.value)
}

// die sets a message aside.
func (t *tx) die(q *queue, id string, r *record, reason store.DeadReason) {
	r.deadReason, r.diedAt = reason, t.now
	t.keep(q, id, r)
	t.addDead(q, entry{t.now, id})
}

// erase removes a message that is in no index any more.
func (t *tx) erase(q *queue, id string, r *record) {
	t.remove(appendIDKey(t.key[:0], q.number, kindMessage, id))
	if r.stored {
		t.remove(appendIDKey(t.key[:0], q.number, kindRecord, id))
	}
	q.unread[id] = false
	if q.due == 0 && q.dead == 0 && len(q.held) == 0 {
		q.longest = 0
	}
	t.touch(q)
}

// sentDue reads the due time that a message was sent with, and not the message.
func (t *tx) sentDue(q *queue, id string) (due int64, ok bool, err error) {
	ok, err = t.view(appendIDKey(t.key[:0], q.number, kindMessage, id), func(value []byte) error {
		m, err := parseMessage(value[:min(len(value), timeLength)])
		due = m.due
		return err
	})
	return due, ok, err
}

// envelope reads the bytes of a message; whole is false when they are cut so short that there is no due time.
func (t *tx) envelope(q *queue, id string) (text string, whole, ok bool, err error) {
	ok, err = t.view(appendIDKey(t.key[:0], q.number, kindMessage, id), func(value []byte) error {
		m, bad := parseMessage(value)
		if text, whole = m.envelope, bad == nil; !whole {
			text = string(value)
		}
		return nil
	})
	return text, whole, ok, err
}

// record reads what became of a message that was sent to be due at a time.
func (t *tx) record(q *queue, id string, due int64) (record, error) {
	t.key = appendIDKey(t.key[:0], q.number, kindRecord, id)
	value, ok, err := t.get(t.key)
	if err != nil {
		return record{}, err
	}
	if !ok {
		return record{due: due}, nil
	}
	return parseRecord(value)
}

// earliest gives the first due entry, or one that never comes.
func (t *tx) earliest(q *queue) (entry, error) {
	if q.exact {
		return q.first, nil
	}
	if err := t.flush(); err != nil {
		return entry{}, err
	}
	first := entry{at: never}
	err := t.each(q, kindDue, q.first, lastTime, func(e entry, _ []byte) (bool, error) {
		first = e
		return false, nil
	})
	if err == nil {
		q.startAt(first, true)
	}
	return first, err
}

// firstDeadline is when the first lease ends.
func (q *queue) firstDeadline() int64 {
	if e, ok := q.deadlines.Min(); ok {
		return e.at
	}
	return never
}

// next is the time from which a claim gives something or has leases to end, which it does on a paused queue too.
func (t *tx) next(q *queue) (int64, error) {
	if q.paused {
		return q.firstDeadline(), nil
	}
	e, err := t.earliest(q)
	return min(e.at, q.firstDeadline()), err
}

// soonest is a lower bound of next that costs nothing.
func (q *queue) soonest() int64 {
	if q.paused {
		return q.firstDeadline()
	}
	return min(q.first.at, q.firstDeadline())
}
