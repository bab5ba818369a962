package shard

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laterq/later/store"
)

// consumer is the knowledge of this process about the shards of a queue that it uses.
type consumer struct {
	mu     sync.Mutex
	shards map[string]*knowledge // by the name of the sub-queue
	// told is set by a Wait: for the claim that follows by then only the shards that have ended it have something.
	told time.Time
	now  time.Time // of the engine, at the last claim
	at   time.Time // when that was
	// missed has the messages that died and were dropped by claims without a caller. The next Claim reports them.
	missed store.Claim
}

// knowledge is the knowledge about one shard.
type knowledge struct {
	hot bool // a claim may find something
	// bound is a time before which no message of the shard is due, as far as that is known: for a hot shard when the
	// last message was due that was claimed, else when a claim found nothing.
	bound time.Time
	// up is set while its server does not answer, or may not. A goroutine asks it until it does, and then closes up.
	up chan struct{}
	// down is closed once it is certain that the server does not answer. It is nil if up is.
	down chan struct{}
}

// coldFor is how much later than the next message of a hot shard one of a shard may be due in which a claim has found
// nothing. Without it, claims would ask all shards whenever a process just keeps up.
const coldFor = 10 * time.Millisecond

func (s *Store) consumer(queue string) *consumer {
	c, ok := s.consumers.Load(queue)
	if !ok {
		c, _ = s.consumers.LoadOrStore(queue, &consumer{shards: map[string]*knowledge{}})
	}
	return c.(*consumer)
}

// of returns the knowledge about a shard. The lock is held.
func (c *consumer) of(name string) *knowledge {
	k := c.shards[name]
	if k == nil {
		k = &knowledge{hot: true}
		c.shards[name] = k
	}
	return k
}

// next returns the shard to claim from, among the shards that were not tried: the one with the earliest message, as far
// as that is known. It is marked as one that has nothing. If a Wait has told which shards have something, others are
// left out unless they may have an earlier message.
func (c *consumer) next(r *route, told bool, tried map[int]bool) (shard int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.shards) > 2*len(r.names) { // names of earlier generations
		maps.DeleteFunc(c.shards, func(name string, _ *knowledge) bool { return !slices.Contains(r.names, name) })
	}
	anyHot := false
	var earliest time.Time
	for i, name := range r.names {
		k := c.of(name)
		if k.up != nil || tried[i] || r.closed(i) {
			continue
		}
		bound := k.bound
		if !k.hot {
			bound = bound.Add(coldFor)
		}
		anyHot = anyHot || k.hot
		if !ok || bound.Before(earliest) {
			shard, earliest, ok = i, bound, true
		}
	}
	if !ok || !anyHot && told {
		return 0, false
	}
	c.of(r.names[shard]).hot = false
	return shard, true
}

// claimed records the result of a claim, and reports whether it has found something. More is set in it if another shard
// may have something.
func (c *consumer) claimed(r *route, name string, claim *store.Claim) (found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.of(name)
	k.bound = claim.Now
	if n := len(claim.Messages); claim.More || claim.Unsorted {
		k.hot = true
		if n > 0 {
			k.bound = claim.Messages[n-1].Due
		}
	}
	claim.Died = append(claim.Died, c.missed.Died...)
	claim.Expired = append(claim.Expired, c.missed.Expired...)
	claim.Dropped = append(claim.Dropped, c.missed.Dropped...)
	c.missed = store.Claim{}
	found = claim.More || claim.Unsorted || len(claim.Messages)+len(claim.Died)+len(claim.Dropped) > 0
	for i, other := range r.names {
		claim.More = claim.More || c.of(other).hot && c.of(other).up == nil && !r.closed(i)
	}
	c.now, c.at = claim.Now, time.Now()
	return found
}

// keep keeps the messages that died and were dropped by a claim without a caller.
func (c *consumer) keep(claim *store.Claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.missed.Died = append(c.missed.Died, claim.Died...)
	c.missed.Expired = append(c.missed.Expired, claim.Expired...)
	c.missed.Dropped = append(c.missed.Dropped, claim.Dropped...)
}

// idle returns a claim that has found nothing. asked tells that the engine has just told the time.
func (c *consumer) idle(r *route, asked bool) store.Claim {
	c.mu.Lock()
	defer c.mu.Unlock()
	idle := store.Claim{Now: c.now, Limited: r.limits().Limited()}
	if !asked {
		idle.Now = c.now.Add(time.Since(c.at))
	}
	return idle
}

// isOver reports whether the claims of a change have ended, as far as the process knows the time of the engine.
func (c *consumer) isOver(r *route) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return r.Until != 0 && !c.at.IsZero() && !c.now.Add(time.Since(c.at)).Before(time.UnixMilli(r.Until))
}

