package batch

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/store"
)

const (
	// maxInFlight is the maximum number of in-flight batches of a Batcher; those of durable sends have
	// maxDurableInFlight. With two, the store works on one while the other is being answered.
	maxInFlight = 2
	// maxSpare is the number of empty batches kept for reuse.
	maxSpare = 2 * maxInFlight
	// linger is how long the items of a group wait for the rest of it. Two milliseconds are about what fast
	// handlers need for the messages of a large claim, and too short to matter to anyone who waits for an ack.
	linger = 2 * time.Millisecond
	// gatherFor is how long a send waits for others of a crowd, and minCrowd how many are a crowd. A call costs a
	// Redis server as much as ten messages do, besides its messages.
	gatherFor = time.Millisecond
	minCrowd  = 8
	// maxGathered is how many sends wait for no more: their call costs little beside them.
	maxGathered = 128
)

// Config is the settings that the batchers of one process share.
type Config struct {
	Timeout time.Duration // for one call to a store that does not answer
	Closed  error         // for items after Close
}

// Batcher combines single items from many goroutines into batches, each sent in one call.
//
// An item is sent at once while fewer than maxInFlight batches are in flight; otherwise it waits with others until one
// returns. So a lone item is never delayed, and batches grow with the load. If its caller waits for it in any case, or
// the call ends with the caller's context, it is sent on the caller's own goroutine. The items of a Group are batched
// separately and wait for linger at most.
//
// Senders that do much else between two items, such as answering a request, are seldom in here at the same time, and
// would be sent in small batches. So a batcher that gathers learns how many items are usually together. If those are
// a crowd, an item waits until half of it has come, for gatherFor at most after the first. While the store works on
// that half, the other half comes. A wait that ends without them ends the crowd.
//
// The number of waiting items is bounded by their senders: a caller of Do has one item here, and a worker
// stops claiming while too many of its settles are in flight.
type Batcher[T, R any] struct {
	call    func(ctx context.Context, items []T) ([]R, error)
	prompt  func(ctx context.Context, items []T) ([]R, error) // call, but returns as soon as ctx ends; may be nil
	size    func(item T) int                                  // bytes towards store.MaxBatchBytes
	cfg     Config
	linger  time.Duration // for groups, or for crowds if it gathers
	gathers bool
	waiters sync.Pool // *waiter[R]; per batcher, since a channel must not cross synctest bubbles

	mu          sync.Mutex
	waiting     []*batch[T, R] // not yet in flight, oldest first; each within the limits of one call
	spare       []*batch[T, R] // empty batches; a sync.Pool would lose them at each garbage collection
	inFlight    int            // batches
	sending     int            // items of them
	crowd       int            // items that were in here together, lately
	maxInFlight int
	running     sync.WaitGroup // goroutines that send
	closed      bool
	lingerTimer *time.Timer // calls flush; nil before the first group
	lingering   bool        // lingerTimer is set
	unanswered  bool        // a prompt call ended with its context, and the store has not answered since
}

type batch[T, R any] struct {
	items []T
	done  []Completer[R] // for items, by index
	bytes int
	group *Group // nil for items without a group
	ready bool   // complete, or has waited long enough
}

// Group is a set of items that cost less in one call than in several, such as the acks of one large
// lease. Its items wait until it is complete.
type Group struct {
	pending int // items not yet added; guarded by Batcher.mu
}

// NewGroup returns a group of n items.
func NewGroup(n int) *Group { return &Group{pending: n} }

// Completer receives the result of an item. Complete is called on a sending goroutine and must not block.
type Completer[R any] interface {
	Complete(result R, err error)
}

func newBatcher[T, R any](
	call func(context.Context, []T) ([]R, error), size func(T) int, cfg Config,
) *Batcher[T, R] {
	b := &Batcher[T, R]{call: call, size: size, cfg: cfg, linger: linger, maxInFlight: maxInFlight}
	b.waiters.New = func() any { return &waiter[R]{answered: make(chan answer[R], 1)} }
	return b
}

// Put adds an item, with or without a group, and returns at once; done is completed later. After Close it
// returns Config.Closed and does not complete done.
func (b *Batcher[T, R]) Put(item T, done Completer[R], g *Group) error {
	send, err := b.PutHere(item, done, g)
	if send {
		go b.Send()
	}
	return err
}

