package pump

import (
	"context"
	"sync"
	"sync/atomic"
)

// Changes lets any number of goroutines wait until something has changed.
type Changes struct {
	mu      sync.Mutex
	changed chan struct{} // closed by the next change; nil without a waiter
}

// Await waits until a condition is met that can become true only before a Notify. It returns the cause of ctx when that
// ends first.
func (c *Changes) Await(ctx context.Context, met func() bool) error {
	for {
		c.mu.Lock()
		if c.changed == nil {
			c.changed = make(chan struct{})
		}
		changed := c.changed
		c.mu.Unlock()
		if met() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Notify has the goroutines in Await check their conditions.
func (c *Changes) Notify() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// Gate holds up loops while a worker is paused.
type Gate struct {
	closed  atomic.Bool
	changes Changes
}

// Set closes or opens the Gate.
func (g *Gate) Set(closed bool) {
	if g.closed.Swap(closed) != closed {
		g.changes.Notify()
	}
}

func (g *Gate) isOpen() bool { return !g.closed.Load() }

// untilClosed returns a context that ends when the Gate closes.
func (g *Gate) untilClosed(ctx context.Context) (context.Context, context.CancelFunc) {
	open, cancel := context.WithCancel(ctx)
	if g.closed.Load() {
		cancel()
		return open, cancel
	}
	go func() {
		if g.changes.Await(open, g.closed.Load) == nil {
			cancel()
		}
	}()
	return open, cancel
}
