package later

import (
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"github.com/laterq/later/internal/outcome"
	"github.com/laterq/later/store"
)

// RetryIn returns an error for a failed attempt that is retried after d instead of the backoff. Join or
// wrap it to add a reason:
//
//	return errors.Join(err, later.RetryIn(time.Minute))
//	return fmt.Errorf("mail server is busy: %w", later.RetryIn(time.Minute))
//
// A d below zero means at once. A d above store.MaxDelay means store.MaxDelay.
func RetryIn(d time.Duration) error { return &outcome.RetryIn{Delay: d} }

// Snooze returns an error for a handler that wants its message again after d, without counting an attempt. It works
// wrapped or joined, and limits d, like RetryIn.
//
// The failed attempts so far still count, so a message that is snoozed again and again dies when MaxAttempts of its
// attempts have failed, however far apart they are. Give ResetAttempts where a snooze ends a run that went well, as in
// a handler that returns every hour for months.
func Snooze(d time.Duration, opts ...SnoozeOption) error {
	s := &outcome.Snooze{Delay: d}
	for _, opt := range opts {
		s.Reset = s.Reset || opt == ResetAttempts
	}
	return s
}

// SnoozeOption is an option of Snooze.
type SnoozeOption uint8

// ResetAttempts sets the number of failed attempts of the snoozed message to zero. Its history of failures stays.
const ResetAttempts SnoozeOption = 1

// Bury returns an error for a handler that moves its message to dead, because a retry would not help. The text of err,
// which may be nil, is kept as the reason. Bury works wrapped or joined.
func Bury(err error) error { return &outcome.Bury{Err: err} }

// GiveBack returns an error with which a handler gives its message back, because this version of the program cannot
// handle it and another one may. Typed handlers, and the errors of Typed.Decode, do so for a payload that cannot be
// decoded, and a Mux for a kind that it does not know. It works wrapped or joined; Bury, Snooze and RetryIn take
// precedence.
//
// The message is delivered again after up to a second at first, and after up to a minute when this worker has met such
// messages for longer. No attempt is counted. The text of err is kept as Info.LastError, and as a Failure of Attempt 0.
// The Time of that Failure is when the message was first given back; a Snooze ends that time. A message that has been
// given back for WorkerConfig.GiveBackFor becomes dead as DeadUnreadable, by the store's clock, however many workers it
// met.
func GiveBack(err error) error { return &outcome.GiveBack{Err: err} }

// Backoff returns how long a message waits after an attempt failed with err. The first attempt is 1. A
// result below zero means at once, and one above store.MaxDelay means store.MaxDelay. A Backoff must be
// safe for concurrent use.
type Backoff func(attempt int, err error) time.Duration

// ConstantBackoff returns a Backoff that waits d after every failure. A d below zero means at once.
func ConstantBackoff(d time.Duration) Backoff {
	return func(int, error) time.Duration { return d }
}

// ExponentialBackoff returns a Backoff of a random time between zero and base·2^(attempt-1), at most limit.
// This "full jitter" spreads messages that failed together (Marc Brooker, "Exponential Backoff And Jitter",
// AWS Architecture Blog, 2015). A base or limit below zero means at once.
func ExponentialBackoff(base, limit time.Duration) Backoff {
	ceiling := geometric(base, 2, limit)
	return func(attempt int, err error) time.Duration {
		return time.Duration(rand.Int64N(int64(ceiling(attempt, err)) + 1))
	}
}

// GeometricBackoff returns a Backoff of first·factor^(attempt-1), at most limit and without jitter. Delays
// grow with a factor above 1 and shrink with one below 1. A first or limit below zero means at once.
// GeometricBackoff returns ErrInvalid when factor is not a finite number above zero.
func GeometricBackoff(first time.Duration, factor float64, limit time.Duration) (Backoff, error) {
	if !(factor > 0) || math.IsInf(factor, 1) {
		return nil, store.Invalid("backoff's factor is %v: give a finite number above 0", factor)
	}
	return geometric(first, factor, limit), nil
}

func geometric(first time.Duration, factor float64, limit time.Duration) Backoff {
	first, limit = max(0, first), max(0, limit)
	return func(attempt int, _ error) time.Duration {
		// Compare as floats: the product may overflow a Duration.
		d := float64(first) * math.Pow(factor, float64(max(attempt, 1)-1))
		if d >= float64(limit) {
			return limit
		}
		return time.Duration(d)
	}
}

// defaultBackoff spreads the default 20 attempts over about an hour.
var defaultBackoff = ExponentialBackoff(time.Second, 10*time.Minute)

// Outcome is the meaning of a handler's error.
type Outcome struct {
	// Kind is EventAcked, EventNacked for a failed attempt, EventSnoozed, EventBuried or EventGivenBack.
	Kind EventKind
	// Delay is that of RetryIn or Snooze. It is 0 when the worker's backoff decides, and Backoff is then set.
	Delay   time.Duration
	Backoff bool
	// ResetAttempts is set for a Snooze with that option.
	ResetAttempts bool
	// Err is why the message is nacked, buried or given back. It is nil for an ack, and for RetryIn, Snooze and Bury
	// without a reason.
	Err error
}

// OutcomeOf returns the action of a worker after a handler that returned err, so that middleware and tests can tell a
// snooze from a failure:
//
//	if later.OutcomeOf(err).Kind == later.EventNacked { failures.Inc() }
//
// A worker may still decide otherwise: a handler that exceeded its time limit has failed, even if it returned nil.
func OutcomeOf(err error) Outcome {
	if err == nil || followUpsOf(err) != nil && followUpsOf(err).err == nil {
		return Outcome{Kind: EventAcked}
	}
	if b, ok := errors.AsType[*outcome.Bury](err); ok {
		return Outcome{Kind: EventBuried, Err: reasonOf(err, b, b.Err)}
	}
	if s, ok := errors.AsType[*outcome.Snooze](err); ok {
		return Outcome{
			Kind: EventSnoozed, Delay: outcome.ClampDelay(s.Delay), ResetAttempts: s.Reset, Err: reasonOf(err, s, nil),
		}
	}
	if r, ok := errors.AsType[*outcome.RetryIn](err); ok {
		return Outcome{Kind: EventNacked, Delay: outcome.ClampDelay(r.Delay), Err: reasonOf(err, r, nil)}
	}
	if b, ok := errors.AsType[*outcome.GiveBack](err); ok {
		return Outcome{Kind: EventGivenBack, Err: reasonOf(err, b, b.Err)}
	}
	return Outcome{Kind: EventNacked, Backoff: true, Err: err}
}

// reasonOf returns the reason in err beside the decision: err itself if it says more than the decision.
func reasonOf(err, decision, reason error) error {
	if err == decision {
		return reason
	}
	return err
}
