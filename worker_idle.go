package later

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// Queues returns the names of the queues that have a handler or a destination, sorted.
func (w *Worker) Queues() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	names := slices.Collect(maps.Keys(w.handlers))
	return slices.Sorted(slices.Values(slices.AppendSeq(names, maps.Keys(w.destinations))))
}

// WaitIdle waits until the worker holds no message: no handler runs, claimed messages are settled and their events were
// reported, nothing is being forwarded, and OnDead is not being called. It is for tests, which then look at what the
// handlers did; package latertest uses it. Ready messages that the worker has not claimed yet do not count; see
// Queue.Stats. It returns the context's cause if that ends first, and nil at once if the worker does not run.
func (w *Worker) WaitIdle(ctx context.Context) error {
	w.mu.Lock()
	r := w.run
	w.mu.Unlock()
	for r != nil {
		changed := r.changes.next()
		if r.idle() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// idle reports whether the worker holds no message. A claim counts until its messages are counted as unsettled, and
// unsettled messages until OnDead knows of them, so the order of the conditions matters.
func (r *run) idle() bool {
	return r.claiming.Load() == 0 && r.leases.Unsettled() == 0 && r.scheduler.Handlers() == 0 && !r.dead.busy()
}

// beginClaim counts a claim, or a forwarded batch, until the function that it returns is called.
func (r *run) beginClaim() (done func()) {
	r.claiming.Add(1)
	return func() {
		if r.claiming.Add(-1) == 0 {
			r.changes.notify()
		}
	}
}

// changes lets any number of goroutines wait until something has changed.
type changes struct {
	mu      sync.Mutex
	changed chan struct{} // closed by the next change; nil while nobody waits
}

// next returns a channel that the next change closes.
func (c *changes) next() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.changed
}

func (c *changes) notify() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}
