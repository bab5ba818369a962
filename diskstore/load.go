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
	queues, err := s.db.NewIter(nil)
	if err != nil {
		return errors.Join(s.unreadable(err), it.Close())
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
			q, err = s.loadQueue(queues, name, number)
		}
		s.queues[name] = q
		err = s.setAside(q, err)
	}
	queues.Close() // what it could not read belongs to a queue that is set aside
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

// loadQueue reads a queue, by an iterator that may be used for others before and after it: making one takes longer than
// what it reads here. With an error it gives what there is to refuse.
func (s *Store) loadQueue(it *pebble.Iterator, name string, number uint32) (*queue, error) {
	q := newQueue(name, number)
	if err := s.fillQueue(it, q); err != nil {
		return newQueue(name, number), err
	}
	return q, nil
}

func (s *Store) fillQueue(it *pebble.Iterator, q *queue) (err error) {
	boundTo(it, q.number, kindMeta)
	switch {
	case it.First() && len(it.Key()) == prefixLength:
		if q.meta, err = parseMeta(it.Value()); err != nil {
			return err
		}
	case it.Error() != nil:
		return s.unreadable(it.Error())
	default:
		return corrupt("it has no counters")
	}
	s.lastNow = max(s.lastNow, q.meta.now)
	if q.due > 0 {
		q.startAt(entry{at: q.head}, false)
	}
	if q.forgetting > 0 {
		q.forgetAt = 0
	}
	boundTo(it, q.number, kindMessage)
	if it.Last() {
		q.highest = string(it.Key()[prefixLength:])
	} else if err := it.Error(); err != nil {
		return s.unreadable(err)
	}
	boundTo(it, q.number, kindLease)
	return (&tx{s: s}).loadLeases(it, q)
}

// boundTo has an iterator go over the keys of a kind only.
func boundTo(it *pebble.Iterator, number uint32, kind byte) {
	it.SetBounds(appendKey(nil, number, kind), appendKey(nil, number, kind+1))
}

// loadLeases reads a queue's leases, which the iterator is bound to.
func (t *tx) loadLeases(it *pebble.Iterator, q *queue) (err error) {
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
	if failed := it.Error(); err == nil && failed != nil {
		err = t.s.unreadable(failed)
	}
	return err
}
