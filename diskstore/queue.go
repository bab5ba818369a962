package diskstore

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"

	"github.com/cockroachdb/pebble/v2"
	"github.com/tidwall/btree"

	"github.com/laterq/later/internal/activity"
	"github.com/laterq/later/store"
)

// queue is the state of one queue in memory. It belongs to the writer.
type queue struct {
	name   string
	number uint32 // 0 for one that does not exist
	damage error  // why it is refused; nil when it is not
	paused bool

	retention store.Retention // of dead messages, MaxAge in whole milliseconds
	dropped   int64           // dead messages removed because of it
	flow      flow
	leased    int    // messages that count against its Concurrency
	lanes     *lanes // nil unless the flow is Fair

	due    index // scheduled and ready messages
	dead   index
	forget index           // remembered ids
	groups index           // messages in a group, by its number
	counts map[int64]int64 // of due: how many more or less by short slot since the last flush
	swept  int64           // the slots before this short one were removed

	held      map[string]*member
	leases    map[string]*lease
	deadlines *btree.BTreeG[entry] // leases by deadline

	// unread holds ids of messages that were written (true) or removed since the last flush.
	unread  map[string]bool
	wake    bool   // something became ready, or a claim left something, since the waiters were notified
	highest string // no live message has a higher id
	window  int    // messages that a claim reads at a time

	activity *activity.Ring // nil until it is used; see events.go
	counted  bool           // activity has changed since it was read
}

func newQueue(name string, number uint32) *queue {
	return &queue{
		name:      name,
		number:    number,
		due:       newIndex(kindDue),
		dead:      newIndex(kindDead),
		forget:    newIndex(kindForget),
		groups:    newIndex(kindGroup),
		held:      map[string]*member{},
		leases:    map[string]*lease{},
		deadlines: btree.NewBTreeGOptions(entry.less, btree.Options{NoLocks: true}),
		unread:    map[string]bool{},
		window:    store.MaxBatch,
		counts:    map[int64]int64{},
	}
}

// meta returns the counters and settings to store at a time in microseconds.
func (q *queue) meta(now int64) meta {
	return meta{Paused: q.paused, Retention: q.retention, Dropped: q.dropped, Due: q.due.n, Dead: q.dead.n,
		Remembered: q.forget.n, Grouped: q.groups.n, Head: q.due.first.at, Swept: q.swept, Now: now, Flow: q.flow}
}

// restore sets the counters and settings.
func (q *queue) restore(m meta) {
	q.paused, q.retention, q.dropped, q.swept, q.flow = m.Paused, m.Retention, m.Dropped, m.Swept, m.Flow
	q.due.n, q.dead.n, q.forget.n, q.groups.n = m.Due, m.Dead, m.Remembered, m.Grouped
	for _, x := range q.indexes() {
		x.forgetGaps()
	}
	if q.due.n > 0 {
		q.due.startAt(entry{at: m.Head}, false)
	}
	if q.lanes = nil; q.flow.Fair {
		q.lanes = newLanes(q)
	}
}

func (q *queue) indexes() []*index { return []*index{&q.due, &q.dead, &q.forget, &q.groups} }

// queue returns the queue of a name, or an empty one that is stored nowhere.
func (s *Store) queue(name string) *queue {
	if q := s.queues[name]; q != nil {
		return q
	}
	return newQueue(name, 0)
}

// create returns the queue of a name, and creates it if need be.
func (t *tx) create(name string) (*queue, error) {
	if q := t.s.queues[name]; q != nil {
		return q, nil
	}
	number, err := t.freeNumber()
	if err != nil {
		return nil, err
	}
	q := newQueue(name, number)
	t.value = binary.BigEndian.AppendUint32(t.value[:0], q.number)
	t.set(appendIDKey(t.key[:0], 0, kindName, name), t.value)
	q.swept = shortSlot(t.now)
	t.touch(q)
	t.s.queues[name] = q
	return q, nil
}

