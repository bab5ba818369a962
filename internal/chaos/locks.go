//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later"
	"github.com/laterq/later/lock"
)

// Under the fault locks, handlers hold the lock of their message's key. There is a worker with each policy.
const (
	lockKeys = 60
	lockTTL  = time.Second // shorter than the lease, so that a frozen holder can lose its lock and keep its message
)

// lockPolicies are the policies of the workers, by name.
var lockPolicies = map[string]lock.Policy{
	"wait": lock.Wait(time.Minute), "later": lock.Later(20 * time.Millisecond), "fail": lock.Fail(),
}

// lockKey returns the key of a message's lock. One message in ten has none.
func lockKey(id string) string {
	h := fnv.New32a()
	h.Write([]byte(id))
	n := h.Sum32()
	if n%10 == 0 {
		return ""
	}
	return fmt.Sprint("key", n/10%lockKeys)
}

// addLocks sets a policy for each worker, and removes the receiver, which would handle messages without locks.
func (r *run) addLocks() {
	var kept []*child
	for _, c := range r.children {
		if c.role.Kind == "receiver" {
			continue
		}
		if kept = append(kept, c); c.role.Kind == "worker" {
			c.role.Lock = []string{"wait", "later", "fail"}[len(kept)%len(lockPolicies)]
		}
	}
	r.children = kept
}

// locked returns the middleware of a worker, and a function that closes its connections.
func (c consumer) locked() (func(later.HandlerFunc) later.HandlerFunc, func() error, error) {
	options, err := redis.ParseURL(c.URL)
	if err != nil {
		return nil, nil, err
	}
	rdb := redis.NewClient(options)
	keyOf := func(m *later.Message) string { return lockKey(m.ID) }
	locker := recordingLocker{lock.Redis(rdb), c.journal, &sync.WaitGroup{}}
	end := func() error {
		err := rdb.Close() // which ends calls that hang
		locker.awaitUnlocks()
		return err
	}
	return lock.PerKey(locker, keyOf, lockPolicies[c.Lock], lock.TTL(lockTTL)), end, nil
}

// handleLocked handles a message and records from when to when, and that its lock is lost when it learns of that.
func (c consumer) handleLocked(ctx context.Context, m *later.Message) (err error) {
	key := lockKey(m.ID)
	if key == "" {
		return c.handle(ctx, m)
	}
	lost := func() bool { return errors.Is(context.Cause(ctx), lock.ErrLost) }
	c.journal.one(beginLocked, now(), m.ID, key, m.Attempt)
	defer context.AfterFunc(ctx, func() {
		if lost() {
			c.journal.one(lockLost, now(), m.ID, key, m.Attempt)
		}
	})()
	defer func() {
		outcome := outcomeOK
		if lost() {
			outcome = outcomeLost
		}
		c.journal.one(endLocked, now(), m.ID, key, m.Attempt, outcome)
	}()
	switch n := rand.IntN(100); { // in addition to the actions of handle
	case n < 2:
		err = c.workFor(ctx, rand.N(2*c.Lease))
	case n < 30:
		err = c.workFor(ctx, rand.N(20*time.Millisecond))
	}
	if err != nil {
		return err
	}
	return c.handle(ctx, m)
}

// recordingLocker records the calls that take, extend and release a lock.
type recordingLocker struct {
	lock.Locker
	journal *journal
	taken   *sync.WaitGroup // locks that are not unlocked
}

// awaitUnlocks waits for calls that outlived the worker, so that none records anything later. A lock that was granted
// too late is not unlocked, so the time is bounded.
func (l recordingLocker) awaitUnlocks() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.taken.Wait()
	}()
	select {
	case <-done:
	case <-time.After(5 * lockTTL):
	}
}

// Operations of lockCall records.
const (
	takeLock   = "take"
	extendLock = "extend"
	freeLock   = "free"
)

// TryLock implements lock.Locker. It records the locks that were taken.
func (l recordingLocker) TryLock(ctx context.Context, key, owner string, ttl time.Duration) (lock.Lock, error) {
	call := now()
	held, err := l.Locker.TryLock(ctx, key, owner, ttl)
	if err != nil {
		return nil, err
	}
	l.journal.one(lockCall, now(), "-", call, takeLock, key, owner, outcomeOK)
	l.taken.Add(1)
	return recordingLock{held, l.journal, l.taken, key, owner}, nil
}

type recordingLock struct {
	lock.Lock
	journal    *journal
	taken      *sync.WaitGroup
	key, owner string
}

// Extend implements lock.Lock.
func (l recordingLock) Extend(ctx context.Context, ttl time.Duration) error {
	call := now()
	err := l.Lock.Extend(ctx, ttl)
	l.journal.one(lockCall, now(), "-", call, extendLock, l.key, l.owner, lockOutcome(err))
	return err
}

// Unlock implements lock.Lock.
func (l recordingLock) Unlock(ctx context.Context) error {
	defer l.taken.Done()
	call := now()
	err := l.Lock.Unlock(ctx)
	l.journal.one(lockCall, now(), "-", call, freeLock, l.key, l.owner, lockOutcome(err))
	return err
}

func lockOutcome(err error) string {
	switch {
	case err == nil:
		return outcomeOK
	case errors.Is(err, lock.ErrLost):
		return outcomeLost
	}
	return "failed"
}

// disruptLocks kills a worker, freezes one for longer than a lock lasts, kills or freezes the server, or makes some
// connections half-open, in turn.
func disruptLocks(ctx context.Context, r *run) error {
	switch r.injected % 5 {
	case 2:
		r.stop(ctx, r.pick("worker"), lockTTL+100*time.Millisecond+r.upTo(2*lockTTL))
		return nil
	case 3:
		return killServer(ctx, r)
	case 0:
		r.log("half-open")
		r.servers.proxies[0].halfOpen(0.5)
		return nil
	case 4: // when it continues, locks of live holders have expired
		r.log("freeze-server")
		err := r.servers.nodes[0].Signal(syscall.SIGSTOP)
		sleep(ctx, lockTTL/2+r.upTo(lockTTL))
		err = errors.Join(err, r.servers.nodes[0].Signal(syscall.SIGCONT))
		r.log("serves", 0, allQueues)
		return err
	}
	return killConsumer(ctx, r)
}

// checkNoLockIsLeft checks, after all processes have ended, that every lock is free when the locks of dead holders have
// expired.
func checkNoLockIsLeft(ctx context.Context, r *run) error {
	err := within(ctx, 30*lockTTL, "the end of all locks", func(ctx context.Context) error {
		keys, err := r.servers.admin[0].Keys(ctx, lock.KeyPrefix+"*").Result()
		if err == nil && len(keys) > 0 {
			err = fmt.Errorf("%d are left, such as %s", len(keys), keys[0])
		}
		return err
	})
	if err != nil && ctx.Err() == nil {
		r.result.violate("left", "-", "%v", err)
		err = nil
	}
	return err
}
