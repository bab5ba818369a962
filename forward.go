package later

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/laterq/later/internal/forward"
	"github.com/laterq/later/internal/hold"
	"github.com/laterq/later/internal/outcome"
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
	// takes nothing now. Its message stays in the queue without counting an attempt, and the worker waits before it
	// tries again. A panic is a failed attempt of all.
	//
	// ctx ends when the worker has lost the messages or its ShutdownTimeout is over. A message that was delivered
	// before a crash is delivered again.
	Deliver(ctx context.Context, msgs []*Message) []error
}

// ToQueue returns another queue as a destination. Messages keep their ids, due times and everything else, and start
// there without failed attempts. A message with an id that is live there, or within its dedup window, is dropped.
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
// SPUBLISH. Messages published without a subscriber are lost.
func ToChannel(name string) Destination {
	return newDestination(store.Target{Kind: store.TargetChannel, Name: name})
}

// To returns a custom destination. Messages are delivered to it at least once.
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
func (d Destination) route(c *Client, queue string) (forward.Route, error) {
	switch {
	case d.invalid != nil:
		return 0, d.invalid
	case d.custom != nil && d.at != nil:
		return 0, store.Invalid("a custom destination has no store: leave out At")
	}
	r, why, err := forward.RouteDeliver, "it is a custom destination", error(nil)
	if d.custom == nil {
		var at store.Store
		if d.at != nil && d.at != c {
			at = d.at.store
		}
		r, why, err = forward.FindRoute(c.store, queue, d.target, at)
	}
	if err == nil && d.exactlyOnce && !r.Exact() {
		err = fmt.Errorf("queue %q cannot be forwarded to %q exactly once, because %s: %w", queue, d, why, ErrUnsupported)
	}
	return r, err
}

// Forward has the worker move the messages of a queue to a destination when they are due. Call it before Run; a queue
// has either a handler or a destination.
//
// Within one Redis or embedded store (in a Cluster, within one slot) a message is moved exactly once: it leaves the
// queue and arrives in one step, so a worker that is killed at any moment neither loses nor doubles one. Otherwise it
// is delivered at least once, and to a queue once while its id is remembered, for at least a day. The worker logs which
// guarantee holds when it begins.
//
// Messages are moved in order of due time, in batches. If the destination takes none, because a key has another type
// or its server is full or away, they stay in the queue without counting attempts; the worker logs why and goes on by
// itself. Expired and unreadable messages become dead. Any number of workers can forward the same queue, but then the
// order holds only within a batch. Of the queue's QueueConfig, Lease, Backoff and nothing else matters.
//
// Run returns ErrInvalid or ErrUnsupported for a destination that is not possible.
func (w *Worker) Forward(queue string, to Destination) {
	w.register("Forward", queue, queueHandler{to: &to}, nil)
}

// forwarder moves the messages of one queue to a destination.
type forwarder struct {
	*queueWorker
	to      Destination
	batch   *pump.Batch
	move    *forward.Forward
	misfits *outcome.Misfits
}

// newForwarder returns a forwarder, and an error if the destination cannot be reached.
func (r *run) newForwarder(queue string, to Destination) (*forwarder, error) {
	route, err := to.route(r.client, queue)
	if err != nil {
		return nil, fmt.Errorf("worker's Forward of queue %q: %w", queue, err)
	}
	f := &forwarder{queueWorker: &queueWorker{run: r, queue: r.client.Queue(queue), cfg: r.cfg.queue(queue)}, to: to}
	f.misfits = outcome.NewMisfits(queue, f.cfg.GiveBackFor, r.Log)
	r.Misfits = append(r.Misfits, f.misfits)
	f.batch = f.claims(f.cfg.Lease, to.String())
	f.move = &forward.Forward{Batch: f.batch, To: to.target, Route: route, At: r.client.store}
	if to.at != nil {
		f.move.At = to.at.store
	}
	f.move.InOrder, f.move.IDs, f.move.Moved = r.client.observe != nil, f.queue.wantsEvents, f.moved
	f.batch.Work, f.batch.Uncounted = f.move, true
	if to.custom != nil { // code of the program, which the message may kill
		f.batch.Work, f.batch.Uncounted = &forward.Custom{
			Forward: f.move, Name: to.String(), Deliver: f.deliver, Backoff: f.cfg.Backoff, Default: defaultBackoff,
			Misfits: f.misfits, Shutdown: ErrShutdown, Abandoned: &r.Abandoned,
		}, false
	}
	return f, nil
}

// deliver calls a custom destination.
func (f *forwarder) deliver(ctx context.Context, claim store.Claim) []error {
	msgs := make([]*Message, len(claim.Messages))
	for i := range claim.Messages {
		msgs[i] = newMessage(f.queue.name, &claim.Messages[i], claim.Now)
	}
	return f.to.custom.Deliver(ctx, msgs)
}

// claims returns a Batch, without its Work, of the queue. The text says where its messages go, for logs.
func (qw *queueWorker) claims(lease time.Duration, to string) *pump.Batch {
	return &pump.Batch{
		Env: &qw.run.Env, Reports: qw, Queue: &hold.Queue{Name: qw.queue.name, Length: lease, Called: func(error) {}},
		Outage: &pump.Outage{
			Log:   qw.run.Log,
			Fails: "later: messages cannot be forwarded and stay in the queue; retrying",
			Works: "later: messages are forwarded again",
			Attrs: []any{"queue", qw.queue.name, "to", to},
		},
	}
}

// checkCycle returns an ErrInvalid if messages of a queue would come back to it.
func (w *Worker) checkCycle(queue string) error {
	path := fmt.Sprintf("%q", queue)
	for at, seen := queue, map[string]bool{}; !seen[at]; {
		seen[at] = true
		to := w.handlers[at].to
		if to == nil || to.target.Kind != store.TargetQueue || to.at != nil && to.at != w.client {
			return nil
		}
		at = to.target.Name
		if path += fmt.Sprintf(" → %q", at); at == queue {
			return store.Invalid("messages are forwarded in a circle, %s: leave out one of them", path)
		}
	}
	return nil
}

// forward moves messages until ctx ends.
func (r *run) forward(ctx context.Context, f *forwarder) {
	guarantee := "at least once"
	if f.move.Route.Exact() {
		guarantee = "exactly once"
	}
	r.Log.Info("later: forwarding", "queue", f.queue.name, "to", f.to.String(), "guarantee", guarantee)
	f.move.Run(ctx)
}

// moved reports messages that the store has moved.
func (f *forwarder) moved(forwarded store.Forwarded) {
	for _, id := range forwarded.IDs {
		f.queue.report(Event{Kind: EventForwarded, ID: id, Context: f.run.Handling})
	}
	f.queue.activity.Count(EventForwarded, forwarded.Count)
}

// Event implements pump.Reports.
func (qw *queueWorker) Event(kind EventKind, id string) { qw.queue.event(qw.run.Handling, kind, id) }

// FoundDead implements pump.Reports.
func (qw *queueWorker) FoundDead(c store.Claim) {
	qw.queue.observeDead(qw.run.Handling, c)
	qw.run.Dead.Found(qw.queue.name, c.Died)
}

// Died implements pump.Reports.
func (qw *queueWorker) Died(m *store.Claimed, reason string) {
	qw.run.Dead.Settled(qw.queue.name, m.ID, m.Attempt, m.MaxAttempts, errors.New(reason))
}
