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
	moverTime     = 30 * time.Second // for which a process is the mover; it renews that in time
	looks         = 6                // of each other process in that time
	minRestPause  = 20 * time.Millisecond
	maxRestPause  = 5 * time.Second // between passes while only leased messages are left
	maxErrorPause = time.Second     // after errors
)

// moveSoon has this process move the messages of a queue, or look whether the change is over, if no other one does.
func (s *Store) moveSoon(r *route) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.movers[r.queue] {
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

// moveInTurn moves messages until the change is over.
func (s *Store) moveInTurn(r *route) {
	failures := 0
	for r != nil && r.Phase != settled {
		now := time.Now()
		wait := s.turn / looks
		switch {
		case r.Phase != moving: // a call does what is to be done
			return
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
	return time.UnixMilli(r.Emptied).Add(s.late).Sub(stats.Now), err
}

// move moves all messages of a queue to where they belong, as the mover. It returns when they are there, or ErrConflict
// when another process has changed the directory.
func (s *Store) move(ctx context.Context, r *route) (err error) {
	for rest := minRestPause; ; rest *= 2 {
		began := time.Now()
		var over bool
		if r, over, err = s.pass(ctx, r); over || err != nil {
			if errors.Is(err, store.ErrUnavailable) {
				_ = pause(ctx, min(4*time.Since(began), maxRestPause)) // what other shards have was read too
			}
			return err
		}
		rest = min(rest, max(minRestPause, 4*time.Since(began)), maxRestPause) // a pass reads all ids
		if err := pause(ctx, rest); err != nil {
			return err
		}
	}
}

// pass moves what can move now. If nothing was left to move at its beginning, it writes so to the directory.
func (s *Store) pass(ctx context.Context, r *route) (_ *route, over bool, err error) {
	if r, err = s.beMover(ctx, r); err != nil {
		return r, false, err
	}
	over = true
	var failed []error // of shards that do not answer, which do not hold up the others
	sources, _ := r.sources()
	for _, i := range sources {
		found, err := s.moveFrom(ctx, &r, i)
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
	if !over {
		return r, false, nil
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

// beMover has this process be the mover for some time, unless it is that for long enough.
func (s *Store) beMover(ctx context.Context, r *route) (*route, error) {
	now := time.Now()
	if r.Mover == s.name && time.UnixMilli(r.MovesUntil).Sub(now) > s.turn/2 {
		return r, nil
	}
	d := r.directory
	d.Mover, d.MovesUntil = s.name, now.Add(s.turn).UnixMilli()
	own, err := s.setDirectory(ctx, r, &d)
	if err != nil {
		return r, err
	}
	return own, nil
}

// parts is what a page of a shard has for another shard.
type parts struct{ ids, once []string }

// moveFrom moves what does not belong in a shard. It returns how many ids, keys and leases it found there that do not,
// whether or not they have moved.
func (s *Store) moveFrom(ctx context.Context, r **route, shard int) (found int, err error) {
	name := (*r).names[shard]
	if err := s.deliverFrom(ctx, name); err != nil {
		return 0, err
	}
	for cursor := ""; ; {
		if *r, err = s.beMover(ctx, *r); err != nil {
			return found, err
		}
		page, err := s.engine.Scan(ctx, name, cursor)
		if err != nil {
			return found, err
		}
		if shard >= (*r).To {
			found += page.Leases // their holders ask which messages were cancelled
		}
		to := map[int]*parts{}
		for _, id := range page.IDs {
			if p := s.belongs(*r, shard, id, to); p != nil {
				p.ids = append(p.ids, id)
				found++
			}
		}
		for _, o := range page.Once {
			if p := s.belongs(*r, shard, o.ID, to); p != nil {
				p.once = append(p.once, o.Key)
				found++
			}
		}
		for _, i := range slices.Sorted(maps.Keys(to)) {
			p := to[i]
			if _, _, err := s.depart(ctx, *r, shard, i, p.ids, p.once); err != nil {
				return found, err
			}
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	// What another process took out during the scan was in no page, and the process may have stopped since.
	p, err := s.engine.Outbox(ctx, name)
	if p != nil && err == nil {
		found++
		err = s.deliver(ctx, p)
	}
	return found, err
}

// belongs returns the parts of the page for the shard in which an id belongs, nil if it is there.
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
