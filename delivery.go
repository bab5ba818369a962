package later

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/laterq/later/internal/event"
	"github.com/laterq/later/internal/fleet"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

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

// Receipt returns a text that lets any process settle and extend the message; see Queue.Delivery. It has up to
// store.MaxReceipt bytes and is safe in a URL. Treat it as a secret: whoever has it can settle the message.
func (d *Delivery) Receipt() string {
	r := wire.Receipt{
		Queue:       d.Queue,
		Receipt:     d.receipt,
		DedupWindow: d.dedupWindow,
		Grouped:     d.grouped,
		Deadline:    d.lease.storeDeadline(),
		Attempt:     d.Attempt,
	}
	return r.String()
}

// Delivery returns the delivery that a receipt stands for, in any process and with any client of the same store. It
// does not call the store.
//
// Only ID, Queue and Attempt of its Message are set. Settles and Extend work as on the original Delivery, and at most
// one settle of all deliveries with the same receipt takes effect. A repeated Ack returns nil only on the same
// Delivery; on another one it returns ErrLeaseLost, like every settle after the lease has ended. Extend extends the
// lease of all messages of the Receive that returned the original.
//
// Delivery returns ErrInvalid when the text is not a receipt or is one of another queue.
func (q *Queue) Delivery(receipt string) (*Delivery, error) {
	if q.invalid != nil {
		return nil, q.invalid
	}
	r, err := wire.ParseReceipt(receipt)
	if err != nil {
		return nil, err
	}
	if r.Queue != q.name {
		return nil, store.Invalid("receipt is of queue %q, not %q: use its queue", r.Queue, q.name)
	}
	m := &Message{ID: r.ID, Queue: q.name, Attempt: r.Attempt, dedupWindow: r.DedupWindow, grouped: r.Grouped}
	return &Delivery{Message: m, queue: q, lease: &receivedLease{until: r.Deadline}, receipt: r.Receipt}, nil
}
