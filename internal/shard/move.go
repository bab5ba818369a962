package shard

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/laterq/later/store"
)

// One process at a time moves the messages of a queue, for as long as the directory says. Other processes would do no
// harm; one of them goes on if the first does not come back. All steps are bounded, and any process may repeat them.
const (
	moverTime     = 30 * time.Second // how long a process is the mover; it renews that in time
	looks         = 6                // of each other process in that time
	minRestPause  = 20 * time.Millisecond
	maxRestPause  = 5 * time.Second // between passes while only leased messages are left
	maxErrorPause = time.Second     // after errors
)

// moveSoon has this process move the messages of a queue, or look whether the change is over, if no other one does.
func (s *Store) moveSoon(r *route) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.stepwise || s.movers[r.queue] {
		return
	}
	s.movers[r.queue] = true
	s.loops.Go(func() {
		s.moveInTurn(r)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.movers, r.queue)
	})
}

// moveInTurn moves messages until the change is over, or this process ends. Then another one goes on soon.
func (s *Store) moveInTurn(r *route) {
	defer s.giveUp(r.queue)
	failures := 0
	for r != nil && r.Phase != settled {
		now := time.Now()
		wait := s.term(r) / looks
		switch {
		case r.Phase != moving: // the next call goes on
			return
		case r.Emptied != 0 && r.Claims != fromAll:
			_, err := s.openIfFits(s.ending, r)
			wait = max(closedAge, s.pauseAfter(r, err, &failures))
		case r.Emptied != 0:
			left, err := s.untilEnd(s.ending, r)
			if wait = left; err == nil && left <= 0 {
				err, wait = s.finish(s.ending, r), 0
			}
			if err != nil {
				wait = s.pauseAfter(r, err, &failures)
			}
		case r.Mover == s.name || time.UnixMilli(r.MovesUntil).Before(now):
			wait = s.pauseAfter(r, s.move(s.ending, r), &failures)
		}
		if pause(s.ending, min(wait, s.turn)) != nil {
			return
		}
		next, err := s.read(s.ending, r.queue)
		if s.ending.Err() != nil {
			return
		}
		if err != nil {
			if pause(s.ending, s.pauseAfter(r, err, &failures)) != nil {
				return
			}
			continue
		}
		r = next
	}
}

// term returns for how long a process is the mover: not for long while no message starts, or none will soon.
func (s *Store) term(r *route) time.Duration {
	if r.Claims == fromNone || r.Until != 0 {
		return s.turn / looks
	}
	return s.turn
}

// giveUp says in the directory that this process, which ends, is not the mover any more.
func (s *Store) giveUp(queue string) {
	if s.ending.Err() == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if r, err := s.read(ctx, queue); err == nil && r != nil && r.Phase == moving && r.Mover == s.name {
		d := r.directory
		d.Mover, d.MovesUntil = "", 0
		_, _ = s.setDirectory(ctx, r, &d) // best effort
	}
}

// pauseAfter returns how long a process waits after a step of a change: longer after each of several failures.
func (s *Store) pauseAfter(r *route, err error, failures *int) time.Duration {
	switch {
	case err == nil:
		*failures = 0
		return 0
	case errors.Is(err, store.ErrConflict) || isMoved(err): // the directory has changed
		return minRestPause
	case s.ending.Err() == nil:
		s.log.Warn("later: a change of the number of shards does not go on now", "queue", r.queue, "error", err)
	}
	wait := min(minRestPause<<*failures, maxErrorPause)
	*failures = min(*failures+1, 10)
	return wait
}

// untilEnd returns how long a change lasts after all messages have moved, by the engine's clock.
func (s *Store) untilEnd(ctx context.Context, r *route) (time.Duration, error) {
	stats, err := s.engine.Stats(ctx, r.first())
	return time.UnixMilli(r.Emptied).Add(max(s.late, r.gathers())).Sub(stats.Now), err
}

// move moves all messages of a queue to where they belong, as the mover. It returns when they are there, or ErrConflict
// when another process has changed the directory.
func (s *Store) move(ctx context.Context, r *route) (err error) {
	for rest := minRestPause; ; rest *= 2 {
		began := time.Now()
		var over bool
		if r, over, err = s.pass(ctx, r); over || err != nil {
			if errors.Is(err, store.ErrUnavailable) {
				_ = pause(ctx, min(4*time.Since(began), maxRestPause)) // the pass has read the other shards too
			}
			return err
		}
		rest = min(rest, max(minRestPause, 4*time.Since(began)), maxRestPause) // a pass reads all ids
		if r.Until != 0 {
			rest = minRestPause
		}
		for end := time.Now().Add(rest); ; {
			if err := pause(ctx, min(closedAge, time.Until(end))); err != nil {
				return err
			}
			if r, err = s.openIfFits(ctx, r); err != nil {
				return err
			}
			if !time.Now().Before(end) {
				break
			}
		}
	}
}

