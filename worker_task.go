package later

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/laterq/later/store"
)

// task is a claimed message on its way through a worker. Whoever moves its stage to over, and nobody else,
// settles it or knows that it is lost.
type task struct {
	Message
	lease *lease
	epoch int64 // of its receipt
	stage atomic.Uint32
	index int16 // of its receipt, below store.MaxBatch
	ended bool  // its context; guarded by contextState.mu
	contextState

	// For events, which others than the handler's goroutine tell of: the final Lateness, and how long it ran.
	late atomic.Int64
	ran  atomic.Int64

	unusual *ending // nil while it ends, or may still end, with an ack that has not failed; see ending
}

// ending is how a task ends; set by the one that moved it to over.
type ending struct {
	result
	err   error        // behind the result
	retry *settleRetry // nil until a settle failed
}

var plainAck = ending{result: result{action: store.Ack}}

// ending must not be changed.
func (t *task) ending() *ending {
	if t.unusual == nil {
		return &plainAck
	}
	return t.unusual
}

// endWith sets the ending.
func (t *task) endWith(r result, err error) {
	if r != plainAck.result || err != nil {
		t.unusual = &ending{result: r, err: err}
	}
}

// result is a settlement without what the task has anyway.
type result struct {
	action store.Action
	delay  time.Duration
	reason string
}

// settleRetry is about a settle that failed, and may have had its effect.
type settleRetry struct {
	failures int
	at       time.Time
	giveUpAt time.Time // when to stop trying
}

// The stages of a task.
const (
	stageBuffered uint32 = iota
	stageRunning
	stageOver
)

func (t *task) init(held *lease, c *store.Claimed, now time.Time) {
	t.lease, t.epoch, t.index = held, c.Receipt.Epoch, int16(c.Receipt.Index)
	t.fill(held.qw.queue.name, c, now)
	t.late.Store(int64(t.Lateness))
}

// ctx is the handler's context.
func (t *task) ctx() *messageContext { return (*messageContext)(t) }

// receipt is what the claim gave for the message, by which it is settled.
func (t *task) receipt() store.Receipt {
	return store.Receipt{Lease: t.lease.id, ID: t.ID, Epoch: t.epoch, Claim: t.lease.claim, Index: int(t.index)}
}

// begin moves the task from the buffer to its handler; false when it was lost or given back before.
func (t *task) begin() bool { return t.stage.CompareAndSwap(stageBuffered, stageRunning) }

// end moves the task to over; false when another did before.
func (t *task) end() bool { return t.stage.Swap(stageOver) != stageOver }

// work runs a task that has a slot, and those that follow it on that slot.
func (r *run) work(t *task) {
	defer r.scheduler.goroutines.Done()
	defer func() {
		if t == nil {
			return
		}
		// The handler has ended its goroutine with runtime.Goexit, as testing's FailNow does. The slot goes on
		// in another.
		t.finish(resultOf(&t.Message, errGoexit, defaultBackoff), errGoexit)
		if next := r.scheduler.next(t); next != nil {
			r.scheduler.goroutines.Add(1)
			go r.work(next)
		}
	}()
	for t != nil {
		t.run()
		t = r.scheduler.next(t)
	}
}

var errGoexit = errors.New("handler called runtime.Goexit")

// run runs the handler and has its result settled.
func (t *task) run() {
	started := time.Now()
	t.Lateness += max(0, started.Sub(t.lease.arrived))
	t.late.Store(int64(t.Lateness))
	limit := t.Timeout
	if limit == 0 {
		limit = t.lease.qw.cfg.Timeout
	}
	if limit > 0 {
		defer t.ctx().limit(limit)()
	}
	t.event(EventStarted, nil)
	result, err := t.call(limit)
	t.ran.Store(int64(time.Since(started)))
	t.finish(result, err)
}

// call calls the handler, and turns its result or panic into what is to be settled and the error behind it.
func (t *task) call(limit time.Duration) (r result, err error) {
	returned, decided := false, false
	backoff := t.lease.qw.cfg.Backoff
	defer func() {
		if decided {
			return
		}
		p := recover()
		if p == nil {
			return // runtime.Goexit; work sees to it
		}
		err = &panicError{p, panicStack()}
		t.lease.qw.run.log.Error("later: handler panicked",
			"queue", t.Queue, "id", t.ID, "attempt", t.Attempt, "panic", p, "stack", string(debug.Stack()))
		if returned {
			backoff = defaultBackoff // it was the queue's that panicked
		}
		r = resultOf(&t.Message, err, backoff)
	}()
	err = t.lease.qw.handler(t.ctx(), &t.Message)
	returned = true
	if limit > 0 && context.Cause(t.ctx()) == ErrTimeout {
		err = overtime(limit, err)
	}
	r = resultOf(&t.Message, err, backoff)
	decided = true
	return r, err
}

// overtime is the failure of a handler that ran into its time limit and returned err. No error is one too:
// the handler may have been cut short without knowing it.
func overtime(limit time.Duration, err error) error {
	switch {
	case err == nil:
		return fmt.Errorf("%w (%v)", ErrTimeout, limit)
	case errors.Is(err, ErrTimeout):
		return err
	}
	return fmt.Errorf("%w (%v): %w", ErrTimeout, limit, err)
}

// finish ends the handler's context and has the message settled, unless it was lost or given back meanwhile.
func (t *task) finish(r result, err error) {
	t.ctx().end(nil)
	if t.end() {
		t.endWith(r, err)
		t.settle()
	}
}

// giveBack releases the message, if it is still ours to settle, and ends its handler's context with the cause.
func (t *task) giveBack(cause error) {
	if t.end() {
		t.ctx().end(cause)
		t.endWith(result{action: store.Release}, cause)
		t.settle()
	}
}

// lose forgets the message, which is no longer ours, and ends its handler's context with the cause.
func (t *task) lose(cause error) {
	if t.end() {
		t.ctx().end(cause)
		t.event(EventLeaseLost, cause)
		t.close()
	}
}

// event tells the observer about the task.
func (t *task) event(kind EventKind, err error) {
	if t.lease.qw.run.client.observe == nil {
		return
	}
	t.lease.qw.run.client.observe(Event{
		Kind:     kind,
		Queue:    t.Queue,
		ID:       t.ID,
		Time:     time.Now(),
		Attempt:  t.Attempt,
		Lateness: time.Duration(t.late.Load()),
		Duration: time.Duration(t.ran.Load()),
		Err:      err,
	})
}

// panicError is the failure of a handler that panicked.
type panicError struct {
	value any
	stack string
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v\n\n%s", e.value, e.stack) }

// Unwrap gives the error that was the panic's value, if it was one.
func (e *panicError) Unwrap() error {
	err, _ := e.value.(error)
	return err
}

// panicStack is the stack from the panic on; what is above it would only use up store.MaxReason.
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
