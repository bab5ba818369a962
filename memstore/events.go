package memstore

import (
	"context"
	"errors"

	"github.com/laterq/later/store"
)

// Report implements store.Store.
func (s *Store) Report(ctx context.Context, reports []store.Report) ([]store.ReportResult, error) {
	results := make([]store.ReportResult, len(reports))
	for i := range reports {
		r := &reports[i]
		_, err := view(ctx, s, r.Queue, func(q *queue, now int64) struct{} {
			if q.exists {
				q.activity.Add(now, r.Counts)
			}
			return struct{}{}
		})
		if _, moved := errors.AsType[*store.Moved](err); moved {
			results[i].Err = err
		} else if err != nil {
			return nil, err
		}
		queue, _, _, _ := store.CutSubQueue(r.Queue)
		results[i].Watchers = s.data.hub.Publish(queue, r.Events, r.Number)
	}
	return results, nil
}

// Watch implements store.Store.
func (s *Store) Watch(ctx context.Context, queues []string) (store.Watcher, error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	return s.data.hub.Watch(queues, s.closed), nil
}

// Activity implements store.Store.
func (s *Store) Activity(ctx context.Context, name string) (store.Activity, error) {
	return view(ctx, s, name, func(q *queue, _ int64) store.Activity {
		a := q.activity.At(s.data.clock.Now())
		a.Exists = q.exists
		return a
	})
}