// freeNumber returns the number of a new queue. Numbers go up until the last is used; from then on it looks for one
// without any key.
func (t *tx) freeNumber() (uint32, error) {
	const last uint32 = math.MaxUint32 - 1 // so that each queue's range of keys has an end
	if t.s.lastNumber < last && !t.s.numbersReused {
		t.s.lastNumber++
		return t.s.lastNumber, nil
	}
	t.s.numbersReused = true
	if err := t.flush(); err != nil {
		return 0, err
	}
	it, err := t.iterate(nil, nil)
	if err != nil {
		return 0, err
	}
	number, taken := t.s.lastNumber, true
	for n := uint32(0); taken && n < last && it.Error() == nil; n++ {
		if number++; number > last {
			number = 1
		}
		taken = it.SeekGE(numberKey(number)) && binary.BigEndian.Uint32(it.Key()) == number
	}
	if err := t.end(it, nil); err != nil {
		return 0, err
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

// A write to a batch fails only for want of memory, so its error stops the store.

func (t *tx) set(key, value []byte) {
	t.key = key
	if err := t.batch.Set(key, value, nil); err != nil {
		t.s.fail(err)
	}
}

func (t *tx) remove(key []byte) {
	t.key, t.s.room.removed = key, true
	if err := t.batch.Delete(key, nil); err != nil {
		t.s.fail(err)
	}
}

func (t *tx) merge(key, value []byte) {
	t.key = key
	if err := t.batch.Merge(key, value, nil); err != nil {
		t.s.fail(err)
	}
}

func (t *tx) removeRange(from, to []byte) {
	t.s.room.removed = true
	if err := t.batch.DeleteRange(from, to, nil); err != nil {
		t.s.fail(err)
	}
}

// keep stores the record of a message.
func (t *tx) keep(q *queue, id string, r *record) {
	r.stored = true
	t.value = appendRecord(t.value[:0], r)
	t.set(appendIDKey(t.key[:0], q.number, kindRecord, id), t.value)
}

// addDue puts a message among the scheduled and ready ones.
func (t *tx) addDue(q *queue, id string, r *record) {
	e := t.putDue(q, id, r)
	if q.lanes != nil {
		q.lanes.add(e)
	}
}

// addSent is addDue for a message that is sent, and sorts one that arrives.
func (t *tx) addSent(q *queue, m *store.Message, r *record) {
	arrives := q.isOrdered() && r.rank.arrived
	if arrives {
		r.rank.class = q.classFor(m.Urgency, r.rank.class)
	}
	e := t.putDue(q, m.ID, r)
	switch {
	case arrives:
		q.sort(t.micros, inLane(m), e)
	case q.lanes != nil:
		q.lanes.add(e)
	}
}

// putDue adds an entry to the due index.
func (t *tx) putDue(q *queue, id string, r *record) lateEntry {
	e := entry{r.due, id}
	t.value = appendDueValue(t.value[:0], r)
	t.set(appendTimeKey(t.key[:0], q.number, kindDue, e), t.value)
	q.due.add(e)
	if e.at <= t.now && !q.isLimited() { // else see notify
		q.wake = true
	}
	q.counts[shortSlot(e.at)]++
	t.touch(q)
	return lateEntry{e, r.stored, r.rank}
}

func (t *tx) removeDue(q *queue, e entry) {
	t.removeEntry(q, &q.due, e)
	if q.lanes != nil {
		q.lanes.remove(t.micros, e)
	}
	q.counts[shortSlot(e.at)]--
}

func (t *tx) addDead(q *queue, e entry) {
	t.addEntry(q, &q.dead, e)
	if q.lanes != nil && e.less(q.lanes.halts) {
		q.lanes.halts = e
	}
}

// addEntry adds an entry without a value to an index.
func (t *tx) addEntry(q *queue, x *index, e entry) {
	t.set(appendTimeKey(t.key[:0], q.number, x.kind, e), nil)
	x.add(e)
	t.touch(q)
}

// removeEntry removes an entry from an index.
func (t *tx) removeEntry(q *queue, x *index, e entry) {
	t.remove(appendTimeKey(t.key[:0], q.number, x.kind, e))
	x.remove(e)
	t.touch(q)
}

// die moves a message that is in no index to the dead ones.
func (t *tx) die(q *queue, id string, r *record, reason store.DeadReason) {
	r.deadReason, r.diedAt = reason, t.now
	t.keep(q, id, r)
	t.addDead(q, entry{t.now, id})
}

// erase removes a message that is in no index but that of its group. The group is 0 for none. It returns the key that
// the message halted, or "".
func (t *tx) erase(q *queue, id string, r *record, group int64) (resumed string) {
	t.leaveGroup(q, id, group)
	t.remove(appendIDKey(t.key[:0], q.number, kindMessage, id))
	if r.stored {
		t.remove(appendIDKey(t.key[:0], q.number, kindRecord, id))
	}
	q.unread[id] = false
	t.touch(q)
	return t.dropHold(q, id)
}

// each is scan of an index as it is, which learns the gaps. The caller has flushed.
func (t *tx) each(err *error, q *queue, x *index, from entry, last int64) iter.Seq2[entry, []byte] {
	return t.scan(err, q.number, &x.indexView, from, last, x.learn)
}

// earliest returns the first due entry, or one that never comes.
func (t *tx) earliest(q *queue) (entry, error) { return t.first(q, &q.due) }

// first returns the first entry of an index, or one that never comes.
func (t *tx) first(q *queue, x *index) (first entry, err error) {
	if x.exact {
		return x.first, nil
	}
	if err := t.flush(); err != nil {
		return entry{}, err
	}
	first = entry{at: never}
	for first = range t.each(&err, q, x, x.first, lastTime) {
		break
	}
	if err == nil {
		x.startAt(first, true)
	}
	return first, err
}

// firstDeadline returns when the first lease ends.
func (q *queue) firstDeadline() int64 {
	if e, ok := q.deadlines.Min(); ok {
		return e.at
	}
	return never
}

// next returns the time in microseconds from which a claim returns messages or ends leases. A claim ends leases on a
// paused queue too, and on one that is full.
func (t *tx) next(q *queue) (int64, error) {
	if q.paused || q.isFull() {
		return micros(q.firstDeadline()), nil
	}
	var ready int64
	if q.lanes == nil {
		e, err := t.earliest(q)
		if err != nil {
			return 0, err
		}
		ready = micros(e.at)
	} else {
		e, err := t.firstAhead(q)
		if err != nil {
			return 0, err
		}
		ready = q.lanes.next(e, t.micros)
	}
	return min(q.claimable(ready, t.micros), micros(q.firstDeadline())), nil
}

// soonest returns a lower bound of next without reading anything.
func (q *queue) soonest(now int64) int64 {
	ready := micros(q.due.first.at)
	if q.lanes != nil {
		ready = q.lanes.next(q.lanes.ahead.first, now)
	}
	return min(q.claimable(ready, now), micros(q.firstDeadline()))
}

// load reads the queues' counters and their leases. A queue that contradicts itself is refused; the others are served.
func (s *Store) load() error {
	r := &reader{s: s, src: s.db}
	if err := s.loadSigns(r); err != nil {
		return err
	}
	it, err := r.iterate(nil, nil)
	if err != nil {
		return err
	}
	named := map[uint32]string{}
	for name, value := range r.keys(&err, 0, kindName, "") {
		number := numberOf(string(value))
		q := newQueue(name, 0)
		switch other, taken := named[number]; {
		case number == 0 || len(value) != 4:
			err = corrupt("its number is %x", value)
		case s.signs[name] != "":
			err = corrupt("there is a sign at its name")
		case taken:
			err = corrupt("its number %d is that of queue %q too", number, other)
		default:
			named[number] = name
			q, err = s.loadQueue(r, it, name, number)
		}
		s.queues[name] = q
		if err = s.setAside(q, err); err != nil {
			break
		}
	}
	it.SetBounds(nil, nil)
	if it.Last() && len(it.Key()) >= 4 {
		s.lastNumber = binary.BigEndian.Uint32(it.Key()) // also of a queue that has lost its name
	}
	if err == nil {
		err = s.unreadable(it.Error())
	}
	it.Close() // its other errors belong to queues that are set aside
	if err == nil {
		err = s.loadRequests(r)
	}
	return err
}

// setAside refuses a queue that is damaged; it returns other errors.
func (s *Store) setAside(q *queue, err error) error {
	if !errors.Is(err, store.ErrCorrupt) {
		return err
	}
	s.logger.Error("later: a queue is damaged and refused", "dir", s.dir, "queue", q.name, "cause", err)
	q.damage = fmt.Errorf("queue %q is damaged: %w; %s", q.name, err, s.recoverAdvice())
	return nil
}

// loadQueue reads a queue with an iterator. With an error it returns the queue to refuse.
func (s *Store) loadQueue(r *reader, it *pebble.Iterator, name string, number uint32) (*queue, error) {
	q := newQueue(name, number)
	if err := s.fillQueue(r, it, q); err != nil {
		return newQueue(name, number), err
	}
	return q, nil
}

func (s *Store) fillQueue(r *reader, it *pebble.Iterator, q *queue) (err error) {
	m, bad := meta{}, corrupt("it has no counters")
	for rest, value := range r.keysBy(it, &err, q.number, kindMeta) {
		if rest == "" {
			m, bad = parseMeta(value)
		}
		break
	}
	if err = cmp.Or(err, bad); err != nil {
		return err
	}
	q.restore(m)
	it.SetBounds(appendKey(nil, q.number, kindMessage), appendKey(nil, q.number, kindMessage+1))
	if it.Last() {
		q.highest = string(it.Key()[prefixLength:])
	} else if it.Error() != nil {
		return s.unreadable(it.Error())
	}
	if err := q.loadLeases(r, it); err != nil {
		return err
	}
	s.correctLeases(q, m.Now)
	now := max(s.clock.Now().UnixMicro(), s.lastMicros)
	q.flow.State.Start(q.flow.Rate, now, 0) // the clock may have been set back
	if q.lanes != nil {
		if err := q.loadKeys(r, it, now); err != nil {
			return err
		}
	}
	for _, l := range q.leases {
		q.countLease(now, l)
	}
	return nil
}
