// Package outcome turns the results of handlers into settlements, and follows the messages that a worker gave back or
// saw become dead. It imports packages store, internal/fleet and internal/kind. Start reading at ResultOf; misfits.go
// has messages for another version of the program, and dead.go has the calls of OnDead.
package outcome

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/laterq/later/store"
)

// RetryIn is the error of a failed attempt with a delay of its own.
type RetryIn struct{ Delay time.Duration }

func (e *RetryIn) Error() string { return fmt.Sprintf("retry in %v", e.Delay) }

// Snooze is the error of a handler that wants its message again.
type Snooze struct {
	Delay time.Duration
	Reset bool // of the attempts
}

func (e *Snooze) Error() string { return fmt.Sprintf("snooze for %v", e.Delay) }

// Bury is the error of a handler that moves its message to dead.
type Bury struct{ Err error }

func (e *Bury) Error() string { return textOr(e.Err, "buried") }

func (e *Bury) Unwrap() error { return e.Err }

// GiveBack is the error of a handler that gives its message back for another version of the program.
type GiveBack struct {
	Err     error
	Unknown bool // its kind has no handler; it is given back for ever
}

func (e *GiveBack) Error() string { return textOr(e.Err, "given back") }

func (e *GiveBack) Unwrap() error { return e.Err }

func textOr(err error, otherwise string) string {
	if err == nil {
		return otherwise
	}
	return err.Error()
}

// Panic is the error of a handler that panicked.
type Panic struct {
	value any
	stack string
}

// NewPanic returns the error of a recovered panic. It is called by the deferred function that recovered.
func NewPanic(value any) error { return &Panic{value, panicStack()} }

func (e *Panic) Error() string { return fmt.Sprintf("panic: %v\n\n%s", e.value, e.stack) }

// Unwrap returns the panic's value if it was an error.
func (e *Panic) Unwrap() error {
	err, _ := e.value.(error)
	return err
}

// panicStack returns the stack from the panic on. The frames above it would only use up store.MaxReason.
func panicStack() string {
	stack := string(debug.Stack())
	if _, rest, ok := strings.Cut(stack, "\npanic("); ok {
		if _, rest, ok = strings.Cut(rest, "\n"); ok { // the arguments
			if _, rest, ok = strings.Cut(rest, "\n"); ok { // the place in the runtime
				return rest
			}
		}
	}
	return stack
}

// Result is a settlement without the fields that the message already has.
type Result struct {
	Action store.Action
	Delay  time.Duration
	Reason string
	Reset  bool
	Within time.Duration // for GiveBack
}

// Attempt is the part of a message on which its result depends.
type Attempt struct {
	Number  int
	Headers map[string]string
	SentAt  time.Time
}

// ResultOf converts a handler's error to a settlement. Bury takes precedence over Snooze, Snooze over RetryIn, and
// RetryIn over GiveBack.
func ResultOf(a Attempt, err error, backoff func(int, error) time.Duration, x *Misfits) Result {
	if err == nil {
		return Result{Action: store.Ack}
	}
	if _, ok := errors.AsType[*Bury](err); ok {
		return Result{Action: store.Bury, Reason: store.CutReason(err.Error())}
	}
	if snoozed, ok := errors.AsType[*Snooze](err); ok {
		return Result{Action: store.Snooze, Delay: ClampDelay(snoozed.Delay), Reset: snoozed.Reset}
	}
	r := Result{Action: store.Nack, Reason: store.CutReason(err.Error())}
	if retry, ok := errors.AsType[*RetryIn](err); ok {
		r.Delay = ClampDelay(retry.Delay)
		return r
	}
	if _, ok := errors.AsType[*GiveBack](err); ok {
		return x.resultOf(a, err)
	}
	r.Delay = ClampDelay(backoff(a.Number, err))
	return r
}

// ClampDelay returns the nearest delay that a store allows.
func ClampDelay(d time.Duration) time.Duration { return min(max(d, 0), store.MaxDelay) }
