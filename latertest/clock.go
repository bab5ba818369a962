package latertest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// engine is the store of a harness.
type engine struct {
	*memstore.Store
	changed func() // called after each claim and settle
	waiting *propertyWaiters
}

// propertyWaiters are the calls that wait for changes of properties.
type propertyWaiters struct {
	mu      sync.Mutex
	byQueue map[string]chan struct{}
}

// PropertiesChanged implements store.Local.
func (e engine) PropertiesChanged(queue string) <-chan struct{} {
	queue, _, _, _ = store.CutSubQueue(queue) // whatever its shards are called
	e.waiting.mu.Lock()
	defer e.waiting.mu.Unlock()
	changed := e.waiting.byQueue[queue]
	if changed == nil {
		changed = make(chan struct{})
		e.waiting.byQueue[queue] = changed
	}
	return changed
}

// SetProperties implements store.Store.
func (e engine) SetProperties(
	ctx context.Context, queue string, set map[string]string, condition *store.Condition,
) error {
	err := e.Store.SetProperties(ctx, queue, set, condition)
	queue, _, _, _ = store.CutSubQueue(queue)
	e.waiting.mu.Lock()
	defer e.waiting.mu.Unlock()
	if changed := e.waiting.byQueue[queue]; changed != nil {
		close(changed)
		delete(e.waiting.byQueue, queue)
	}
	return err
}

// Claim implements store.Store.
func (e engine) Claim(ctx context.Context, queue string, req store.ClaimRequest) (store.Claim, error) {
	defer e.changed()
	return e.Store.Claim(ctx, queue, req)
}

// Settle implements store.Store.
func (e engine) Settle(ctx context.Context, queue string, s []store.Settlement) ([]store.SettleResult, error) {
	defer e.changed()
	return e.Store.Settle(ctx, queue, s)
}

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

// bubbleClock is the clock of a bubble. It cannot be set.
type bubbleClock struct{}

func (bubbleClock) Now() time.Time { return time.Now() }

func (bubbleClock) Alarm(t time.Time) (<-chan time.Time, func()) {
	timer := time.NewTimer(time.Until(t))
	return timer.C, func() { timer.Stop() }
}

// newStore returns a store and its clock. In a bubble, time passes by itself as soon as all goroutines wait, so moving
// the clock is to sleep: heartbeats and the program's own timers then agree with it. Elsewhere the clock stands still.
func newStore(start time.Time) (*memstore.Store, clock) {
	if inBubble() {
		sleep := func(d time.Duration) error {
			time.Sleep(d)
			return nil
		}
		return memstore.New(memstore.WithClock(bubbleClock{})), clock{now: time.Now, move: sleep,
			patience: 24 * time.Hour}
	}
	manual := memstore.NewManualClock(start)
	s := memstore.New(memstore.WithClock(manual))
	return s, clock{now: manual.Now, move: s.Advance, patience: time.Minute}
}

// inBubble reports whether the caller runs in a testing/synctest bubble. The time there begins at midnight UTC on
// 2000-01-01, as its package comment says, which no machine's clock shows any more.
func inBubble() bool { return time.Now().Year() < 2020 }
