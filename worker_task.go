package later

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/laterq/later/internal/outcome"
	"github.com/laterq/later/internal/slots"
	"github.com/laterq/later/store"
)

// task is a claimed message in a worker. Only the goroutine that moves its stage to over settles it or
// drops it as lost.
type task struct {
	Message
	lease *lease
	epoch int64 // of the receipt
	stage atomic.Uint32
	index int16 // of the receipt, below store.MaxBatch
	ended bool  // the context has ended; guarded by contextState.mu
	contextState

	// The final Lateness and the handler's running time. They are atomic because events are also reported by
	// other goroutines.
	late atomic.Int64
	ran  atomic.Int64

	unusual *ending // nil for a plain ack that has not failed; see ending
}

// ending is how a task ends. It is set by the goroutine that moved the task to over.
type ending struct {
	outcome.Result
	then  []store.FollowUp
	err   error        // the cause of the result
	retry *settleRetry // nil until a settle fails
}

var plainAck = ending{Result: outcome.Result{Action: store.Ack}}

// ending returns how the task ends. The result must not be modified.
func (t *task) ending() *ending {
	if t.unusual == nil {
		return &plainAck
	}
	return t.unusual
}

func (t *task) endWith(e ending) {
	if e.Result != plainAck.Result || e.err != nil || e.then != nil {
		unusual := e // so that only this one is allocated
		t.unusual = &unusual
	}
}

// settleRetry is the retry state of a settle that failed, and may have taken effect.
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

// ctx returns the handler's context.
func (t *task) ctx() *messageContext { return (*messageContext)(t) }

// receipt returns the receipt with which the message is settled.
func (t *task) receipt() store.Receipt {
	return store.Receipt{Lease: t.lease.ID, ID: t.ID, Epoch: t.epoch, Claim: t.lease.claim, Index: int(t.index)}
}

// Begin moves the task from the buffer to its handler. It reports false if the task was lost or released.
func (t *task) Begin() bool { return t.stage.CompareAndSwap(stageBuffered, stageRunning) }

// end moves the task to over. It reports false if it already was.
func (t *task) end() bool { return t.stage.Swap(stageOver) != stageOver }

// Slots returns the queue of the task.
func (t *task) Slots() *slots.Queue { return t.lease.qw.slots }

// Arrived returns when the claim of the task returned.
func (t *task) Arrived() time.Time { return t.lease.arrived }

// Ran returns how long the handler ran.
func (t *task) Ran() time.Duration { return time.Duration(t.ran.Load()) }

// Exited fails the task, and the other tasks of its batch, because the handler ended its goroutine.
func (t *task) Exited() {
	for _, exited := range t.together() {
		exited.finish(ending{Result: exited.resultOf(errGoexit, defaultBackoff), err: errGoexit})
	}
}

var errGoexit = errors.New("handler called runtime.Goexit")

// Run runs the handler and settles its result, or the results of the task's batch.
func (t *task) Run() {
	if t.lease.qw.batch != nil {
		t.live.batch.run()
		return
	}
	waited := time.Since(t.lease.arrived) // reading only the monotonic clock is cheaper than time.Now
	t.Lateness += max(0, waited)
	t.late.Store(int64(t.Lateness))
	limit := t.Timeout
	if limit == 0 {
		limit = t.lease.qw.cfg.Timeout
	}
	if limit > 0 {
		defer t.ctx().limit(limit)()
	}
	if t.lease.qw.run.client.observe != nil { // not for watchers
		t.report(EventStarted, nil)
	}
	e := t.call(limit)
	t.ran.Store(int64(time.Since(t.lease.arrived) - waited))
	t.finish(e)
}

// call calls the handler and converts its result or panic to the task's ending.
func (t *task) call(limit time.Duration) (e ending) {
	returned, decided := false, false
	backoff := t.lease.qw.cfg.Backoff
	defer func() {
		if decided {
			return
		}
		p := recover()
		if p == nil {
			return // runtime.Goexit; handled by work
		}
		err := outcome.NewPanic(p)
		t.lease.qw.run.log.Error("later: handler panicked",
			"queue", t.Queue, "id", t.ID, "attempt", t.Attempt, "panic", p, "stack", string(debug.Stack()))
		if returned {
			backoff = defaultBackoff // the queue's backoff panicked
		}
		e = ending{Result: t.resultOf(err, backoff), err: err}
	}()
	err := t.lease.qw.handler(t.ctx(), &t.Message)
	returned = true
	if limit > 0 && context.Cause(t.ctx()) == ErrTimeout {
		err = overtime(limit, err)
	}
	e = t.endingOf(err, backoff)
	decided = true
	return e
}

// endingOf converts the handler's result to the task's ending. Follow-ups that cannot be written with the ack are
// sent here.
func (t *task) endingOf(err error, backoff Backoff) ending {
	if f := followUpsOf(err); f != nil {
		then, failed := f.after(t.ctx(), t.lease.qw.run.client, &t.Message)
		if failed == nil {
			return ending{Result: plainAck.Result, then: then}
		}
		err = failed
	}
	return ending{Result: t.resultOf(err, backoff), err: err}
}

func (t *task) resultOf(err error, backoff Backoff) outcome.Result {
	return outcome.ResultOf(t.attempt(), err, backoff, t.lease.qw.misfits)
}

// overtime returns the error of a handler that exceeded its time limit and returned err. A nil err and
// follow-ups are failures too, because the handler may have been cut short without noticing.
func overtime(limit time.Duration, err error) error {
	switch {
	case err == nil || followUpsOf(err) != nil:
		return fmt.Errorf("%w (%v)", ErrTimeout, limit)
	case errors.Is(err, ErrTimeout):
		return err
	}
	return fmt.Errorf("%w (%v): %w", ErrTimeout, limit, err)
}

// finish ends the handler's context and settles the message, unless it was lost or released in the
// meantime.
func (t *task) finish(e ending) {
	t.ctx().end(nil)
	if t.end() {
		t.endWith(e)
		t.settle()
	}
}

// release releases the message, if it is still held, and ends its handler's context with cause.
func (t *task) release(cause error) {
	if t.end() {
		t.ctx().end(cause)
		t.endWith(ending{Result: outcome.Result{Action: store.Release}, err: cause})
		t.settle()
	}
}

// lose drops a message that is no longer held, and ends its handler's context with cause.
func (t *task) lose(cause error) {
	if t.end() {
		t.ctx().end(cause)
		t.event(EventLeaseLost, cause)
		t.close()
	}
}

// event reports and counts an event of the task.
func (t *task) event(kind EventKind, err error) {
	q := t.lease.qw.queue
	if q.wantsEvents() {
		t.report(kind, err)
	}
	q.activity.Count(kind, 1)
}

// report reports an event of the task to the observer and to watchers.
func (t *task) report(kind EventKind, err error) {
	t.lease.qw.queue.report(Event{
		Kind:     kind,
		ID:       t.ID,
		Context:  t.ctx(),
		Attempt:  t.Attempt,
		Lateness: time.Duration(t.late.Load()),
		Duration: time.Duration(t.ran.Load()),
		Err:      err,
		Headers:  t.lease.qw.run.client.eventHeaders.Of(t.Headers),
	})
}
