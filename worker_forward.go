package later

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/internal/event"
	"github.com/laterq/later/internal/hold"
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
	*queueWorker // has no handler, and no part in the scheduler
	to           Destination
	route        route
	more         bool // more messages are ready
	// custom delivers claimed messages instead, as deliverTo does, if it is not nil.
	custom func(ctx context.Context, claim store.Claim, settlements []store.Settlement) error
	// acked reports an ack, if it is not nil.
	acked func(m *store.Claimed, s *store.Settlement)
	// unwritable is told why the store refuses to settle messages, if it is not nil. It reports whether they are to be
	// delivered again.
	unwritable func(err error) bool
	again      []store.Claimed // messages of the last settle that are to be delivered again: a condition was not met
	// refused changes an ack whose follow-ups the store refuses into another settlement, if it is not nil.
	refused   func(s *store.Settlement, err error)
	unsettled int // messages of the last claim that could be neither settled nor released
}

// newForwarder returns a forwarder, and an error if the destination cannot be reached.
func (r *run) newForwarder(queue string, to Destination) (*forwarder, error) {
	route, err := to.route(r.client, queue)
	if err != nil {
		return nil, fmt.Errorf("worker's Forward of queue %q: %w", queue, err)
	}
	qw := &queueWorker{run: r, queue: r.client.Queue(queue), cfg: r.cfg.queue(queue)}
	qw.leases = &hold.Queue{Name: queue, Length: qw.cfg.Lease, Called: func(error) {}}
	qw.misfits = newMisfits(queue, qw.cfg.GiveBackFor, r.log)
	f := &forwarder{queueWorker: qw, to: to, route: route}
	if to.custom != nil {
		f.custom = f.deliverCustom
	}
	return f, nil
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
	guarantee := "at least once"
	if f.route.exact() {
		guarantee = "exactly once"
	}
	r.log.Info("later: forwarding", "queue", f.queue.name, "to", f.to.String(), "guarantee", guarantee)
	waitFailed := false
	f.loop(ctx, func() error {
		var err error
		if f.route == routeStep {
			err = f.step()
		} else {
			err = f.deliver()
		}
		if err != nil || f.more {
			return err
		}
		if !waitFailed {
			f.worked() // before a wait that may be long
		}
		err = f.wait(ctx)
		waitFailed = err != nil
		return err
	})
}

// loop calls once until ctx ends, but not while the worker is paused. It pauses after errors.
func (f *forwarder) loop(ctx context.Context, once func() error) {
	for failures := 0; ctx.Err() == nil; {
		if f.run.gate.await(ctx) != nil {
			return
		}
		err := once()
		switch {
		case err == nil:
			failures = 0
			f.worked()
		case ctx.Err() != nil:
			return
		case errors.Is(err, ErrClosed):
			f.run.end(err)
			return
		default:
			f.failed(err)
			calls.Pause(ctx, failures)
			failures++
		}
	}
}

// wait blocks until messages may be ready or the worker is paused.
func (f *forwarder) wait(ctx context.Context) error {
	waiting, cancel := f.run.gate.untilClosed(ctx)
	defer cancel()
	err := f.run.client.store.Wait(waiting, f.queue.name)
	if waiting.Err() != nil && ctx.Err() == nil {
		return nil // paused
	}
	return err
}

// step has the store move a batch, or two if more messages are ready: the second call is there when the first returns.
// The store executes them one after the other, so the order holds. An observer gets events in that order too, so with
// one there is a single call.
func (f *forwarder) step() error {
	second := make(chan error, 1)
	both := f.more && f.run.client.observe == nil
	var more bool
	if both {
		go func() {
			var err error
			more, err = f.move()
			second <- err
		}()
	}
	var err error
	f.more, err = f.move()
	if both {
		err = errors.Join(err, <-second)
		f.more = f.more || more
	}
	return err
}

// move has the store move a batch, and reports whether more messages are ready.
func (f *forwarder) move() (more bool, err error) {
	defer f.run.beginClaim()()
	ctx, cancel := context.WithTimeout(f.run.calling, callTimeout)
	defer cancel()
	c := f.run.client
	watch := f.calls.begin(false, time.Since(f.run.begun))
	forwarded, err := c.store.(store.Forwarder).Forward(ctx, f.queue.name,
		store.ForwardRequest{To: f.to.target, Max: store.MaxBatch, IDs: f.queue.wantsEvents()})
	watch.end()
	if err != nil {
		return false, err
	}
	f.run.hasClaimed()
	f.died(store.Claim{Died: forwarded.Died, Expired: forwarded.Expired, Dropped: forwarded.Dropped})
	for _, id := range forwarded.IDs {
		f.queue.report(Event{Kind: EventForwarded, ID: id, Context: f.run.handling})
	}
	f.queue.activity.count(EventForwarded, forwarded.Count)
	return forwarded.More, nil
}

