package activity

import (
	"context"
	"sync"

	"github.com/laterq/later/store"
)

// Limits of a Buffer. A watcher that reads nothing costs no more memory than this.
const (
	maxWaiting      = 1024
	maxWaitingBytes = 4 << 20
)

// Buffer holds the events that a watcher has not read. It never blocks the side that fills it: events that do not fit
// are counted. Create it with NewBuffer.
type Buffer struct {
	mu      sync.Mutex
	waiting []store.Reported
	bytes   int
	missed  int
	gap     bool
	closed  bool
	changed chan struct{} // has a token when Next has something to look at
	ended   chan struct{} // closed by Close

	storeClosed <-chan struct{}
}

// NewBuffer returns an empty Buffer. It also ends when storeClosed is closed.
func NewBuffer(storeClosed <-chan struct{}) *Buffer {
	return &Buffer{changed: make(chan struct{}, 1), ended: make(chan struct{}), storeClosed: storeClosed}
}

// Put adds number events. The caller does not change them afterwards.
func (b *Buffer) Put(queue string, events []byte, number int) {
	if number == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	if len(b.waiting) >= maxWaiting || b.bytes+len(events) > maxWaitingBytes {
		b.missed += number
	} else {
		b.waiting = append(b.waiting, store.Reported{Queue: queue, Events: events, Missed: b.missed, Gap: b.gap})
		b.bytes += len(events)
		b.missed, b.gap = 0, false
	}
	b.signal()
}

// Gap notes that an unknown number of events is missing.
func (b *Buffer) Gap() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gap = true
	b.signal()
}

func (b *Buffer) signal() {
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// Next implements store.Watcher.
func (b *Buffer) Next(ctx context.Context) (store.Reported, error) {
	for {
		if isClosed(b.storeClosed) {
			return store.Reported{}, store.ErrClosed
		}
		r, found, err := b.take()
		if found || err != nil {
			return r, err
		}
		select {
		case <-b.changed:
		case <-b.ended:
		case <-b.storeClosed:
		case <-ctx.Done():
			return store.Reported{}, context.Cause(ctx)
		}
	}
}

func (b *Buffer) take() (r store.Reported, found bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return r, false, store.ErrClosed
	case len(b.waiting) > 0:
		r = b.waiting[0]
		b.waiting[0] = store.Reported{}
		b.bytes -= len(r.Events)
		if b.waiting = b.waiting[1:]; len(b.waiting) == 0 {
			b.waiting = nil
		}
	case b.missed > 0 || b.gap:
		r = store.Reported{Missed: b.missed, Gap: b.gap}
		b.missed, b.gap = 0, false
	default:
		return r, false, nil
	}
	if len(b.waiting) > 0 || b.missed > 0 || b.gap {
		b.signal() // for another call of Next
	}
	return r, true, nil
}

// Close frees the Buffer and ends every Next with ErrClosed.
func (b *Buffer) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.closed = true
		b.waiting, b.bytes = nil, 0
		close(b.ended)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
