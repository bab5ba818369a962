package later

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/laterq/later/internal/event"
	"github.com/laterq/later/internal/fleet"
	"github.com/laterq/later/store"
)

const defaultLease = 30 * time.Second

// Delivery is a received message, to be settled with Ack, Nack, Snooze, Bury or Release.
//
// If it is not settled before its lease ends, it is delivered again, and that counts as a failed attempt.
// At most one settle takes effect. After an Ack, another Ack returns nil. Any other repeated settle returns
// ErrLeaseLost, as does a settle after the lease has ended or the message was cancelled. After any other
// error the outcome is unknown, and the settle can safely be repeated: it returns nil if it took effect,
// and ErrLeaseLost if it did not or if the message has since been removed. Methods are safe for concurrent
// use.
// Receipt returns a text with which another process can settle the message.
type Delivery struct {
	*Message
	queue   *Queue
	lease   *receivedLease
	receipt store.Receipt

	mu      sync.Mutex
	settled store.Action // the settle that took effect; 0 before
	unsure  store.Action // a settle whose outcome is unknown
}

// receivedLease is shared by the deliveries of one Receive.
type receivedLease struct {
	mu       sync.Mutex
	received time.Time // zero in another process
	deadline time.Time // on this process's clock, and not later than the store's; zero in another process
	until    time.Time // the deadline on the store's clock
	lost     map[string]bool
}

// Receive claims up to n ready messages, earliest due first.
//
// n is 1 to store.MaxBatch. Receive blocks until there is at least one message, unless NoWait says otherwise, or ctx
// ends; then it returns ctx's cause and has claimed nothing. The messages are held under one lease (see Lease), which
// only Delivery.Extend extends. A paused queue delivers no messages.
func (q *Queue) Receive(ctx context.Context, n int, opts ...ReceiveOption) ([]*Delivery, error) {
	if err := cmp.Or(q.invalid, q.checkChange()); err != nil {
		return nil, err
	}
	if n < 1 || n > store.MaxBatch {
		return nil, store.Invalid("n is %d: receive 1 to %d messages at a time", n, store.MaxBatch)
	}
	var o receiveOptions
	for i, opt := range opts {
		if opt == nil {
			return nil, nilOption(i)
		}
		if err := opt.applyReceive(&o); err != nil {
			return nil, err
		}
	}
	if o.lease == 0 {
		o.lease = defaultLease
	}
	if err := q.client.beginLoop(); err != nil {
		return nil, err
	}
	defer q.client.loops.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(q.client.ending, func() { cancel(errClientClosed) })()

	for ctx.Err() == nil {
		deliveries, more, err := q.receiveOnce(ctx, store.ClaimRequest{Max: n, Lease: o.lease})
		if len(deliveries) > 0 || err != nil {
			return deliveries, err
		}
		if more {
			continue // the claim used up its bound on housekeeping
		}
		if o.noWait {
			return nil, nil
		}
		if err := q.client.store.Wait(ctx, q.name); err != nil && ctx.Err() == nil {
			return nil, err
		}
	}
	return nil, context.Cause(ctx)
}

// receiveOnce makes one claim. The claim does not end with ctx, because messages that it claims would then
// be held by nobody. If ctx ends first, the claimed messages are released.
func (q *Queue) receiveOnce(ctx context.Context, req store.ClaimRequest) (got []*Delivery, more bool, err error) {
	type reply struct {
		claim store.Claim
		err   error
	}
	replies := make(chan reply)
	gone := make(chan struct{})
	asked := time.Now()
	q.client.loops.Go(func() {
		claiming, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(callTimeout, req.Lease))
		defer cancel()
		claim, err := q.client.store.Claim(claiming, q.name, req)
		select {
		case replies <- reply{claim, err}:
		case <-gone:
			q.observeDead(ctx, claim)
			q.release(claim.Messages)
		}
	})
	select {
	case r := <-replies:
		return q.deliveries(ctx, r.claim, asked.Add(req.Lease)), r.claim.More, r.err
	case <-ctx.Done():
		close(gone)
		return nil, false, context.Cause(ctx)
	}
}

