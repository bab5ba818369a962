package memstore

import (
	"context"
	"math"

	"github.com/laterq/later/internal/turns"
	"github.com/laterq/later/store"
)

// SetKeyFlow implements store.Store.
func (s *Store) SetKeyFlow(ctx context.Context, name, key string, o store.KeyOverride) error {
	if err := store.CheckKeyFlow(name, key, o); err != nil {
		return err
	}
	return s.update(ctx, name, func(q *queue, _ int64) error {
		if !q.flow.Fair {
			return store.NotFair(name)
		}
		if q.ordered() && o.Concurrency != nil && *o.Concurrency != 1 {
			return store.OneOfOrder(name, *o.Concurrency)
		}
		adds := !o.IsZero() && q.flow.keys.Override(key) == nil
		if adds && q.flow.keys.Overrides() >= store.MaxKeyFlows {
			return store.TooManyKeyFlows(name)
		}
		q.flow.keys.SetOverride(q.micros, key, o)
		s.data.notify(name)
		return nil
	})
}

// ResumeKey implements store.Store.
func (s *Store) ResumeKey(ctx context.Context, name, key string) error {
	if err := store.CheckResume(name, key); err != nil {
		return err
	}
	resumed, err := update(ctx, s, name, func(q *queue, _ int64) bool {
		if !q.flow.Fair {
			return false
		}
		holder := q.flow.keys.Key(q.micros, key).Holder
		resumed := q.flow.keys.Resume(q.micros, key)
		if resumed {
			q.haltsNot(q.messages[holder])
		}
		return resumed
	})
	if err == nil && !resumed {
		err = store.ErrNotFound
	}
	return err
}

// Keys implements store.Store.
func (s *Store) Keys(ctx context.Context, name string, req store.KeysRequest) ([]store.KeyState, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	return view(ctx, s, name, func(q *queue, _ int64) []store.KeyState {
		if !q.flow.Fair {
			return nil
		}
		return q.flow.keys.Keys(q.micros, req)
	})
}

// setFair follows a change of the flow. The messages of a queue that is not Fair any more are only in due.
func (q *queue) setFair(was bool) {
	f := &q.flow
	switch {
	case f.Fair && was:
		f.keys.SetLimits(q.micros, f.Key)
		f.keys.Wake(q.micros, math.MaxInt)
	case f.Fair:
		f.keyeds++
		f.keys, f.unsorted, f.keyed = turns.New(f.Key), index{q.due.tree.Copy()}, f.keyeds
	default:
		f.keys, f.unsorted, f.keyed = nil, index{}, 0
	}
}

// sort sorts all ready messages by key, and lets keys that have rested take turns.
func (q *queue) sort(now int64) {
	for {
		e := q.flow.unsorted.first()
		if e.at > now {
			break
		}
		q.flow.unsorted.remove(e.at, e.id)
		q.sortOne(q.messages[e.id])
	}
	q.flow.keys.Wake(q.micros, math.MaxInt)
}

// sortOne adds a message to the lane of its key and of the urgency that it has now.
func (q *queue) sortOne(m *message) {
	lane := m.inLane()
	lane.Urgency = q.flow.UrgencyOf(&m.Message)
	q.flow.keys.Sort(q.micros, lane)
}

// inLane returns the message as it is found in the lanes of its key.
func (m *message) inLane() turns.Message {
	return turns.Message{Key: m.Key, Place: m.place, ID: m.ID}
}

// head returns the next message that a claim takes, if the limits of its key allow a start.
func (q *queue) head(now int64) *message {
	if q.flow.Fair {
		next, _ := q.flow.keys.Head(q.micros)
		return q.messages[next.ID]
	}
	if e := q.due.first(); e.at <= now {
		return q.messages[e.id]
	}
	return nil
}

// keysReady returns how many messages of a Fair queue the limits of their keys allow to start. Messages to sort count
// as one: the claim that sorts them finds out how many may start.
func (q *queue) keysReady() int {
	q.flow.keys.Wake(q.micros, math.MaxInt)
	n := q.flow.keys.May(q.micros, store.MaxBatch)
	if q.flow.unsorted.first().at <= q.micros/1000 {
		n++
	}
	return n
}

// free says that a message of a lease does not count any more.
func (q *queue) free(l *lease, key string) {
	if q.flow.counts(l) {
		q.flow.counted--
	}
	if q.flow.countsKeys(l) {
		q.flow.keys.Free(q.micros, key, 1)
	}
}

// freeCancelled says that the cancelled messages of a lease do not count any more, and returns their receipts.
func (q *queue) freeCancelled(l *lease) (receipts []store.Receipt) {
	for _, c := range l.cancelled {
		q.free(l, c.key)
		receipts = append(receipts, c.Receipt)
	}
	return receipts
}
