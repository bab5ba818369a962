package later

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/laterq/later/internal/hold"
	"github.com/laterq/later/internal/pump"
	"github.com/laterq/later/store"
)

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
	w.mu.Lock()
	defer w.mu.Unlock()
	err := checkOwnQueue(queue)
	_, handled := w.handlers[queue]
	_, forwarded := w.destinations[queue]
	switch {
	case err != nil:
	case forwarded || handled:
		err = store.Invalid("queue %q has a handler or destination already: give it one", queue)
	case w.run != nil:
		w.cfg.Logger.Error("later: a destination has no effect: call Forward before Run", "queue", queue)
		return
	default:
		w.destinations[queue] = to
		return
	}
	if w.invalid == nil {
		w.invalid = fmt.Errorf("worker's Forward: %w", err)
	}
}

// forwards returns what the worker forwards, as much as fits into its record.
func (w *Worker) forwards() (all []Forwarded) {
	size := 0
	for _, queue := range slices.Sorted(maps.Keys(w.destinations)) {
		f := Forwarded{queue, w.destinations[queue].String()}
		if size += 2*(len(f.Queue)+len(f.To)) + len(`{"queue":"","to":""},`); size > maxForwards { // JSON may escape
			break
		}
		all = append(all, f)
	}
	return all
}

// forwarder moves the messages of one queue to a destination.
type forwarder struct {
	*queueWorker // without a handler, and without slots
	to           Destination
	batch        *pump.Batch
	move         *pump.Forward
}

// newForwarder returns a forwarder, and an error if the destination cannot be reached.
func (r *run) newForwarder(queue string, to Destination) (*forwarder, error) {
	route, err := to.route(r.client, queue)
	if err != nil {
		return nil, fmt.Errorf("worker's Forward of queue %q: %w", queue, err)
	}
	f := &forwarder{queueWorker: &queueWorker{run: r, queue: r.client.Queue(queue), cfg: r.cfg.queue(queue)}, to: to}
	f.misfits = newMisfits(queue, f.cfg.GiveBackFor, r.log)
	f.batch = f.claims(f.cfg.Lease, &pump.Outage{
		Fails: "later: messages cannot be forwarded and stay in the queue; retrying",
		Works: "later: messages are forwarded again",
		Attrs: []any{"queue", queue, "to", to.String()},
	})
	f.move = &pump.Forward{Batch: f.batch, To: to.target, Route: route, At: r.client.store}
	if to.at != nil {
		f.move.At = to.at.store
	}
	f.move.InOrder, f.move.IDs, f.move.Moved = r.client.observe != nil, f.queue.wantsEvents, f.moved
	f.batch.Work, f.batch.Uncounted = f.move, true
	if to.custom != nil { // code of the program, which the message may kill
		f.batch.Work, f.batch.Uncounted = &deliverer{f.move, f}, false
	}
	return f, nil
}

// claims returns a Batch, without its Work, of the queue.
func (qw *queueWorker) claims(lease time.Duration, outage *pump.Outage) *pump.Batch {
	outage.Log = qw.run.log
	queue := &hold.Queue{Name: qw.queue.name, Length: lease, Called: func(error) {}}
	return &pump.Batch{Env: qw.run.env, Queue: queue, Reports: qw, Outage: outage}
}

// checkCycle returns an ErrInvalid if messages of a queue of a client would come back to it.
func checkCycle(c *Client, destinations map[string]Destination, queue string) error {
	path := fmt.Sprintf("%q", queue)
	for at, seen := queue, map[string]bool{}; !seen[at]; {
		seen[at] = true
		to, ok := destinations[at]
		if !ok || to.target.Kind != store.TargetQueue || to.at != nil && to.at != c {
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
	guarantee, once := "at least once", f.batch.Once
	if f.move.Route.Exact() {
		guarantee = "exactly once"
	}
	if f.move.Route == pump.RouteStep {
		once = f.move.Step
	}
	r.log.Info("later: forwarding", "queue", f.queue.name, "to", f.to.String(), "guarantee", guarantee)
	wait := func(ctx context.Context) error { return r.env.WaitFor(ctx, f.queue.name) }
	loop := pump.Loop{Env: r.env, Ready: r.env.Await, Once: once, Wait: wait, Outage: f.batch.Outage}
	loop.Run(ctx)
}

// moved reports messages that the store has moved.
func (f *forwarder) moved(forwarded store.Forwarded) {
	for _, id := range forwarded.IDs {
		f.queue.report(Event{Kind: EventForwarded, ID: id, Context: f.run.handling})
	}
	f.queue.activity.Count(EventForwarded, forwarded.Count)
}

// Event implements pump.Reports.
func (qw *queueWorker) Event(kind EventKind, id string) { qw.queue.event(qw.run.handling, kind, id) }

// FoundDead implements pump.Reports.
func (qw *queueWorker) FoundDead(c store.Claim) {
	qw.queue.observeDead(qw.run.handling, c)
	qw.run.logDeaths(qw, c.Died)
	qw.run.dead.add(qw, c.Died...)
}

// Died implements pump.Reports.
func (qw *queueWorker) Died(m *store.Claimed, reason string) {
	qw.run.logDeath(qw.queue.name, m.ID, m.Attempt, m.MaxAttempts, errors.New(reason))
	qw.run.dead.add(qw, m.ID)
}
