package receive

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/laterq/later/internal/fleet"
	"github.com/laterq/later/store"
)

// Lease is shared by the messages of one claim.
type Lease struct {
	mu       sync.Mutex
	received time.Time // zero in another process
	deadline time.Time // on this process's clock, and not later than the store's; zero in another process
	until    time.Time // the deadline on the store's clock
	lost     map[string]bool
}

// NewLease returns the lease of a claim that has just returned.
func NewLease(c Claim) *Lease {
	return &Lease{received: time.Now(), deadline: c.Deadline, until: c.Claim.Deadline}
}

// ForeignLease returns a lease of another process, which ends at until on the store's clock.
func ForeignLease(until time.Time) *Lease { return &Lease{until: until} }

// Until returns when the lease ends on the store's clock.
func (l *Lease) Until() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until
}

// extended records the result of an extension and reports whether the message with that id was cancelled.
func (l *Lease) extended(deadline time.Time, result store.ExtendResult, id string) bool {
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

// Held is a received message until it is settled.
type Held struct {
	Queue   string
	Receipt store.Receipt
	Attempt int
	// DedupWindow and Grouped are for its ack.
	DedupWindow time.Duration
	Grouped     bool
	SentAt      time.Time // zero when unknown
	Lease       *Lease
	Store       store.Store
	SettleBy    func(context.Context, store.Settlement) (store.SettleResult, error)

	mu      sync.Mutex
	settled store.Action // the settle that took effect; 0 before
	unsure  store.Action // a settle whose outcome is unknown
}

// Done reports whether the message was settled before, and then returns the result of another settle.
func (h *Held) Done(action store.Action) (done bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.settled == 0 {
		return false, nil
	}
	return true, h.afterSettle(action)
}

// afterSettle returns the result of a settle that follows one that took effect. The lock is held.
func (h *Held) afterSettle(action store.Action) error {
	if h.settled == store.Ack && action == store.Ack {
		return nil
	}
	return fmt.Errorf("message %q of queue %q was already settled, by %v: %w", h.Receipt.ID, h.Queue, h.settled,
		store.ErrLeaseLost)
}

// Settle settles the message. It reports whether that took effect, and the state of the message then.
func (h *Held) Settle(ctx context.Context, s store.Settlement) (effect bool, state store.State, err error) {
	s.Receipt, s.Worker = h.Receipt, fleet.DefaultName()
	if s.Action == store.Ack {
		s.DedupWindow, s.Grouped = h.DedupWindow, h.Grouped
	}
	if !h.Lease.received.IsZero() {
		s.Duration = time.Since(h.Lease.received)
	}
	result, err := h.SettleBy(ctx, s)
	if err == nil {
		err = result.Err
	}
	settledBefore := false
	if errors.Is(err, store.ErrLeaseLost) && h.isUnsure(s.Action) {
		var unknown error
		if settledBefore, unknown = h.settledEarlier(ctx, s.Action); unknown != nil {
			err = unknown
		}
	}
	effect, err = h.record(s.Action, err, settledBefore)
	return effect, result.State, err
}

// isUnsure reports whether the same settle was made before, with an unknown outcome.
func (h *Held) isUnsure(action store.Action) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.unsure == action
}

// record stores the outcome of a settle. settledBefore is set if an earlier call certainly took effect. It reports
// whether the settle took effect, and returns the error for the caller.
func (h *Held) record(action store.Action, err error, settledBefore bool) (effect bool, _ error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err == nil || errors.Is(err, store.ErrNotDurable):
		h.settled = action
		return true, err
	case !errors.Is(err, store.ErrLeaseLost):
		h.unsure = action
		return false, err
	case h.settled != 0: // by another goroutine in the meantime
		return false, h.afterSettle(action)
	case h.unsure == action && settledBefore:
		h.settled = action
		return true, nil
	}
	return false, h.errorOf(err)
}

func (h *Held) errorOf(err error) error {
	return fmt.Errorf("message %q of queue %q: %w", h.Receipt.ID, h.Queue, err)
}

// Extend moves the end of the lease of the message to a time from now.
func (h *Held) Extend(ctx context.Context, lease time.Duration) error {
	deadline := time.Now().Add(lease)
	results, err := h.Store.Extend(ctx, h.Queue, []store.Extension{{Lease: h.Receipt.Lease, For: lease}})
	if err != nil {
		return err
	}
	if err = results[0].Err; h.Lease.extended(deadline, results[0], h.Receipt.ID) {
		err = store.ErrCancelled
	}
	if err != nil {
		return h.errorOf(err)
	}
	return nil
}

// isHeld reports whether the lease is certain to be held still. The lease of another process has only the deadline on
// the store's clock, so that the store is asked for the time.
func (h *Held) isHeld(ctx context.Context) (bool, error) {
	h.Lease.mu.Lock()
	deadline, until := h.Lease.deadline, h.Lease.until
	h.Lease.mu.Unlock()
	if !deadline.IsZero() {
		return time.Now().Before(deadline.Add(-time.Millisecond)), nil // the store counts whole milliseconds
	}
	stats, err := h.Store.Stats(ctx, h.Queue)
	return err == nil && stats.Now.Before(until), err
}

// settledEarlier reports whether an earlier call with an unknown outcome took effect, given that the same settle was
// now refused. While the lease is held, either the earlier call settled the message or the message was cancelled.
// Both remove the message if it was an Ack. After any other settle the message still exists, with its attempts.
func (h *Held) settledEarlier(ctx context.Context, action store.Action) (bool, error) {
	held, err := h.isHeld(ctx)
	if !held || err != nil || action == store.Ack {
		return held, err
	}
	infos, err := h.Store.Get(ctx, h.Queue, []string{h.Receipt.ID})
	if err != nil || infos[0] == nil {
		return false, err
	}
	attempts := h.Attempt
	if action == store.Snooze || action == store.Release || action == store.GiveBack {
		attempts--
	}
	// The id may have been sent again after a cancel.
	sentAt := infos[0].SentAt
	if sentAt.IsZero() {
		sentAt, _ = store.IDTime(h.Receipt.ID)
	}
	same := h.SentAt.IsZero() || sentAt.IsZero() || sentAt.UnixMilli() == h.SentAt.UnixMilli()
	return same && infos[0].Attempts >= attempts, nil
}
