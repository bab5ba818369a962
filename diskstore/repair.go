package diskstore

import (
	"errors"
	"fmt"
	"maps"
)

// A repair rebuilds a queue: everything that can be derived is written anew from the messages, their records, the
// leases and the remembered ids. Calls on the queue wait meanwhile. First its counters are replaced by a note, durably,
// so that a crash leaves a queue that is refused until it is repaired. Then the keys are written in many small steps,
// each of which is right by itself, and last the new counters.

// maxRebuildBatch is how many bytes one step of a rebuild writes. They take the writer a few milliseconds.
const maxRebuildBatch = 256 << 10

func (e *checker) rebuild(name string, number uint32) (*scan, error) {
	s := e.s
	s.backlog.park(name)
	defer s.backlog.unpark(name)
	c, batch := newScan(e, number), s.db.NewBatch()
	flush := func() error {
		err := e.step(name, true, func(t *tx) error { return t.batch.Apply(batch, nil) })
		if err == nil {
			batch.Reset()
		}
		return err
	}
	c.write = func(key, value []byte) (err error) {
		if value == nil {
			err = batch.Delete(key, nil)
		} else {
			err = batch.Set(key, value, nil)
		}
		if err == nil && batch.Len() >= maxRebuildBatch {
			err = flush()
		}
		return err
	}
	err := e.inSnapshot(&c.reader, name, true, func(t *tx) error { return c.begin(t, name) }, func() error {
		for _, kind := range []byte{kindDue, kindDead, kindForget, kindGroup} {
			if err := batch.DeleteRange(appendKey(nil, number, kind), appendKey(nil, number, kind+1), nil); err != nil {
				return err
			}
		}
		if err := c.run(); err != nil {
			return err
		}
		return flush()
	})
	if s.isStuck() {
		return c, err
	}
	batch.Close()
	if err == nil {
		err = e.step(name, true, func(t *tx) error { return c.finish(t, name) })
	}
	return c, err
}

// begin replaces the counters by the queue's settings, which no load accepts as counters.
func (c *scan) begin(t *tx, name string) error {
	q, err := t.same(name, c.number)
	if err != nil {
		return err
	}
	c.now, c.meta.now, c.meta.mark, c.meta.paused = t.now, t.now, t.now, true
	key := appendKey(nil, c.number, kindMeta)
	_, err = t.view(key, func(value []byte) error {
		if m, err := parseMeta(value); err == nil || errors.Is(err, errInterrupted) {
			m.fixRetention()
			c.meta.paused, c.meta.maxAge, c.meta.maxCount, c.meta.dropped = m.paused, m.maxAge, m.maxCount, m.dropped
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, x := range q.indexes() {
		for _, v := range x.views { // what they find does not hold for the new queue
			v.ended.Store(true)
		}
	}
	t.durable = true
	t.set(key, appendSettings(nil, c.meta))
	t.remove(appendKey(t.key[:0], c.number, kindCells))
	t.refuseInterrupted(name, c.number)
	return t.flush()
}

// refuseInterrupted makes calls on a queue return that its repair was interrupted, until it is finished.
func (t *tx) refuseInterrupted(name string, number uint32) {
	q := newQueue(name, number)
	t.s.refuse(q, errInterrupted)
	t.s.queues[name] = q
}

// finish writes the counters, and loads the queue as Open does.
func (c *scan) finish(t *tx, name string) error {
	s := t.s
	t.durable = true
	t.set(appendKey(nil, c.number, kindMeta), appendMeta(nil, c.meta))
	if err := t.flush(); err != nil {
		return err
	}
	it, err := t.iterate(nil, nil)
	if err != nil {
		return err
	}
	s.corrected = nil
	q, err := s.loadQueue(it, name, c.number)
	if err = t.end(it, err); err != nil {
		return err
	}
	for _, corrected := range s.corrected {
		t.touchLease(corrected.queue, corrected.lease)
	}
	s.corrected = nil
	q.wake = true
	s.queues[name] = q
	t.notify(name)
	return nil
}

// removeStray removes names and keys that belong to nothing, unless they have other values by now.
func (t *tx) removeStray(stray map[string]string) error {
	for key, seen := range stray {
		value, ok, err := t.get([]byte(key))
		if err != nil {
			return err
		}
		if !ok || string(value) != seen {
			continue
		}
		t.remove([]byte(key))
		if _, kind, ok := splitKey([]byte(key)); ok && kind == kindName {
			delete(t.s.queues, key[prefixLength:])
		}
	}
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
	t.refuseInterrupted(name, number)
	return name
}
