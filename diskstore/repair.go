package diskstore

import (
	"errors"
	"fmt"
	"maps"

	"github.com/cockroachdb/pebble/v2"

	"github.com/laterq/later/internal/envelope"
	"github.com/laterq/later/store"
)

// A repair rebuilds a queue: everything that can be derived is written anew from the messages, their records, the
// leases and the remembered ids. Calls on the queue wait meanwhile. First its counters are replaced by a note, durably,
// so that a crash leaves a queue that is refused until it is repaired. Then the keys are written in many small steps,
// each of which is right by itself, and last the new counters.

// lostRecordText is the last error of a message whose record could not be read.
const lostRecordText = "its record could not be read: attempts and last error are lost"

// maxRebuildBatch is how many bytes one step of a rebuild writes. They take the writer a few milliseconds.
const maxRebuildBatch = 256 << 10

// errGone is returned when the queue was deleted meanwhile.
var errGone = errors.New("the queue is gone")

// rebuild is one repair of a queue.
type rebuild struct {
	queueReader // of a snapshot from the beginning
	name        string
	snapshot    *pebble.Snapshot
	now         int64 // when it was taken
	batch       *pebble.Batch
	meta        meta
}

func (e *examiner) rebuild(name string, number uint32) error {
	s := e.s
	s.backlog.park(name)
	defer s.backlog.unpark(name)
	r := &rebuild{name: name, batch: s.db.NewBatch(),
		queueReader: queueReader{reader: reader{s: s}, ctx: e.ctx, number: number}}
	err := r.step(r.begin)
	if err == nil {
		err = r.run()
	}
	if s.isStuck() {
		return err
	}
	r.batch.Close()
	if r.snapshot != nil {
		err = s.closeSnapshot(r.snapshot, err)
	}
	if err == nil {
		err = r.step(r.finish)
	}
	return err
}

// step has the writer execute a step of the rebuild.
func (r *rebuild) step(f func(t *tx) error) error {
	var failed error
	err := r.s.doParked(r.ctx, r.name, func(t *tx) { failed = f(t) })
	if err == nil { // else the writer may never leave it
		err = failed
	}
	return err
}

