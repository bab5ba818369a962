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

// Delivery is a message that Receive gave. It must be settled, by Ack, Nack, Snooze, Bury or Release, before
// its lease ends; else it comes back, and that counts as a failed attempt. At most one settle has an effect:
// after it Ack gives nil if it was an Ack, and everything else is refused with ErrLeaseLost, as it is when the
// lease has ended or the message was cancelled. When a settle fails otherwise its outcome is unknown, and
// calling it again is safe. All methods may be called from many goroutines.
type Delivery struct {
	*Message
	queue   *Queue
	lease   *receivedLease
	receipt store.Receipt

	mu      sync.Mutex
	settled store.Action // the one that took effect; 0 before
	unsure  store.Action // one whose outcome is unknown
}

// receivedLease is shared by the deliveries of one Receive.
type receivedLease struct {
	mu       sync.Mutex
	deadline time.Time // not later than the store's, on this process's clock
	lost     map[string]bool
}

// Receive takes up to n ready messages, 1 to store.MaxBatch, earliest due first. It blocks until there is at
// least one, or ctx ends; then it returns ctx's cause and has taken nothing. The messages are held under one
// lease (see LeaseFor), which nobody extends but Delivery.Extend. A paused queue gives nothing.
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
			continue // the claim spent its bound on housekeeping
		}
		if err := q.client.store.Wait(ctx, q.name); err != nil && ctx.Err() == nil {
			return nil, err
		}
	}
	return nil, context.Cause(ctx)
}

// receiveOnce claims once. The claim does not end with ctx, since it may take messages that would then be
// held by nobody: when ctx ends first, what the claim gives is released.
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
			q.giveBack(claim.Messages)
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

// giveBack releases messages that nobody will handle. If that fails they come back when their lease ends.
func (q *Queue) giveBack(msgs []store.Claimed) {
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
		q.client.log.Warn("later: messages that nobody waits for any more come back when their lease ends",
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

// observeDead tells of what a claim moved to dead.
func (q *Queue) observeDead(claim store.Claim) {
	for _, id := range claim.Expired {
		q.event(EventExpired, id)
	}
	for _, id := range claim.Died {
		q.event(EventDied, id)
	}
}

// Ack says that the message is done; it is gone then.
func (d *Delivery) Ack(ctx context.Context) error {
	return d.settle(ctx, store.Settlement{Action: store.Ack, Remember: d.remember}, nil)
}

// Nack says that the attempt failed. The message comes again after the delay, up to store.MaxDelay and below
// zero at once, or is dead when this was its last attempt. The reason, which may be nil, is kept up to
// store.MaxReason bytes.
func (d *Delivery) Nack(ctx context.Context, delay time.Duration, reason error) error {
	if err := store.CheckDelay(delay); err != nil {
		return err
	}
	s := store.Settlement{Action: store.Nack, Delay: max(0, delay), Reason: reasonText(reason)}
	return d.settle(ctx, s, reason)
}

// Snooze lets the message come again after the delay, up to store.MaxDelay and below zero at once, and does not
// count as an attempt.
func (d *Delivery) Snooze(ctx context.Context, delay time.Duration) error {
	if err := store.CheckDelay(delay); err != nil {
		return err
	}
	return d.settle(ctx, store.Settlement{Action: store.Snooze, Delay: max(0, delay)}, nil)
}

// Bury sends the message to dead, from where it can be listed, replayed and purged. The reason, which may be
// nil, is kept up to store.MaxReason bytes.
func (d *Delivery) Bury(ctx context.Context, reason error) error {
	return d.settle(ctx, store.Settlement{Action: store.Bury, Reason: reasonText(reason)}, reason)
}

// Release gives the message back as if it had not been delivered: another receiver may have it at once, and
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
	effect, err := d.note(s.Action, err)
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

// note keeps what became of a settle. It tells whether the settle had its effect and what to say to the caller.
func (d *Delivery) note(action store.Action, err error) (effect bool, _ error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err == nil || errors.Is(err, ErrNotDurable):
		d.settled = action
		return true, err
	case !errors.Is(err, ErrLeaseLost):
		d.unsure = action
		return false, err
	case d.settled != 0: // by another goroutine meanwhile
		return false, d.afterSettle(d.settled, action)
	case d.unsure == action && d.lease.holds():
		// The lease is still ours, so it was our own call before that settled the message; its reply was lost.
		d.settled = action
		return true, nil
	}
	return false, d.errorOf(err)
}

// afterSettle answers a settle after one that took effect.
func (d *Delivery) afterSettle(settled, now store.Action) error {
	if settled == store.Ack && now == store.Ack {
		return nil
	}
	return fmt.Errorf("message %q of queue %q was settled before, by %v: %w", d.ID, d.Queue, settled, ErrLeaseLost)
}

func (d *Delivery) errorOf(err error) error {
	return fmt.Errorf("message %q of queue %q: %w", d.ID, d.Queue, err)
}

// Extend moves the end of the lease to so long from now on the store's clock, store.MinLease to
// store.MaxLease. The lease, and so Extend, is shared by all messages of one Receive. It returns
// ErrCancelled when this message was cancelled and ErrLeaseLost when it is no longer held.
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

// extended notes the outcome of an Extend and tells whether the message of that id was cancelled.
func (l *receivedLease) extended(deadline time.Time, result store.ExtendResult, id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if result.Err == nil {
		l.deadline = deadline
	}
	for _, r := range result.Lost { // the store may tell only once, to whichever message asked
		if l.lost == nil {
			l.lost = map[string]bool{}
		}
		l.lost[r.ID] = true
	}
	return l.lost[id]
}

// holds tells whether the lease cannot have ended yet.
func (l *receivedLease) holds() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Before(l.deadline.Add(-time.Millisecond)) // the store counts whole milliseconds
}

// eventOf gives the event that follows a settle.
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
