package shard

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/laterq/later/store"
)

// The limits of a queue are in its directory. Each shard has the limits of keys as they are, because all messages of a
// key are in one shard, and a share of the limits of the queue. The shares add up to the limits. While the number of
// shards changes, each of the larger number has one.

// claims names the shards that messages may be claimed from while the number of shards changes.
type claims string

const (
	fromAll  claims = ""
	fromOld  claims = "old"  // until the messages that are leased there fit the smaller shares
	fromNone claims = "none" // until the messages of each key are in one shard
)

// share returns the share of a shard in the limits of a queue with n shards.
func share(f store.Flow, shard, n int) store.Flow {
	part := func(total int) int {
		if shard < total%n {
			return total/n + 1
		}
		return total / n
	}
	f = f.Normal()
	f.Concurrency, f.Rate.N, f.Rate.Burst = part(f.Concurrency), part(f.Rate.N), part(f.Rate.Burst)
	return f
}

// checkFlow returns an ErrInvalid unless a queue with n shards can have the limits.
func checkFlow(queue string, f store.Flow, n int) error {
	for _, limit := range []struct {
		field, name string
		value       int
	}{
		{"concurrency", "concurrency", f.Concurrency},
		{"rate.n", "rate", f.Rate.N},
		{"rate.burst", "burst of the rate", f.Normal().Rate.Burst},
	} {
		if limit.value > 0 && limit.value < n {
			return store.Field(limit.field, store.Invalid("%s of queue %q is %d, and %d shards share it: raise it to at least "+
				"%d, or have fewer shards", limit.name, queue, limit.value, n, n))
		}
	}
	for i := range n {
		if err := share(f, i, n).Check(); err != nil {
			return err
		}
	}
	return nil
}

// checkShards is checkFlow for a change of the number of shards.
func checkShards(queue string, f store.Flow, n int) error {
	if err := checkFlow(queue, f, n); err != nil {
		return store.Field("shards", store.Invalid("%s", err))
	}
	return nil
}

// limits returns the limits of a queue.
func (d *directory) limits() store.Flow {
	if d.Flow == nil {
		return store.Flow{}
	}
	return d.Flow.Normal()
}

// closed reports whether no message is claimed from a shard.
func (r *route) closed(shard int) bool {
	return r.Claims == fromNone || r.Claims == fromOld && shard >= r.From
}

// open returns the shards that messages are claimed from.
func (r *route) open() (shards []int) {
	for i := range r.names {
		if !r.closed(i) {
			shards = append(shards, i)
		}
	}
	return shards
}

// SetFlow implements store.Store. The directory gets the limits, then each shard its share. A process that finds the
// directory in between goes on.
func (s *Store) SetFlow(ctx context.Context, queue string, f store.Flow, former *store.Flow) error {
	if err := store.CheckFlow(queue, f); err != nil {
		return err
	}
	written := false
	return s.with(ctx, queue, func(r *route) error {
		switch {
		case written && r == nil: // the queue got its name back when the limits were in force, or was deleted
			return nil
		case written: // and something changed while the shares were set
			return s.shareOut(ctx, r)
		case r == nil:
			return s.engine.SetFlow(ctx, queue, f, former)
		}
		r, err := s.fresh(ctx, r) // another process may have set limits, which no call tells
		switch {
		case err != nil:
			return err
		case former != nil && former.Normal() != r.limits():
			return store.ErrConflict
		case f.Normal() == r.limits():
			return s.setShares(ctx, r) // as another process has begun
		}
		if err := checkFlow(queue, f, len(r.names)); err != nil {
			return err
		}
		if r.Phase == moving && r.Emptied == 0 {
			return store.Errorf(store.ErrUnavailable, "queue %q changes from %d to %d shards: set its limits when its "+
				"messages have moved", r.queue, r.From, r.To)
		}
		d := r.directory
		d.SetsFlow, d.Flow = true, nil
		if f = f.Normal(); f.Limited() {
			d.Flow = &f
		}
		set, err := s.setDirectory(ctx, r, &d)
		switch {
		case errors.Is(err, store.ErrConflict): // it was changed meanwhile
			return &store.Moved{Name: queue}
		case err != nil:
			return err
		}
		written = true
		return s.setShares(ctx, set)
	})
}

// fresh reads the directory of a queue again. It returns a *store.Moved if something has to be done before other calls.
func (s *Store) fresh(ctx context.Context, r *route) (*route, error) {
	queue := r.queue
	r, err := s.read(ctx, queue)
	if err == nil && (r == nil || r.Phase == preparing || r.Phase == deleting) {
		err = &store.Moved{Name: queue}
	}
	return r, err
}

// setShares sets the shares of all shards after a change of the limits.
func (s *Store) setShares(ctx context.Context, r *route) error {
	if !r.SetsFlow {
		return nil
	}
	return s.shareOut(ctx, r)
}

