package shard

import (
	"context"
	"errors"
	"time"

	"github.com/laterq/later/store"
)

// Stats implements store.Store. Counts add up. Its clock is the one of the first shard.
func (s *Store) Stats(ctx context.Context, queue string) (store.Stats, error) {
	stats := func(name string) (store.Stats, error) { return s.engine.Stats(ctx, name) }
	return on(ctx, s, queue, func() (store.Stats, error) { return stats(queue) }, func(r *route) (store.Stats, error) {
		each, err := all(ctx, s, r, func(_ int, name string) (store.Stats, error) { return stats(name) })
		if err != nil {
			return store.Stats{}, err
		}
		if !r.SetsFlow && !r.haveShares(each) { // another process may have set limits
			if err := s.unlessChanged(ctx, r, nil); err != nil {
				return store.Stats{}, err
			}
			s.mendShares(ctx, queue)
		}
		return sum(r, each), nil
	})
}

// sum returns the stats of a queue, given the stats of its shards.
func sum(r *route, each []store.Stats) store.Stats {
	all := each[0]
	all.Flow = r.flowState(each)
	if all.Shards = r.To; r.To == 1 {
		all.Shards = 0
	}
	for _, one := range each[1:] {
		all.Scheduled += one.Scheduled
		all.Ready += one.Ready
		all.Leased += one.Leased
		all.Dead += one.Dead
		all.Dropped += one.Dropped
		if !one.NextDue.IsZero() && (all.NextDue.IsZero() || one.NextDue.Before(all.NextDue)) {
			all.NextDue = one.NextDue
		}
	}
	return all
}

// Histogram implements store.Store.
func (s *Store) Histogram(ctx context.Context, queue string, bounds []time.Time) ([]int64, error) {
	count := func(name string) ([]int64, error) { return s.engine.Histogram(ctx, name, bounds) }
	return on(ctx, s, queue, func() ([]int64, error) { return count(queue) }, func(r *route) ([]int64, error) {
		each, err := all(ctx, s, r, func(_ int, name string) ([]int64, error) { return count(name) })
		if err != nil {
			return nil, err
		}
		counts := make([]int64, len(bounds)-1)
		for _, one := range each {
			for i, n := range one {
				counts[i] += n
			}
		}
		return counts, nil
	})
}

// change makes a change on every shard. Two changes at the same time may reach the shards in different orders.
func (s *Store) change(ctx context.Context, queue string, call func(ctx context.Context, name string) error) error {
	return s.with(ctx, queue, func(r *route) error {
		if r == nil {
			return call(ctx, queue)
		}
		for i, name := range r.names {
			if err := call(in(ctx, i), name); err != nil {
				return err
			}
		}
		return nil
	})
}

// SetPaused implements store.Store.
func (s *Store) SetPaused(ctx context.Context, queue string, paused bool) error {
	return s.change(ctx, queue, func(ctx context.Context, name string) error {
		return s.engine.SetPaused(ctx, name, paused)
	})
}

// SetDeadRetention implements store.Store. Each shard keeps as many dead messages as the retention says. The first
// shard checks former.
func (s *Store) SetDeadRetention(
	ctx context.Context, queue string, retention store.Retention, former *store.Retention,
) error {
	return s.change(ctx, queue, func(ctx context.Context, name string) error {
		err := s.engine.SetDeadRetention(ctx, name, retention, former)
		if err == nil {
			former = nil
		}
		return err
	})
}

// bulk makes a bulk call on one shard after the other, until one has more to do. A repetition begins with the first
// shard again, which then has nothing to do.
func (s *Store) bulk(
	ctx context.Context, queue string, sel store.Selection,
	call func(ctx context.Context, name string, sel store.Selection) (store.Bulk, error),
) (total store.Bulk, err error) {
	err = s.with(ctx, queue, func(r *route) error {
		if r == nil {
			total, err = call(ctx, queue, sel)
			return err
		}
		sources, others := r.sources()
		for k, i := range append(sources, others...) {
			if k == len(sources) && k > 0 {
				if err := s.deliverAll(ctx, r, sources); err != nil {
					return err
				}
			}
			done, err := call(in(ctx, r.Generation, i), r.names[i], sel)
			if err != nil {
				return err
			}
			total.Before = done.Before // of the shard that has more to do
			total.Done += done.Done
			total.Resumed = append(total.Resumed, done.Resumed...)
			if done.More {
				total.More = true
				return nil
			}
		}
		return nil
	})
	return total, err
}

