package diskstore

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/laterq/later/store"
)

// load reads the queues' counters and their leases. A queue that contradicts itself is refused; the others are served.
func (s *Store) load() error {
	r := &reader{s: s, src: s.db}
	it, err := r.iterate(appendKey(nil, 0, kindName), appendKey(nil, 0, kindName+1))
	if err != nil {
		return err
	}
	queues, err := r.iterate(nil, nil)
	if err != nil {
		return errors.Join(err, it.Close())
	}
	named := map[uint32]string{}
	for valid := it.First(); valid && err == nil; valid = it.Next() {
		name, number := string(it.Key()[prefixLength:]), uint32(0)
		if len(it.Value()) == 4 {
			number = binary.BigEndian.Uint32(it.Value())
		}
		q := newQueue(name, 0)
		switch other, taken := named[number]; {
		case number == 0:
			err = corrupt("its number is %x", it.Value())
		case taken:
			err = corrupt("its number %d is that of queue %q too", number, other)
		default:
			named[number] = name
			q, err = s.loadQueue(queues, name, number)
		}
		s.queues[name] = q
		err = s.setAside(q, err)
	}
	queues.Close() // its errors belong to queues that are set aside
	if err = r.end(it, err); err == nil {
		err = s.loadRequests(r)
	}
	if err == nil {
		err = s.loadLastNumber(r)
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

// loadLastNumber finds the highest number in use, also of a queue that has lost its name.
func (s *Store) loadLastNumber(r *reader) error {
	it, err := r.iterate(nil, nil)
	if err != nil {
		return err
	}
	if it.Last() && len(it.Key()) >= 4 {
		s.lastNumber = binary.BigEndian.Uint32(it.Key())
	}
	return r.end(it, nil)
}

// loadQueue reads a queue with an iterator that may be used for others before and after, since creating one takes
// longer than the reads here. With an error it returns the queue to refuse.
func (s *Store) loadQueue(it *pebble.Iterator, name string, number uint32) (*queue, error) {
	q := newQueue(name, number)
	if err := s.fillQueue(it, q); err != nil {
		return newQueue(name, number), err
	}
	return q, nil
}

func (s *Store) fillQueue(it *pebble.Iterator, q *queue) error {
	boundTo(it, q.number, kindMeta)
	var m meta
	var err error
	switch {
	case it.First() && len(it.Key()) == prefixLength:
		if m, err = parseMeta(it.Value()); err != nil {
			return err
		}
	case it.Error() != nil:
		return s.unreadable(it.Error())
	default:
		return corrupt("it has no counters")
	}
	q.restore(m)
	boundTo(it, q.number, kindMessage)
	if it.Last() {
		q.highest = string(it.Key()[prefixLength:])
	} else if err := it.Error(); err != nil {
		return s.unreadable(err)
	}
	boundTo(it, q.number, kindLease)
	if err := s.loadLeases(it, q); err != nil {
		return err
	}
	s.correctLeases(q, m.now)
	return nil
}

// boundTo makes an iterator see the keys of a kind only.
func boundTo(it *pebble.Iterator, number uint32, kind byte) {
	it.SetBounds(appendKey(nil, number, kind), appendKey(nil, number, kind+1))
}

// loadLeases reads a queue's leases, which the iterator is bound to.
func (s *Store) loadLeases(it *pebble.Iterator, q *queue) (err error) {
	r := &reader{s: s, src: s.db}
	for valid := it.First(); valid && err == nil; valid = it.Next() {
		var l *lease
		if l, err = parseLease(string(it.Key()[prefixLength:]), it.Value()); err != nil {
			break
		}
		q.leases[l.id] = l
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
				if m.record, err = r.record(q.number, m.id, m.record.due); err != nil {
					break
				}
			}
		}
	}
	if failed := it.Error(); err == nil && failed != nil {
		err = s.unreadable(failed)
	}
	return err
}

// correctLeases leaves leases the time that they had left when the queue was last changed, if the clock went back since
// then; see rewind. The deadlines are stored with the next change of the leases: until then each load computes the
// same.
func (s *Store) correctLeases(q *queue, changed int64) {
	now := s.clock.Now().UnixMilli()
	back := max(0, changed-now)
	if back <= maxStandstill {
		back = 0
		s.lastNow = max(s.lastNow, changed)
	}
	for _, l := range q.leases {
		if deadline := min(l.deadline-back, max(now, s.lastNow)+maxLease); deadline != l.deadline {
			l.deadline, l.rewrite = deadline, true
			s.corrected = append(s.corrected, touchedLease{q, l})
		}
		q.deadlines.Set(entry{l.deadline, l.id})
	}
}
