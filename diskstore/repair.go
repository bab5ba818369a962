package diskstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"

	"github.com/laterq/later/store"
)

// errGone: the queue was deleted while it was examined.
var errGone = errors.New("the queue is gone")

// queue examines the queue of a number, and repairs it if that is asked for.
func (e *examiner) queue(number uint32, name string) error {
	snapshot, err := e.snapshot()
	if err != nil {
		return err
	}
	l := &queueLook{s: e.s, ctx: e.ctx, snapshot: snapshot, number: number, seed: maphash.MakeSeed(), limit: e.limit}
	c := &queueCheck{e, l, name, 0}
	if err = l.pass(); err == nil {
		err = c.run()
	}
	switch err = e.s.drop(snapshot, err); {
	case errors.Is(err, errGone):
		return nil
	case errors.Is(err, store.ErrCorrupt): // a damaged file, which stops nothing but this queue
		e.report(store.Finding{Severity: store.SeverityError, Check: "tables", Queue: c.name, Text: err.Error(), Advice: e.s.salvageAdvice()})
		return nil
	}
	return err
}

// queueCheck examines one queue.
type queueCheck struct {
	*examiner
	l     *queueLook
	name  string
	found int64
}

// run tells what a pass over the queue showed, and repairs it in an order in which each step can stand on those
// before it.
func (c *queueCheck) run() error {
	for _, step := range []func() (bool, error){c.checkName, c.checkLoading, c.checkCounters, c.checkMessages, c.checkRemembered} {
		if done, err := step(); done || err != nil {
			return err
		}
	}
	if err := c.removeUnknown(c.name, c.l.unknown); err != nil {
		return err
	}
	if c.found += c.l.unknown.n; c.found == 0 {
		l := c.l
		c.report(store.Finding{Severity: store.SeverityOK, Check: "queue", Queue: c.name, Count: l.messages,
			Text: fmt.Sprintf("messages: %d (%d scheduled or ready, %d leased, %d dead); each is in its place, and the counters are right",
				l.messages, l.counted.due, len(l.held), l.counted.dead)})
	}
	return nil
}

// finding reports what is wrong, if n is not 0, and repairs it in one step.
func (c *queueCheck) finding(check string, n int64, text string, repair func(t *tx, q *queue) error) error {
	c.found += n
	return c.mend(store.Finding{Severity: store.SeverityError, Check: check, Queue: c.name, Count: n, Text: text},
		func(t *tx) error { return c.step(t, repair) })
}

// step does a part of a repair on the queue as it is now.
func (c *queueCheck) step(t *tx, repair func(t *tx, q *queue) error) error {
	q := c.s.queues[c.name]
	if q == nil || q.number != c.l.number {
		return errGone
	}
	if err := repair(t, q); err != nil {
		return err
	}
	t.ring(c.name)
	return nil
}

// checkName is about a number without a name.
func (c *queueCheck) checkName() (done bool, err error) {
	if c.name != "" {
		return false, nil
	}
	f := store.Finding{Severity: store.SeverityError, Check: "names", Count: 1}
	if c.l.messages == 0 {
		f.Text = fmt.Sprintf("number %d has keys and is no queue's, and there is no message among them", c.l.number)
		return true, c.mend(f, func(t *tx) error {
			if err := t.batch.DeleteRange(numberKey(c.l.number), numberKey(c.l.number+1), nil); err != nil {
				return t.s.fail(err)
			}
			return nil
		})
	}
	c.name = fmt.Sprintf("recovered-%d", c.l.number)
	f.Queue = c.name
	f.Text = fmt.Sprintf("number %d has %d messages and is no queue's: a repair calls it %s", c.l.number, c.l.messages, c.name)
	c.found++
	return false, c.mend(f, func(t *tx) error {
		maps.DeleteFunc(c.s.queues, func(_ string, q *queue) bool { return q.number == c.l.number })
		for c.s.queues[c.name] != nil {
			c.name += "-again"
		}
		t.set(appendIDKey(t.key[:0], 0, kindName, c.name), numberKey(c.l.number))
		q := newQueue(c.name, c.l.number)
		q.damage = corrupt("it is being repaired")
		c.s.queues[c.name] = q
		return nil
	})
}

func numberKey(number uint32) []byte { return binary.BigEndian.AppendUint32(nil, number) }

func (t *tx) writeMeta(number uint32, m meta) error {
	t.set(appendKey(t.key[:0], number, kindMeta), appendMeta(nil, &m))
	return nil
}

// recounted gives counters for a queue whose own cannot be read.
func (l *queueLook) recounted() meta {
	m := l.counted
	m.paused = true
	m.now = l.s.lastNow
	if m.due == 0 {
		m.head = never
	}
	return m
}

