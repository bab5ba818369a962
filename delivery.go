package later

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/laterq/later/internal/event"
	"github.com/laterq/later/internal/receive"
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
// Receipt returns a text that lets another process settle the message.
type Delivery struct {
	*Message
	queue *Queue
	held  receive.Held
}

// newDelivery returns the Delivery of a message with its receipt.
func newDelivery(
	q *Queue, m *Message, lease *receive.Lease, receipt store.Receipt, dedupWindow time.Duration, grouped bool,
) *Delivery {
	return &Delivery{Message: m, queue: q, held: receive.Held{
		Queue: q.name, Receipt: receipt, DedupWindow: dedupWindow, Grouped: grouped, Attempt: m.Attempt, SentAt: m.SentAt,
		Lease: lease, Store: q.client.store, SettleBy: q.settles.Do,
	}}
}

// Ack removes the message: it is done.
func (d *Delivery) Ack(ctx context.Context) error {
	return d.settle(ctx, store.Settlement{Action: store.Ack}, nil)
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
	if done, err := d.held.Done(s.Action); done {
		return err
	}
	effect, state, err := d.held.Settle(ctx, s)
	switch {
	case effect:
		d.event(ctx, event.OfSettle(s.Action, state), reason)
		d.queue.client.sentWithAck(ctx, s.Then)
		if state == StateDead {
			d.event(ctx, EventDied, reason)
		}
	case errors.Is(err, ErrLeaseLost):
		d.event(ctx, EventLeaseLost, err)
	}
	return err
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
	return d.held.Extend(ctx, lease)
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
		Receipt:     d.held.Receipt,
		DedupWindow: d.held.DedupWindow,
		Grouped:     d.held.Grouped,
		Deadline:    d.held.Lease.Until(),
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
	m := &Message{ID: r.ID, Queue: q.name, Attempt: r.Attempt}
	return newDelivery(q, m, receive.ForeignLease(r.Deadline), r.Receipt, r.DedupWindow, r.Grouped), nil
}
