package later

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/laterq/later/internal/outcome"
	"github.com/laterq/later/internal/slots"
	"github.com/laterq/later/store"
)

// BatchHandlerFunc handles several messages of a queue together. It returns an error for each message, at the same
// index, or nil if all are done.
//
// Each error settles its message as the result of a HandlerFunc does: nil, Then, RetryIn, Snooze and Bury have their
// meaning, and any other error is a failed attempt of that message alone. A panic, a slice of another length, and
// errors after msgs was reordered are a failed attempt of every message.
//
// The context ends with ErrTimeout at the end of the time limit, which is the shortest among the messages;
// WorkerConfig.Timeout describes the effect on each message. Otherwise it ends when the worker no longer holds any
// message of the batch, with the cause of the last one: ErrLeaseLost, ErrCancelled or ErrShutdown. A message that is
// cancelled, or loses its lease, while others are held does not end the context: its result is ignored, and the others
// are not affected. MessageFromContext returns nil.
type BatchHandlerFunc func(ctx context.Context, msgs []*Message) []error

// BatchConfig configures a handler of batches. The zero value is valid.
type BatchConfig struct {
	// Size is the maximum number of messages in a batch, 1 to store.MaxBatch. Default: 100.
	Size int
	// Wait is how long a batch that is not full waits for more messages after its first ones have come, up to a minute.
	// Default: 0, the handler gets the messages that are due.
	Wait time.Duration
}

const (
	defaultBatchSize = 100
	maxBatchWait     = time.Minute
)

// HandleBatch registers a handler of the messages of a queue that gets several at a time. Call it before Run, which
// returns ErrInvalid, and delivers nothing, for a handler that is nil or a BatchConfig that is not allowed. The rules
// of Handle apply, too.
//
// A batch counts as one handler towards Concurrency, from its first message on, also while it waits for more. Messages
// are only claimed for a batch that has its place, and their leases are extended while they wait. When the worker
// drains, a batch that still waits is released. The worker's Middleware does not apply, since it is for handlers of
// single messages.
func (w *Worker) HandleBatch(queue string, h BatchHandlerFunc, cfg BatchConfig) {
	err := cfg.validate()
	if h == nil {
		err = store.Invalid("handler of queue %q is nil: give a function", queue)
	}
	if cfg.Size == 0 {
		cfg.Size = defaultBatchSize
	}
	w.register("HandleBatch", queue, queueHandler{batch: &batchHandler{h, cfg}}, err)
}

func (c BatchConfig) validate() error {
	if c.Size < 0 || c.Size > store.MaxBatch {
		return store.Invalid("Size is %d: must be 1 to %d, or 0 for %d", c.Size, store.MaxBatch, defaultBatchSize)
	}
	if c.Wait < 0 || c.Wait > maxBatchWait {
		return store.Invalid("Wait is %v: give up to %v, or 0 for no wait", c.Wait, maxBatchWait)
	}
	return nil
}

type batchHandler struct {
	handle BatchHandlerFunc
	BatchConfig
}

// messageBatch is the tasks that a handler runs together. The scheduler knows it by its first task.
type messageBatch struct {
	liveContext // of the tasks; it counts their ends
	tasks       []*task
	held        atomic.Int64 // tasks with contexts that have not ended
	cancel      context.CancelCauseFunc
}

// newBatch makes a batch of tasks that are still held, and returns the first of them, or nil if there are none.
func (qw *queueWorker) newBatch(tasks []slots.Task) slots.Task {
	b := &messageBatch{tasks: make([]*task, 0, len(tasks))}
	b.Context, b.cancel = context.WithCancelCause(qw.run.handling)
	b.end, b.batch = b.left, b
	b.held.Store(int64(len(tasks)))
	for _, claimed := range tasks {
		t := claimed.(*task)
		switch {
		case !t.ctx().join(b):
			b.left(nil)
		case t.Begin():
			b.tasks = append(b.tasks, t)
		default: // it was lost before it joined the batch
			t.ctx().end(ErrLeaseLost)
		}
	}
	if len(b.tasks) == 0 {
		return nil
	}
	return b.tasks[0]
}

