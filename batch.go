package later

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/laterq/later/store"
)

const (
	// maxFlights is the number of batches of one kind and queue that are on their way at a time (of durable sends
	// there are more, see durableFlights). With two, the store works on one while the other is being answered.
	maxFlights = 2
	// callTimeout ends a call to a store that does not answer.
	callTimeout = 30 * time.Second
)

// batcher turns single items from many goroutines into calls of many items: an item goes at once while fewer
// than maxFlights calls are on their way, else it gathers with others until one is back. So a lone item is
// never delayed, and under load the calls grow by themselves.
//
// What waits is bounded by those who wait: a caller of do has one item in here, and a worker stops claiming
// while too many of its settles are under way.
type batcher[T, R any] struct {
	call    func(ctx context.Context, items []T) ([]R, error)
	timeout time.Duration    // of a call
	size    func(item T) int // bytes towards store.MaxBatchBytes
	waiters sync.Pool        // *waiter[R]; of its own, since a channel must not cross synctest bubbles

	mu          sync.Mutex
	gathered    []*batch[T, R] // not yet on their way; each within the limits of one call
	spare       []*batch[T, R] // empty ones; a sync.Pool loses them at each garbage collection, of which load makes many
	flights     int
	mostFlights int
	running     sync.WaitGroup // goroutines of flights
	closed      bool
}

type batch[T, R any] struct {
	items []T
	done  []completer[R] // of items, by index
	bytes int
}

// completer learns what became of an item. It is called on the goroutine of the flight and must not block.
type completer[R any] interface {
	complete(result R, err error)
}

func newBatcher[T, R any](call func(context.Context, []T) ([]R, error), size func(T) int) *batcher[T, R] {
	b := &batcher[T, R]{call: call, size: size, timeout: callTimeout, mostFlights: maxFlights}
	b.waiters.New = func() any { return &waiter[R]{answered: make(chan answer[R], 1)} }
	return b
}

// put adds an item and returns at once; done is completed later. After close it returns ErrClosed and does
// not complete.
func (b *batcher[T, R]) put(item T, done completer[R]) error {
	size := b.size(item)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return errClientClosed
	}
	last := b.last(size)
	last.items = append(last.items, item)
	last.done = append(last.done, done)
	last.bytes += size
	if b.flights < b.mostFlights {
		b.flights++
		b.running.Add(1)
		go b.fly()
	}
	return nil
}

// last gives the batch in which the next item of this size gathers. The lock is held.
func (b *batcher[T, R]) last(size int) *batch[T, R] {
	if n := len(b.gathered); n > 0 {
		last := b.gathered[n-1]
		if len(last.items) < store.MaxBatch && last.bytes+size <= store.MaxBatchBytes {
			return last
		}
	}
	fresh := &batch[T, R]{}
	if n := len(b.spare); n > 0 {
		fresh, b.spare = b.spare[n-1], b.spare[:n-1]
	}
	b.gathered = append(b.gathered, fresh)
	return fresh
}

// fly sends batches until none is left.
func (b *batcher[T, R]) fly() {
	defer b.running.Done()
	var done *batch[T, R]
	for {
		b.mu.Lock()
		if done != nil && len(b.spare) <= maxFlights {
			b.spare = append(b.spare, done)
		}
		if len(b.gathered) == 0 {
			b.flights--
			b.mu.Unlock()
			return
		}
		next := b.gathered[0]
		b.gathered = slices.Delete(b.gathered, 0, 1)
		b.mu.Unlock()

		b.send(next)

		clear(next.items)
		clear(next.done)
		next.items, next.done, next.bytes = next.items[:0], next.done[:0], 0
		done = next
		// Those who were just answered come back with their next items: let them, so that they go together.
		runtime.Gosched()
	}
}

func (b *batcher[T, R]) send(next *batch[T, R]) {
	if len(next.items) == 0 {
		return // all were withdrawn
	}
	// The call serves many callers, so it ends with none of them.
	ctx, cancel := context.WithTimeout(context.Background(), b.timeout)
	defer cancel()
	results, err := b.call(ctx, next.items)
	if err == nil && len(results) != len(next.items) {
		err = fmt.Errorf("store answered %d items with %d results: %w", len(next.items), len(results), ErrCorrupt)
	}
	for i, done := range next.done {
		var result R
		if err == nil {
			result = results[i]
		}
		done.complete(result, err)
	}
}

// do adds an item and waits for its result. When ctx ends first, do returns its cause; the item was then not
// sent, unless the error says that the outcome is unknown.
func (b *batcher[T, R]) do(ctx context.Context, item T) (R, error) {
	var none R
	if ctx.Err() != nil {
		return none, context.Cause(ctx)
	}
	w := b.waiters.Get().(*waiter[R])
	if err := b.put(item, w); err != nil {
		b.waiters.Put(w)
		return none, err
	}
	select {
	case a := <-w.answered:
		b.waiters.Put(w)
		return a.result, a.err
	case <-ctx.Done():
	}
	if b.withdraw(w) {
		b.waiters.Put(w)
		return none, context.Cause(ctx)
	}
	select {
	case a := <-w.answered: // just in time
		b.waiters.Put(w)
		return a.result, a.err
	default: // w will be answered, so it cannot serve another
		return none, fmt.Errorf("outcome unknown, the call was on its way: %w", context.Cause(ctx))
	}
}

// withdraw takes an item back; false when it is on its way.
func (b *batcher[T, R]) withdraw(done completer[R]) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, g := range b.gathered {
		if i := slices.Index(g.done, done); i >= 0 {
			g.bytes -= b.size(g.items[i])
			g.items = slices.Delete(g.items, i, i+1)
			g.done = slices.Delete(g.done, i, i+1)
			return true
		}
	}
	return false
}

// close refuses new items and returns when those that are in here have been sent and completed.
func (b *batcher[T, R]) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.running.Wait()
}

// waiter is the completer of do.
type waiter[R any] struct {
	answered chan answer[R] // holds one, so that an answer to a caller that has gone does not block
}

type answer[R any] struct {
	result R
	err    error
}

func (w *waiter[R]) complete(result R, err error) {
	w.answered <- answer[R]{result, err}
}
