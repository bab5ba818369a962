package handle

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/internal/outcome"
	"github.com/laterq/later/internal/slots"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// newTestWorker returns a Worker of a queue, on an empty store. It does not run and has no slot.
func newTestWorker(t *testing.T, q *Queue) *Worker {
	cfg := Config{IsFollowUps: func(error) bool { return false }}
	return New(t.Context(), memstore.New(), slog.New(slog.DiscardHandler), cfg, []*Queue{q}, make(chan struct{}))
}

// The next beat is when the oldest message of a buffer has waited for long enough, although its lease needs none yet.
func TestWorkerLooksAgainWhenTheOldestMessageOfABufferHasWaited(t *testing.T) {
	q := &Queue{Lease: 2 * time.Second, Share: slots.Config{Weight: 1, Concurrency: 1, MaxPrefetch: 10}}
	w, now := newTestWorker(t, q), time.Now()
	buffered := []slots.Task{&Task{lease: &lease{queue: q, arrived: now}}}
	w.scheduler.Deliver(t.Context(), q.slots, &slots.Reservation{Ahead: true}, buffered, true, &store.Claim{})
	if next := q.releaseStale(now); !next.Equal(now.Add(q.maxBuffer())) {
		t.Errorf("the next look is after %v; want %v", next.Sub(now), q.maxBuffer())
	}
}

func TestBatchTimeLimitLeavesOutMessagesWithoutOne(t *testing.T) {
	for _, c := range []struct {
		worker time.Duration
		own    []time.Duration
		want   time.Duration
	}{
		{0, []time.Duration{3, 2, 0}, 2}, {0, []time.Duration{0, 0}, 0},
		{5, []time.Duration{0, 9}, 5}, {5, []time.Duration{3}, 3},
	} {
		var tasks []*Task
		for _, limit := range c.own {
			held := &lease{queue: &Queue{Timeout: c.worker}}
			tasks = append(tasks, &Task{lease: held, Message: Message{Timeout: limit}})
		}
		if got := timeLimit(tasks); got != c.want {
			t.Errorf("limit of %v with %d by the worker is %d, want %d", c.own, c.worker, got, c.want)
		}
	}
}

func TestOvertimeIsNamedOnce(t *testing.T) {
	w := newTestWorker(t, &Queue{})
	own := errors.Join(errors.New("mine"), ErrTimeout)
	if got := w.overtime(time.Second, own); got != own {
		t.Errorf("an error that says so already became %v", got)
	}
	got := w.overtime(time.Second, errors.New("mine"))
	if !errors.Is(got, ErrTimeout) || !strings.Contains(got.Error(), "mine") {
		t.Errorf("error is %v", got)
	}
}

// A message can be lost after its batch is chosen and before the handler starts. The batch must not count it as held.
func TestBatchContextEndsWithItsLastMessageAlsoIfOneWasLostBeforeTheStart(t *testing.T) {
	for name, lose := range map[string]func(*Task){
		"and its context has ended": func(t *Task) { t.end(); t.ctx().end(store.ErrCancelled) },
		"and its context has not":   func(t *Task) { t.end() },
	} {
		q := &Queue{}
		newTestWorker(t, q)
		tasks, claimed := make([]*Task, 3), make([]slots.Task, 3)
		for i := range tasks {
			tasks[i] = &Task{lease: &lease{queue: q}}
			claimed[i] = tasks[i]
		}
		lose(tasks[1])
		first := q.newBatch(claimed).(*Task)
		if first != tasks[0] || len(first.live.batch.tasks) != 2 {
			t.Fatalf("%s: the batch has %d tasks, want the two that are held", name, len(first.live.batch.tasks))
		}
		ctx := first.live.batch.Context
		tasks[0].ctx().end(store.ErrCancelled)
		if ctx.Err() != nil {
			t.Errorf("%s: the context ended with a message that is still held", name)
		}
		tasks[2].ctx().end(store.ErrLeaseLost)
		if cause := context.Cause(ctx); !errors.Is(cause, store.ErrLeaseLost) {
			t.Errorf("%s: the context's cause is %v, want that of the last message", name, cause)
		}
	}
}

func TestTaskThatIsAckedAllocatesNoEnding(t *testing.T) {
	acked := &Task{}
	if n := testing.AllocsPerRun(100, func() { acked.endWith(plainAck) }); n != 0 {
		t.Errorf("%v allocations for the end of a task that is acked; want 0", n)
	}
	failed := &Task{}
	failed.endWith(ending{Result: outcome.Result{Action: store.Nack}})
	if failed.ending().Action != store.Nack || acked.ending().Action != store.Ack {
		t.Errorf("the tasks end with %v and %v", failed.ending().Action, acked.ending().Action)
	}
}

func TestWorkerIsIdleUnlessAClaimIsInFlight(t *testing.T) {
	w := newTestWorker(t, &Queue{})
	idle := w.idle()
	done := w.BeginClaim()
	if !idle || w.idle() {
		t.Error("a worker is idle if, and only if, it has no claim in flight")
	}
	done()
}