// release releases messages that will not be handled. If that fails, they are delivered again after their
// lease.
func (q *Queue) release(msgs []store.Claimed) {
	if len(msgs) == 0 {
		return
	}
	settlements := make([]store.Settlement, len(msgs))
	for i := range msgs {
		settlements[i] = store.Settlement{Receipt: msgs[i].Receipt, Action: store.Release}
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	if _, err := q.client.store.Settle(ctx, q.name, settlements); err != nil {
		q.client.log.Warn("later: messages for a cancelled Receive could not be released; they return when their lease ends",
			"queue", q.name, "messages", len(msgs), "error", err)
	}
}

func (q *Queue) deliveries(ctx context.Context, claim store.Claim, deadline time.Time) []*Delivery {
	q.observeDead(ctx, claim)
	if len(claim.Messages) == 0 {
		return nil
	}
	lease := &receivedLease{received: time.Now(), deadline: deadline, until: claim.Deadline}
	got := make([]*Delivery, len(claim.Messages))
	for i := range claim.Messages {
		m := new(Message)
		m.fill(q.name, &claim.Messages[i], claim.Now)
		got[i] = &Delivery{Message: m, queue: q, lease: lease, receipt: claim.Messages[i].Receipt}
		got[i].event(ctx, EventClaimed, nil)
	}
	return got
}

// observeDead reports the messages that a claim moved to dead, and the dead ones that it dropped.
func (q *Queue) observeDead(ctx context.Context, claim store.Claim) {
	for _, id := range claim.Expired {
		q.event(ctx, EventExpired, id)
	}
	for _, id := range claim.Died {
		q.event(ctx, EventDied, id)
	}
	for _, id := range claim.Dropped {
		q.event(ctx, EventDropped, id)
	}
}

// Ack removes the message: it is done.
func (d *Delivery) Ack(ctx context.Context) error {
	return d.settle(ctx, d.ack(), nil)
}

// Nack reports that the attempt failed. The message is delivered again after the delay, or is dead if this
// was its last attempt. The delay is up to store.MaxDelay; below zero means at once. The reason may be nil
// and is kept up to store.MaxReason bytes.
func (d *Delivery) Nack(ctx context.Context, delay time.Duration, reason error) error {
	if err := store.CheckDelay(delay); err != nil {
		return err
	}
	s := store.Settlement{Action: store.Nack, Delay: max(0, delay), Reason: reasonText(reason)}
	return d.settle(ctx, s, reason)
}

// Snooze delivers the message again after the delay, without counting an attempt. The delay is up to
// store.MaxDelay; below zero means at once. See the function Snooze for ResetAttempts.
func (d *Delivery) Snooze(ctx context.Context, delay time.Duration, opts ...SnoozeOption) error {
	if err := store.CheckDelay(delay); err != nil {
		return err
	}
	reset := slices.Contains(opts, ResetAttempts)
	return d.settle(ctx, store.Settlement{Action: store.Snooze, Delay: max(0, delay), ResetAttempts: reset}, nil)
}

// Bury moves the message to dead, where it can be listed, replayed and purged. The reason may be nil and is
// kept up to store.MaxReason bytes.
func (d *Delivery) Bury(ctx context.Context, reason error) error {
	return d.settle(ctx, store.Settlement{Action: store.Bury, Reason: reasonText(reason)}, reason)
}

// GiveBack gives the message back for another version of the program, which can handle it: it is delivered again after
// the delay, up to store.MaxDelay, and no attempt is counted. If it was first given back so long ago as within says,
// it is dead as DeadUnreadable; below zero means never. See the function GiveBack.
func (d *Delivery) GiveBack(ctx context.Context, delay, within time.Duration, reason error) error {
	if err := store.CheckDelay(delay); err != nil {
		return err
	}
	s := store.Settlement{Action: store.GiveBack, Delay: max(0, delay), Within: within, Reason: reasonText(reason)}
	return d.settle(ctx, s, reason)
}

// Release returns the message as if it had not been delivered. Another receiver can claim it at once, and
// it does not count as an attempt.
func (d *Delivery) Release(ctx context.Context) error {
	return d.settle(ctx, store.Settlement{Action: store.Release}, nil)
}

func reasonText(reason error) string {
	if reason == nil {
		return ""
	}
	return store.CutReason(reason.Error())
}

func (d *Delivery) settle(ctx context.Context, s store.Settlement, reason error) error {
	if before := d.settledBy(); before != 0 {
		return d.afterSettle(before, s.Action)
	}
	s.Receipt = d.receipt
	if !d.lease.received.IsZero() {
		s.Duration = time.Since(d.lease.received)
	}
	s.Worker = fleet.DefaultName()
	result, err := d.queue.settles.Do(ctx, s)
	if err == nil {
		err = result.Err
	}
	settledBefore := false
	if errors.Is(err, ErrLeaseLost) && d.isUnsure(s.Action) {
		var unknown error
		if settledBefore, unknown = d.settledEarlier(ctx, s.Action); unknown != nil {
			err = unknown
		}
	}
	effect, err := d.recordSettle(s.Action, err, settledBefore)
	switch {
	case effect:
		d.event(ctx, event.OfSettle(s.Action, result.State), reason)
		d.queue.client.sentWithAck(ctx, s.Then)
		if result.State == StateDead {
			d.event(ctx, EventDied, reason)
		}
	case errors.Is(err, ErrLeaseLost):
		d.event(ctx, EventLeaseLost, err)
	}
	return err
}

func (d *Delivery) settledBy() store.Action {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.settled
}

// isUnsure reports whether the same settle was made before, with an unknown outcome.
func (d *Delivery) isUnsure(action store.Action) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.unsure == action
}