// shareOut sets the shares of all shards, and writes to the directory that they are set.
//
// Another process may change the limits, or the number of shards, at the same time. Then this one may have set a share
// from before, so it sets all shares again as they are to be now.
func (s *Store) shareOut(ctx context.Context, r *route) error {
	for {
		err := s.applyShares(ctx, r)
		if err == nil && r.SetsFlow {
			d := r.directory
			d.SetsFlow = false
			_, err = s.setDirectory(ctx, r, &d)
		}
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
		if r, err = s.fresh(ctx, r); err != nil {
			return err
		}
	}
}

// applyShares sets the shares that a process knows. It returns ErrConflict if the directory has changed, perhaps while
// it set the last one.
func (s *Store) applyShares(ctx context.Context, r *route) error {
	for i := range r.names {
		if err := s.setShare(ctx, r, i, len(r.names)); err != nil {
			return err
		}
	}
	return s.unchanged(ctx, r)
}

// mendShares sets the shares of a queue whose limits no process sets now, if one differs: a failover has undone it, or
// a process that has died since then has set an old one too late.
func (s *Store) mendShares(ctx context.Context, queue string) {
	r := s.known(queue)
	if r == nil || r.Phase == preparing || r.Phase == deleting {
		return
	}
	err := s.applyShares(ctx, r)
	if err != nil && !errors.Is(err, store.ErrConflict) && !isMoved(err) && ctx.Err() == nil {
		s.log.Warn("later: a shard does not have its share of the limits", "queue", queue, "error", err)
	}
}

// unchanged returns ErrConflict if another process has changed the directory.
func (s *Store) unchanged(ctx context.Context, r *route) error {
	sign, err := s.engine.Sign(ctx, r.queue)
	if err == nil && sign != r.text {
		err = store.ErrConflict
	}
	return err
}

// setShare sets the share of a shard of n, unless it has that. It changes nothing if another process has changed the
// directory or, since then, the share.
func (s *Store) setShare(ctx context.Context, r *route, shard, n int) error {
	stats, err := s.engine.Stats(ctx, r.names[shard])
	if moved, ok := errors.AsType[*store.Moved](err); ok && moved.Sign == "" {
		return s.createAgain(ctx, r, moved.Name)
	}
	if err != nil {
		return err
	}
	now, to := stats.Flow.Flow, share(r.limits(), shard, n)
	if now == to {
		return nil
	}
	if err := s.unchanged(ctx, r); err != nil {
		return err
	}
	err = s.engine.SetFlow(in(ctx, "share", shard, digest(now.Version()+to.Version())), r.names[shard], to, &now)
	if errors.Is(err, store.ErrConflict) {
		return nil
	}
	return err
}

// gathers returns how long the bursts of the shards that go take to gather. The other shards get these bursts that long
// after the last messages have moved: sooner, the queue would start more messages than its rate allows.
func (r *route) gathers() (longest time.Duration) {
	for i := r.To; i < r.From && r.limits().Rate.N > 0; i++ {
		rate := share(r.limits(), i, r.From).Rate
		longest = max(longest, time.Duration(float64(rate.Per)/float64(rate.N)*float64(rate.Burst)))
	}
	return longest
}

// fits reports whether the messages that are leased in the shards before a change are no more than their shares allow.
func (s *Store) fits(ctx context.Context, r *route) (bool, error) {
	if r.limits().Concurrency == 0 {
		return true, nil
	}
	for i := range min(r.From, len(r.names)) {
		stats, err := s.engine.Stats(ctx, r.names[i])
		if err != nil || stats.Flow.Leased > share(r.limits(), i, len(r.names)).Concurrency {
			return false, err
		}
	}
	return true, nil
}

// openIfFits lets messages be claimed from the shards that are new, once the messages leased in the others fit.
func (s *Store) openIfFits(ctx context.Context, r *route) (*route, error) {
	if r.Claims != fromOld {
		return r, nil
	}
	fits, err := s.fits(ctx, r)
	if err != nil || !fits {
		return r, err
	}
	d := r.directory
	d.Claims = fromAll
	return s.setDirectory(ctx, r, &d)
}

// given sets last to the last place or fence that a shard has given to a message, if that is larger. Only the keys of a
// queue with an order have places and fences.
func (s *Store) given(ctx context.Context, r *route, name string, last *int64) error {
	if r.limits().Key.Order == store.OrderNone {
		return nil
	}
	given, err := s.engine.Expect(ctx, name, store.Expected{})
	*last = max(*last, given)
	return err
}

// goOnBehind has a shard give places and fences larger than last.
func (s *Store) goOnBehind(ctx context.Context, r *route, name string, last int64) error {
	if r.limits().Key.Order == store.OrderNone {
		return nil
	}
	_, err := s.engine.Expect(ctx, name, store.Expected{Last: last})
	return err
}

// haveShares reports whether the shards have the shares that this process knows.
func (r *route) haveShares(each []store.Stats) bool {
	for i := range each {
		if each[i].Flow.Flow != share(r.limits(), i, len(each)) {
			return false
		}
	}
	return true
}

