// Package latertest tests programs that use Later: a store in memory with a clock that the test moves, and assertions
// about the messages in a queue. A test of "the order is cancelled after 30 minutes" takes a millisecond and never
// sleeps:
//
//	lt := latertest.New(t)
//	shop := NewShop(lt.Client())
//	lt.Handle("orders", shop.CancelIfUnpaid)
//	shop.Place(ctx, "1001")
//	lt.Advance(30 * time.Minute)
//
// Advance runs everything that falls due on the way, in due order and each at its own due time, including retries,
// snoozes, messages that handlers send, messages of topics, and the runs of schedules. Handlers run in the goroutine of
// the test (Handle), or in a real later.Worker (Start); Advance waits for both. RequireScheduled, RequireNone and
// RequireDead check the messages of a queue, of any store.
//
// The store's clock stands still unless the test moves it. In a testing/synctest bubble it is the bubble's, so that
// time.Sleep moves it too. Leases do not expire because the clock is moved.
//
// Start reading at Harness. The package imports later, its package store and the engine in memory.
package latertest

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/laterq/later"
)

// TB is the part of testing.TB that this package uses.
type TB interface {
	Helper()
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Harness is a client on a store in memory with a clock that the test moves. Create it with New. Its methods are for
// the test's goroutine; the client is for any.
type Harness struct {
	tb     TB
	store  engine
	client *later.Client
	clock  clock

	inline     map[string]later.HandlerFunc
	workers    []*runningWorker
	scheduling bool // a worker sends the runs of schedules for inline handlers

	moving   sync.Mutex    // held by Advance
	happened chan struct{} // has a token when something has happened

	mu      sync.Mutex
	events  int      // that were observed
	results []Result // since the last Advance
}

// Result is the result of a handler.
type Result struct {
	Message *later.Message
	// At is when the result was settled, on the store's clock.
	At time.Time
	// Err is the handler's error; later.OutcomeOf explains it. From a Worker it is the error that middleware returned,
	// and nil for an ack with follow-ups.
	Err error
}

// New returns a Harness with a clock that begins at the current time. Options are options of the client, such as
// later.WithSendMiddleware. Later's log goes to the output of the test, unless they say otherwise. When the test ends,
// workers are stopped and the client is closed.
func New(tb TB, opts ...later.Option) *Harness {
	tb.Helper()
	return NewAt(tb, time.Now(), opts...)
}

// NewAt is New with a clock that begins at start, in whole milliseconds. In a testing/synctest bubble, the time is the
// bubble's and start does not matter.
func NewAt(tb TB, start time.Time, opts ...later.Option) *Harness {
	tb.Helper()
	h := &Harness{tb: tb, inline: map[string]later.HandlerFunc{}, happened: make(chan struct{}, 1)}
	h.store.changed, h.store.waiting = h.signal, &propertyWaiters{byQueue: map[string]chan struct{}{}}
	h.store.Store, h.clock = newStore(start.Truncate(time.Millisecond))
	own := []later.Option{later.WithObserver(h.observe)}
	if to, ok := tb.(interface{ Output() io.Writer }); ok {
		own = append(own, later.WithLogger(slog.New(slog.NewTextHandler(to.Output(), nil))))
	}
	client, err := later.New(h.store, append(own, opts...)...)
	if err != nil {
		tb.Fatalf("latertest: %v", err)
		return h
	}
	h.client = client
	tb.Cleanup(h.close)
	return h
}

// close ends everything that the harness started.
func (h *Harness) close() {
	for _, w := range h.workers {
		w.stop()
	}
	if err := h.client.Close(); err != nil {
		h.tb.Errorf("latertest: close the client: %v", err)
	}
	if err := h.store.Close(); err != nil {
		h.tb.Errorf("latertest: close the store: %v", err)
	}
}

// Client returns the client of the store. Do not close it.
func (h *Harness) Client() *later.Client { return h.client }

// Now returns the store's time. Code that computes due times for later.At should take its clock from here.
func (h *Harness) Now() time.Time { return h.clock.now() }

// observe records an event of the client.
func (h *Harness) observe(e later.Event) {
	h.mu.Lock()
	h.events++
	switch e.Kind {
	case later.EventAcked, later.EventNacked, later.EventSnoozed, later.EventGivenBack,
		later.EventBuried:
		// Deliveries that a test or an inline handler settles have another context, or none of a handler.
		if m := later.MessageFromContext(e.Context); m != nil && m.ID == e.ID && m.Queue == e.Queue {
			copied := *m // m keeps its whole claim in memory
			h.results = append(h.results, Result{Message: &copied, At: h.Now(), Err: e.Err})
		}
	}
	h.mu.Unlock()
	h.signal()
}

// signal wakes Advance.
func (h *Harness) signal() {
	select {
	case h.happened <- struct{}{}:
	default:
	}
}

// seen returns the number of events so far.
func (h *Harness) seen() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.events
}

// fatal ends the test because of an error of the store or client.
func (h *Harness) fatal(doing string, err error) {
	h.tb.Helper()
	h.tb.Fatalf("latertest: %s: %v", doing, err)
}

// background is the context of calls to the store, which does not block.
var background = context.Background()