// begin replaces the counters by whether the queue is paused, which no load accepts as counters.
func (r *rebuild) begin(t *tx) error {
	q := r.s.queues[r.name]
	if q == nil || q.number != r.number {
		return errGone
	}
	if err := t.flush(); err != nil {
		return err
	}
	r.meta.paused = true
	key := appendKey(nil, r.number, kindMeta)
	_, err := t.view(key, func(value []byte) error {
		if m, err := parseMeta(value); err == nil || len(value) == interruptedLength {
			r.meta.paused = m.paused
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, x := range []*index{&q.due, &q.dead, &q.forget} {
		for _, v := range x.views { // what they find does not hold for the new queue
			v.ended.Store(true)
		}
	}
	t.durable = true
	t.set(key, []byte{boolByte(r.meta.paused)})
	refused := newQueue(r.name, r.number)
	r.s.refuse(refused, errInterrupted)
	r.s.queues[r.name] = refused
	if err := t.flush(); err != nil {
		return err
	}
	r.snapshot = r.s.db.NewSnapshot()
	r.src, r.now = r.snapshot, t.now
	r.meta.now, r.meta.mark, r.meta.head = t.now, t.now, never
	return nil
}

// run writes everything but the counters.
func (r *rebuild) run() error {
	ranges := unknownRanges(r.number)
	for _, kind := range []byte{kindDue, kindDead, kindForget} {
		ranges = append(ranges, keyRange{appendKey(nil, r.number, kind), appendKey(nil, r.number, kind+1)})
	}
	for _, k := range ranges {
		if err := r.batch.DeleteRange(k.from, k.to, nil); err != nil {
			return err
		}
	}
	for _, step := range []func() error{r.readLeases, r.writeMessages, r.writeLeases, r.writeRemembered, r.flush} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (r *rebuild) writeMessages() error {
	return r.eachMessage(r.message, func(id []byte) error {
		return r.remove(appendIDKey(nil, r.number, kindRecord, string(id)))
	})
}

// message writes the index entry of a message, after what cannot be read of it was replaced.
func (r *rebuild) message(id, value []byte, s messageState) error {
	name, record := string(id), &s.record
	write := false
	if s.badRecord {
		record.delivered, record.lastError = true, lostRecordText // rather delivered than expired
		write = true
	}
	if s.short {
		if !record.stored || s.badRecord {
			record.due = r.now
		}
		if err := r.set(appendIDKey(nil, r.number, kindMessage, name), lengthen(value, record.due)); err != nil {
			return err
		}
	}
	if record.deadReason == "" && isUnreadable(value) {
		record.deadReason, record.diedAt, record.lastError = store.DeadUnreadable, r.now, store.UnreadableText
		write = true
	}
	if write {
		record.stored = true
		if err := r.set(appendIDKey(nil, r.number, kindRecord, name), appendRecord(nil, record)); err != nil {
			return err
		}
	}
	h := r.held[name]
	var flag []byte
	switch {
	case record.deadReason != "":
		r.meta.dead++
		return r.set(appendTimeKey(nil, r.number, kindDead, entry{record.diedAt, name}), nil)
	case h != nil:
		h.leased = true
		if h.record.stored != record.stored || !record.stored && h.record.due != record.due {
			h.record, h.lease.rewrite = *record, true
		}
		return nil
	case record.stored:
		flag = withRecord
	}
	r.meta.due++
	r.meta.head = min(r.meta.head, record.due)
	if record.due <= r.meta.mark {
		r.meta.ready++
	}
	return r.set(appendTimeKey(nil, r.number, kindDue, entry{record.due, name}), flag)
}

// lengthen returns a message with a due time for one that has none, so that its bytes can be seen.
func lengthen(value []byte, due int64) []byte {
	raw := string(value)
	if envelope.Decode(raw, &store.Message{}) == nil {
		raw = "\xff" + raw // it is no message and must not become one
	}
	return append(appendTime(nil, due), raw...)
}

// writeLeases removes from the leases what they no longer hold.
func (r *rebuild) writeLeases() error {
	for _, id := range r.badLeases {
		if err := r.remove(appendIDKey(nil, r.number, kindLease, id)); err != nil {
			return err
		}
	}
	for _, l := range r.leases {
		left := 0
		for i, m := range l.members {
			if m == nil {
				continue
			}
			if h := r.held[m.id]; h.member == m && h.leased {
				left++
			} else {
				l.members[i], l.rewrite = nil, true
			}
		}
		if !l.rewrite {
			continue
		}
		var err error
		if key := appendIDKey(nil, r.number, kindLease, l.id); left == 0 {
			err = r.remove(key)
		} else {
			l.compact()
			err = r.set(key, appendLease(nil, l))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *rebuild) writeRemembered() error {
	return r.each(kindRemembered, func(id, value []byte) error {
		if len(value) != timeLength {
			return r.remove(appendIDKey(nil, r.number, kindRemembered, string(id)))
		}
		r.meta.remembered++
		return r.set(appendTimeKey(nil, r.number, kindForget, entry{readTime(value), string(id)}), nil)
	})
}

func (r *rebuild) set(key, value []byte) error {
	if err := r.batch.Set(key, value, nil); err != nil {
		return err
	}
	return r.flushFull()
}

func (r *rebuild) remove(key []byte) error {
	if err := r.batch.Delete(key, nil); err != nil {
		return err
	}
	return r.flushFull()
}

func (r *rebuild) flushFull() error {
	if r.batch.Len() < maxRebuildBatch {
		return nil
	}
	return r.flush()
}

func (r *rebuild) flush() error {
	if r.batch.Empty() {
		return nil
	}
	if err := r.step(func(t *tx) error { return t.batch.Apply(r.batch, nil) }); err != nil {
		return err
	}
	r.batch.Reset()
	return nil
}

// finish writes the counters, and loads the queue as Open does.
func (r *rebuild) finish(t *tx) error {
	s := r.s
	t.durable = true
	t.set(appendKey(nil, r.number, kindMeta), appendMeta(nil, r.meta))
	if err := t.flush(); err != nil {
		return err
	}
	it, err := t.iterate(nil, nil)
	if err != nil {
		return err
	}
	s.corrected = nil
	q, err := s.loadQueue(it, r.name, r.number)
	if err = t.end(it, err); err != nil {
		return err
	}
	for _, c := range s.corrected {
		t.touchLease(c.queue, c.lease)
	}
	s.corrected = nil
	q.wake = true
	s.queues[r.name] = q
	t.notify(r.name)
	return nil
}

// removeNames removes names that still have no queue of their own, and keys that belong to nothing.
func (t *tx) removeNames(n names) error {
	for _, name := range n.badNames {
		key := appendIDKey(nil, 0, kindName, name)
		value, ok, err := t.get(key)
		if err != nil {
			return err
		}
		number := nameNumber(value)
		own := number != 0
		for _, q := range t.s.queues {
			own = own && (q.name == name || q.number != number)
		}
		if ok && !own {
			t.remove(key)
			delete(t.s.queues, name)
		}
	}
	for _, key := range n.unknown {
		t.remove(key)
	}
	return nil
}

// removeNumber removes the keys of a number that no queue has.
func (t *tx) removeNumber(number uint32) error {
	for _, q := range t.s.queues {
		if q.number == number {
			return errGone
		}
	}
	t.removeRange(numberKey(number), numberKey(number+1))
	return nil
}

// nameQueue names the queue of a number that has no name, and refuses it until it is repaired.
func (t *tx) nameQueue(number uint32) (name string) {
	queues := t.s.queues
	maps.DeleteFunc(queues, func(_ string, q *queue) bool { return q.number == number })
	name = fmt.Sprintf("recovered-%d", number)
	for queues[name] != nil {
		name += "-again"
	}
	t.set(appendIDKey(nil, 0, kindName, name), numberKey(number))
	queues[name] = newQueue(name, number)
	t.s.refuse(queues[name], errInterrupted)
	return name
}
