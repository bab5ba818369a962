package forward

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/laterq/later/internal/outcome"
	"github.com/laterq/later/internal/pump"
	"github.com/laterq/later/store"
)

// Custom is the Work of a Batch with a destination that is code of the program.
type Custom struct {
	*Forward
	Name string // of the destination, for logs
	// Deliver calls the destination with claimed messages. It returns an error for each, or nil for none.
	Deliver func(context.Context, store.Claim) []error
	// Backoff delays the next attempt after an error. Default is used if it panics.
	Backoff, Default func(attempt int, err error) time.Duration

	Misfits   *outcome.Misfits
	Shutdown  error         // the error of messages whose call ignored the end of its context
	Abandoned *atomic.Int32 // calls that did
}

// Do implements pump.Work: it calls the destination and changes the settlements of messages that were not delivered.
func (c *Custom) Do(ctx context.Context, claim store.Claim, settlements []store.Settlement) error {
	var away error
	for i, err := range c.call(ctx, claim) {
		s := &settlements[i]
		if errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrFull) || err != nil && ctx.Err() != nil {
			s.Action = store.Release
			away = err
			continue
		}
		r := c.result(&claim.Messages[i], err)
		s.Action, s.Delay, s.Reason, s.ResetAttempts, s.Within = r.Action, r.Delay, r.Reason, r.Reset, r.Within
	}
	return away
}

// Settled implements pump.Work: it records a message that was given back.
func (c *Custom) Settled(m *store.Claimed, s *store.Settlement, state store.State) {
	if s.Action == store.GiveBack && state != store.StateDead {
		c.Misfits.Wait(outcome.MisfitOf(m.Headers, nil), s.Delay)
	}
}

// result converts an error of the destination to a settlement.
func (c *Custom) result(m *store.Claimed, err error) (r outcome.Result) {
	attempt := outcome.Attempt{Number: m.Attempt, Headers: m.Headers, SentAt: m.SentAt}
	if attempt.SentAt.IsZero() {
		attempt.SentAt, _ = store.IDTime(m.ID)
	}
	defer func() {
		if p := recover(); p != nil {
			c.logPanic("Backoff", p)
			r = outcome.ResultOf(attempt, outcome.NewPanic(p), c.Default, c.Misfits)
		}
	}()
	return outcome.ResultOf(attempt, err, c.Backoff, c.Misfits)
}

func (c *Custom) logPanic(in string, value any) {
	c.Log.Error("later: "+in+" panicked", "queue", c.Queue.Name, "to", c.Name, "panic", value,
		"stack", string(debug.Stack()))
}

// call returns an error for each message. A Deliver that ignores the end of its context at shutdown is left running,
// like a handler.
func (c *Custom) call(ctx context.Context, claim store.Claim) []error {
	same := func(err error) []error { return slices.Repeat([]error{err}, len(claim.Messages)) }
	returned := make(chan []error, 1)
	go func() {
		errs := same(errGoexit)
		defer func() {
			if p := recover(); p != nil {
				c.logPanic("Deliver", p)
				errs = same(outcome.NewPanic(p))
			}
			returned <- errs
		}()
		if got := c.Deliver(ctx, claim); got == nil {
			errs = same(nil)
		} else if errs = got; len(got) != len(claim.Messages) {
			errs = same(fmt.Errorf("destination returned %d errors for %d messages: return one for each, or nil", len(got),
				len(claim.Messages)))
		}
	}()
	select {
	case errs := <-returned:
		return errs
	case <-c.Calling.Done():
	}
	grace := time.NewTimer(pump.Grace)
	defer grace.Stop()
	select {
	case errs := <-returned:
		return errs
	case <-grace.C:
	}
	c.Abandoned.Add(1)
	return same(c.Shutdown)
}

var errGoexit = errors.New("destination called runtime.Goexit")