// Claim implements store.Store. It claims from one shard: the one with the earliest message, as far as this process
// knows. After a Wait it asks the shards that have ended it, and otherwise all until one has something.
func (s *Store) Claim(ctx context.Context, queue string, req store.ClaimRequest) (store.Claim, error) {
	return on(ctx, s, queue, func() (store.Claim, error) { return s.engine.Claim(ctx, queue, req) },
		func(r *route) (store.Claim, error) { return s.claim(ctx, r, req) })
}

func (s *Store) claim(ctx context.Context, r *route, req store.ClaimRequest) (store.Claim, error) {
	c := s.consumer(r.queue)
	c.mu.Lock()
	told := time.Now().Before(c.told) && !c.at.IsZero()
	c.told = time.Time{}
	c.mu.Unlock()
	calls := s.newClaimCalls(ctx, r, req)
	defer calls.end()
	asked := false
	var failed error
	for tried := map[int]bool{}; ; {
		i, ok := c.next(r, told, tried)
		switch {
		case ok:
			tried[i] = true
			calls.claim(i)
		case calls.wait(asked):
		case failed != nil && !asked:
			return store.Claim{}, failed
		case !asked && len(r.open()) > 0 && c.allDown(r):
			return store.Claim{}, store.Errorf(store.ErrUnavailable, "no shard of queue %q answers", r.queue)
		case !asked && !c.knowsTime():
			stats, err := s.engine.Stats(ctx, r.first())
			return store.Claim{Now: stats.Now, Limited: true}, err
		default:
			return c.idle(r, asked), nil
		}
		got, ok := calls.result()
		if !ok { // a shard lets the call wait
			continue
		}
		i, claim, err := got.shard, got.claim, got.err
		switch {
		case err == nil:
		case i < 0:
			return store.Claim{}, err
		case isMoved(err) || ctx.Err() != nil || errors.Is(err, store.ErrClosed):
			c.heat(r.names[i])
			return store.Claim{}, err
		default:
			failed = err
			s.lose(r, i, err)
			continue
		}
		asked = true
		for k := range claim.Messages {
			claim.Messages[k].Receipt.Lease = leaseIn(i, claim.Messages[k].Receipt.Lease)
		}
		if c.claimed(r, r.names[i], &claim) {
			return claim, nil
		}
	}
}

// knowsTime reports whether the consumer has claimed before.
func (c *consumer) knowsTime() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.at.IsZero()
}

// errOver ends the waits for the other shards.
var errOver = errors.New("another wait has ended")

// Wait implements store.Store. It waits for all shards at the same time.
func (s *Store) Wait(ctx context.Context, queue string) error {
	return s.with(ctx, queue, func(r *route) error {
		if r == nil {
			return s.engine.Wait(ctx, queue)
		}
		return s.wait(ctx, r)
	})
}

func (s *Store) wait(ctx context.Context, r *route) error {
	c := s.consumer(r.queue)
	shards := r.open()
	if len(shards) == 0 || c.isOver(r) {
		return pause(ctx, closedAge)
	}
	waiting, end := context.WithCancelCause(ctx)
	defer end(nil)
	var timedOut atomic.Bool
	if r.Phase != settled { // its end is no event
		over := time.AfterFunc(max(closedAge, time.Until(r.until)), func() {
			timedOut.Store(true)
			end(errOver)
		})
		defer over.Stop()
	}
	var mu sync.Mutex
	var failed error
	live := len(shards)
	inParallel(len(shards), func(k int) {
		i := shards[k]
		var err error
		up, down := c.isUp(r.names[i])
		if up == nil {
			err = s.engine.Wait(waiting, r.names[i])
			if err == nil {
				c.heat(r.names[i])
				end(errOver)
				return
			}
			if errors.Is(err, errOver) || ctx.Err() != nil {
				return
			}
		}
		fatal := isMoved(err) || errors.Is(err, store.ErrClosed)
		switch {
		case err != nil && !fatal:
			up = s.lose(r, i, err)
		case err == nil:
			select {
			case <-down:
			case <-up:
				end(errOver)
				return
			case <-waiting.Done():
				return
			}
		}
		mu.Lock()
		live--
		if failed == nil || fatal {
			failed = err
		}
		if fatal || live == 0 {
			end(failed)
		}
		mu.Unlock()
		select {
		case <-up:
			end(errOver)
		case <-waiting.Done():
		}
	})
	switch cause := context.Cause(waiting); {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(cause, errOver):
		c.mu.Lock()
		if !timedOut.Load() {
			c.told = time.Now().Add(coldFor)
		}
		c.mu.Unlock()
		return nil
	case failed != nil:
		return failed
	}
	return store.Errorf(store.ErrUnavailable, "no shard of queue %q answers", r.queue)
}

// Notify implements store.Notifier.
func (s *Store) Notify(ctx context.Context, queue string) error {
	return s.with(ctx, queue, func(r *route) error {
		if r == nil {
			return store.PassOn(ctx, s.engine, queue)
		}
		for _, name := range r.names {
			if err := store.PassOn(ctx, s.engine, name); err != nil {
				return err
			}
		}
		return nil
	})
}
