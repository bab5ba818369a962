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

// moveWindow moves the messages of the next window, and lets messages be claimed until its end. After the last window
// there is no end.
func (s *Store) moveWindow(ctx context.Context, r *route) (*route, error) {
	sources, _ := r.sources()
	until, err := s.windowEnd(ctx, r, sources)
	if err != nil {
		return r, err
	}
	keys := staying{busy: map[string]bool{}}
	for _, i := range sources {
		if r, err = s.moveDue(ctx, r, i, until, &keys); err != nil {
			return r, err
		}
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
// later, and the states of its keys. It adds to keep the keys of messages that stay.
//
// The states come in an order in which no message is missed that changes its state meanwhile: leased messages may
// change to any other one, a replay makes dead ones scheduled or ready, and time makes scheduled ones ready.
func (s *Store) moveDue(
	ctx context.Context, r *route, shard int, until time.Time, keep *staying,
) (_ *route, err error) {
	name := r.names[shard]
	if err := s.deliverFrom(ctx, name); err != nil {
		return r, err
	}
	for _, state := range []store.State{store.StateLeased, store.StateDead, store.StateScheduled, store.StateReady} {
		list := store.ListRequest{State: state, Limit: store.MaxBatch, IDsOnly: true}
		if state == store.StateScheduled {
			list.To = until
		}
		for more := true; more; more = list.Cursor != "" {
			if r, err = s.beMover(ctx, r); err != nil {
				return r, err
			}
			began := time.Now()
			page, err := s.engine.List(ctx, name, list)
			if err != nil {
				return r, err
			}
			to := map[int]*parts{}
			for i := range page.Messages {
				if p := s.belongs(r, shard, page.Messages[i].ID, to); p != nil {
					p.ids = append(p.ids, page.Messages[i].ID)
				}
			}
			for _, i := range slices.Sorted(maps.Keys(to)) {
				stays, err := s.depart(ctx, r, shard, i, *to[i])
				if err != nil {
					return r, err
				}
				maps.Copy(keep.busy, stays.busy)
			}
			list.Cursor = page.Next
			if r.Claims != fromNone {
				if err := pause(ctx, time.Since(began)); err != nil { // in which the server executes other calls
					return r, err
				}
			}
		}
	}
	keys := map[int][]string{}
	for cursor := store.ScanKeys; cursor != ""; {
		page, err := s.engine.Scan(ctx, name, cursor)
		if err != nil {
			return r, err
		}
		leavingKeys(r, shard, append(page.Keys, page.Holds...), keys)
		cursor = page.Next
	}
	if err := s.moveKeys(ctx, r, shard, keys, keep); err != nil {
		return r, err
	}
	// A parcel that another process took out meanwhile was in no list. This call also confirms that the lists are
	// complete: a failover brings no message back that was rescheduled before.
	return r, s.deliverFrom(ctx, name)
}
