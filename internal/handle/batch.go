package handle

import (
	"context"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/laterq/later/internal/event"
	"github.com/laterq/later/internal/outcome"
	"github.com/laterq/later/internal/slots"
	"github.com/laterq/later/store"
)

// messageBatch is the tasks that a handler runs together. The scheduler knows it by its first task.
type messageBatch struct {
	liveContext // of the tasks; it counts their ends
	queue       *Queue
	tasks       []*Task
	held        atomic.Int64 // tasks with contexts that have not ended
	cancel      context.CancelCauseFunc
}

// newBatch makes a batch of tasks that are still held, and returns the first of them, or nil if there are none.
func (q *Queue) newBatch(tasks []slots.Task) slots.Task {
	b := &messageBatch{queue: q, tasks: make([]*Task, 0, len(tasks))}
	b.Context, b.cancel = context.WithCancelCause(q.worker.Handling)
	b.end, b.batch = b.left, b
	b.held.Store(int64(len(tasks)))
	for _, claimed := range tasks {
		t := claimed.(*Task)
		switch {
		case !t.ctx().join(b):
			b.left(nil)
		case t.Begin():
			b.tasks = append(b.tasks, t)
		default: // it was lost before it joined the batch
			t.ctx().end(store.ErrLeaseLost)
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

// run runs the handler and settles its results. If batches do not mix keys, it does so for each key in turn.
func (b *messageBatch) run() {
	for _, tasks := range b.queue.parts(b.tasks) {
		b.runPart(tasks)
	}
}

// parts returns the tasks that the handler gets in one call: all, or if batches do not mix keys, those of each key, in
// the order of its first one.
func (q *Queue) parts(tasks []*Task) (parts [][]*Task) {
	if !q.ByKey {
		return [][]*Task{tasks}
	}
	of := map[string]int{} // the part of a key
	for _, t := range tasks {
		i, known := of[t.Key]
		if !known {
			i = len(parts)
			of[t.Key], parts = i, append(parts, nil)
		}
		parts[i] = append(parts[i], t)
	}
	return parts
}

func (b *messageBatch) runPart(tasks []*Task) {
	begun := time.Now()
	ctx, limit := b.Context, timeLimit(tasks)
	if limit > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, limit, ErrTimeout)
		defer stop()
	}
	for _, t := range tasks {
		t.started(begun.Sub(t.lease.arrived))
		t.event(event.Started, nil)
	}
	errs := b.queue.callBatch(ctx, tasks)
	ran := time.Since(begun)
	late := limit > 0 && context.Cause(ctx) == ErrTimeout
	for i, t := range tasks {
		t.ran.Store(int64(ran))
		err := errs[i]
		if late {
			err = b.queue.worker.overtime(limit, err)
		}
		t.finish(t.endingOf(err))
	}
}

// timeLimit returns the shortest time limit of the messages, or 0.
func timeLimit(tasks []*Task) (limit time.Duration) {
	for _, t := range tasks {
		if own := t.timeLimit(); limit == 0 || own > 0 && own < limit {
			limit = own
		}
	}
	return limit
}

// callBatch calls the handler and returns an error for each task.
func (q *Queue) callBatch(ctx context.Context, tasks []*Task) (errs []error) {
	defer func() {
		if p := recover(); p != nil { // otherwise it may be runtime.Goexit; see Exited
			q.worker.Log.Error("later: batch handler panicked", "queue", q.Name, "messages", len(tasks),
				"first", tasks[0].ID, "panic", p, "stack", string(debug.Stack()))
			errs = slices.Repeat([]error{outcome.NewPanic(p)}, len(tasks))
		}
	}()
	errs, all := q.Batch(ctx, tasks)
	if all != nil {
		q.worker.Log.Error("later: all messages of a batch failed", "queue", q.Name, "messages", len(tasks),
			"error", all)
	}
	if all != nil || errs == nil {
		return slices.Repeat([]error{all}, len(tasks))
	}
	return errs
}
