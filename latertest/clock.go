package latertest

import (
	"context"
	"errors"
	"time"

	"github.com/laterq/later/memstore"
)

// engine is the store of a harness.
type engine struct{ *memstore.Store }

// onlyNow is the key of a context for a Receive that returns errNothing instead of waiting for messages.
type onlyNow struct{}

var errNothing = errors.New("no message is ready")

// Wait implements store.Store.
func (e engine) Wait(ctx context.Context, queue string) error {
	if ctx.Value(onlyNow{}) != nil {
		return errNothing
	}
	return e.Store.Wait(ctx, queue)
}

// clock is the clock of a harness's store.
type clock struct {
	now  func() time.Time
	move func(time.Duration) error
	// patience is how long Advance waits for handlers without anything happening, on the clock of the time package.
	patience time.Duration
}

// newStore returns a store and its clock. In a bubble, time passes by itself as soon as all goroutines wait, so moving
// the clock is to sleep: heartbeats and the program's own timers then agree with it. Elsewhere the clock stands still.
func newStore(start time.Time) (engine, clock) {
	if inBubble() {
		sleep := func(d time.Duration) error {
			time.Sleep(d)
			return nil
		}
		return engine{memstore.New()}, clock{now: time.Now, move: sleep, patience: 24 * time.Hour}
	}
	manual := memstore.NewManualClock(start)
	s := memstore.New(memstore.WithClock(manual))
	return engine{s}, clock{now: manual.Now, move: s.Advance, patience: time.Minute}
}

// inBubble reports whether the caller runs in a testing/synctest bubble. The time there begins at midnight UTC on
// 2000-01-01, as its package comment says, which no machine's clock shows any more.
func inBubble() bool { return time.Now().Year() < 2020 }