// flowState returns the limits of a queue with the state of its shards.
func (r *route) flowState(each []store.Stats) (state store.FlowState) {
	if !r.limits().Limited() {
		return state
	}
	state = each[0].Flow
	state.Flow = r.limits()
	for _, one := range each[1:] {
		state.Leased += one.Flow.Leased
		if one.Flow.Next.Before(state.Next) {
			state.Next = one.Flow.Next
		}
		k := one.Flow.Keys
		state.Keys.Waiting += k.Waiting
		state.Keys.Full += k.Full
		state.Keys.Resting += k.Resting
		state.Keys.Halted += k.Halted
	}
	return state
}

// homeOf returns the shard that knows a key, and where it belongs.
func (r *route) homeOf(key string) (at, to int) { return r.home(key + "/") }

// SetKeyFlow implements store.Store.
func (s *Store) SetKeyFlow(ctx context.Context, queue, key string, o store.KeyOverride) error {
	if err := store.CheckKeyFlow(queue, key, o); err != nil {
		return err
	}
	return s.with(ctx, queue, func(r *route) (err error) {
		if r == nil {
			return s.engine.SetKeyFlow(ctx, queue, key, o)
		}
		switch concurrency := o.Concurrency; {
		case !r.limits().Fair:
			return s.unlessChanged(ctx, r, store.NotFair(queue))
		case r.limits().Key.Order != store.OrderNone && concurrency != nil && *concurrency != 1:
			return s.unlessChanged(ctx, r, store.OneOfOrder(queue, *concurrency))
		}
		at, to := r.homeOf(key)
		if at != to && r.Emptied == 0 { // as far as this process knows
			if r, err = s.fresh(ctx, r); err != nil {
				return err
			}
			if r.Emptied == 0 {
				return store.Errorf(store.ErrUnavailable, "queue %q changes from %d to %d shards: set the limits of key %q when "+
					"its messages have moved", queue, r.From, r.To, key)
			}
		}
		err = s.engine.SetKeyFlow(ctx, r.names[to], key, o)
		if errors.Is(err, store.ErrInvalid) { // with the name of the sub-queue
			err = store.TooManyKeyFlows(queue)
		}
		return err
	})
}

// ResumeKey implements store.Store.
func (s *Store) ResumeKey(ctx context.Context, queue, key string) error {
	if err := store.CheckResume(queue, key); err != nil {
		return err
	}
	return s.with(ctx, queue, func(r *route) error {
		if r == nil {
			return s.engine.ResumeKey(ctx, queue, key)
		}
		resume := func(i int) error { return s.engine.ResumeKey(in(ctx, i), r.names[i], key) }
		at, to := r.homeOf(key)
		err := resume(at)
		if at != to && errors.Is(err, store.ErrNotFound) {
			if err = s.deliverFrom(ctx, r.names[at]); err == nil {
				err = resume(to)
			}
		}
		for i := 0; i < len(r.names) && errors.Is(err, store.ErrNotFound); i++ { // a relayed message may hold it there
			err = resume(i)
		}
		return err
	})
}

// Keys implements store.Store.
func (s *Store) Keys(ctx context.Context, queue string, req store.KeysRequest) ([]store.KeyState, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	keys := func(name string) ([]store.KeyState, error) { return s.engine.Keys(ctx, name, req) }
	return on(ctx, s, queue, func() ([]store.KeyState, error) { return keys(queue) },
		func(r *route) ([]store.KeyState, error) {
			each, err := all(ctx, s, r, func(i int, name string) ([]store.KeyState, error) {
				keys, err := keys(name)
				if at, to := r.homeOf(req.Key); req.Key != "" && i != at && i != to && !isMoved(err) &&
					errors.Is(err, store.ErrUnavailable) {
					err = nil // it can only have relayed messages of the key
				}
				return keys, err
			})
			if err != nil {
				return nil, err
			}
			return mergeKeys(each, req.Limit), nil
		})
}

// mergeKeys returns a page of the keys of all shards, up to a limit besides messages without a key.
func mergeKeys(each [][]store.KeyState, limit int) (page []store.KeyState) {
	all := slices.Concat(each...)
	slices.SortStableFunc(all, func(a, b store.KeyState) int { return strings.Compare(a.Key, b.Key) })
	for _, k := range all {
		last := len(page) - 1
		switch {
		case last >= 0 && page[last].Key == k.Key:
			page[last] = both(page[last], k)
		case k.Key != "" && limit == 0:
			return page
		default:
			if page = append(page, k); k.Key != "" {
				limit--
			}
		}
	}
	return page
}

// both returns the state of a key that two shards know.
func both(a, b store.KeyState) store.KeyState {
	a.Waiting += b.Waiting
	a.Leased += b.Leased
	if a.Since.IsZero() || !b.Since.IsZero() && b.Since.Before(a.Since) {
		a.Since = b.Since
	}
	if a.Holder == "" {
		a.Holder, a.Held, a.Halted = b.Holder, b.Held, b.Halted
	}
	if a.Override == nil {
		a.KeyFlow, a.Override = b.KeyFlow, b.Override
	}
	if b.Next.After(a.Next) {
		a.Next = b.Next
	}
	return a
}
