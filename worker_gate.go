package later

import (
	"context"
	"sync"
)

// pauseGate holds up what does not use the scheduler while a worker is paused.
type pauseGate struct {
	mu      sync.Mutex
	closed  bool
	changed chan struct{} // closed and replaced by each change; nil before somebody waits
}

func (g *pauseGate) set(closed bool) {
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

// state returns whether the pauseGate is closed, and a channel that is closed when that changes.
func (g *pauseGate) state() (closed bool, changed chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.changed == nil {
		g.changed = make(chan struct{})
	}
	return g.closed, g.changed
}

// await blocks while the pauseGate is closed. It returns the context's error when that ends first.
func (g *pauseGate) await(ctx context.Context) error {
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

// untilClosed returns a context that ends when the pauseGate closes.
func (g *pauseGate) untilClosed(ctx context.Context) (context.Context, context.CancelFunc) {
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
