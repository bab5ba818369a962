package shard

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/laterq/later/store"
)

// place is where the id of an item may be.
type place struct{ at, to int }

// leaves reports whether the id may have to move.
func (p place) leaves() bool { return p.at != p.to }

// groups sorts items, given by their positions, by the place of their ids.
func groups(r *route, items []int, id func(i int) string) map[place][]int {
	by := map[place][]int{}
	for _, i := range items {
		at, to := r.home(id(i))
		by[place{at, to}] = append(by[place{at, to}], i)
	}
	return by
}

// partly collects the items of a call that failed because their shards do not answer, while others do.
type partly struct {
	n    int
	fail func(i int, err error) // writes the result of an item; nil if a result cannot have an error
	mu   sync.Mutex
	left []int // items to be sent to other shards
	lost []int
	errs []error
}

// failed records why some items are not done, and returns the error of the whole call, nil if it goes on.
func (p *partly) failed(items []int, err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil || p.fail == nil || isMoved(err) || !errors.Is(err, store.ErrUnavailable) {
		p.left = append(p.left, items...)
		return err
	}
	for _, i := range items {
		p.fail(i, err)
	}
	p.lost, p.errs = append(p.lost, items...), append(p.errs, err)
	return nil
}

// end returns the error of a call: its own, or that of all its items.
func (p *partly) end(err error) error {
	if err == nil && len(p.lost) == p.n {
		return errors.Join(p.errs...)
	}
	return err
}

// items makes a call that has items with ids, which go to different shards. sharded gets some of them, with a context
// for them, and returns which of them are not done, with the error. fail, unless it is nil, takes the error of an item
// whose shard does not answer while others do.
func (s *Store) items(
	ctx context.Context, queue string, n int, id func(i int) string, fail func(i int, err error),
	plain func(items []int) error,
	sharded func(ctx context.Context, r *route, p place, items []int) (left []int, err error),
) error {
	round := 0
	left := upTo(n)
	some := &partly{n: n, fail: fail}
	return some.end(s.with(ctx, queue, func(r *route) (err error) {
		if r == nil {
			return plain(left)
		}
		round++
		left, err = eachPart(groups(r, left, id), some, func(p place, items []int) ([]int, error) {
			return sharded(in(ctx, r.Generation, r.Phase, round, p.at, p.to), r, p, items)
		})
		return err
	}))
}

// eachPart calls do at the same time for the items of each part of a call, such as a shard. do returns which of its
// items are not done, with the error. eachPart returns the items that are to be sent to other shards.
func eachPart[K comparable](
	by map[K][]int, some *partly, do func(part K, items []int) (rest []int, err error),
) (left []int, err error) {
	parts := slices.Collect(maps.Keys(by))
	errs := make([]error, len(parts))
	some.left = nil
	inParallel(len(parts), func(k int) {
		if rest, err := do(parts[k], by[parts[k]]); err != nil {
			errs[k] = some.failed(rest, err)
		}
	})
	slices.Sort(some.left)
	return some.left, errors.Join(errs...)
}

// upTo returns the positions of n items.
func upTo(n int) []int {
	items := make([]int, n)
	for i := range items {
		items[i] = i
	}
	return items
}

// scatter sets the results of items, given by their positions.
func scatter[T any](results []T, items []int, got []T) {
	for k := range got {
		results[items[k]] = got[k]
	}
}

// byID makes a call on ids. The call changes nothing for an id that the shard does not have.
func byID[T any](
	ctx context.Context, s *Store, queue string, n int, id func(i int) string,
	call func(ctx context.Context, name string, items []int) ([]T, error), missing func(T) bool,
	failed func(err error) T,
) ([]T, error) {
	var none T
	return byMovedID(ctx, s, queue, n, id, call, missing, failed, func(*route) bool { return false }, none)
}

