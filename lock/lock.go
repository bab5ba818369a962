// Package lock makes handlers hold a lock while they run, so that at most one message of a key is handled at a time,
// by all workers together.
//
// PerKey returns a middleware for later.WorkerConfig. A Locker keeps the locks: Redis for workers on many machines, or
// Local for workers of one process, as with an embedded store. The package imports only later and the clients of lock
// servers; start reading at PerKey.
//
// A lock has a holder for as long as the lock server's time goes on as this process's does. A process that is stopped
// for longer than the TTL and then continues may run beside the next holder until it notices, as with every lock that
// expires. The changes of a handler should tolerate that, for example by a condition on a version.
package lock

import (
	"context"
	"errors"
	"time"
)

// Errors of lockers. They work with errors.Is.
var (
	// ErrHeld means that another owner has the lock.
	ErrHeld = errors.New("lock is held by another message")
	// ErrLost means that the lock expired or was taken away. It is the cause of the context of a handler that has lost
	// its lock.
	ErrLost = errors.New("lock was lost")
)

// Locker keeps locks by key. Its methods may be called by many goroutines.
type Locker interface {
	// TryLock takes the lock of a key for ttl, and returns ErrHeld at once if another owner has it. An owner that
	// repeats the call after an error has the lock once, and its TTL begins again.
	TryLock(ctx context.Context, key, owner string, ttl time.Duration) (Lock, error)
}

// Lock is a lock that its owner has until it expires.
type Lock interface {
	// Extend lets the lock expire ttl from now. It returns ErrLost if the owner no longer has it.
	Extend(ctx context.Context, ttl time.Duration) error
	// Unlock releases the lock. It returns ErrLost if the owner no longer has it.
	Unlock(ctx context.Context) error
}
