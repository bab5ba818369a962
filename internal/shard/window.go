package shard

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/laterq/later/store"
)

// In a Fair queue a key must not start messages in two shards, or out of order. So no message starts until the messages
// that are due soon have moved, with the states of all keys. The messages that are due later follow in the order of
// their due times, window by window. Claims end at the end of the last window that has moved; see directory.Until. A
// message moves before it gets an earlier due time; see Reschedule.
const (
	windowMessages = 10_000      // that are in a window, about
	windowAhead    = time.Minute // from the time of the first shard to the end of a window, at least
	windowStep     = time.Second // by which a window becomes longer, at least
)

// moved is the knowledge of a mover about the windows that it has moved.
type moved struct {
	generation string
	until      int64         // end of the last window
	left       map[int]parts // by shard: ids and keys that had to stay
}

// moveWindow moves the messages of the next window, and lets messages be claimed until its end. After the last window
// there is no end.
func (s *Store) moveWindow(ctx context.Context, r *route) (*route, error) {
	sources, _ := r.sources()
	until, err := s.windowEnd(ctx, r, sources)
	if err != nil {
		return r, err
	}
	s.mu.Lock()
	before := s.windows[r.queue]
	s.mu.Unlock()
	next := moved{generation: r.Generation, left: map[int]parts{}}
	keys := staying{busy: map[string]bool{}}
	for _, i := range sources {
		stays := newStay()
		if r.Claims != fromNone && before.generation == r.Generation && before.until == r.Until {
			r, err = s.moveLater(ctx, r, i, until, before.left[i], &stays)
		} else {
			r, err = s.moveDue(ctx, r, i, until, &stays)
		}
		if err == nil {
			err = s.given(ctx, r, r.names[i], &keys.last)
		}
		if err != nil {
			return r, err
		}
		maps.Copy(keys.busy, stays.busy)
		next.left[i] = parts{ids: slices.Collect(maps.Keys(stays.leased)), keys: slices.Collect(maps.Keys(stays.busy))}
	}
	if err := s.openKeys(ctx, r, &keys); err != nil {
		return r, err
	}
	d := r.directory
	if d.Claims == fromNone {
		if d.Claims = fromOld; r.From >= r.To {
			d.Claims = fromAll
		}
	}
	if d.Until = 0; !until.IsZero() {
		d.Until = until.UnixMilli()
	}
	if r, err = s.setDirectory(ctx, r, &d); err != nil {
		return r, err
	}
	next.until = d.Until
	s.mu.Lock()
	if s.windows[r.queue] = next; d.Until == 0 {
		delete(s.windows, r.queue)
	}
	s.mu.Unlock()
	return s.openIfFits(ctx, r)
}

// windowEnd returns the end of the next window, zero if no message is due later.
func (s *Store) windowEnd(ctx context.Context, r *route, sources []int) (time.Time, error) {
	stats, err := s.engine.Stats(ctx, r.first())
	if err != nil {
		return time.Time{}, err
	}
	from := stats.Now.Add(s.ahead).Truncate(time.Millisecond)
	if until := time.UnixMilli(r.Until); from.Before(until) {
		from = until
	}
	bounds := []time.Time{from}
	for step := windowStep; step < 2*store.MaxDelay; step *= 2 {
		bounds = append(bounds, from.Add(step))
	}
	total := make([]int64, len(bounds)-1)
	for _, i := range sources {
		counts, err := s.engine.Histogram(ctx, r.names[i], bounds)
		if err != nil {
			return from, err
		}
		for k, n := range counts {
			total[k] += n
		}
	}
	sum := int64(0)
	for k, n := range total {
		if sum += n; sum > int64(s.window) {
			return bounds[max(1, k)], nil
		}
	}
	return time.Time{}, nil
}

