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
	// maxInFlight is the number of batches of one kind and queue that are on their way at a time (of durable sends
	// there are more, see maxDurableInFlight). With two, the store works on one while the other is being answered.
	maxInFlight = 2
	// callTimeout ends a call to a store that does not answer.
	callTimeout = 30 * time.Second
	// maxSpare is how many batches are kept, while they are empty, for the next items.
	maxSpare = 2 * maxInFlight
	// linger is how long items of a group wait for the rest of it. Two milliseconds are what handlers that do little take
	// for the messages of a large claim, and so little that nobody who waits for an ack minds.
	linger = 2 * time.Millisecond
)

// batcher turns single items from many goroutines into calls of many items: an item goes at once while fewer
// than maxInFlight calls are on their way, else it gathers with others until one is back. So a lone item is
// never delayed, and under load the calls grow by themselves. Items of a group gather for themselves, for linger at most.
//
// What waits is bounded by those who wait: a caller of do has one item in here, and a worker stops claiming
// while too many of its settles are under way.
type batcher[T, R any] struct {
	call    func(ctx context.Context, items []T) ([]R, error)
	timeout time.Duration    // of a call
	size    func(item T) int // bytes towards store.MaxBatchBytes
	waiters sync.Pool        // *waiter[R]; of its own, since a channel must not cross synctest bubbles

	mu          sync.Mutex
	waiting     []*batch[T, R] // not yet on their way, the oldest first; each within the limits of one call
	spare       []*batch[T, R] // empty ones; a sync.Pool loses them at each garbage collection, of which load makes many
	inFlight    int
	maxInFlight int
	running     sync.WaitGroup // goroutines of flights
	closed      bool
	lingerTimer *time.Timer // runs release; nil before the first group
	lingering   bool        // it is set
}

type batch[T, R any] struct {
	items []T
	done  []completer[R] // of items, by index
	bytes int
	group *ackGroup // nil for items of none
	ready bool      // nothing is missing, or it has waited long enough
}

// A group is items that cost less when they go in one call than in several, as the acks of one large lease: what
// belongs to it gathers until it is whole.
type ackGroup struct {
	pending int // items that are still to come; guarded by the batcher's mu
}

// completer learns what became of an item. It is called on the goroutine of the flight and must not block.
type completer[R any] interface {
	complete(result R, err error)
}

func newBatcher[T, R any](call func(context.Context, []T) ([]R, error), size func(T) int) *batcher[T, R] {
	b := &batcher[T, R]{call: call, size: size, timeout: callTimeout, maxInFlight: maxInFlight}
	b.waiters.New = func() any { return &waiter[R]{answered: make(chan answer[R], 1)} }
	return b
}

// put adds an item, of a group or of none, and returns at once; done is completed later. After close it returns
// ErrClosed and does not complete.
func (b *batcher[T, R]) put(item T, done completer[R], g *ackGroup) error {
	size := b.size(item)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return errClientClosed
	}
	last := b.last(size, g)
	last.items = append(last.items, item)
	last.done = append(last.done, done)
	last.bytes += size
	if g != nil {
		g.pending--
		last.ready = last.ready || g.pending <= 0
	}
	if last.ready {
		b.startSender()
	} else if !b.lingering {
		b.startLinger()
	}
	return nil
}

// depart starts a flight if there may be one more. The lock is held.
func (b *batcher[T, R]) startSender() {
	if b.inFlight < b.maxInFlight {
		b.inFlight++
		b.running.Add(1)
		go b.sendReady()
	}
}

// holdOn has the groups that are not whole go after linger. The lock is held.
func (b *batcher[T, R]) startLinger() {
	b.lingering = true
	if b.lingerTimer == nil {
		b.lingerTimer = time.AfterFunc(linger, b.flush)
	} else {
		b.lingerTimer.Reset(linger)
	}
}

// release lets all go that has waiting.
func (b *batcher[T, R]) flush() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lingering = false
	for _, g := range b.waiting {
		g.ready = true
	}
	if len(b.waiting) > 0 {
		b.startSender()
	}
}

// last gives the batch in which the next item of this size and group gathers. The lock is held.
func (b *batcher[T, R]) last(size int, g *ackGroup) *batch[T, R] {
	for _, last := range slices.Backward(b.waiting) {
		if last.group != g {
			continue
		}
		if len(last.items) < store.MaxBatch && last.bytes+size <= store.MaxBatchBytes {
			return last
		}
		break
	}
	fresh := &batch[T, R]{}
	if n := len(b.spare); n > 0 {
		fresh, b.spare = b.spare[n-1], b.spare[:n-1]
	}
	fresh.group, fresh.ready = g, g == nil
	b.waiting = append(b.waiting, fresh)
	return fresh
}

// fly sends batches until none is left that is ready.
func (b *batcher[T, R]) sendReady() {
	defer b.running.Done()
	for {
		b.mu.Lock()
		next := b.next()
		if next == nil {
			b.inFlight--
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()

		b.send(next)

		next.empty()
		b.mu.Lock()
		b.recycle(next)
		b.mu.Unlock()
		// Those who were just answered come back with their next items: let them, so that they go together.
		runtime.Gosched()
	}
}

// next takes the oldest batch that is ready, and with it as many of the others that are as go into one call; nil when
// there is none. The lock is held.
func (b *batcher[T, R]) next() *batch[T, R] {
	var next *batch[T, R]
	kept := b.waiting[:0]
	for _, g := range b.waiting {
		switch {
		case !g.ready:
			kept = append(kept, g)
		case next == nil:
			next = g
		case len(next.items)+len(g.items) <= store.MaxBatch && next.bytes+g.bytes <= store.MaxBatchBytes:
			next.items = append(next.items, g.items...)
			next.done = append(next.done, g.done...)
			next.bytes += g.bytes
			g.empty()
			b.recycle(g)
		default:
			kept = append(kept, g)
		}
	}
	clear(b.waiting[len(kept):])
	b.waiting = kept
	return next
}

// recycle keeps the memory of an empty batch for the next items. The lock is held.
func (b *batcher[T, R]) recycle(g *batch[T, R]) {
	if len(b.spare) < maxSpare {
		b.spare = append(b.spare, g)
	}
}

func (g *batch[T, R]) empty() {
	clear(g.items)
	clear(g.done)
	*g = batch[T, R]{items: g.items[:0], done: g.done[:0]}
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
	if err := b.put(item, w, nil); err != nil {
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
	for _, g := range b.waiting {
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
	b.flush() // those who wait for the rest of their group
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
