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

// windows is the knowledge of a mover about the windows that it has moved.
type windows struct {
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
	if r.Claims == fromNone || before.generation != r.Generation || before.until != r.Until {
		before = windows{} // another process has moved the last window, if any
	}
	next := windows{generation: r.Generation, left: map[int]parts{}}
	keys := newStaying()
	for _, i := range sources {
		keep := newStaying()
		if r, err = s.moveDue(ctx, r, i, until, before, &keep); err != nil {
			return r, err
		}
		maps.Copy(keys.busy, keep.busy)
		keys.last = max(keys.last, keep.last)
		next.left[i] = parts{ids: slices.Collect(maps.Keys(keep.leased)), keys: slices.Collect(maps.Keys(keep.busy))}
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
// later, and the states of its keys. It adds the ids and keys that stay to keep.
//
// If this process has moved the window before, the messages that are due before its end, and the states of keys, are
// gone, but for the ones that were left: messages that belong elsewhere are claimed there since then. Otherwise each
// list may miss messages that change their state before the next one, so the states are in an order in which they do
// not: leased messages may change to any other state, a replay makes dead ones scheduled or ready, and time makes
// scheduled ones ready.
func (s *Store) moveDue(
	ctx context.Context, r *route, shard int, until time.Time, before windows, keep *staying,
) (*route, error) {
	name, left := r.names[shard], before.left[shard]
	from := time.UnixMilli(before.until)
	lists := []store.ListRequest{
		{State: store.StateScheduled, From: from, To: until}, {State: store.StateReady, From: from, To: until},
	}
	if before.left == nil {
		lists = []store.ListRequest{
			{State: store.StateLeased}, {State: store.StateDead}, {State: store.StateScheduled, To: until},
			{State: store.StateReady},
		}
	}
	err := s.inOneRun(ctx, name, func() (err error) {
		if err := s.moveIDs(ctx, r, shard, left.ids, keep); err != nil {
			return err
		}
		for _, list := range lists {
			if r, err = s.moveListed(ctx, r, shard, list, keep); err != nil {
				return err
			}
		}
		names := left.keys
		for cursor := store.ScanKeys; before.left == nil && cursor != ""; {
			page, err := s.engine.Scan(ctx, name, cursor)
			if err != nil {
				return err
			}
			names, cursor = append(append(names, page.Keys...), page.Holds...), page.Next
		}
		keys := map[int][]string{}
		leavingKeys(r, shard, names, keys)
		return s.moveKeys(ctx, r, shard, keys, keep)
	})
	return r, err
}

// moveListed moves the messages of a list that do not belong in a shard.
func (s *Store) moveListed(
	ctx context.Context, r *route, shard int, list store.ListRequest, keep *staying,
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
		if err := s.moveIDs(ctx, r, shard, ids, keep); err != nil {
			return r, err
		}
		if list.Cursor = page.Next; list.Cursor == "" {
			return r, nil
		}
		if r.Claims != fromNone {
			if err := pause(ctx, time.Since(began)); err != nil { // as in moveFrom
				return r, err
			}
		}
	}
}

// moveIDs moves the ids that do not belong in a shard.
func (s *Store) moveIDs(ctx context.Context, r *route, shard int, ids []string, keep *staying) error {
	to := map[int]*parts{}
	for _, id := range ids {
		if p := s.belongs(r, shard, id, to); p != nil {
			p.ids = append(p.ids, id)
		}
	}
	return s.moveParts(ctx, r, shard, to, keep)
}
