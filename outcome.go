package later

import (
	"errors"
	"time"
)

// OutcomeKind is what happens to a message after its handler returned.
type OutcomeKind string

// The kinds of outcome.
const (
	OutcomeAck    OutcomeKind = "ack"    // it is done, and its follow-ups are sent
	OutcomeRetry  OutcomeKind = "retry"  // a failed attempt: again later, or dead after the last one
	OutcomeSnooze OutcomeKind = "snooze" // again later, which is no attempt
	OutcomeBury   OutcomeKind = "bury"   // dead at once
	// It is given back for another version of the program, and dead when that has been so for too long; see GiveBack.
	OutcomeGiveBack OutcomeKind = "give_back"
)

// Outcome is what a handler's error means.
type Outcome struct {
	Kind OutcomeKind
	// Delay is that of RetryIn or Snooze. It is 0 when the worker's backoff decides, and Backoff is then set.
	Delay   time.Duration
	Backoff bool
	// ResetAttempts is set for a Snooze with that option.
	ResetAttempts bool
	// Err is why: the error of a retry, bury or give back. It is nil for an ack, and for RetryIn, Snooze and Bury
	// without a reason.
	Err error
}

// OutcomeOf returns what a worker does after a handler that returned err, so that middleware and tests can tell a
// snooze from a failure:
//
//	if later.OutcomeOf(err).Kind == later.OutcomeRetry { failures.Inc() }
//
// A worker may still decide otherwise: a handler that exceeded its time limit has failed, even if it returned nil.
func OutcomeOf(err error) Outcome {
	if err == nil || followUpsOf(err) != nil && followUpsOf(err).err == nil {
		return Outcome{Kind: OutcomeAck}
	}
	if b, ok := errors.AsType[*bury](err); ok {
		return Outcome{Kind: OutcomeBury, Err: reasonOf(err, b, b.err)}
	}
	if s, ok := errors.AsType[*snooze](err); ok {
		return Outcome{
			Kind: OutcomeSnooze, Delay: clampDelay(s.delay), ResetAttempts: s.reset, Err: reasonOf(err, s, nil),
		}
	}
	if r, ok := errors.AsType[*retryIn](err); ok {
		return Outcome{Kind: OutcomeRetry, Delay: clampDelay(r.delay), Err: reasonOf(err, r, nil)}
	}
	if b, ok := errors.AsType[*giveBack](err); ok {
		return Outcome{Kind: OutcomeGiveBack, Err: reasonOf(err, b, b.err)}
	}
	return Outcome{Kind: OutcomeRetry, Backoff: true, Err: err}
}

// reasonOf returns the reason in err beside the decision: err itself if it says more than the decision.
func reasonOf(err, decision, reason error) error {
	if err == decision {
		return reason
	}
	return err
}