// PutHere is Put for a caller that may have nothing else to do. If send is true, the item and others wait until the
// caller calls Send, which it must do at once or on another goroutine.
func (b *Batcher[T, R]) PutHere(item T, done Completer[R], g *Group) (send bool, err error) {
	size := b.size(item)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false, b.cfg.Closed
	}
	last := b.last(size, g)
	last.items = append(last.items, item)
	last.done = append(last.done, done)
	last.bytes += size
	if g != nil {
		g.pending--
		last.ready = last.ready || g.pending <= 0
	} else if b.gathers {
		b.crowd = max(b.crowd, b.sending+len(last.items))
		last.ready = last.ready || b.gathered(len(last.items))
	}
	if last.ready {
		return b.beginSender(), nil
	}
	if !b.lingering || b.gathers && len(last.items) == 1 {
		b.startLinger()
	}
	return false, nil
}

// gathered reports whether n waiting items need not wait for others. The lock is held.
func (b *Batcher[T, R]) gathered(n int) bool {
	return b.crowd < minCrowd || n >= maxGathered || 2*n >= b.crowd || n >= b.crowd-b.sending
}

// startSender starts a sending goroutine if another batch may be in flight. The lock is held.
func (b *Batcher[T, R]) startSender() {
	if b.beginSender() {
		go b.Send()
	}
}

// beginSender reports whether another batch may be in flight. Then Send has to be called. The lock is held.
func (b *Batcher[T, R]) beginSender() bool {
	if b.inFlight >= b.maxInFlight {
		return false
	}
	b.inFlight++
	b.running.Add(1)
	return true
}

// startLinger makes all waiting batches ready linger from now. The lock is held.
func (b *Batcher[T, R]) startLinger() {
	b.lingering = true
	if b.lingerTimer == nil {
		b.lingerTimer = time.AfterFunc(b.linger, b.flush)
	} else {
		b.lingerTimer.Reset(b.linger)
	}
}

// flush makes all waiting batches ready.
func (b *Batcher[T, R]) flush() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lingering = false
	for _, g := range b.waiting {
		if !g.ready && g.group == nil {
			b.disperse(len(g.items))
		}
		g.ready = true
	}
	if len(b.waiting) > 0 {
		b.startSender()
	}
}

// disperse learns that n items waited for others that did not come. The lock is held.
func (b *Batcher[T, R]) disperse(n int) {
	if together := b.sending + n; 2*together < b.crowd {
		b.crowd = together
	} else {
		b.crowd -= b.crowd / 8
	}
}

// last returns the batch for the next item of this size and group. The lock is held.
func (b *Batcher[T, R]) last(size int, g *Group) *batch[T, R] {
	for _, last := range slices.Backward(b.waiting) {
		if last.group != g {
			continue
		}
		if len(last.items) < store.MaxBatch && last.bytes+size <= store.MaxBatchBytes {
			return last
		}
		if g == nil && !last.ready {
			last.ready = true
			b.startSender()
		}
		break
	}
	fresh := &batch[T, R]{}
	if n := len(b.spare); n > 0 {
		fresh, b.spare = b.spare[n-1], b.spare[:n-1]
	}
	fresh.group, fresh.ready = g, g == nil && !b.gathers
	b.waiting = append(b.waiting, fresh)
	return fresh
}

// Send sends batches until none is ready. It is called once after a PutHere that returned true.
func (b *Batcher[T, R]) Send() {
	defer b.running.Done()
	for {
		b.mu.Lock()
		next := b.next()
		if next == nil {
			b.inFlight--
			b.mu.Unlock()
			return
		}
		sent := len(next.items)
		b.sending += sent
		b.mu.Unlock()

		if sent > 0 { // otherwise all were withdrawn
			// The call may serve many callers, so no caller's context ends it.
			results, err := b.send(context.Background(), b.call, next.items)
			b.mu.Lock()
			b.unanswered = b.unanswered && err != nil
			b.sending -= sent // first, since those who are answered may send again at once
			b.mu.Unlock()
			for i, done := range next.done {
				var result R
				if err == nil {
					result = results[i]
				}
				done.Complete(result, err)
			}
		}

		next.empty()
		b.mu.Lock()
		b.recycle(next)
		b.mu.Unlock()
		// Let the callers that were just answered add their next items, so that these are sent together.
		runtime.Gosched()
	}
}