// pass moves all messages that can move now. If none was left at its beginning, it writes so to the directory. In a
// Fair queue the first passes move the messages of one window each.
func (s *Store) pass(ctx context.Context, r *route) (_ *route, over bool, err error) {
	if r, err = s.beMover(ctx, r); err != nil {
		return r, false, err
	}
	if r.Claims == fromNone || r.Until != 0 {
		r, err = s.moveWindow(ctx, r)
		return r, false, err
	}
	over = true
	var failed []error // of shards that do not answer, which do not hold up the others
	sources, others := r.sources()
	keys := newStaying()
	if !r.limits().Fair {
		keys.down, failed = s.down(ctx, r, others)
	}
	for _, i := range sources {
		found, err := s.moveFrom(ctx, &r, i, &keys)
		switch {
		case err == nil:
		case errors.Is(err, store.ErrUnavailable) && !isMoved(err) && ctx.Err() == nil:
			failed = append(failed, err)
		default:
			return r, false, err
		}
		over = over && found == 0
	}
	if failed != nil {
		return r, false, errors.Join(failed...)
	}
	if r.limits().Fair {
		if over {
			err = s.seal(ctx, r, sources, others)
		}
		if err == nil {
			err = s.openKeys(ctx, r, &keys)
		}
		if err != nil {
			return r, false, err
		}
	}
	if r, err = s.openIfFits(ctx, r); err != nil || !over {
		return r, false, err
	}
	stats, err := s.engine.Stats(ctx, r.first())
	if err != nil {
		return r, false, err
	}
	d := r.directory
	d.Emptied = stats.Now.UnixMilli()
	r, err = s.setDirectory(ctx, r, &d)
	return r, true, err
}

// down returns which shards do not answer soon, with their errors. A message that departed there would hold up all
// others that leave its shard.
func (s *Store) down(ctx context.Context, r *route, shards []int) (down map[int]bool, failed []error) {
	errs := make([]error, len(shards))
	asking, cancel := context.WithTimeout(ctx, askAgain)
	defer cancel()
	inParallel(len(shards), func(k int) { _, errs[k] = s.engine.Stats(asking, r.names[shards[k]]) })
	down = map[int]bool{}
	for k, err := range errs {
		if errors.Is(err, store.ErrUnavailable) && !isMoved(err) {
			down[shards[k]], failed = true, append(failed, err)
		}
	}
	return down, failed
}

// beMover has this process be the mover for some time, unless it is that for long enough.
func (s *Store) beMover(ctx context.Context, r *route) (*route, error) {
	now := time.Now()
	if r.Mover == s.name && time.UnixMilli(r.MovesUntil).Sub(now) > s.term(r)/2 {
		return r, nil
	}
	d := r.directory
	d.Mover, d.MovesUntil = s.name, now.Add(s.term(r)).UnixMilli()
	return s.setDirectory(ctx, r, &d)
}

// seal has every new shard refuse calls that are late and expect a key from a former shard, which has none any more: it
// sends a last parcel from there, with a key that no message has.
func (s *Store) seal(ctx context.Context, r *route, sources, others []int) error {
	for _, i := range sources {
		for _, to := range others {
			if _, err := s.depart(ctx, r, i, to, parts{keys: []string{store.NewID()}}); err != nil {
				return err
			}
		}
	}
	return nil
}

// openKeys ends a window or a complete pass over the messages of a queue with keys. From now on the shards that are not
// among sources expect only the keys that are busy: all others have no message in a former shard that could start. The
// sources start no message of an expected key until the end of the change.
func (s *Store) openKeys(ctx context.Context, r *route, keys *staying) error {
	stay := map[int][]string{}
	for key := range keys.busy {
		_, to := r.homeOf(key)
		stay[to] = append(stay[to], key)
	}
	_, others := r.sources()
	for _, i := range others {
		if len(stay[i]) > maxStaying {
			continue // they go on when they have moved
		}
		_, err := s.engine.Expect(ctx, r.names[i], store.Expected{None: true, Keys: stay[i], Last: keys.last})
		if err != nil {
			return err
		}
	}
	return nil
}

// expectNone ends the expectation of all keys in the shards that stay. All their messages have moved.
func (s *Store) expectNone(ctx context.Context, r *route) error {
	for i := 0; i < r.To && r.limits().Fair; i++ {
		if _, err := s.engine.Expect(ctx, r.names[i], store.Expected{None: true}); err != nil {
			return err
		}
	}
	return nil
}

// staying has the ids that are leased and the keys that are busy in their former shards: they stay there.
type staying struct {
	leased, busy map[string]bool
	last         int64        // the last place or fence that one of the shards has given
	down         map[int]bool // shards to which nothing moves now
}

func newStaying() staying { return staying{leased: map[string]bool{}, busy: map[string]bool{}} }

// maxStaying is how many keys a call names that a shard still has to expect.
const maxStaying = 10_000

// parts is the part of a page of a shard that belongs in another shard.
type parts struct{ ids, once, keys []string }

