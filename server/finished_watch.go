package server

import (
	"context"
	"sync"
	"time"
)

// sweepEvery is how often old finished messages are removed, and the lists of queues that were deleted elsewhere.
const sweepEvery = time.Minute

// WatchFinished begins to keep the finished messages that Config.Finished asks for, from the live events of all
// processes. Call it once, after New. It ends with Close. Without queues in Config.Finished it does nothing.
func (s *Server) WatchFinished() {
	if len(s.cfg.Finished.Queues) > 0 {
		s.open.Go(func() { s.finished.run(s.ending, s) })
	}
}

// run follows feeds of the queues until ctx ends.
func (f *finishedLists) run(ctx context.Context, s *Server) {
	var sweeping sync.WaitGroup
	sweeping.Go(func() { f.sweepUntil(ctx, s) })
	defer sweeping.Wait()
	s.followFeeds(ctx, f.watched(), func(feed *feed) { f.follow(ctx, feed) }, func(err error) {
		s.log.Warn("finished messages cannot be kept, since events cannot be watched", "error", err)
	})
}

// follow takes the events of a feed until ctx or the feed ends. It begins with the first one that the feed has.
func (f *finishedLists) follow(ctx context.Context, feed *feed) {
	f.lock(func() {
		if f.since.IsZero() {
			f.since = time.Now()
		}
	})
	if feed.follow(ctx, feed.start(), func(events []recentEvent, missed uint64) {
		if missed > 0 {
			f.lock(func() { f.miss("", missed) })
		}
		for i, now := 0, time.Now(); i < len(events); i++ {
			f.add(&events[i].Event, now)
		}
	}) {
		f.lock(func() { f.miss("", 0) })
	}
}

func (f *finishedLists) lock(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

// sweepUntil sweeps the lists until ctx ends. While the store cannot be read, all queues count as existing.
func (f *finishedLists) sweepUntil(ctx context.Context, s *Server) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		began, existed := time.Now(), map[string]bool{}
		reading, cancel := context.WithTimeout(ctx, overviewTimeout)
		names, err := s.client.Queues(reading)
		cancel()
		for _, name := range names {
			existed[name] = true
		}
		if err != nil {
			began = time.Time{}
		}
		f.sweep(existed, began, time.Now())
	}
}
