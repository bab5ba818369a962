package later

import (
	"errors"
	"fmt"
	"time"

	"github.com/laterq/later/store"
)

// RetryIn is the error of a handler that failed and wants to choose the delay itself: it counts as a failed
// attempt, and the message comes again after d. Join or wrap it to say why:
//
//	return errors.Join(err, later.RetryIn(time.Minute))
//	return fmt.Errorf("mail server is busy: %w", later.RetryIn(time.Minute))
//
// A d below zero means at once, one above store.MaxDelay means store.MaxDelay.
func RetryIn(d time.Duration) error { return &retryIn{d} }

// Snooze is the result of a handler that wants its message again after d and does not count this as an
// attempt. It is found through wrapping and joining as RetryIn is, and its d is limited likewise.
func Snooze(d time.Duration) error { return &snooze{d} }

// Bury is the error of a handler that knows that trying again is of no use: the message goes to dead with
// the text of err, which may be nil. It is found through wrapping and joining.
func Bury(err error) error { return &bury{err} }

type retryIn struct{ delay time.Duration }

func (e *retryIn) Error() string { return fmt.Sprintf("retry in %v", e.delay) }

type snooze struct{ delay time.Duration }

func (e *snooze) Error() string { return fmt.Sprintf("snooze for %v", e.delay) }

type bury struct{ err error }

func (e *bury) Error() string {
	if e.err == nil {
		return "buried"
	}
	return e.err.Error()
}

func (e *bury) Unwrap() error { return e.err }

// resultOf turns a handler's result into the settlement it asks for. Where several are asked for, Bury
// comes before Snooze, and Snooze before RetryIn.
func resultOf(m *Message, err error, backoff Backoff) result {
	if err == nil {
		return result{action: store.Ack}
	}
	if _, ok := errors.AsType[*bury](err); ok {
		return result{action: store.Bury, reason: store.CutReason(err.Error())}
	}
	if snoozed, ok := errors.AsType[*snooze](err); ok {
		return result{action: store.Snooze, delay: clampDelay(snoozed.delay)}
	}
	r := result{action: store.Nack, reason: store.CutReason(err.Error())}
	if retry, ok := errors.AsType[*retryIn](err); ok {
		r.delay = clampDelay(retry.delay)
	} else {
		r.delay = clampDelay(backoff(m.Attempt, err))
	}
	return r
}

func clampDelay(d time.Duration) time.Duration {
	return min(max(d, 0), store.MaxDelay)
}