// recordSettle stores the outcome of a settle. settledBefore is set if an earlier call certainly took effect. It
// reports whether the settle took effect, and returns the error for the caller.
func (d *Delivery) recordSettle(action store.Action, err error, settledBefore bool) (effect bool, _ error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err == nil || errors.Is(err, ErrNotDurable):
		d.settled = action
		return true, err
	case !errors.Is(err, ErrLeaseLost):
		d.unsure = action
		return false, err
	case d.settled != 0: // by another goroutine in the meantime
		return false, d.afterSettle(d.settled, action)
	case d.unsure == action && settledBefore:
		d.settled = action
		return true, nil
	}
	return false, d.errorOf(err)
}

// afterSettle returns the result of a settle that follows one that took effect.
func (d *Delivery) afterSettle(settled, now store.Action) error {
	if settled == store.Ack && now == store.Ack {
		return nil
	}
	return fmt.Errorf("message %q of queue %q was already settled, by %v: %w", d.ID, d.Queue, settled, ErrLeaseLost)
}

func (d *Delivery) errorOf(err error) error {
	return fmt.Errorf("message %q of queue %q: %w", d.ID, d.Queue, err)
}

// Extend moves the end of the lease to the given time from now, on the store's clock.
//
// The time is store.MinLease to store.MaxLease. All messages of one Receive share the lease, so extending
// one of them extends it for all. Extend returns ErrCancelled when this message was cancelled, and
// ErrLeaseLost when it is no longer held.
func (d *Delivery) Extend(ctx context.Context, lease time.Duration) error {
	if err := store.CheckLease(lease); err != nil {
		return err
	}
	if err := d.queue.client.begin(); err != nil {
		return err
	}
	defer d.queue.client.calls.Done()
	asked := time.Now()
	extension := store.Extension{Lease: d.receipt.Lease, For: lease}
	results, err := d.queue.client.store.Extend(ctx, d.queue.name, []store.Extension{extension})
	if err != nil {
		return err
	}
	switch err := results[0].Err; {
	case d.lease.extended(asked.Add(lease), results[0], d.ID):
		return d.errorOf(ErrCancelled)
	case err != nil:
		return d.errorOf(err)
	}
	return nil
}

// extended records the outcome of an Extend and reports whether the message with that id was cancelled.
func (l *receivedLease) extended(deadline time.Time, result store.ExtendResult, id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if result.Err == nil {
		l.deadline, l.until = deadline, result.Deadline
	}
	for _, r := range result.Lost { // the store may report it only once, to whichever message asked
		if l.lost == nil {
			l.lost = map[string]bool{}
		}
		l.lost[r.ID] = true
	}
	return l.lost[id]
}

// holdsLease reports whether the lease is certain to be held still. A Delivery from another process's receipt
// knows only the deadline on the store's clock, and asks the store for the time.
func (d *Delivery) holdsLease(ctx context.Context) (bool, error) {
	d.lease.mu.Lock()
	deadline, until := d.lease.deadline, d.lease.until
	d.lease.mu.Unlock()
	if !deadline.IsZero() {
		return time.Now().Before(deadline.Add(-time.Millisecond)), nil // the store counts whole milliseconds
	}
	stats, err := d.queue.Stats(ctx)
	return err == nil && stats.Now.Before(until), err
}

// settledEarlier reports whether an earlier call with an unknown outcome took effect, given that the same settle was
// now refused. While the lease is held, either the earlier call settled the message or the message was cancelled.
// Both remove the message if it was an Ack. After any other settle the message still exists, with its attempts.
func (d *Delivery) settledEarlier(ctx context.Context, action store.Action) (bool, error) {
	held, err := d.holdsLease(ctx)
	if !held || err != nil || action == store.Ack {
		return held, err
	}
	infos, err := d.queue.client.store.Get(ctx, d.Queue, []string{d.ID})
	if err != nil || infos[0] == nil {
		return false, err
	}
	attempts := d.Attempt
	if action == store.Snooze || action == store.Release || action == store.GiveBack {
		attempts--
	}
	// The id may have been sent again after a cancel.
	_, sentAt := resolve(&infos[0].Message)
	same := d.SentAt.IsZero() || sentAt.IsZero() || sentAt.UnixMilli() == d.SentAt.UnixMilli()
	return same && infos[0].Attempts >= attempts, nil
}

// storeDeadline returns when the lease ends on the store's clock.
func (l *receivedLease) storeDeadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until
}

// event reports and counts an event of the message.
func (d *Delivery) event(ctx context.Context, kind EventKind, err error) {
	if d.queue.wantsEvents() {
		d.queue.report(Event{
			Kind:     kind,
			ID:       d.ID,
			Context:  ctx,
			Attempt:  d.Attempt,
			Lateness: d.Lateness,
			Err:      err,
			Headers:  d.queue.client.eventHeaders.Of(d.Headers),
		})
	}
	d.queue.activity.Count(kind, 1)
}
