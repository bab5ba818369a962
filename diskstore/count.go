package diskstore

import (
	"context"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/laterq/later/store"
)

// What counts many keys reads a snapshot, while other calls go on.

// Histogram implements store.Store. It reads one key for each message it counts, 2 to 5 million a second, while other
// calls go on; ctx ends it.
func (s *Store) Histogram(ctx context.Context, name string, from, to time.Time, buckets int) ([]int64, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.calls.Done()
	var snapshot *pebble.Snapshot
	number, err := look(ctx, s, name, func(t *tx, q *queue) (uint32, error) {
		snapshot = s.db.NewSnapshot()
		return q.number, nil
	})
	if err != nil {
		if !s.isStuck() { // else the writer may be making it for ever
			err = s.drop(snapshot, err)
		}
		return nil, err
	}
	bounds := store.HistogramBounds(from, to, buckets)
	counts, part := make([]int64, buckets), 0
	err = s.count(ctx, snapshot, number, bounds[0], bounds[buckets], func(e entry) {
		for e.at >= bounds[part+1] {
			part++
		}
		counts[part]++
	})
	if err != nil {
		return nil, err
	}
	return counts, nil
}

// count calls f for the messages of a queue that fall due in [from, to), and closes the snapshot.
func (s *Store) count(ctx context.Context, snapshot *pebble.Snapshot, number uint32, from, to int64, f func(entry)) error {
	return s.guarded(func() error {
		it, err := snapshot.NewIter(&pebble.IterOptions{
			LowerBound: appendTimeKey(nil, number, kindDue, entry{at: from}),
			UpperBound: appendTimeKey(nil, number, kindDue, entry{at: to}),
		})
		if err != nil {
			return s.drop(snapshot, s.unreadable(err))
		}
		n := 0
		err = walk(it, func(e entry, _ []byte) (bool, error) {
			f(e)
			if n++; n%10_000 == 0 {
				return true, s.interrupted(ctx)
			}
			return true, nil
		})
		if closed := it.Close(); err == nil && closed != nil {
			err = s.unreadable(closed)
		}
		return s.drop(snapshot, err)
	})
}

// interrupted tells why something long is not worth going on with, nil when it is.
func (s *Store) interrupted(ctx context.Context) error {
	select {
	case <-s.closed:
		return store.ErrClosed
	case <-s.failed:
		return s.failure
	default:
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// drop closes a snapshot, if there is one, and passes on err or else what that gives.
func (s *Store) drop(snapshot *pebble.Snapshot, err error) error {
	if snapshot == nil {
		return err
	}
	closed := s.guarded(snapshot.Close)
	if err == nil && closed != nil {
		err = s.unreadable(closed)
	}
	return err
}
