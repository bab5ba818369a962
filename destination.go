package later

import (
	"context"
	"fmt"

	"github.com/laterq/later/internal/pump"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/store"
)

// Destination is where a worker moves the messages of a queue when they are due, instead of handling them; see
// Worker.Forward. ToQueue, ToList, ToStream, ToChannel and To return one.
type Destination struct {
	target      store.Target
	custom      Deliverer
	at          *Client // nil for the worker's
	exactlyOnce bool
	invalid     error
}

// Deliverer is a custom destination.
type Deliverer interface {
	// Deliver delivers messages and returns an error for each, in order; a nil slice means that all were delivered.
	//
	// It gets up to store.MaxBatch messages, earliest due first, and is called by one goroutine at a time. An error
	// settles its message as a handler's does: it is a failed attempt that is retried after the queue's Backoff, and
	// RetryIn, Snooze and Bury select their own settlement. An ErrUnavailable or ErrFull says that the destination
	// takes nothing now: those messages stay in the queue without counting an attempt, and the worker waits before it
	// tries again. A panic is a failed attempt of all.
	//
	// ctx ends when the worker has lost the messages or its ShutdownTimeout is over. A message that was delivered
	// before a crash is delivered again.
	Deliver(ctx context.Context, msgs []*Message) []error
}

// ToQueue returns another queue as a destination. Messages keep their ids, due times and everything else, and start
// there without failed attempts. One whose id is live there or within its dedup window is dropped.
func ToQueue(name string) Destination {
	return newDestination(store.Target{Kind: store.TargetQueue, Name: name})
}

// ToTopic returns a topic as a destination: it is the queue "topic:NAME".
func ToTopic(name string) Destination { return ToQueue(reserved.Topic + name) }

// ToList returns a Redis list as a destination. Its elements are the payloads, earliest due first, for programs in any
// language that pop from its left end (BLPOP).
func ToList(key string) Destination {
	return newDestination(store.Target{Kind: store.TargetList, Name: key})
}

// ToStream returns a Redis stream as a destination. An entry has the fields id, payload, due (milliseconds since 1970)
// and, for each header, header:NAME.
func ToStream(key string) Destination {
	return newDestination(store.Target{Kind: store.TargetStream, Name: key})
}

// ToChannel returns a Redis pub/sub channel as a destination: payloads are published with PUBLISH, or in a Cluster with
// SPUBLISH. What is published while nobody listens is gone.
func ToChannel(name string) Destination {
	return newDestination(store.Target{Kind: store.TargetChannel, Name: name})
}

// To returns a custom destination, to which messages are delivered at least once.
func To(d Deliverer) Destination {
	if d == nil {
		return Destination{invalid: store.Invalid("destination is nil: give a Deliverer")}
	}
	return Destination{custom: d}
}

// ParseDestination returns the destination of a text like "queue:NAME", "topic:NAME", "list:KEY", "stream:KEY" or
// "channel:NAME".
func ParseDestination(text string) (Destination, error) {
	t, err := store.ParseTarget(text)
	return Destination{target: t, invalid: err}, err
}

func newDestination(t store.Target) Destination { return Destination{target: t, invalid: t.Check()} }

// Front returns the destination with messages added to the left end of its list (LPUSH), the last one first.
func (d Destination) Front() Destination {
	d.target.Front = true
	return d.checked()
}

// MaxLen returns the destination with a stream that keeps about the newest n entries; 0 means all.
func (d Destination) MaxLen(n int64) Destination {
	d.target.MaxLen = n
	return d.checked()
}

// At returns the destination in the store of another client, which must stay open while the worker runs. Messages are
// then delivered at least once.
func (d Destination) At(c *Client) Destination {
	if d.at = c; c == nil && d.invalid == nil {
		d.invalid = store.Invalid("the client of destination %q is nil: give one, or leave out At", d)
	}
	return d
}

// ExactlyOnce returns the destination with the demand that messages are moved in one step. Run returns an
// ErrUnsupported if that is not possible.
func (d Destination) ExactlyOnce() Destination {
	d.exactlyOnce = true
	return d
}

// String returns a text that ParseDestination accepts, or the type of a custom destination.
func (d Destination) String() string {
	if d.custom != nil {
		return fmt.Sprintf("%T", d.custom)
	}
	return d.target.String()
}

func (d Destination) checked() Destination {
	if d.invalid == nil && d.custom == nil {
		d.invalid = d.target.Check()
	}
	if d.invalid == nil && d.custom != nil {
		d.invalid = store.Invalid("a custom destination has no Front and no MaxLen: leave them out")
	}
	return d
}

// route returns how messages get from a queue of a client to the destination.
func (d Destination) route(c *Client, queue string) (pump.Route, error) {
	switch {
	case d.invalid != nil:
		return 0, d.invalid
	case d.custom != nil && d.at != nil:
		return 0, store.Invalid("a custom destination has no store: leave out At")
	}
	r, why, err := pump.RouteDeliver, "it is a custom destination", error(nil)
	if d.custom == nil {
		var at store.Store
		if d.at != nil && d.at != c {
			at = d.at.store
		}
		r, why, err = pump.FindRoute(c.store, queue, d.target, at)
	}
	if err == nil && d.exactlyOnce && !r.Exact() {
		err = fmt.Errorf("queue %q cannot be forwarded to %q exactly once, because %s: %w", queue, d, why, ErrUnsupported)
	}
	return r, err
}