// next returns the oldest ready batch, combined with as many other ready ones as fit into one call, or nil.
// The lock is held.
func (b *Batcher[T, R]) next() *batch[T, R] {
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

// recycle keeps an empty batch for reuse. The lock is held.
func (b *Batcher[T, R]) recycle(g *batch[T, R]) {
	if len(b.spare) < maxSpare {
		b.spare = append(b.spare, g)
	}
}

func (g *batch[T, R]) empty() {
	clear(g.items)
	clear(g.done)
	*g = batch[T, R]{items: g.items[:0], done: g.done[:0]}
}

// send makes one call.
func (b *Batcher[T, R]) send(
	ctx context.Context, call func(context.Context, []T) ([]R, error), items []T,
) ([]R, error) {
	limited := calls.Limit(ctx, b.cfg.Timeout)
	defer limited.End()
	results, err := call(limited, items)
	if err == nil && len(results) != len(items) {
		err = fmt.Errorf("store answered %d items with %d results: %w", len(items), len(results), store.ErrCorrupt)
	}
	return results, err
}

// Do adds an item and waits for its result. If ctx ends first, Do returns its cause; the item was then not
// sent, unless the error says that the outcome is unknown.
func (b *Batcher[T, R]) Do(ctx context.Context, item T) (R, error) {
	var none R
	if ctx.Err() != nil {
		return none, context.Cause(ctx)
	}
	if (ctx.Done() == nil || b.prompt != nil) && b.beginAlone(ctx.Done() != nil) {
		return b.sendAlone(ctx, item)
	}
	w := b.waiters.Get().(*waiter[R])
	if err := b.Put(item, w, nil); err != nil {
		b.waiters.Put(w)
		return none, err
	}
	if ctx.Done() == nil { // a select would cost twice as much
		a := <-w.answered
		b.waiters.Put(w)
		return a.result, a.err
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
	default: // w will still be answered, so it cannot be reused
		return none, fmt.Errorf("outcome unknown, the call was in flight: %w", context.Cause(ctx))
	}
}

// beginAlone reports whether nothing else is in flight or waits to be. The caller then calls sendAlone. A prompt call
// that has ended may have left work behind, so others must not follow it until the store has answered again.
func (b *Batcher[T, R]) beginAlone(prompt bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.inFlight > 0 || b.closed || b.crowd >= minCrowd || prompt && b.unanswered {
		return false
	}
	b.inFlight++
	b.sending++
	b.running.Add(1)
	return true
}

// sendAlone sends one item on the caller's goroutine, without the cost of waking another one. If other items
// have come since, it leaves them to Send.
func (b *Batcher[T, R]) sendAlone(ctx context.Context, item T) (R, error) {
	defer b.endAlone()
	call := b.call
	if ctx.Done() != nil {
		call = b.prompt
	}
	var none R
	switch results, err := b.send(ctx, call, []T{item}); {
	case err == nil:
		return results[0], nil
	case ctx.Err() != nil && errors.Is(err, context.Cause(ctx)):
		b.mu.Lock()
		b.unanswered = true
		b.mu.Unlock()
		return none, fmt.Errorf("outcome unknown, the call was in flight: %w", err)
	default:
		return none, err
	}
}

func (b *Batcher[T, R]) endAlone() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sending--
	if slices.ContainsFunc(b.waiting, func(g *batch[T, R]) bool { return g.ready }) {
		go b.Send()
		return
	}
	b.inFlight--
	b.running.Done()
}

// withdraw removes an item. It reports false if the item is in flight.
func (b *Batcher[T, R]) withdraw(done Completer[R]) bool {
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

// Close refuses new items, and returns when all existing ones have been sent and completed.
func (b *Batcher[T, R]) Close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.flush() // incomplete groups
	b.running.Wait()
}

// waiter is the Completer that Do uses.
type waiter[R any] struct {
	answered chan answer[R] // buffered, so that an answer to a caller that has gone does not block
}

type answer[R any] struct {
	result R
	err    error
}

func (w *waiter[R]) Complete(result R, err error) {
	w.answered <- answer[R]{result, err}
}
