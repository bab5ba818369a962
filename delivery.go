package later

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/laterq/later/store"
)

const defaultLease = 30 * time.Second

// Delivery is a message returned by Receive, to be settled with Ack, Nack, Snooze, Bury or Release.
//
// If it is not settled before its lease ends, it is delivered again, and that counts as a failed attempt.
// At most one settle takes effect. After an Ack, another Ack returns nil. Any other repeated settle returns
// ErrLeaseLost, as does a settle after the lease has ended or the message was cancelled. After any other
// error the outcome is unknown, and the settle can safely be repeated. Methods are safe for concurrent use.
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
	deadline time.Time // on this process's clock, and not later than the store's
	lost     map[string]bool
}

// Receive claims up to n ready messages, earliest due first.
//
// n is 1 to store.MaxBatch. Receive blocks until there is at least one message or ctx ends; then it returns
// ctx's cause and has claimed nothing. The messages are held under one lease (see LeaseFor), which only
// Delivery.Extend extends. A paused queue delivers no messages.
func (q *Queue) Receive(ctx context.Context, n int, opts ...ReceiveOption) ([]*Delivery, error) {
	if q.invalid != nil {
		return nil, q.invalid
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
			q.observeDead(claim)
			q.release(claim.Messages)
		}
	})
	select {
	case r := <-replies:
		return q.deliveries(r.claim, asked.Add(req.Lease)), r.claim.More, r.err
	case <-ctx.Done():
		close(gone)
		return nil, false, context.Cause(ctx)
	}
}

// release releases messages that nobody will handle. If that fails, they are delivered again after their
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

func (q *Queue) deliveries(claim store.Claim, deadline time.Time) []*Delivery {
	q.observeDead(claim)
	if len(claim.Messages) == 0 {
		return nil
	}
	lease := &receivedLease{deadline: deadline}
	got := make([]*Delivery, len(claim.Messages))
	for i := range claim.Messages {
		m := new(Message)
		m.fill(q.name, &claim.Messages[i], claim.Now)
		got[i] = &Delivery{Message: m, queue: q, lease: lease, receipt: claim.Messages[i].Receipt}
		got[i].event(EventClaimed, nil)
	}
	return got
}

// observeDead reports the messages that a claim moved to dead.
func (q *Queue) observeDead(claim store.Claim) {
	for _, id := range claim.Expired {
		q.event(EventExpired, id)
	}
	for _, id := range claim.Died {
		q.event(EventDied, id)
	}
}

// Ack removes the message: it is done.
func (d *Delivery) Ack(ctx context.Context) error {
	return d.settle(ctx, store.Settlement{Action: store.Ack, Remember: d.remember}, nil)
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
// store.MaxDelay; below zero means at once.
func (d *Delivery) Snooze(ctx context.Context, delay time.Duration) error {
	if err := store.CheckDelay(delay); err != nil {
		return err
	}
	return d.settle(ctx, store.Settlement{Action: store.Snooze, Delay: max(0, delay)}, nil)
}

// Bury moves the message to dead, where it can be listed, replayed and purged. The reason may be nil and is
// kept up to store.MaxReason bytes.
func (d *Delivery) Bury(ctx context.Context, reason error) error {
	return d.settle(ctx, store.Settlement{Action: store.Bury, Reason: reasonText(reason)}, reason)
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
	result, err := d.queue.settles.do(ctx, s)
	if err == nil {
		err = result.Err
	}
	effect, err := d.recordSettle(s.Action, err)
	switch {
	case effect:
		d.event(eventOf[s.Action], reason)
		if result.State == StateDead {
			d.event(EventDied, reason)
		}
	case errors.Is(err, ErrLeaseLost):
		d.event(EventLeaseLost, err)
	}
	return err
}

func (d *Delivery) settledBy() store.Action {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.settled
}

// recordSettle stores the outcome of a settle. It reports whether the settle took effect, and returns the
// error for the caller.
func (d *Delivery) recordSettle(action store.Action, err error) (effect bool, _ error) {
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
	case d.unsure == action && d.lease.holds():
		// The lease is still held, so our own earlier call settled the message and its reply was lost.
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
		l.deadline = deadline
	}
	for _, r := range result.Lost { // the store may report it only once, to whichever message asked
		if l.lost == nil {
			l.lost = map[string]bool{}
		}
		l.lost[r.ID] = true
	}
	return l.lost[id]
}

// holds reports whether the lease is certain to be held still.
func (l *receivedLease) holds() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Before(l.deadline.Add(-time.Millisecond)) // the store counts whole milliseconds
}

// eventOf maps a settle to the event that follows it.
var eventOf = map[store.Action]EventKind{
	store.Ack:     EventAcked,
	store.Nack:    EventNacked,
	store.Snooze:  EventSnoozed,
	store.Bury:    EventBuried,
	store.Release: EventReleased,
}

func (d *Delivery) event(kind EventKind, err error) {
	if d.queue.client.observe != nil {
		d.queue.client.observe(Event{
			Kind:     kind,
			Queue:    d.Queue,
			ID:       d.ID,
			Time:     time.Now(),
			Attempt:  d.Attempt,
			Lateness: d.Lateness,
			Err:      err,
		})
	}
}
