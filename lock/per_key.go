package lock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/handle"
	"github.com/laterq/later/store"
)

// MaxKey is the number of bytes that a lock's key may have.
const MaxKey = 512

const (
	defaultTTL  = 30 * time.Second
	minTTL      = 100 * time.Millisecond
	minDelay    = 10 * time.Millisecond
	maxDelay    = 5 * time.Second
	firstPoll   = 5 * time.Millisecond
	longestPoll = 250 * time.Millisecond
	callTimeout = 5 * time.Second
	// unlockWait is how long a message that was handled waits at most for the locker.
	unlockWait = 500 * time.Millisecond
)

// Option is an option of PerKey.
type Option func(*middleware)

// TTL sets how long a lock outlives a process that died. The default is 30 s, the minimum 100 ms. A running handler
// extends its lock after a third of the time, for as long as it runs.
func TTL(d time.Duration) Option { return func(m *middleware) { m.ttl = max(d, minTTL) } }

// PerKey returns a middleware: a handler holds the lock of its message's key while it runs. Messages of one key are
// then handled one at a time, in no particular order, and messages of different keys at once.
//
// keyOf returns the key of a message, up to MaxKey bytes; a message with a longer key is buried. A message with the key
// "" needs no lock. The policy applies while another message holds the lock. Worker.Run returns ErrInvalid if locker,
// keyOf or an option is nil.
//
// A handler's context ends with ErrLost when its lock is lost, because it expired or because the lock server lost it.
// The attempt then fails even if the handler returns nil, because it may have run beside another one.
//
// When the handler is done, the message waits half a second at most for the lock to be released. A locker with calls
// that take longer, because they ignore the end of their context, can outlive Worker.Run; the lock expires anyway.
func PerKey(
	locker Locker, keyOf func(*later.Message) string, policy Policy, opts ...Option,
) func(later.HandlerFunc) later.HandlerFunc {
	m := &middleware{locker: locker, keyOf: keyOf, policy: policy, ttl: defaultTTL, turns: newTurns()}
	switch {
	case locker == nil:
		return refuse("locker is nil: give one")
	case keyOf == nil:
		return refuse("keyOf is nil: give a function that returns the key of a message")
	}
	for _, opt := range opts {
		if opt == nil {
			return refuse("an option is nil: leave it out")
		}
		opt(m)
	}
	return func(next later.HandlerFunc) later.HandlerFunc {
		return func(ctx context.Context, msg *later.Message) error { return m.handle(ctx, msg, next) }
	}
}

func refuse(reason string) func(later.HandlerFunc) later.HandlerFunc {
	return later.InvalidMiddleware(store.Invalid("lock.PerKey: %s", reason))
}

type middleware struct {
	locker Locker
	keyOf  func(*later.Message) string
	policy Policy
	ttl    time.Duration
	turns  *turns
}

func (m *middleware) handle(ctx context.Context, msg *later.Message, next later.HandlerFunc) error {
	key := m.keyOf(msg)
	if key == "" {
		return next(ctx, msg)
	}
	if len(key) > MaxKey {
		return later.Bury(store.Invalid("key of the lock is %d bytes long: the limit is %d", len(key), MaxKey))
	}
	held, err := m.lock(ctx, key, msg)
	if err != nil {
		return err
	}
	return m.hold(ctx, held, msg, next)
}

// heldLock is a lock that a handler has.
type heldLock struct {
	Lock
	key     string
	expires time.Time // unless it is extended; not later than on the lock server
}

// try takes the lock if it is free. After a nil error the caller ends the key's turn.
func (m *middleware) try(ctx context.Context, key, owner string) (*heldLock, error) {
	if !m.turns.begin(key) {
		return nil, ErrHeld
	}
	calling, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	expires := time.Now().Add(m.ttl)
	lock, err := m.locker.TryLock(calling, key, owner, m.ttl)
	if err == nil && !time.Now().Before(expires) { // the answer came late, for example because the process was stopped
		err = ErrLost
	}
	if err != nil {
		m.turns.end(key, 0)
		return nil, err
	}
	return &heldLock{lock, key, expires}, nil
}

