package diskstore

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/laterq/later/store"
)

// load reads what is kept in memory: the queues' counters and their leases. A queue that contradicts itself is
// refused from then on, until it is repaired; the others are served.
func (s *Store) load() error {
	it, err := s.db.NewIter(&pebble.IterOptions{
		LowerBound: appendKey(nil, 0, kindName), UpperBound: appendKey(nil, 0, kindName+1),
	})
	if err != nil {
		return s.unreadable(err)
	}
	named := map[uint32]string{}
	for valid := it.First(); valid && err == nil; valid = it.Next() {
		name, number := string(it.Key()[prefixLength:]), uint32(0)
		if len(it.Value()) == 4 {
			number = binary.BigEndian.Uint32(it.Value())
		}
		q := newQueue(name, number)
		switch other, taken := named[number]; {
		case number == 0:
			q.number = 0
			err = corrupt("its number is %x", it.Value())
		case taken:
			q.number = 0
			err = corrupt("its number %d is that of queue %q too", number, other)
		default:
			named[number] = name
			q, err = s.loadQueue(name, number)
		}
		s.queues[name] = q
		err = s.setAside(q, err)
	}
	if closed := it.Close(); err == nil && closed != nil {
		err = s.unreadable(closed)
	}
	if err == nil {
		err = s.loadLastNumber()
	}
	return err
}

// setAside refuses a queue that is damaged; it gives back other errors.
func (s *Store) setAside(q *queue, err error) error {
	if !errors.Is(err, store.ErrCorrupt) {
		return err
	}
	q.damage = fmt.Errorf("queue %q is damaged: %w; see later doctor --store %s, which can --repair it", q.name, err, s.url())
	s.logger.Error("later: a queue is damaged and refused until it is repaired", "dir", s.dir, "queue", q.name, "cause", err)
	return nil
}

// loadLastNumber finds the highest number in use, also by what has lost its name.
func (s *Store) loadLastNumber() error {
	it, err := s.db.NewIter(nil)
	if err != nil {
		return s.unreadable(err)
	}
	if it.Last() && len(it.Key()) >= 4 {
		s.lastNumber = binary.BigEndian.Uint32(it.Key())
	}
	if err := it.Close(); err != nil {
		return s.unreadable(err)
	}
	return nil
}

// loadQueue reads a queue; with an error it gives what there is to refuse.
func (s *Store) loadQueue(name string, number uint32) (*queue, error) {
	q := newQueue(name, number)
	if err := s.fillQueue(q); err != nil {
		return newQueue(name, number), err
	}
	return q, nil
}

func (s *Store) fillQueue(q *queue) error {
	t := &tx{s: s}
	value, ok, err := t.get(appendKey(nil, q.number, kindMeta))
	if err != nil {
		return err
	}
	if !ok {
		return corrupt("it has no counters")
	}
	if q.meta, err = parseMeta(value); err != nil {
		return err
	}
	s.lastNow = max(s.lastNow, q.meta.now)
	if q.due > 0 {
		q.startAt(entry{at: q.head}, false)
	}
	if q.forgetting > 0 {
		q.forgetAt = 0
	}
	if q.highest, err = s.highest(q); err != nil {
		return err
	}
	return t.loadLeases(q)
}

// highest gives the highest id of the living messages.
func (s *Store) highest(q *queue) (string, error) {
	it, err := s.db.NewIter(&pebble.IterOptions{
		LowerBound: appendKey(nil, q.number, kindMessage), UpperBound: appendKey(nil, q.number, kindMessage+1),
	})
	if err != nil {
		return "", s.unreadable(err)
	}
	id := ""
	if it.Last() {
		id = string(it.Key()[prefixLength:])
	}
	if err := it.Close(); err != nil {
		return "", s.unreadable(err)
	}
	return id, nil
}

func (t *tx) loadLeases(q *queue) error {
	it, err := t.s.db.NewIter(&pebble.IterOptions{
		LowerBound: appendKey(nil, q.number, kindLease), UpperBound: appendKey(nil, q.number, kindLease+1),
	})
	if err != nil {
		return t.s.unreadable(err)
	}
	for valid := it.First(); valid && err == nil; valid = it.Next() {
		var l *lease
		if l, err = parseLease(string(it.Key()[prefixLength:]), it.Value()); err != nil {
			break
		}
		q.leases[l.id] = l
		q.deadlines.Set(entry{l.deadline, l.id})
		for _, m := range l.members {
			if m == nil {
				continue
			}
			if other := q.held[m.id]; other != nil {
				err = corrupt("message %q is held by the leases %q and %q", m.id, other.lease.id, l.id)
				break
			}
			q.held[m.id] = m
			if m.record.stored {
				if m.record, err = t.record(q, m.id, m.record.due); err != nil {
					break
				}
			}
		}
	}
	if closed := it.Close(); err == nil && closed != nil {
		err = t.s.unreadable(closed)
	}
	return err
}
