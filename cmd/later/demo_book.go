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

// book is what the shop has written down, so that a demo that was stopped can go on and count what went before. Each
// entry is a message, due in a far future, of a queue that nobody works on. Its id says what it is about, so writing it
// twice changes nothing.
type book struct {
	queue *later.Queue
	began time.Time     // this process
	ran   time.Duration // before it

	mu      sync.Mutex
	entries map[string]bookEntry
	handled map[string]bool // ids of messages that a handler was done with
}

// bookEntry is one entry.
type bookEntry struct {
	Kind  string        `json:"kind"`
	ID    string        `json:"id,omitempty"` // of the message it is about
	At    time.Time     `json:"at"`
	After time.Duration `json:"after_ns"` // so long the demo had run

	// of bookBegun
	Orders int     `json:"orders,omitempty"`
	Speed  float64 `json:"speed,omitempty"`

	// of bookDelivery
	Attempt  int           `json:"attempt,omitempty"`
	Lateness time.Duration `json:"lateness_ns,omitempty"`
	Early    bool          `json:"early,omitempty"`
	Waited   bool          `json:"waited,omitempty"` // it fell due while no demo ran
	Done     bool          `json:"done,omitempty"`   // the handler had no error
	Again    bool          `json:"again,omitempty"`  // and had been done with the message before
}

// The kinds of entries.
const (
	bookBegun    = "begun"
	bookResumed  = "resumed"
	bookSent     = "sent"
	bookPaying   = "paying" // written before the order's message is cancelled
	bookPaid     = "paid"   // and after that was printed
	bookMoved    = "moved"
	bookDelivery = "delivery" // written before the message is acked
	bookClosed   = "closed"   // all is done but the removal of the queues
)

// key is the id of the entry's own message.
func (e *bookEntry) key() string {
	if e.Kind == bookDelivery {
		return fmt.Sprintf("%s %s %d", e.Kind, e.ID, e.Attempt)
	}
	return e.Kind + " " + e.ID
}

// openBook reads what is written down.
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

// notOurs is the error of a queue that has the name of one of the demo's.
func notOurs(q *later.Queue) error {
	return store.Invalid("queue %q is none of a demo's: give the demo another --store, or remove the queue with later delete %s",
		q.Name(), q.Name())
}

func (b *book) add(e bookEntry) {
	b.entries[e.key()] = e
	if e.Done {
		b.handled[e.ID] = true
	}
}

// note writes an entry down.
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

// elapsed tells how long the demo has run, not counting the time between a stop and the next run.
func (b *book) elapsed() time.Duration { return b.ran + time.Since(b.began) }

// has tells whether there is an entry of a kind about a message.
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

// wasHandled tells whether a handler was done with a message.
func (b *book) wasHandled(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.handled[id]
}

// stops tells how often the demo was stopped and went on.
func (b *book) stops() int {
	n := 0
	for b.has(bookResumed, strconv.Itoa(n+1)) {
		n++
	}
	return n
}

// last tells when something was written down last.
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

// account is the whole story of a demo, over all its runs.
type account struct {
	sent      int
	delivered int // messages that a handler was done with
	paid      int // messages that were cancelled
	dead      int
	waiting   int
	lost      []string // ids that were sent, and of which nothing is known

	deliveries int // failed ones too
	early      int
	again      int           // of messages that were delivered before
	waited     int           // of messages that fell due while no demo ran
	longest    time.Duration // lateness of those
	lateness   []time.Duration
	stops      int
}

// account adds up what is written down. living and dead are the ids of the messages that the store has.
func (b *book) account(living, dead map[string]bool) *account {
	a := &account{stops: b.stops()}
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
			case living[e.ID]:
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

func (a *account) addDelivery(e bookEntry) {
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
