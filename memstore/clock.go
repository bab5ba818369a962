package memstore

import (
	"fmt"
	"sync"
	"time"

	"github.com/laterq/later/internal/precise"
	"github.com/laterq/later/store"
)

// Clock is a Store's source of time and alarms.
type Clock interface {
	Now() time.Time
	// Alarm returns a channel that receives once when Now has reached t, or earlier, and a function that frees the
	// alarm.
	Alarm(t time.Time) (fired <-chan time.Time, stop func())
}

// maxSleep is the longest time between two looks at the machine's clock. Timers use the monotonic clock, which does not
// notice that the clock was set or that the machine was suspended.
const maxSleep = 5 * time.Second

// systemClock is the time package's clock, which is fake in a testing/synctest bubble.
type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (systemClock) Alarm(t time.Time) (<-chan time.Time, func()) {
	if soon := time.Now().Add(maxSleep); t.After(soon) {
		t = soon
	}
	return precise.At(t)
}

// ManualClock is a Clock that moves only when Advance is called.
type ManualClock struct {
	mu     sync.Mutex
	now    time.Time
	alarms map[chan time.Time]time.Time
}

// NewManualClock returns a clock that starts at start.
func NewManualClock(start time.Time) *ManualClock {
	return &ManualClock{now: start, alarms: map[chan time.Time]time.Time{}}
}

// Now returns the clock's time.
func (c *ManualClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock forward by d and fires the alarms that are then due.
func (c *ManualClock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	for fired, t := range c.alarms {
		if !t.After(c.now) {
			fired <- c.now
			delete(c.alarms, fired)
		}
	}
}

// Advance moves the store's clock, which must be a ManualClock, and with it the deadlines of all leases, in one step:
// time passes for messages and not for their holders, which send heartbeats by another clock. The clock's own Advance
// lets leases expire. Advance returns ErrUnsupported for another clock.
func (s *Store) Advance(d time.Duration) error {
	clock, ok := s.data.clock.(*ManualClock)
	if !ok {
		return fmt.Errorf("the clock of this store cannot be moved: use WithClock with a ManualClock: %w",
			store.ErrUnsupported)
	}
	s.data.mu.Lock()
	defer s.data.mu.Unlock()
	before := clock.Now().UnixMilli()
	clock.Advance(d)
	for _, q := range s.data.queues {
		q.postponeLeases(clock.Now().UnixMilli() - before)
	}
	return nil
}

// Alarm implements Clock.
func (c *ManualClock) Alarm(t time.Time) (<-chan time.Time, func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fired := make(chan time.Time, 1)
	if !t.After(c.now) {
		fired <- c.now
		return fired, func() {}
	}
	c.alarms[fired] = t
	return fired, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.alarms, fired)
	}
}
