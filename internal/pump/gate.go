package pump

import (
	"context"
	"sync"
)

// Gate holds up loops while a worker is paused.
type Gate struct {
	mu      sync.Mutex
	closed  bool
	changed chan struct{} // closed and replaced by each change; nil before somebody waits
}

// Set closes or opens the Gate.
func (g *Gate) Set(closed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed == closed {
		return
	}
	g.closed = closed
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

// state returns whether the Gate is closed, and a channel that is closed when that changes.
func (g *Gate) state() (closed bool, changed chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.changed == nil {
		g.changed = make(chan struct{})
	}
	return g.closed, g.changed
}

// await blocks while the Gate is closed. It returns the context's error when that ends first.
func (g *Gate) await(ctx context.Context) error {
	for {
		closed, changed := g.state()
		if !closed {
			return ctx.Err()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// untilClosed returns a context that ends when the Gate closes.
func (g *Gate) untilClosed(ctx context.Context) (context.Context, context.CancelFunc) {
	open, cancel := context.WithCancel(ctx)
	closed, changed := g.state()
	if closed {
		cancel()
		return open, cancel
	}
	go func() {
		select {
		case <-changed:
			cancel()
		case <-open.Done():
		}
	}()
	return open, cancel
}
