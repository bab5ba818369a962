package later

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laterq/later/internal/batch"
	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/internal/event"
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

// receipt returns the receipt that settles the message.
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

// messageContext is a handler's context. A real context takes three allocations, so it is created only when
// the handler first uses a method that needs one; most handlers never do. A messageContext is the task
// itself, to save memory.
type messageContext task

// contextState is the part of a task that belongs to its messageContext.
type contextState struct {
	mu   sync.Mutex
	live *liveContext // nil until needed
}

type liveContext struct {
	context.Context
	end   context.CancelCauseFunc
	batch *messageBatch // nil unless a batch handler gets the message
}

// real returns the real context, and creates it if necessary. The lock is held.
func (c *messageContext) real() *liveContext {
	if c.live == nil {
		ctx, end := context.WithCancelCause(c.lease.qw.run.handling)
		c.live = &liveContext{Context: ctx, end: end}
		if c.ended {
			end(nil)
		}
	}
	return c.live
}

// limit ends the context with ErrTimeout after d. The caller calls stop to free its timer.
func (c *messageContext) limit(d time.Duration) (stop context.CancelFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	live := c.real()
	ctx, stop := context.WithTimeoutCause(live.Context, d, ErrTimeout)
	c.live = &liveContext{Context: ctx, end: live.end}
	return stop
}

// join adds the message to a batch, which then learns when its context ends. It reports false if it has ended.
func (c *messageContext) join(b *messageBatch) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return false
	}
	own := c.live
	if own == nil {
		c.live = &b.liveContext
		return true
	}
	// An observer has used the context.
	end := func(cause error) {
		own.end(cause)
		b.left(cause)
	}
	c.live = &liveContext{Context: own.Context, end: end, batch: b}
	return true
}

// end ends the context with a cause. A nil cause means context.Canceled.
func (c *messageContext) end(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	if c.live != nil || cause != nil {
		c.real().end(cause)
	}
	c.ended = true
}

// Deadline implements context.Context.
func (c *messageContext) Deadline() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live == nil {
		return time.Time{}, false
	}
	return c.live.Deadline()
}

// Done implements context.Context.
func (c *messageContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.real().Done()
}

// Err implements context.Context.
func (c *messageContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live == nil && !c.ended {
		return nil
	}
	return c.real().Err()
}

