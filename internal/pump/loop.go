// Package pump moves messages through three functions: claim → do → settle. A Loop repeats them for one queue until it
// is told to end. Handlers, forwarders, topics and schedules are uses of it: for handlers, slots decide what is claimed
// and each message is settled alone; the others claim, do and settle a Batch at a time.
//
// It imports packages store, internal/hold, internal/calls and internal/event. Start reading at Loop, then at Batch.
package pump

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/internal/hold"
	"github.com/laterq/later/store"
)

// Env is the state that the loops of a worker share.
type Env struct {
	Store  store.Store
	Log    *slog.Logger
	Leases *hold.Keeper
	Gate   Gate      // closed while the worker is paused
	Begun  time.Time // when the worker began

	Handling context.Context // has the values of the worker's context; never ends
	Calling  context.Context // for calls to the store; ends when a drain runs out of time

	End        func(error)   // begins the drain
	Claimed    func()        // is called after each claim
	BeginClaim func() func() // counts a claim until the function that it returns is called
	Holding    atomic.Int64  // messages of batches
}

// Loop claims, does and settles messages of one queue again and again.
type Loop struct {
	*Env
	// Ready returns when the queue may claim. It returns false when the loop is to end.
	Ready func(ctx context.Context) bool
	// Once claims messages, and has them done and settled. It reports whether more messages are ready.
	Once func(ctx context.Context) (more bool, err error)
	// Wait returns when a claim may find messages.
	Wait   func(ctx context.Context) error
	Outage *Outage
	Attrs  []any // of failures, for the Outage
}

// Run runs the loop until ctx ends. It pauses after errors, and begins the drain if the store has stopped for good.
func (l *Loop) Run(ctx context.Context) {
	waitFailed := false
	for failures := 0; l.Ready(ctx); {
		more, err := l.Once(ctx)
		if err == nil && !more {
			if !waitFailed {
				l.Outage.Over() // before a wait that may be long
			}
			err = l.Wait(ctx)
			waitFailed = err != nil
		}
		switch {
		case err == nil:
			failures = 0
			l.Outage.Over()
		case ctx.Err() != nil:
			return
		case errors.Is(err, store.ErrClosed):
			l.End(err)
			return
		default:
			l.Outage.Begin(err, l.Attrs...)
			calls.Pause(ctx, failures)
			failures++
		}
	}
}

// Await returns when the worker is not paused, or false when ctx has ended. It is the Ready of most loops.
func (e *Env) Await(ctx context.Context) bool {
	return e.Gate.changes.Await(ctx, e.Gate.isOpen) == nil && ctx.Err() == nil
}

// WaitFor blocks until messages of a queue may be ready or the worker is paused.
func (e *Env) WaitFor(ctx context.Context, queue string) error {
	waiting, cancel := e.Gate.untilClosed(ctx)
	defer cancel()
	err := e.Store.Wait(waiting, queue)
	if waiting.Err() != nil && ctx.Err() == nil {
		return nil // paused
	}
	return err
}

// Outage logs once that a loop fails, and once that it works again.
type Outage struct {
	Log          *slog.Logger
	Fails, Works string // the texts
	Attrs        []any
	Harmless     bool // a failure is a warning
	failing      atomic.Bool
}

// Begin records a failure, described by attrs.
func (o *Outage) Begin(err error, attrs ...any) {
	if !o.failing.Swap(true) {
		log := o.Log.Error
		if o.Harmless {
			log = o.Log.Warn
		}
		log(o.Fails, append(append(o.Attrs[:len(o.Attrs):len(o.Attrs)], attrs...), "error", err)...)
	}
}

// Failing reports whether the last call failed.
func (o *Outage) Failing() bool { return o.failing.Load() }

// Over records a success.
func (o *Outage) Over() {
	if o.failing.Load() && o.failing.Swap(false) {
		o.Log.Info(o.Works, o.Attrs...)
	}
}

// Watch knows since when the claims of a queue are in flight: that of its loop, and one ahead.
type Watch [2]Call

// Call is when a call began, as the time since the worker began, or 0.
type Call struct{ begun atomic.Int64 }

// Begin records that a call begins, and returns the Call to end when it returns.
func (w *Watch) Begin(ahead bool, since time.Duration) *Call {
	i := 0
	if ahead {
		i = 1
	}
	w[i].begun.Store(max(1, int64(since)))
	return &w[i]
}

// End records that the call has returned.
func (c *Call) End() { c.begun.Store(0) }

// Longest returns how long the longest call has taken by now.
func (w *Watch) Longest(now time.Duration) (longest time.Duration) {
	for i := range w {
		if begun := w[i].begun.Load(); begun > 0 {
			longest = max(longest, now-time.Duration(begun))
		}
	}
	return longest
}
