package lock

import (
	"context"
	"sync"
	"time"
)

// Local returns a Locker for the workers of this process. Use it with an embedded store, which one process has open.
func Local() Locker { return &local{owners: map[string]*localLock{}} }

type local struct {
	mu     sync.Mutex
	owners map[string]*localLock // by key
}

type localLock struct {
	locker     *local
	key, owner string
	expires    time.Time
}

// TryLock implements Locker.
func (l *local) TryLock(_ context.Context, key, owner string, ttl time.Duration) (Lock, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if held := l.owners[key]; held != nil && held.owner != owner && now.Before(held.expires) {
		return nil, ErrHeld
	}
	held := &localLock{l, key, owner, now.Add(ttl)}
	l.owners[key] = held
	return held, nil
}

// Extend implements Lock.
func (h *localLock) Extend(_ context.Context, ttl time.Duration) error {
	h.locker.mu.Lock()
	defer h.locker.mu.Unlock()
	now := time.Now()
	if h.locker.owners[h.key] != h || !now.Before(h.expires) {
		return ErrLost
	}
	h.expires = now.Add(ttl)
	return nil
}

// Unlock implements Lock.
func (h *localLock) Unlock(context.Context) error {
	h.locker.mu.Lock()
	defer h.locker.mu.Unlock()
	if h.locker.owners[h.key] != h {
		return ErrLost
	}
	delete(h.locker.owners, h.key)
	return nil
}