// Value implements context.Context. Package context uses a key of its own to find the cause of a parent
// context.
func (c *messageContext) Value(key any) any {
	switch key {
	case messageKey{}:
		return &c.Message
	case concurrencyKey{}:
		return c.lease.qw.run.cfg.Concurrency
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live == nil && !c.ended {
		return c.lease.qw.run.handling.Value(key)
	}
	return c.real().Value(key)
}

type (
	messageKey     struct{}
	concurrencyKey struct{}
)

// ConcurrencyFromContext returns the number of messages that the worker of a handler's context, or of an ancestor of
// it, handles at a time, or 0. Middleware that makes handlers wait can use it to keep some of them free.
func ConcurrencyFromContext(ctx context.Context) int {
	n, _ := ctx.Value(concurrencyKey{}).(int)
	return n
}

// ContextWithMessage returns a context with the message m, as in a handler: MessageFromContext returns m. Use it in
// tests of handlers and of the functions that they call.
func ContextWithMessage(ctx context.Context, m *Message) context.Context {
	return context.WithValue(ctx, messageKey{}, m)
}

// MessageFromContext returns the message of the handler that received ctx or an ancestor of it, or nil.
func MessageFromContext(ctx context.Context) *Message {
	m, _ := ctx.Value(messageKey{}).(*Message)
	return m
}

// settle sends the task's settlement. Complete is called with the result.
func (t *task) settle() {
	t.lease.qw.slots.BeginSettle()
	o := t.ending()
	s := store.Settlement{Receipt: t.receipt(), Action: o.Action, Delay: o.Delay, Reason: o.Reason, Then: o.then,
		ResetAttempts: o.Reset, Within: o.Within}
	switch s.Action {
	case store.Ack:
		s.DedupWindow, s.Grouped = t.dedupWindow, t.grouped
	case store.Nack, store.Bury, store.GiveBack:
		s.Duration, s.Worker = time.Duration(t.ran.Load()), t.lease.qw.run.cfg.Name
	}
	var g *batch.Group
	if o == &plainAck {
		g = t.lease.acks
	}
	if err := t.lease.qw.queue.settles.Put(s, t, g); err != nil {
		t.Complete(store.SettleResult{}, err)
	}
}

// Complete handles the result of a settle. It does not block.
func (t *task) Complete(result store.SettleResult, err error) {
	qw := t.lease.qw
	qw.run.scheduler.EndSettle(qw.slots)
	if err == nil {
		err = result.Err
	}
	switch {
	case err == nil || errors.Is(err, ErrNotDurable):
		t.settled(result.State)
	case errors.Is(err, ErrLeaseLost) && t.ending().retry != nil && time.Now().Before(qw.run.leases.End(&t.lease.Lease)):
		// The lease is still held, so our own earlier call settled the message and its reply was lost.
		t.settled(result.State)
	case errors.Is(err, ErrLeaseLost):
		t.event(EventLeaseLost, err)
		t.close()
	case t.tryAgain(err):
	default:
		qw.run.log.Error("later: a message could not be settled and will be delivered again when its lease ends",
			"queue", t.Queue, "id", t.ID, "attempt", t.Attempt, "action", t.ending().Action, "error", err)
		t.event(EventUnsettled, err)
		t.close()
	}
}

func (t *task) settled(state State) {
	qw := t.lease.qw
	qw.outage.Over()
	o := t.ending()
	t.event(event.OfSettle(o.Action, state), o.err)
	qw.run.client.sentWithAck(t.ctx(), o.then)
	switch {
	case state == StateDead:
		t.event(EventDied, o.err)
		qw.run.dead.Settled(t.Queue, t.ID, t.Attempt, t.MaxAttempts, o.err)
	case o.Action == store.Nack:
		t.logFailure(o.Delay, o.err)
	case o.Action == store.GiveBack:
		qw.misfits.Wait(outcome.MisfitOf(t.Headers, o.err), o.Delay)
	}
	t.close()
}

// tryAgain schedules another settle with the same receipt, until the lease would have ended as of the first failure. It
// reports false when a retry has no point.
func (t *task) tryAgain(err error) bool {
	if calls.IsPermanent(err) {
		return false
	}
	t.lease.qw.outage.Begin(err, "doing", "settle messages")
	leases := t.lease.qw.run.leases
	o := *t.ending()
	if o.retry == nil {
		o.retry = &settleRetry{giveUpAt: leases.End(&t.lease.Lease)}
		t.unusual = &o
	}
	o.retry.at = time.Now().Add(calls.PauseAfter(o.retry.failures))
	o.retry.failures++
	return o.retry.at.Before(o.retry.giveUpAt) && leases.Retry(o.retry.at, t.settle)
}

// close ends the holding of the task.
func (t *task) close() { t.lease.qw.run.leases.Close(&t.lease.Lease) }

// levelOf returns the level that is configured, or else a default.
func levelOf(configured slog.Leveler, otherwise slog.Level) slog.Level {
	if configured == nil {
		return otherwise
	}
	return configured.Level()
}

// logFailure logs a failed attempt that is followed by another delivery of the message.
func (t *task) logFailure(delay time.Duration, err error) {
	r := t.lease.qw.run
	level := levelOf(r.cfg.FailureLevel, slog.LevelDebug)
	if r.log.Enabled(context.Background(), level) {
		r.log.Log(context.Background(), level, "later: an attempt failed",
			"queue", t.Queue, "id", t.ID, "attempt", t.Attempt, "of", t.MaxAttempts, "again_in", delay, "error", err)
	}
}
