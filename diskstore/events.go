package diskstore

import (
	"context"

	"github.com/cockroachdb/pebble/v2"

	"github.com/laterq/later/internal/activity"
	"github.com/laterq/later/store"
)

// The activity of a queue is counted in memory and stored when the store is closed, so counting writes nothing. After a
// crash it is as it was at the last close. Watchers are in this process, which has the directory open.

// Report implements store.Store. Counts that were added since Open are lost in a crash.
func (s *Store) Report(ctx context.Context, reports []store.Report) ([]store.ReportResult, error) {
	results := make([]store.ReportResult, len(reports))
	for i := range reports {
		r := &reports[i]
		results[i].Err = s.update(ctx, r.Queue, how{}, func(t *tx, q *queue) error {
			t.quick = true
			if q.number == 0 || len(r.Counts) == 0 {
				return nil
			}
			ring, err := t.activity(q)
			if err == nil {
				ring.Add(t.now, r.Counts)
				q.counted = true
			}
			return err
		})
		queue, _, _, _ := store.CutSubQueue(r.Queue)
		results[i].Watchers = s.hub.Publish(queue, r.Events, r.Number)
	}
	return results, nil
}

// Watch implements store.Store. It hears all calls, since no other process has the directory open.
func (s *Store) Watch(ctx context.Context, queues []string) (store.Watcher, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.calls.Done()
	return s.hub.Watch(queues, s.closed), nil
}

// Activity implements store.Store.
func (s *Store) Activity(ctx context.Context, name string) (store.Activity, error) {
	return call(ctx, s, name, how{}, func(t *tx, q *queue) (store.Activity, error) {
		t.quick = true
		ring, err := t.activity(q)
		if err != nil {
			return store.Activity{}, err
		}
		a := ring.At(s.clock.Now())
		a.Exists = q.number != 0
		return a, nil
	})
}

// activity returns the counts of a queue, which it reads when they are first used. Unreadable counts are none.
func (t *tx) activity(q *queue) (*activity.Ring, error) {
	if q.activity != nil {
		return q.activity, nil
	}
	ring := activity.Ring{}
	_, err := t.view(appendKey(nil, q.number, kindActivity), func(value []byte) error {
		if stored, err := activity.Parse(string(value)); err == nil {
			ring = stored
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	q.activity = &ring
	return q.activity, nil
}

// storeActivity stores the activity that has changed, after the last call. Nothing depends on its success, and it takes
// no room that is kept for claims and acks.
func (s *Store) storeActivity() {
	t := &tx{reader: reader{s: s, src: s.db}}
	if s.hasFailed() || t.checkRoom() != nil {
		return
	}
	t.batch = s.db.NewBatch()
	defer func() { t.batch.Close() }()
	for _, q := range s.queues {
		if q.damage == nil && q.counted {
			t.value = q.activity.Append(t.value[:0])
			t.set(appendKey(t.key[:0], q.number, kindActivity), t.value)
		}
	}
	if !t.batch.Empty() {
		if err := t.apply(pebble.NoSync); err != nil {
			s.fail(err)
		}
	}
}