// died reports messages that died to the observer and OnDead.
func (f *forwarder) died(c store.Claim) {
	f.queue.observeDead(f.run.handling, c)
	f.run.logDeaths(f.queueWorker, c.Died)
	f.run.dead.add(f.queueWorker, c.Died...)
}

// deliver claims a batch, delivers it and settles its messages. An error says that the destination or the store takes
// nothing now.
func (f *forwarder) deliver() error {
	defer f.run.beginClaim()()
	s, lease := f.run.client.store, f.cfg.Lease
	claiming, cancel := context.WithTimeout(f.run.calling, min(callTimeout, lease))
	defer cancel()
	asked := time.Now()
	// A custom destination runs code of the program, which the message may kill. The others can be tried for ever.
	req := store.ClaimRequest{Max: store.MaxBatch, Lease: lease, Uncounted: f.to.custom == nil}
	watch := f.calls.begin(false, asked.Sub(f.run.begun))
	claim, err := s.Claim(claiming, f.queue.name, req)
	watch.end()
	if err != nil {
		return err
	}
	f.run.hasClaimed()
	f.more, f.unsettled = claim.More, 0
	f.died(claim)
	if len(claim.Messages) == 0 {
		return nil
	}
	f.run.forwarding.Add(int64(len(claim.Messages)))
	defer f.run.forwarding.Add(-int64(len(claim.Messages)))
	held := f.run.leases.Whole(f.run.calling, f.leases, claim.Messages[0].Receipt.Lease, asked)
	defer held.Release()
	for {
		settlements, err := f.deliverTo(held.Context, claim)
		if failed := f.settle(held, claim, settlements); err == nil {
			err = failed
		}
		if err != nil || len(f.again) == 0 {
			return err
		}
		claim.Messages = f.again
	}
}

// deliverTo delivers claimed messages. It returns their settlements, in order, and an error if the destination takes
// nothing now.
func (f *forwarder) deliverTo(ctx context.Context, claim store.Claim) ([]store.Settlement, error) {
	settlements := make([]store.Settlement, len(claim.Messages))
	for i := range claim.Messages {
		m := &claim.Messages[i]
		settlements[i] = store.Settlement{
			Receipt: m.Receipt, Action: store.Ack, DedupWindow: m.DedupWindow, Grouped: m.Group != "",
		}
		if f.route == routeLinked && f.custom == nil {
			out := store.Outgoing{Message: m.Message, Due: store.Due{At: m.Due}}
			settlements[i].Then = []store.FollowUp{{Queue: f.to.target.Name, Message: out}}
		}
	}
	if f.custom != nil {
		return settlements, f.custom(ctx, claim, settlements)
	}
	to := f.run.client
	if f.to.at != nil {
		to = f.to.at
	}
	var err error
	switch f.route {
	case routeSend:
		err = sendForwarded(ctx, to, f.to.target.Name, claim.Messages, nil)
	case routeDeliver:
		calling, cancel := context.WithTimeout(ctx, callTimeout)
		err = to.store.(store.Forwarder).Deliver(calling, f.to.target, claim.Messages)
		cancel()
	}
	if err != nil {
		for i := range settlements {
			settlements[i].Action = store.Release
		}
	}
	return settlements, err
}