// byMovedID is byID, but if moves says so for the route, it moves messages that leave their shard first. leased is the
// result for a message that is leased there.
func byMovedID[T any](
	ctx context.Context, s *Store, queue string, n int, id func(i int) string,
	call func(ctx context.Context, name string, items []int) ([]T, error), missing func(T) bool,
	failed func(err error) T, moves func(r *route) bool, leased T,
) ([]T, error) {
	if s.known(queue) == nil { // the common case
		if results, err := call(ctx, queue, nil); !isMoved(err) {
			return results, err
		}
	}
	results := make([]T, n)
	some := func(ctx context.Context, name string, items []int) error {
		got, err := call(ctx, name, items)
		scatter(results, items, got)
		return err
	}
	var fail func(i int, err error)
	if failed != nil {
		fail = func(i int, err error) { results[i] = failed(err) }
	}
	err := s.items(ctx, queue, n, id, fail,
		func(items []int) error { return some(ctx, queue, items) },
		func(ctx context.Context, r *route, p place, items []int) ([]int, error) {
			if p.leaves() && moves(r) {
				moved, err := s.departFirst(ctx, r, p, items, id, func(i int) { results[i] = leased })
				if len(moved) == 0 || err != nil {
					return moved, err
				}
				return moved, some(in(ctx, "moved", digest(moved)), r.names[p.to], moved)
			}
			err := some(ctx, r.names[p.at], items)
			if err != nil || !p.leaves() {
				return items, err
			}
			var left []int
			for _, i := range items {
				if missing(results[i]) {
					left = append(left, i)
				}
			}
			if len(left) == 0 {
				return nil, nil
			}
			if err := s.deliverFrom(ctx, r.names[p.at]); err != nil {
				return left, err
			}
			return left, some(in(ctx, "new"), r.names[p.to], left)
		})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// departFirst moves the messages of items from their former shard, and returns the items that are not leased there. It
// calls isLeased for the others.
func (s *Store) departFirst(
	ctx context.Context, r *route, p place, items []int, id func(i int) string, isLeased func(i int),
) (others []int, err error) {
	ids := make([]string, len(items))
	for k, i := range items {
		ids[k] = id(i)
	}
	stays, err := s.depart(ctx, r, p.at, p.to, parts{ids: ids})
	if err != nil {
		return items, err
	}
	for k, i := range items {
		if stays.leased[ids[k]] {
			isLeased(i)
		} else {
			others = append(others, i)
		}
	}
	return others, nil
}

// isMoved reports whether a call was made for a wrong sub-queue.
func isMoved(err error) bool {
	_, moved := errors.AsType[*store.Moved](err)
	return moved
}

// pick returns some items of a list, given by their positions in order; nil stands for all.
func pick[T any](list []T, items []int) []T {
	if items == nil || len(items) == len(list) {
		return list
	}
	picked := make([]T, len(items))
	for k, i := range items {
		picked[k] = list[i]
	}
	return picked
}

func at(ids []string) func(i int) string { return func(i int) string { return ids[i] } }

// Cancel implements store.Store.
func (s *Store) Cancel(ctx context.Context, queue string, req store.CancelRequest) ([]store.CancelResult, error) {
	return byID(ctx, s, queue, len(req.IDs), at(req.IDs),
		func(ctx context.Context, name string, items []int) ([]store.CancelResult, error) {
			some := req
			some.IDs = pick(req.IDs, items)
			return s.engine.Cancel(ctx, name, some)
		},
		func(r store.CancelResult) bool { return errors.Is(r.Err, store.ErrNotFound) },
		func(err error) store.CancelResult { return store.CancelResult{Err: err} })
}

// Reschedule implements store.Store.
func (s *Store) Reschedule(ctx context.Context, queue string, ids []string, due store.Due) ([]error, error) {
	return byMovedID(ctx, s, queue, len(ids), at(ids),
		func(ctx context.Context, name string, items []int) ([]error, error) {
			return s.engine.Reschedule(ctx, name, pick(ids, items), due)
		},
		func(err error) bool { return errors.Is(err, store.ErrNotFound) },
		func(err error) error { return err }, func(r *route) bool { return r.limits().Fair }, error(store.ErrLeased))
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, queue string, ids []string) ([]*store.Info, error) {
	return byID(ctx, s, queue, len(ids), at(ids),
		func(ctx context.Context, name string, items []int) ([]*store.Info, error) {
			return s.engine.Get(ctx, name, pick(ids, items))
		},
		func(info *store.Info) bool { return info == nil }, nil)
}

// Remove implements store.Store.
func (s *Store) Remove(ctx context.Context, queue string, msgs []store.Info) ([]bool, error) {
	return byID(ctx, s, queue, len(msgs), func(i int) string { return msgs[i].ID },
		func(ctx context.Context, name string, items []int) ([]bool, error) {
			return s.engine.Remove(ctx, name, pick(msgs, items))
		},
		func(removed bool) bool { return !removed }, nil)
}
