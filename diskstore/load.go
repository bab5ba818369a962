package diskstore

import (
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"
)

// load reads what is kept in memory: the queues' counters and their leases.
func (s *Store) load() error {
	it, err := s.db.NewIter(&pebble.IterOptions{
		LowerBound: appendKey(nil, 0, kindName), UpperBound: appendKey(nil, 0, kindName+1),
	})
	if err != nil {
		return s.unreadable(err)
	}
	for valid := it.First(); valid && err == nil; valid = it.Next() {
		if len(it.Value()) != 4 {
			err = corrupt("queue %q has the number %x", it.Key()[prefixLength:], it.Value())
			break
		}
		q := newQueue(string(it.Key()[prefixLength:]), binary.BigEndian.Uint32(it.Value()))
		s.lastNumber = max(s.lastNumber, q.number)
		s.queues[q.name] = q
		err = s.loadQueue(q)
	}
	if closed := it.Close(); err == nil && closed != nil {
		err = s.unreadable(closed)
	}
	return err
}

func (s *Store) loadQueue(q *queue) error {
	t := &tx{s: s}
	value, ok, err := t.get(appendKey(nil, q.number, kindMeta))
	if err != nil {
		return err
	}
	if !ok {
		return corrupt("queue %q has no counters", q.name)
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
