package latertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

// retryAfter is the backoff of inline handlers: the default of a Worker without its randomness.
var retryAfter = func() later.Backoff {
	b, err := later.GeometricBackoff(time.Second, 2, 10*time.Minute)
	if err != nil {
		panic(err) // the arguments are constants
	}
	return b
}()

const (
	giveBackDelay = time.Second
	giveBackFor   = time.Hour // the default of a Worker
)

// Handle has Advance call a handler for the messages of a queue, one at a time, in the goroutine of the test. So the
// handler may call methods of the test such as FailNow, and a panic ends the test.
//
// The result of the handler settles the message, as with a Worker. Failed attempts are retried after 1 s, 2 s, 4 s and
// so on up to 10 minutes, without randomness. A message's own Timeout is measured by package time. For a Mux,
// middleware, batches, OnDead and a Backoff, start a Worker with Start.
func (h *Harness) Handle(queue string, handler later.HandlerFunc) {
	h.tb.Helper()
	worked := func(w *runningWorker) bool { return w.handles(queue) }
	switch {
	case store.CheckQueue(queue) != nil:
		h.fatal("Handle", store.CheckQueue(queue))
	case handler == nil:
		h.tb.Fatalf("latertest: handler of queue %q is nil: give a function", queue)
	case h.inline[queue] != nil || slices.ContainsFunc(h.workers, worked):
		h.tb.Fatalf("latertest: queue %q has a handler already: give each queue one handler", queue)
	default:
		h.inline[queue] = handler
	}
}

// handleInline calls inline handlers until none of their queues has a ready message. It reports false when the test has
// failed.
func (h *Harness) handleInline() bool {
	h.tb.Helper()
	for !h.tooMany() {
		name, due := "", time.Time{}
		for candidate := range h.inline {
			s, err := h.client.Queue(candidate).Stats(background)
			if err != nil {
				h.fatal("read queue "+candidate, err)
				return false
			}
			earlier := name == "" || s.NextDue.Before(due) || s.NextDue.Equal(due) && candidate < name
			if s.Ready > 0 && !s.Paused && earlier {
				name, due = candidate, s.NextDue
			}
		}
		if name == "" {
			return true
		}
		if !h.handleOne(name) {
			return false
		}
	}
	return false
}

// handleOne receives one message and calls its handler. There may be none: the first one may have expired.
func (h *Harness) handleOne(queue string) bool {
	h.tb.Helper()
	now := context.WithValue(background, onlyNow{}, true)
	received, err := h.client.Queue(queue).Receive(now, 1, later.Lease(store.MaxLease))
	if err != nil && !errors.Is(err, errNothing) {
		h.fatal("receive from queue "+queue, err)
		return false
	}
	for _, d := range received {
		err := call(h.inline[queue], d.Message)
		h.mu.Lock()
		h.results = append(h.results, Result{Message: d.Message, At: h.Now(), Err: err})
		h.mu.Unlock()
		// The handler may have cancelled its message.
		if err := settle(d, err); err != nil && !errors.Is(err, later.ErrLeaseLost) {
			h.fatal(fmt.Sprintf("settle message %q of queue %q", d.ID, queue), err)
			return false
		}
	}
	return true
}

// call calls a handler, with the message's time limit.
func call(handler later.HandlerFunc, m *later.Message) error {
	ctx := later.ContextWithMessage(background, m)
	if m.Timeout > 0 {
		limited, cancel := context.WithTimeoutCause(ctx, m.Timeout, later.ErrTimeout)
		defer cancel()
		ctx = limited
	}
	err := handler(ctx, m)
	if context.Cause(ctx) == later.ErrTimeout && later.OutcomeOf(err).Kind == later.EventAcked {
		return fmt.Errorf("%w (%v)", later.ErrTimeout, m.Timeout)
	}
	return err
}

// settle settles a message as a worker does after a handler that returned err.
func settle(d *later.Delivery, err error) error {
	switch o := later.OutcomeOf(err); o.Kind {
	case later.EventAcked:
		then, _ := errors.AsType[*later.FollowUps](err)
		err := d.AckThen(background, then)
		if errors.Is(err, later.ErrInvalid) || errors.Is(err, later.ErrTooLarge) { // a follow-up is not allowed
			return d.Nack(background, retryAfter(d.Attempt, err), err)
		}
		return err
	case later.EventSnoozed:
		if o.ResetAttempts {
			return d.Snooze(background, o.Delay, later.ResetAttempts)
		}
		return d.Snooze(background, o.Delay)
	case later.EventGivenBack:
		return d.GiveBack(background, giveBackDelay, giveBackFor, err)
	case later.EventBuried:
		return d.Bury(background, err)
	default:
		if o.Backoff {
			o.Delay = retryAfter(d.Attempt, err)
		}
		return d.Nack(background, o.Delay, err)
	}
}
