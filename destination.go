package later

import (
	"context"
	"errors"
	"fmt"

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
func ToTopic(name string) Destination { return ToQueue(topicPrefix + name) }

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

// route is how messages get from a queue to a destination.
type route int

const (
	routeStep    route = iota // the store moves them in one step
	routeLinked               // they are sent to a queue with their acks
	routeSend                 // they are sent to a queue, then acked
	routeDeliver              // they are delivered, then acked
)

// exact reports whether a message gets there exactly once.
func (r route) exact() bool { return r <= routeLinked }

// route returns how messages get from a queue of a client to the destination.
func (d Destination) route(c *Client, queue string) (r route, err error) {
	if d.invalid != nil {
		return r, d.invalid
	}
	r, why, err := d.findRoute(c, queue)
	if err == nil && d.exactlyOnce && !r.exact() {
		err = fmt.Errorf("queue %q cannot be forwarded to %q exactly once, because %s: %w", queue, d, why, ErrUnsupported)
	}
	return r, err
}

// findRoute also returns why the messages cannot get there exactly once.
func (d Destination) findRoute(c *Client, queue string) (r route, why string, err error) {
	if d.custom != nil {
		if d.at != nil {
			return r, "", store.Invalid("a custom destination has no store: leave out At")
		}
		return routeDeliver, "it is a custom destination", nil
	}
	s, other := c.store, d.at != nil && d.at != c
	if other {
		s = d.at.store
	}
	isQueue := d.target.Kind == store.TargetQueue
	if isQueue && !other && d.target.Name == queue {
		return r, "", store.Invalid("destination of queue %q is the queue itself: give another one", queue)
	}
	direct := false
	f, ok := s.(store.Forwarder)
	if ok {
		direct, err = f.ForwardsTo(queue, d.target)
	}
	switch {
	case !isQueue && (!ok || errors.Is(err, ErrUnsupported)):
		return r, "", fmt.Errorf("destination %q needs Redis, and this store has only queues: give it the client of a Redis "+
			"with At: %w", d, ErrUnsupported)
	case err != nil && !(other && isQueue):
		return r, "", err
	}
	why = "they are in different slots of the Cluster: give the destination the hash tag {" + queue + "}"
	switch {
	case other && isQueue:
		return routeSend, "they are in different stores", nil
	case other:
		return routeDeliver, "they are in different stores", nil
	case direct:
		return routeStep, "", nil
	case isQueue && store.Linked(s, queue, d.target.Name):
		return routeLinked, "", nil
	case isQueue:
		return routeSend, "they are in different slots of the Cluster", nil
	}
	return routeDeliver, why, nil
}
