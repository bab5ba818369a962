package lock

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

// KeyPrefix begins the Redis keys of locks.
const KeyPrefix = "later:lock:"

// For returns a Locker for the workers of a client: Redis with the connections of the client's store, or, on a store
// that only this process has open, Local.
func For(client *later.Client) Locker {
	if s, ok := store.As[interface{ Client() redis.UniversalClient }](client.Store()); ok {
		return Redis(s.Client())
	}
	return Local()
}

// Redis returns a Locker that keeps each lock in one Redis key, KeyPrefix followed by the lock's key, which expires. It
// works with a single Redis, Sentinel and Cluster. A failover can lose a lock that the new primary had not received.
//
// The library is github.com/bsm/redislock.
func Redis(rdb redis.UniversalClient) Locker { return &redisLocker{redislock.New(rdb)} }

type redisLocker struct{ client *redislock.Client }

type redisLock struct{ lock *redislock.Lock }

// TryLock implements Locker.
func (l *redisLocker) TryLock(ctx context.Context, key, owner string, ttl time.Duration) (Lock, error) {
	taken, err := l.client.Obtain(ctx, KeyPrefix+key, ttl, &redislock.Options{Token: owner})
	if errors.Is(err, redislock.ErrNotObtained) {
		return nil, ErrHeld
	}
	if err != nil {
		return nil, err
	}
	return redisLock{taken}, nil
}

// Extend implements Lock.
func (l redisLock) Extend(ctx context.Context, ttl time.Duration) error {
	err := l.lock.Refresh(ctx, ttl, nil)
	if errors.Is(err, redislock.ErrNotObtained) {
		return ErrLost
	}
	return err
}

// Unlock implements Lock.
func (l redisLock) Unlock(ctx context.Context) error {
	err := l.lock.Release(ctx)
	if errors.Is(err, redislock.ErrLockNotHeld) {
		return ErrLost
	}
	return err
}