// moveFrom moves the messages that do not belong in a shard. It returns how many ids, keys and leases it found there
// that do not, whether or not they have moved, and adds to keep the keys of messages that stay.
//
// A key moves without messages at the end: then the shard has no message of a key that is not busy. Each one that it
// had when the scan began has moved, or was leased when it was to, and the shard gets no others, because a send goes
// to the new shard.
func (s *Store) moveFrom(ctx context.Context, r **route, shard int, keep *staying) (found int, err error) {
	name := (*r).names[shard]
	err = s.inOneRun(ctx, name, func() error {
		keys := map[int][]string{}
		for cursor := ""; ; {
			if *r, err = s.beMover(ctx, *r); err != nil {
				return err
			}
			began := time.Now()
			page, err := s.engine.Scan(ctx, name, cursor)
			if err != nil {
				return err
			}
			n, err := s.movePage(ctx, *r, shard, &page, keys, keep)
			if found += n; err != nil {
				return err
			}
			if cursor = page.Next; cursor == "" {
				break
			}
			if err := pause(ctx, time.Since(began)); err != nil { // the server executes other calls
				return err
			}
		}
		if (*r).limits().Fair {
			if err := s.moveKeys(ctx, *r, shard, keys, keep); err != nil {
				return err
			}
		}
		// A parcel that another process took out during the scan was in no page, and the process may have stopped since.
		p, err := s.engine.Outbox(ctx, name)
		if p != nil && err == nil {
			found++
		}
		return err
	})
	return found, err
}

// movePage moves the ids and sends of a page that do not belong in a shard, and adds the keys that do not to keys. It
// returns the number of ids, sends, keys and leases that have to leave.
func (s *Store) movePage(
	ctx context.Context, r *route, shard int, page *store.Scanned, keys map[int][]string, keep *staying,
) (found int, err error) {
	if shard >= r.To {
		found += page.Leases // their holders ask which messages were cancelled
	}
	to := map[int]*parts{}
	for _, id := range page.IDs {
		if p := s.belongs(r, shard, id, to); p != nil {
			p.ids = append(p.ids, id)
			found++
		}
	}
	for _, o := range page.Once {
		if p := s.belongs(r, shard, o.ID, to); p != nil {
			p.once = append(p.once, o.Key)
			found++
		}
	}
	found += leavingKeys(r, shard, page.Keys, keys)
	return found, s.moveParts(ctx, r, shard, to, keep)
}

// moveParts moves parts of a shard to others.
func (s *Store) moveParts(ctx context.Context, r *route, shard int, to map[int]*parts, keep *staying) error {
	for _, i := range slices.Sorted(maps.Keys(to)) {
		if keep.down[i] {
			continue
		}
		stays, err := s.depart(ctx, r, shard, i, *to[i])
		if err != nil {
			return err
		}
		maps.Copy(keep.leased, stays.leased)
		maps.Copy(keep.busy, stays.busy)
	}
	return nil
}

// inOneRun moves messages from a shard. It returns an ErrUnavailable if the server of the shard was started again or
// replaced during the move: a failover may then have brought messages back that the move did not read. The last Outbox
// confirms everything that the move read.
func (s *Store) inOneRun(ctx context.Context, name string, move func() error) error {
	run, err := s.runOf(ctx, name)
	if err == nil {
		err = s.deliverFrom(ctx, name)
	}
	if err == nil {
		err = move()
	}
	if err == nil {
		err = s.deliverFrom(ctx, name)
	}
	if err != nil {
		return err
	}
	now, err := s.runOf(ctx, name)
	if err == nil && now != run {
		err = store.Errorf(store.ErrUnavailable, "the server of %q was started again or replaced: its messages are read "+
			"again", name)
	}
	return err
}

// runOf returns the run of the server of a sub-queue; see store.Scanned.
func (s *Store) runOf(ctx context.Context, name string) (string, error) {
	page, err := s.engine.Scan(ctx, name, store.ScanKeys)
	return page.Run, err
}

// leavingKeys adds the keys that do not belong in a shard to the ones of the shards where they do. It returns their
// number.
func leavingKeys(r *route, shard int, names []string, to map[int][]string) (found int) {
	for _, key := range names {
		if at, home := r.homeOf(key); at == shard && home != shard {
			to[home] = append(to[home], key)
			found++
		}
	}
	return found
}

// moveKeys moves keys without messages from a shard, each to the shard where it belongs.
func (s *Store) moveKeys(ctx context.Context, r *route, shard int, keys map[int][]string, keep *staying) error {
	if err := s.given(ctx, r, r.names[shard], &keep.last); err != nil {
		return err
	}
	for _, i := range slices.Sorted(maps.Keys(keys)) {
		idle := slices.DeleteFunc(keys[i], func(key string) bool { return keep.busy[key] })
		if len(idle) == 0 {
			continue
		}
		if err := s.goOnBehind(ctx, r, r.names[i], keep.last); err != nil {
			return err
		}
		stays, err := s.depart(ctx, r, shard, i, parts{keys: idle})
		if err != nil {
			return err
		}
		maps.Copy(keep.busy, stays.busy)
	}
	return nil
}

// belongs returns the parts of the page for the shard where an id belongs, nil if it is there.
func (s *Store) belongs(r *route, shard int, id string, to map[int]*parts) *parts {
	at, home := r.home(id)
	if at == home || home == shard {
		return nil
	}
	if to[home] == nil {
		to[home] = &parts{}
	}
	return to[home]
}