// sendForwarded sends claimed messages to a queue of another store or slot. Their ids are remembered there, so that
// messages that were sent before a crash, or before an error, are not sent again.
func sendForwarded(
	ctx context.Context, to *Client, queue string, msgs []store.Claimed, condition *store.Condition,
) error {
	out := make([]store.Outgoing, len(msgs))
	for i := range msgs {
		out[i] = store.Outgoing{Message: msgs[i].Message, Due: store.Due{At: msgs[i].Due}, If: condition}
		out[i].DedupWindow = max(out[i].DedupWindow, followUpWindow)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	results, err := to.store.Send(ctx, queue, out)
	return cmp.Or(err, store.SendError(results))
}

// settle settles the messages of a claim. After an error it releases those that are left.
func (f *forwarder) settle(held *hold.Whole, claim store.Claim, settlements []store.Settlement) error {
	alone := false // one message in a call
	f.again = nil
	for first := 0; first < len(settlements); {
		last, size := first, 0
		for last < len(settlements) &&
			(last == first || !alone && size+settleSize(settlements[last]) <= store.MaxBatchBytes) {
			size += settleSize(settlements[last])
			last++
		}
		results, err := f.trySettle(held, settlements[first:last])
		if f.isUnwritable(err) {
			f.again = append(f.again, claim.Messages[first:last]...)
			first = last
			continue
		}
		if err != nil && f.refused != nil && calls.IsPermanent(err) && !errors.Is(err, ErrClosed) {
			if last > first+1 {
				alone = true // one of them must not keep the others from being settled
				continue
			}
			if one := &settlements[first]; len(one.Then) > 0 {
				f.refused(one, err)
				continue
			}
		}
		for i, result := range results {
			if failed := f.settled(&claim.Messages[first+i], &settlements[first+i], result); err == nil {
				err = failed
			}
		}
		if err != nil {
			for i := range f.again {
				settlements = append(settlements, store.Settlement{Receipt: f.again[i].Receipt})
			}
			f.release(settlements[first:])
			return err
		}
		first = last
	}
	return nil
}

// isUnwritable reports whether messages whose settle returned err are to be delivered again in another way.
func (f *forwarder) isUnwritable(err error) bool {
	return err != nil && f.unwritable != nil && calls.IsRefusal(err) && f.unwritable(err)
}

// trySettle settles messages. While they are held it tries again after a failure, because messages that were delivered
// would be delivered again.
func (f *forwarder) trySettle(held *hold.Whole, settlements []store.Settlement) ([]store.SettleResult, error) {
	for failures := 0; ; failures++ {
		ctx, cancel := f.settling()
		results, err := f.run.client.store.Settle(ctx, f.queue.name, settlements)
		cancel()
		if err == nil {
			if failures > 0 && held.Valid() {
				ownLosses(results)
			}
			return results, nil
		}
		refused := calls.IsPermanent(err) || calls.IsRefusal(err) || f.route == routeLinked && errors.Is(err, ErrFull)
		if refused || !held.Valid() || f.run.calling.Err() != nil {
			return nil, err
		}
		f.failed(err)
		calls.Pause(f.run.calling, failures)
	}
}

// ownLosses corrects the results of a repeated settle within the lease: messages that are not held any more were
// settled by an earlier call whose reply was lost.
func ownLosses(results []store.SettleResult) {
	for i := range results {
		if errors.Is(results[i].Err, ErrLeaseLost) {
			results[i].Err = nil
		}
	}
}

// settling returns a context for a settle. It outlives a drain that runs out of time a little, because messages are
// still released then.
func (f *forwarder) settling() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(f.run.handling, callTimeout)
	stop := context.AfterFunc(f.run.calling, func() { time.AfterFunc(shutdownGrace, cancel) })
	return ctx, func() {
		stop()
		cancel()
	}
}

// release releases messages as far as they are held.
func (f *forwarder) release(settlements []store.Settlement) {
	ctx, cancel := f.settling()
	defer cancel()
	releases := make([]store.Settlement, len(settlements))
	for i := range settlements {
		releases[i] = store.Settlement{Receipt: settlements[i].Receipt, Action: store.Release}
	}
	if _, err := f.run.client.store.Settle(ctx, f.queue.name, releases); err != nil {
		f.unsettled = len(releases)
		f.run.log.Error("later: messages that were not forwarded could not be released; they return when their lease ends",
			"queue", f.queue.name, "messages", len(releases), "error", err)
	}
}

// settled reports the result of a settlement. It returns an error if the store takes nothing now.
func (f *forwarder) settled(m *store.Claimed, s *store.Settlement, result store.SettleResult) error {
	switch {
	case errors.Is(result.Err, ErrLeaseLost):
		f.queue.event(f.run.handling, EventLeaseLost, m.ID)
		return nil
	case errors.Is(result.Err, ErrConflict) || f.isUnwritable(result.Err):
		f.again = append(f.again, *m)
		return nil
	case result.Err != nil && !errors.Is(result.Err, ErrNotDurable):
		return result.Err
	case s.Action == store.Ack && f.acked != nil:
		f.acked(m, s)
	case s.Action == store.Ack:
		f.queue.event(f.run.handling, EventForwarded, m.ID)
	default:
		f.queue.event(f.run.handling, event.OfSettle(s.Action, result.State), m.ID)
	}
	if s.Action == store.GiveBack && result.State != StateDead {
		f.misfits.wait(misfitOf(m.Headers, nil), s.Delay)
	}
	if result.State == StateDead {
		f.queue.event(f.run.handling, EventDied, m.ID)
		f.run.logDeath(f.queue.name, m.ID, m.Attempt, m.MaxAttempts, errors.New(s.Reason))
		f.run.dead.add(f.queueWorker, m.ID)
	}
	return nil
}

// failed records that nothing can be forwarded now. It logs once per outage.
func (f *forwarder) failed(err error) {
	if !f.failing.Swap(true) {
		f.run.log.Error("later: messages cannot be forwarded and stay in the queue; retrying",
			"queue", f.queue.name, "to", f.to.String(), "error", err)
	}
}

// worked records that a call succeeded.
func (f *forwarder) worked() {
	if f.failing.Load() && f.failing.Swap(false) {
		f.run.log.Info("later: messages are forwarded again", "queue", f.queue.name, "to", f.to.String())
	}
}
