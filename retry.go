package later

import (
	"errors"
	"fmt"
	"time"

	"github.com/laterq/later/store"
)

// RetryIn returns an error for a failed attempt that is retried after d instead of the backoff. Join or
// wrap it to add a reason:
//
//	return errors.Join(err, later.RetryIn(time.Minute))
//	return fmt.Errorf("mail server is busy: %w", later.RetryIn(time.Minute))
//
// A d below zero means at once. A d above store.MaxDelay means store.MaxDelay.
func RetryIn(d time.Duration) error { return &retryIn{d} }

// Snooze returns an error for a handler that wants its message again after d, without counting an attempt. It works
// wrapped or joined, and limits d, like RetryIn.
//
// The failed attempts so far still count, so a message that is snoozed again and again dies when MaxAttempts of its
// attempts have failed, however far apart they are. Give ResetAttempts where a snooze ends a run that went well, as in
// a handler that returns every hour for months.
func Snooze(d time.Duration, opts ...SnoozeOption) error {
	s := &snooze{delay: d}
	for _, opt := range opts {
		s.reset = s.reset || opt == ResetAttempts
	}
	return s
}

// SnoozeOption is an option of Snooze.
type SnoozeOption uint8

// ResetAttempts sets the number of failed attempts of the snoozed message to zero. Its history of failures stays.
const ResetAttempts SnoozeOption = 1

// Bury returns an error for a handler that moves its message to dead, because a retry would not help. The text of err,
// which may be nil, is kept as the reason. Bury works wrapped or joined.
func Bury(err error) error { return &bury{err} }

type retryIn struct{ delay time.Duration }

func (e *retryIn) Error() string { return fmt.Sprintf("retry in %v", e.delay) }

type snooze struct {
	delay time.Duration
	reset bool
}

func (e *snooze) Error() string { return fmt.Sprintf("snooze for %v", e.delay) }

type bury struct{ err error }

func (e *bury) Error() string {
	if e.err == nil {
		return "buried"
	}
	return e.err.Error()
}

func (e *bury) Unwrap() error { return e.err }

// resultOf converts a handler's error to a settlement. Bury takes precedence over Snooze, Snooze over RetryIn, and
// RetryIn over GiveBack.
func resultOf(m *Message, err error, backoff Backoff, x *misfits) result {
	if err == nil {
		return result{action: store.Ack}
	}
	if _, ok := errors.AsType[*bury](err); ok {
		return result{action: store.Bury, reason: store.CutReason(err.Error())}
	}
	if snoozed, ok := errors.AsType[*snooze](err); ok {
		return result{action: store.Snooze, delay: clampDelay(snoozed.delay), reset: snoozed.reset}
	}
	r := result{action: store.Nack, reason: store.CutReason(err.Error())}
	if retry, ok := errors.AsType[*retryIn](err); ok {
		r.delay = clampDelay(retry.delay)
		return r
	}
	if _, ok := errors.AsType[*giveBack](err); ok {
		return x.resultOf(m, err)
	}
	r.delay = clampDelay(backoff(m.Attempt, err))
	return r
}

func clampDelay(d time.Duration) time.Duration {
	return min(max(d, 0), store.MaxDelay)
}