// checkLoading is about what keeps the queue from being loaded. When there is anything to repair, here or later,
// what memory has of the queue is read from the disk once more.
func (c *queueCheck) checkLoading() (done bool, err error) {
	l := c.l
	if l.metaErr != nil {
		text := fmt.Sprintf("the counters cannot be read (%v); a repair counts anew, and leaves the queue paused: later resume", l.metaErr)
		err = c.finding("counters", 1, text, func(t *tx, _ *queue) error {
			l.meta, l.metaErr = l.recounted(), nil
			return t.writeMeta(l.number, l.meta)
		})
	}
	if err == nil {
		err = c.finding("leases", int64(len(l.badLeases)), countText("leases that cannot be read", int64(len(l.badLeases)), l.badLeases),
			func(t *tx, _ *queue) error { return t.removeLeases(l.number, l.badLeases) })
	}
	if err == nil {
		var ids []string
		for _, h := range l.twice {
			ids = append(ids, h.id)
		}
		err = c.finding("leases", int64(len(ids)), countText("messages held by two leases", int64(len(ids)), ids),
			func(t *tx, _ *queue) error {
				for _, h := range l.twice {
					if err := t.leave(l.number, h.lease, h.id); err != nil {
						return err
					}
				}
				return nil
			})
	}
	if err == nil && c.repair {
		err = c.reload()
	}
	return false, err
}

// reload reads the queue from the disk, after the records of leased messages that cannot be read are out of the way.
func (c *queueCheck) reload() error {
	var failed error
	err := c.s.do(c.ctx, func(t *tx) {
		if failed = t.flush(); failed != nil {
			return
		}
		failed = c.step(t, func(t *tx, old *queue) error {
			for _, id := range c.l.badRecords {
				if err := t.leave(c.l.number, c.l.held[id].lease, id); err != nil {
					return err
				}
			}
			if err := t.flush(); err != nil {
				return err
			}
			it, err := c.s.db.NewIter(nil)
			if err != nil {
				return c.s.unreadable(err)
			}
			defer it.Close()
			q, err := c.s.loadQueue(it, c.name, c.l.number)
			if err := c.s.setAside(q, err); err != nil {
				return err
			}
			c.s.queues[c.name] = q
			return nil
		})
	})
	return errors.Join(err, failed)
}

func (c *queueCheck) checkCounters() (done bool, err error) {
	l := c.l
	n, text := l.wrongCounters()
	if l.metaErr != nil {
		n = 0 // it was told
	}
	return false, c.finding("counters", n, text, func(t *tx, q *queue) error {
		// What came since then counted right, so the differences hold.
		q.due += l.counted.due - l.meta.due
		q.ready += l.counted.ready - l.meta.ready
		q.dead += l.counted.dead - l.meta.dead
		q.forgetting += l.counted.forgetting - l.meta.forgetting
		q.longest = max(q.longest, l.counted.longest)
		q.forgetAt = 0
		q.firstDead, q.gaps = entry{}, nil
		q.startAt(entry{at: never}, true)
		if q.due > 0 {
			q.startAt(entry{}, false)
		}
		t.touch(q)
		return nil
	})
}

// checkMessages is about each message's state.
func (c *queueCheck) checkMessages() (done bool, err error) {
	var count tally
	err = c.l.suspects(func(all []*facts) error {
		for _, f := range all {
			for _, w := range f.wrongs() {
				switch {
				case len(f.broken) > 0:
					for _, key := range f.broken {
						count.add(w, fmt.Sprintf("%x", key), 1)
					}
				default:
					count.add(w, f.id, 1)
				}
			}
		}
		if !c.repair {
			return nil
		}
		for some := range slices.Chunk(all, store.MaxBatch) {
			if err := c.mendMessages(some); err != nil {
				return err
			}
		}
		return nil
	})
	for _, f := range count.findings(c.name, c.repair) {
		c.found += f.Count
		c.report(f)
	}
	return false, err
}

func (c *queueCheck) mendMessages(some []*facts) error {
	var failed error
	err := c.s.do(c.ctx, func(t *tx) {
		if failed = t.flush(); failed != nil {
			return
		}
		failed = c.step(t, func(t *tx, q *queue) error {
			if q.damage != nil {
				return q.damage
			}
			for _, f := range some {
				if err := t.mend(q, f); err != nil {
					return err
				}
			}
			return nil
		})
	})
	return errors.Join(err, failed)
}

func (c *queueCheck) checkRemembered() (done bool, err error) {
	return false, c.l.remembered(func(u unforgotten) error {
		var ids []string
		for _, e := range u.lost {
			ids = append(ids, e.id)
		}
		err := c.finding("remembered", int64(len(ids)), countText("remembered ids that would never be forgotten", int64(len(ids)), ids),
			func(t *tx, q *queue) error {
				for _, e := range u.lost {
					if until, err := t.remembered(q, e.id); err != nil || until != e.at {
						continue // it was changed since
					}
					t.set(appendTimeKey(t.key[:0], q.number, kindForget, e), nil)
					q.forgetting++
				}
				q.forgetAt = 0
				t.touch(q)
				return nil
			})
		if err != nil {
			return err
		}
		return c.finding("remembered", int64(len(u.broken)), countText("remembered ids without a time that can be read", int64(len(u.broken)), u.broken),
			func(t *tx, q *queue) error {
				for _, id := range u.broken {
					t.remove(appendIDKey(t.key[:0], q.number, kindRemembered, id))
				}
				return nil
			})
	})
}
