// Package calls has the common parts of all calls to a store: their time limit, the pauses between two attempts, and
// which errors make another attempt pointless. It imports package store only.
package calls

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/laterq/later/store"
)

// Timeout limits a call to a store that does not answer.
const Timeout = 30 * time.Second

// MinPause and MaxPause limit the pauses between calls to a failing store.
const (
	MinPause = 50 * time.Millisecond
	MaxPause = 2 * time.Second
)

// PauseAfter returns a random duration between half and all of MinPause·2^failures, at most MaxPause.
func PauseAfter(failures int) time.Duration {
	d := min(MinPause<<min(failures, 10), MaxPause)
	return d/2 + time.Duration(rand.Int64N(int64(d/2)))
}

// Pause waits for PauseAfter, or until ctx ends.
func Pause(ctx context.Context, failures int) { _ = Sleep(ctx, PauseAfter(failures)) }

// Sleep returns after d, or with the cause of the context when that ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// PassOn lets another waiter have the wake-up of a Wait after which its caller does not claim.
func PassOn(ctx context.Context, s store.Store, log *slog.Logger, queue string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
	defer cancel()
	if err := store.PassOn(ctx, s, queue); err != nil {
		log.Debug("later: a wake-up was not passed on", "queue", queue, "error", err)
	}
}

// IsPermanent reports whether repeating a call that returned err cannot succeed.
func IsPermanent(err error) bool {
	for _, kind := range []error{
		store.ErrInvalid, store.ErrTooLarge, store.ErrUnsupported, store.ErrCorrupt, store.ErrClosed,
	} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// IsRefusal reports whether the store refused a call for good, such as one that writes to a queue of another format.
func IsRefusal(err error) bool {
	return IsPermanent(err) && !errors.Is(err, store.ErrClosed) || errors.Is(err, store.ErrMisconfigured) ||
		errors.Is(err, store.ErrUnauthenticated) || errors.Is(err, store.ErrForbidden)
}

// PartEnd returns the end of the part that begins at start. A part fits into one call, and its messages
// have the same durability. Either all or none are sent one by one.
func PartEnd(msgs []store.Outgoing, start int) int {
	size := 0
	for i := start; i < len(msgs); i++ {
		size += msgs[i].Size()
		if i == start {
			continue
		}
		if i-start == store.MaxBatch || size > store.MaxBatchBytes || msgs[i].Durable != msgs[start].Durable ||
			msgs[i].OneByOne() != msgs[start].OneByOne() {
			return i
		}
	}
	return len(msgs)
}