// lock takes the lock, as the policy says.
func (m *middleware) lock(ctx context.Context, key string, msg *later.Message) (*heldLock, error) {
	owner := rand.Text()
	lock, err := m.try(ctx, key, owner)
	if err == nil {
		m.turns.forget(msg)
		return lock, nil
	}
	since := m.turns.waitsSince(msg)
	left := m.policy.limit - time.Since(since)
	if m.policy.kind == fail || left <= 0 {
		m.turns.forget(msg)
		return nil, m.failed(key, time.Since(since), err)
	}
	if m.policy.kind == requeue {
		return nil, errors.Join(heldError(key, err), later.Snooze(m.policy.delay))
	}
	if !m.turns.wait(key, handle.ConcurrencyFromContext(ctx)/2) {
		return nil, errors.Join(heldError(key, err), later.Snooze(min(m.turns.delay(key), left)))
	}
	defer m.turns.stopWaiting(key)
	deadline := time.NewTimer(left)
	defer deadline.Stop()
	for pause := firstPoll; ; pause = min(2*pause, longestPoll) {
		poll := time.NewTimer(pause)
		select {
		case <-m.turns.freed(key):
			pause = firstPoll / 2 // a handler of this process is done
		case <-poll.C:
		case <-deadline.C:
			poll.Stop()
			m.turns.forget(msg)
			return nil, m.failed(key, time.Since(since), err)
		case <-ctx.Done():
			poll.Stop()
			return nil, context.Cause(ctx)
		}
		poll.Stop()
		if lock, err = m.try(ctx, key, owner); err == nil {
			m.turns.forget(msg)
			return lock, nil
		}
	}
}

func (m *middleware) failed(key string, waited time.Duration, err error) error {
	if m.policy.kind == fail {
		return heldError(key, err)
	}
	return fmt.Errorf("after %v: %w", waited.Round(time.Millisecond), heldError(key, err))
}

// heldError describes why the lock was not acquired: it is held, or the lock server failed.
func heldError(key string, err error) error { return fmt.Errorf("lock %q: %w", key, err) }

// hold runs the handler while it extends the lock, and then unlocks.
func (m *middleware) hold(ctx context.Context, lock *heldLock, msg *later.Message, next later.HandlerFunc) error {
	began := time.Now()
	holding, end := context.WithCancelCause(ctx)
	extending, stop := context.WithCancel(context.WithoutCancel(ctx))
	unlocked := make(chan struct{})
	go func() {
		defer close(unlocked)
		m.extend(extending, lock, end)
		<-extending.Done() // the handler is done
		unlocking, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		_ = lock.Unlock(unlocking) // if that fails, the lock expires
	}()
	defer func() { // also after a panic
		stop()
		end(nil)
		enough := time.NewTimer(unlockWait)
		defer enough.Stop()
		select {
		case <-unlocked:
		case <-enough.C:
		}
		m.turns.end(lock.key, time.Since(began))
	}()
	err := next(holding, msg)
	if context.Cause(holding) == ErrLost && !errors.Is(err, ErrLost) {
		if err == nil {
			return heldError(lock.key, ErrLost)
		}
		return fmt.Errorf("%w: %w", heldError(lock.key, ErrLost), err)
	}
	return err
}

// extend extends the lock until ctx ends or the lock is lost. The handler learns that its lock has expired even if a
// call to the lock server does not return.
func (m *middleware) extend(ctx context.Context, lock *heldLock, end context.CancelCauseFunc) {
	expiry := time.AfterFunc(time.Until(lock.expires), func() { end(ErrLost) })
	defer expiry.Stop()
	tick := time.NewTicker(m.ttl / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		asked := time.Now()
		calling, cancel := context.WithDeadline(ctx, lock.expires)
		err := lock.Extend(calling, m.ttl)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, ErrLost), !time.Now().Before(lock.expires):
			end(ErrLost)
			return
		case err == nil:
			lock.expires = asked.Add(m.ttl)
			expiry.Reset(time.Until(lock.expires))
		}
	}
}