// Replay implements store.Store.
func (s *Store) Replay(
	ctx context.Context, queue string, sel store.Selection, due store.Due,
) (store.Bulk, error) {
	return s.bulk(ctx, queue, sel, func(ctx context.Context, name string, sel store.Selection) (store.Bulk, error) {
		return s.engine.Replay(ctx, name, sel, due)
	})
}

// Purge implements store.Store.
func (s *Store) Purge(ctx context.Context, queue string, sel store.Selection) (store.Bulk, error) {
	return s.bulk(ctx, queue, sel, s.engine.Purge)
}

// SetProperties implements store.Store. The first shard has them.
func (s *Store) SetProperties(
	ctx context.Context, queue string, set map[string]string, condition *store.Condition,
) error {
	_, err := one(ctx, s, queue, func(name string) (struct{}, error) {
		return struct{}{}, s.engine.SetProperties(ctx, name, set, condition)
	})
	return err
}

// Properties implements store.Store.
func (s *Store) Properties(ctx context.Context, queue string) (map[string]string, error) {
	return one(ctx, s, queue, func(name string) (map[string]string, error) { return s.engine.Properties(ctx, name) })
}

// PropertiesChanged implements store.Local.
func (s local) PropertiesChanged(queue string) <-chan struct{} {
	return s.engine.(store.Local).PropertiesChanged(queue)
}

// Queues implements store.Store.
func (s *Store) Queues(ctx context.Context, cursor string) (names []string, next string, err error) {
	return s.engine.Queues(ctx, cursor)
}

// SameServer implements store.Placer. A queue is where its first shard is.
func (s *Store) SameServer(ctx context.Context, queue, other string) bool {
	p, ok := s.engine.(store.Placer)
	return !ok || p.SameServer(ctx, queue, other)
}

// Report implements store.Store. The first shard has the activity of a queue.
func (s *Store) Report(ctx context.Context, reports []store.Report) ([]store.ReportResult, error) {
	named := reports
	for i := range reports {
		if r := s.known(reports[i].Queue); r != nil {
			if &named[0] == &reports[0] {
				named = append([]store.Report(nil), reports...)
			}
			named[i].Queue = r.first()
		}
	}
	results, err := s.engine.Report(ctx, named)
	for i := range results {
		if isMoved(results[i].Err) { // for the next report; this one is best effort
			if _, err := s.read(ctx, reports[i].Queue); err != nil {
				return results, err
			}
		}
	}
	return results, err
}

// Watch implements store.Store.
func (s *Store) Watch(ctx context.Context, queues []string) (store.Watcher, error) {
	return s.engine.Watch(ctx, queues)
}

// Activity implements store.Store.
func (s *Store) Activity(ctx context.Context, queue string) (store.Activity, error) {
	return one(ctx, s, queue, func(name string) (store.Activity, error) { return s.engine.Activity(ctx, name) })
}

// Delete implements store.Store.
func (s *Store) Delete(ctx context.Context, queue string) error {
	return s.with(ctx, queue, func(r *route) error {
		if r == nil {
			return s.engine.Delete(ctx, queue)
		}
		d := r.directory
		d.Phase = deleting
		deleted, err := s.setDirectory(ctx, r, &d)
		switch {
		case errors.Is(err, store.ErrConflict): // it was changed meanwhile
			return &store.Moved{Name: queue}
		case err != nil:
			return err
		}
		return s.finishDelete(ctx, deleted)
	})
}