// left records that the context of a task has ended, and ends the handler's after the last one.
func (b *messageBatch) left(cause error) {
	if b.held.Add(-1) == 0 {
		b.cancel(cause)
	}
}

// together returns the tasks of the task's batch, or the task alone.
func (t *task) together() []*task {
	if t.lease.qw.batch != nil {
		return t.live.batch.tasks
	}
	return []*task{t}
}

// run runs the handler and settles its results.
func (b *messageBatch) run() {
	begun := time.Now()
	ctx, limit := b.Context, b.limit()
	if limit > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, limit, ErrTimeout)
		defer stop()
	}
	for _, t := range b.tasks {
		t.Lateness += max(0, begun.Sub(t.lease.arrived))
		t.late.Store(int64(t.Lateness))
		t.event(EventStarted, nil)
	}
	errs := b.call(ctx)
	ran := time.Since(begun)
	late := limit > 0 && context.Cause(ctx) == ErrTimeout
	for i, t := range b.tasks {
		t.ran.Store(int64(ran))
		err := errs[i]
		if late {
			err = overtime(limit, err)
		}
		t.finish(t.safeEndingOf(err))
	}
}

// limit returns the shortest time limit of the messages, or 0.
func (b *messageBatch) limit() (limit time.Duration) {
	for _, t := range b.tasks {
		own := t.Timeout
		if own == 0 {
			own = t.lease.qw.cfg.Timeout
		}
		if limit == 0 || own > 0 && own < limit {
			limit = own
		}
	}
	return limit
}

// call calls the handler and returns an error for each task.
func (b *messageBatch) call(ctx context.Context) (errs []error) {
	qw := b.tasks[0].lease.qw
	defer func() {
		if p := recover(); p != nil { // otherwise it may be runtime.Goexit; handled by work
			qw.run.log.Error("later: batch handler panicked", "queue", qw.queue.name, "messages", len(b.tasks),
				"first", b.tasks[0].ID, "panic", p, "stack", string(debug.Stack()))
			errs = b.all(outcome.NewPanic(p))
		}
	}()
	msgs := make([]*Message, len(b.tasks))
	for i, t := range b.tasks {
		msgs[i] = &t.Message
	}
	errs = qw.batch.handle(ctx, msgs)
	var wrong error
	same := slices.EqualFunc(b.tasks, msgs, func(t *task, m *Message) bool { return &t.Message == m })
	switch {
	case errs == nil:
		return b.all(nil)
	case len(errs) != len(b.tasks):
		wrong = fmt.Errorf("batch handler returned %d errors for %d messages: return one for each, or nil",
			len(errs), len(b.tasks))
	case !same:
		wrong = errors.New("batch handler reordered its slice of messages, so its errors have no order: copy it first")
	default:
		return errs
	}
	qw.run.log.Error("later: all messages of a batch failed", "queue", qw.queue.name, "messages", len(b.tasks),
		"error", wrong)
	return b.all(wrong)
}

// all returns the same error for each task.
func (b *messageBatch) all(err error) []error { return slices.Repeat([]error{err}, len(b.tasks)) }

// safeEndingOf is endingOf for a Backoff that may panic.
func (t *task) safeEndingOf(err error) (e ending) {
	defer func() {
		if p := recover(); p != nil {
			t.lease.qw.run.log.Error("later: Backoff panicked",
				"queue", t.Queue, "id", t.ID, "attempt", t.Attempt, "panic", p, "stack", string(debug.Stack()))
			err := outcome.NewPanic(p)
			e = ending{Result: t.resultOf(err, defaultBackoff), err: err}
		}
	}()
	return t.endingOf(err, t.lease.qw.cfg.Backoff)
}