// moveDue moves the messages of a shard that do not belong there and are not leased, unless they are due at a time or
// later, and the states of its keys. It adds to stays what stays.
//
// The states come in an order in which no message is missed that changes its state meanwhile: leased messages may
// change to any other one, a replay makes dead ones scheduled or ready, and time makes scheduled ones ready.
func (s *Store) moveDue(
	ctx context.Context, r *route, shard int, until time.Time, stays *stay,
) (*route, error) {
	name := r.names[shard]
	run, err := s.runOf(ctx, name)
	if err == nil {
		err = s.deliverFrom(ctx, name)
	}
	for _, state := range []store.State{store.StateLeased, store.StateDead, store.StateScheduled, store.StateReady} {
		list := store.ListRequest{State: state}
		if state == store.StateScheduled {
			list.To = until
		}
		if err == nil {
			r, err = s.moveListed(ctx, r, shard, list, stays)
		}
	}
	var keys []string
	for cursor := store.ScanKeys; cursor != "" && err == nil; {
		var page store.Scanned
		page, err = s.engine.Scan(ctx, name, cursor)
		keys, cursor = append(append(keys, page.Keys...), page.Holds...), page.Next
	}
	if err == nil {
		err = s.moveSome(ctx, r, shard, parts{keys: keys}, stays)
	}
	if err == nil { // a parcel that another process took out meanwhile was in no list
		err = s.deliverFrom(ctx, name)
	}
	if err == nil {
		err = s.checkRun(ctx, name, run)
	}
	return r, err
}

// moveLater is moveDue after another window: the shard has no message that is due before its end, and no state of a
// key, but the ones that were left. The messages that belong elsewhere are claimed there since then.
func (s *Store) moveLater(
	ctx context.Context, r *route, shard int, until time.Time, left parts, stays *stay,
) (*route, error) {
	name := r.names[shard]
	run, err := s.runOf(ctx, name)
	if err == nil {
		err = s.deliverFrom(ctx, name)
	}
	if err == nil {
		err = s.moveSome(ctx, r, shard, parts{ids: left.ids}, stays)
	}
	for _, state := range []store.State{store.StateScheduled, store.StateReady} { // ready if the mover is late
		list := store.ListRequest{State: state, From: time.UnixMilli(r.Until), To: until}
		if err == nil {
			r, err = s.moveListed(ctx, r, shard, list, stays)
		}
	}
	if err == nil {
		err = s.moveSome(ctx, r, shard, parts{keys: left.keys}, stays)
	}
	if err == nil { // as in moveDue
		err = s.deliverFrom(ctx, name)
	}
	if err == nil {
		err = s.checkRun(ctx, name, run)
	}
	return r, err
}

// moveListed moves the messages of a list that do not belong in a shard.
func (s *Store) moveListed(
	ctx context.Context, r *route, shard int, list store.ListRequest, stays *stay,
) (_ *route, err error) {
	list.Limit, list.IDsOnly = store.MaxBatch, true
	for {
		if r, err = s.beMover(ctx, r); err != nil {
			return r, err
		}
		began := time.Now()
		page, err := s.engine.List(ctx, r.names[shard], list)
		if err != nil {
			return r, err
		}
		ids := make([]string, len(page.Messages))
		for i := range page.Messages {
			ids[i] = page.Messages[i].ID
		}
		if err := s.moveSome(ctx, r, shard, parts{ids: ids}, stays); err != nil {
			return r, err
		}
		if list.Cursor = page.Next; list.Cursor == "" {
			return r, nil
		}
		if r.Claims != fromNone {
			if err := pause(ctx, time.Since(began)); err != nil { // in which the server executes other calls
				return r, err
			}
		}
	}
}

// moveSome moves ids, or else keys, that do not belong in a shard.
func (s *Store) moveSome(ctx context.Context, r *route, shard int, some parts, stays *stay) error {
	to := map[int]*parts{}
	for _, id := range some.ids {
		if p := s.belongs(r, shard, id, to); p != nil {
			p.ids = append(p.ids, id)
		}
	}
	for _, i := range slices.Sorted(maps.Keys(to)) {
		some, err := s.depart(ctx, r, shard, i, *to[i])
		if err != nil {
			return err
		}
		maps.Copy(stays.leased, some.leased)
		maps.Copy(stays.busy, some.busy)
	}
	keys := map[int][]string{}
	if leavingKeys(r, shard, some.keys, keys) == 0 {
		return nil
	}
	keep := staying{busy: stays.busy}
	return s.moveKeys(ctx, r, shard, keys, &keep)
}
