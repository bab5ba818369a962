package handle

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/laterq/later/internal/batch"
	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/internal/event"
	"github.com/laterq/later/internal/outcome"
	"github.com/laterq/later/internal/slots"
	"github.com/laterq/later/store"
)

// Task is a claimed message in a worker. Only the goroutine that moves its stage to over settles it or
// drops it as lost.
type Task struct {
	Message
	dedupWindow time.Duration
	grouped     bool // unlike Message.Group, which a handler can change
	lease       *lease
	epoch       int64 // of the receipt
	stage       atomic.Uint32
	index       int16 // of the receipt, below store.MaxBatch
	ended       bool  // the context has ended; guarded by contextState.mu
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
func (t *Task) ending() *ending {
	if t.unusual == nil {
		return &plainAck
	}
	return t.unusual
}

func (t *Task) endWith(e ending) {
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

func (t *Task) init(held *lease, c *store.Claimed, now time.Time) {
	t.Message = MessageOf(held.queue.Name, c, now)
	t.dedupWindow, t.grouped = c.DedupWindow, c.Group != ""
	t.lease, t.epoch, t.index = held, c.Receipt.Epoch, int16(c.Receipt.Index)
	t.late.Store(int64(t.Lateness))
}

func (t *Task) ctx() *messageContext { return (*messageContext)(t) }

// Context returns the handler's context.
func (t *Task) Context() context.Context { return t.ctx() }

// LatenessNow returns the message's Lateness. Unlike the field, it may be read by any goroutine at any time.
func (t *Task) LatenessNow() time.Duration { return time.Duration(t.late.Load()) }

// Begin moves the task from the buffer to its handler. It reports false if the task was lost or released.
func (t *Task) Begin() bool { return t.stage.CompareAndSwap(stageBuffered, stageRunning) }

// end moves the task to over. It reports false if it already was.
func (t *Task) end() bool { return t.stage.Swap(stageOver) != stageOver }

// Slots returns the queue of the task.
func (t *Task) Slots() *slots.Queue { return t.lease.queue.slots }

// Arrived returns when the claim of the task returned.
func (t *Task) Arrived() time.Time { return t.lease.arrived }

// Ran returns how long the handler ran.
func (t *Task) Ran() time.Duration { return time.Duration(t.ran.Load()) }

// Exited fails the task, and the other tasks of its batch, because the handler ended its goroutine.
func (t *Task) Exited() {
	exited := []*Task{t}
	if t.lease.queue.Batch != nil {
		exited = t.live.batch.tasks
	}
	for _, t := range exited {
		t.finish(ending{Result: t.resultOf(errGoexit, t.lease.queue.worker.Backoff), err: errGoexit})
	}
}

var errGoexit = errors.New("handler called runtime.Goexit")

// timeLimit returns the limit of one run of the handler, or 0.
func (t *Task) timeLimit() time.Duration {
	if t.Timeout > 0 {
		return t.Timeout
	}
	return t.lease.queue.Timeout
}

// Run runs the handler and settles its result, or the results of the task's batch. If it returns a function, that sends
// the settlement.
func (t *Task) Run() (rest func()) {
	q := t.lease.queue
	if q.Batch != nil {
		t.live.batch.run()
		return nil
	}
	waited := time.Since(t.lease.arrived) // reading only the monotonic clock is cheaper than time.Now
	t.started(waited)
	limit := t.timeLimit()
	if limit > 0 {
		defer t.ctx().limit(limit)()
	}
	if q.worker.Observed { // not for watchers
		q.Report(event.Started, t, nil)
	}
	e := t.endingOf(t.call(limit))
	t.ran.Store(int64(time.Since(t.lease.arrived) - waited))
	if t.finishHere(e) {
		return q.sendSettles
	}
	return nil
}

// started records that the handler starts, so long after the claim returned.
func (t *Task) started(waited time.Duration) {
	t.Lateness += max(0, waited)
	t.late.Store(int64(t.Lateness))
}

// call calls the handler and returns its error, or that of its panic.
func (t *Task) call(limit time.Duration) (err error) {
	defer func() {
		if p := recover(); p != nil { // otherwise it may be runtime.Goexit; see Exited
			t.logPanic("handler", p)
			err = outcome.NewPanic(p)
		}
	}()
	err = t.lease.queue.Handler(t.ctx(), &t.Message)
	if limit > 0 && context.Cause(t.ctx()) == ErrTimeout {
		err = t.lease.queue.worker.overtime(limit, err)
	}
	return err
}

func (t *Task) logPanic(in string, value any) {
	t.lease.queue.worker.Log.Error("later: "+in+" panicked",
		"queue", t.Queue, "id", t.ID, "attempt", t.Attempt, "panic", value, "stack", string(debug.Stack()))
}

// endingOf converts the handler's result to the task's ending. Follow-ups that cannot be written with the ack are
// sent here.
func (t *Task) endingOf(err error) (e ending) {
	if err == nil {
		return plainAck
	}
	q := t.lease.queue
	defer func() {
		if p := recover(); p != nil {
			t.logPanic("Backoff or follow-up", p)
			err := outcome.NewPanic(p)
			e = ending{Result: t.resultOf(err, q.worker.Backoff), err: err}
		}
	}()
	if q.worker.IsFollowUps(err) {
		then, failed := q.worker.Follow(t.ctx(), err, &t.Message)
		if failed == nil {
			return ending{Result: plainAck.Result, then: then}
		}
		err = failed
	}
	return ending{Result: t.resultOf(err, q.Backoff), err: err}
}

func (t *Task) resultOf(err error, backoff func(int, error) time.Duration) outcome.Result {
	return outcome.ResultOf(t.Tried(), err, backoff, t.lease.queue.Misfits)
}

// overtime returns the error of a handler that exceeded its time limit and returned err. A nil err and
// follow-ups are failures too, because the handler may have been cut short without noticing.
func (w *Worker) overtime(limit time.Duration, err error) error {
	switch {
	case err == nil || w.IsFollowUps(err):
		return fmt.Errorf("%w (%v)", ErrTimeout, limit)
	case errors.Is(err, ErrTimeout):
		return err
	}
	return fmt.Errorf("%w (%v): %w", ErrTimeout, limit, err)
}

// finish ends the handler's context and settles the message, unless it was lost or released in the
// meantime.
func (t *Task) finish(e ending) {
	if t.finishHere(e) {
		go t.lease.queue.sendSettles()
	}
}

// finishHere is finish, but leaves the call of sendSettles to the caller if it returns true.
func (t *Task) finishHere(e ending) bool {
	t.ctx().end(nil)
	if !t.end() {
		return false
	}
	t.endWith(e)
	return t.settleHere()
}

// release releases the message, if it is still held, and ends its handler's context with cause.
func (t *Task) release(cause error) {
	if t.end() {
		t.ctx().end(cause)
		t.endWith(ending{Result: outcome.Result{Action: store.Release}, err: cause})
		t.settle()
	}
}

// lose drops a message that is no longer held, and ends its handler's context with cause.
func (t *Task) lose(cause error) {
	if t.end() {
		t.ctx().end(cause)
		t.close(event.LeaseLost, cause)
	}
}

// event reports and counts an event of the task.
func (t *Task) event(kind store.EventKind, err error) {
	q := t.lease.queue
	if q.wantsEvents() {
		q.Report(kind, t, err)
	}
	q.Activity.Count(kind, 1)
}

// settle sends the task's settlement. Complete is called with the result.
func (t *Task) settle() {
	if t.settleHere() {
		go t.lease.queue.sendSettles()
	}
}

// settleHere is settle, but leaves the call of sendSettles to the caller if it returns true.
func (t *Task) settleHere() bool {
	q, e := t.lease.queue, t.ending()
	q.slots.BeginSettle()
	s := store.Settlement{
		Receipt: store.Receipt{
			Lease: t.lease.ID, ID: t.ID, Epoch: t.epoch, Claim: t.lease.claim, Index: int(t.index),
		},
		Action: e.Action, Delay: e.Delay, Reason: e.Reason, Then: e.then, ResetAttempts: e.Reset, Within: e.Within,
	}
	switch s.Action {
	case store.Ack:
		s.DedupWindow, s.Grouped = t.dedupWindow, t.grouped
	case store.Nack, store.Bury, store.GiveBack:
		s.Duration, s.Worker = t.Ran(), q.worker.Name
	}
	var g *batch.Group
	if e == &plainAck {
		g = t.lease.acks
	}
	send, err := q.Settles.PutHere(s, t, g)
	if err != nil {
		t.Complete(store.SettleResult{}, err)
	}
	return send
}

// Complete handles the result of a settle. It does not block.
func (t *Task) Complete(result store.SettleResult, err error) {
	q, e := t.lease.queue, t.ending()
	q.worker.scheduler.EndSettle(q.slots)
	if err == nil {
		err = result.Err
	}
	switch {
	case err == nil || errors.Is(err, store.ErrNotDurable):
		t.settled(result.State)
	case errors.Is(err, store.ErrLeaseLost) && e.retry != nil && time.Now().Before(q.worker.Leases.End(&t.lease.Lease)):
		// The lease is still held, so our own earlier call settled the message and its reply was lost.
		t.settled(result.State)
	case errors.Is(err, store.ErrLeaseLost):
		t.close(event.LeaseLost, err)
	case t.tryAgain(err):
	default:
		q.worker.Log.Error("later: a message could not be settled and will be delivered again when its lease ends",
			"queue", t.Queue, "id", t.ID, "attempt", t.Attempt, "action", e.Action, "error", err)
		t.close(event.Unsettled, err)
	}
}

func (t *Task) settled(state store.State) {
	q, e := t.lease.queue, t.ending()
	w := q.worker
	q.outage.Over()
	t.event(event.OfSettle(e.Action, state), e.err)
	if len(e.then) > 0 {
		w.Followed(t.ctx(), e.then)
	}
	switch {
	case state == store.StateDead:
		t.event(event.Died, e.err)
		w.Dead.Settled(t.Queue, t.ID, t.Attempt, t.MaxAttempts, e.err)
	case e.Action == store.Nack:
		if level := w.FailureLevel.Level(); w.Log.Enabled(context.Background(), level) {
			w.Log.Log(context.Background(), level, "later: an attempt failed",
				"queue", t.Queue, "id", t.ID, "attempt", t.Attempt, "of", t.MaxAttempts, "again_in", e.Delay,
				"error", e.err)
		}
	case e.Action == store.GiveBack:
		q.Misfits.Wait(outcome.MisfitOf(t.Headers, e.err), e.Delay)
	}
	w.Leases.Close(&t.lease.Lease)
}

// tryAgain schedules another settle with the same receipt, until the lease would have ended as of the first failure. It
// reports false when a retry has no point.
func (t *Task) tryAgain(err error) bool {
	if calls.IsPermanent(err) {
		return false
	}
	q, e := t.lease.queue, *t.ending()
	q.outage.Begin(err, "doing", "settle messages")
	if e.retry == nil {
		e.retry = &settleRetry{giveUpAt: q.worker.Leases.End(&t.lease.Lease)}
		t.unusual = &e
	}
	e.retry.at = time.Now().Add(calls.PauseAfter(e.retry.failures))
	e.retry.failures++
	return e.retry.at.Before(e.retry.giveUpAt) && q.worker.Leases.Retry(e.retry.at, t.settle)
}

// close reports an event with which the holding of the task ends without a settle.
func (t *Task) close(kind store.EventKind, err error) {
	t.event(kind, err)
	t.lease.queue.worker.Leases.Close(&t.lease.Lease)
}
