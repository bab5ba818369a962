package memstore

import (
	"sync"
	"time"
)

// Clock is what a Store lives by.
type Clock interface {
	Now() time.Time
	// Alarm gives a channel that receives once when Now has reached t, and a function that frees it.
	Alarm(t time.Time) (ring <-chan time.Time, stop func())
}

// systemClock is the time package's clock, which a testing/synctest bubble fakes.
type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (systemClock) Alarm(t time.Time) (<-chan time.Time, func()) {
	timer := time.NewTimer(time.Until(t))
	return timer.C, func() { timer.Stop() }
}

// ManualClock stands still between calls of Advance.
type ManualClock struct {
	mu     sync.Mutex
	now    time.Time
	alarms map[chan time.Time]time.Time
}

// NewManualClock makes a clock that shows start.
func NewManualClock(start time.Time) *ManualClock {
	return &ManualClock{now: start, alarms: map[chan time.Time]time.Time{}}
}

// Now gives the time that the clock shows.
func (c *ManualClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock forward by d and rings the alarms it passes.
func (c *ManualClock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	for ring, t := range c.alarms {
		if !t.After(c.now) {
			ring <- c.now
			delete(c.alarms, ring)
		}
	}
}

// Alarm implements Clock.
func (c *ManualClock) Alarm(t time.Time) (<-chan time.Time, func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ring := make(chan time.Time, 1)
	if !t.After(c.now) {
		ring <- c.now
		return ring, func() {}
	}
	c.alarms[ring] = t
	return ring, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.alarms, ring)
	}
}
