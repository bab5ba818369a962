package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

// book is the demo's journal. With it, a demo that was stopped can continue and count what happened before. Each entry
// is a message in a queue without workers, due in the far future. Its id is the entry's key, so writing an entry twice
// changes nothing.
type book struct {
	queue *later.Queue
	began time.Time     // start of this process
	ran   time.Duration // by earlier processes

	mu      sync.Mutex
	entries map[string]bookEntry
	handled map[string]bool // ids of messages that a handler completed
}

// bookEntry is one entry.
type bookEntry struct {
	Kind  string        `json:"kind"`
	ID    string        `json:"id,omitempty"` // of the message
	At    time.Time     `json:"at"`
	After time.Duration `json:"after_ns"` // running time of the demo

	// Only in bookBegun.
	Orders int     `json:"orders,omitempty"`
	Speed  float64 `json:"speed,omitempty"`

	// Only in bookDelivery.
	Attempt  int           `json:"attempt,omitempty"`
	Lateness time.Duration `json:"lateness_ns,omitempty"`
	Early    bool          `json:"early,omitempty"`
	Waited   bool          `json:"waited,omitempty"` // fell due while no demo was running
	Done     bool          `json:"done,omitempty"`   // the handler returned no error
	Again    bool          `json:"again,omitempty"`  // a handler had completed the message before
}

// The kinds of entries.
const (
	bookBegun    = "begun"
	bookResumed  = "resumed"
	bookSent     = "sent"
	bookPaying   = "paying" // written before the order's message is cancelled
	bookPaid     = "paid"   // written after that was printed
	bookMoved    = "moved"
	bookDelivery = "delivery" // written before the message is acked
	bookClosed   = "closed"   // only the removal of the queues is left
)

// key is the id of the entry's own message.
func (e *bookEntry) key() string {
	if e.Kind == bookDelivery {
		return fmt.Sprintf("%s %s %d", e.Kind, e.ID, e.Attempt)
	}
	return e.Kind + " " + e.ID
}

// openBook reads the journal from its queue.
func openBook(ctx context.Context, q *later.Queue) (*book, error) {
	b := &book{queue: q, began: time.Now(), entries: map[string]bookEntry{}, handled: map[string]bool{}}
	for info, err := range q.All(ctx, later.ListOptions{State: later.StateScheduled, Limit: store.MaxBatch}) {
		if err != nil {
			return nil, err
		}
		var e bookEntry
		if json.Unmarshal(info.Payload, &e) != nil || e.key() != info.ID {
			return nil, notOurs(q)
		}
		b.add(e)
		b.ran = max(b.ran, e.After)
	}
	return b, nil
}

// notOurs returns the error for a queue that has a demo's name but was not created by a demo.
func notOurs(q *later.Queue) error {
	return store.Invalid(
		"queue %q was not created by a demo: use another --store, or remove the queue with later delete %s",
		q.Name(), q.Name())
}

func (b *book) add(e bookEntry) {
	b.entries[e.key()] = e
	if e.Done {
		b.handled[e.ID] = true
	}
}

// note writes an entry.
func (b *book) note(ctx context.Context, e bookEntry) error {
	b.mu.Lock()
	e.At, e.After = time.Now(), b.elapsed()
	e.Again = e.Done && b.handled[e.ID]
	b.mu.Unlock()
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = b.queue.Send(ctx, text, later.WithID(e.key()), later.In(store.MaxDelay))
	if err != nil && !errors.Is(err, later.ErrDuplicate) {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(e)
	return nil
}

// elapsed returns how long the demo has run, without the time between a stop and the next run.
func (b *book) elapsed() time.Duration { return b.ran + time.Since(b.began) }

// has reports whether there is an entry of this kind for a message.
func (b *book) has(kind, id string) bool {
	_, ok := b.entry(kind, id)
	return ok
}

func (b *book) entry(kind, id string) (bookEntry, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.entries[(&bookEntry{Kind: kind, ID: id}).key()]
	return e, ok
}

// wasHandled reports whether a handler completed the message.
func (b *book) wasHandled(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.handled[id]
}

// stops returns how often the demo was stopped and continued.
func (b *book) stops() int {
	n := 0
	for b.has(bookResumed, strconv.Itoa(n+1)) {
		n++
	}
	return n
}

// last returns the time of the latest entry.
func (b *book) last() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	var last time.Time
	for _, e := range b.entries {
		if e.At.After(last) {
			last = e.At
		}
	}
	return last
}

// outcome counts what became of the messages of a demo, over all its runs.
type outcome struct {
	sent      int
	delivered int // messages that a handler completed
	paid      int // messages that were cancelled
	dead      int
	waiting   int
	lost      []string // ids of messages that were sent and are unaccounted for

	deliveries int // including failed ones
	early      int
	again      int           // deliveries of messages that had been completed before
	waited     int           // deliveries that fell due while no demo was running
	longest    time.Duration // longest lateness of those
	lateness   []time.Duration
	stops      int
}

// outcome counts the entries. pending and dead are the ids of the messages in the store.
func (b *book) outcome(pending, dead map[string]bool) *outcome {
	a := &outcome{stops: b.stops()}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.entries {
		switch e.Kind {
		case bookDelivery:
			a.addDelivery(e)
		case bookSent:
			_, paying := b.entries[(&bookEntry{Kind: bookPaying, ID: e.ID}).key()]
			a.sent++
			switch {
			case pending[e.ID]:
				a.waiting++
			case dead[e.ID]:
				a.dead++
			case b.handled[e.ID]:
				a.delivered++
			case paying:
				a.paid++
			default:
				a.lost = append(a.lost, e.ID)
			}
		}
	}
	slices.Sort(a.lost)
	slices.Sort(a.lateness)
	return a
}

func (a *outcome) addDelivery(e bookEntry) {
	a.deliveries++
	if e.Early {
		a.early++
	}
	if e.Again {
		a.again++
	}
	if e.Waited {
		a.waited++
		a.longest = max(a.longest, e.Lateness)
	} else {
		a.lateness = append(a.lateness, e.Lateness)
	}
}
