// Package handle has handlers work on the messages of a worker's queues: it claims messages as handlers become free,
// calls the handlers, settles their results, and drains. It works on the types of package store and imports other
// packages under internal; the root package gives it the code of the program as functions. Start reading at Worker;
// claim.go claims messages, task.go has the way of one message, context.go a handler's context, and batch.go the
// messages that a handler gets together.
package handle

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laterq/later/internal/batch"
	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/internal/fleet"
	"github.com/laterq/later/internal/hold"
	"github.com/laterq/later/internal/outcome"
	"github.com/laterq/later/internal/pump"
	"github.com/laterq/later/internal/report"
	"github.com/laterq/later/internal/slots"
	"github.com/laterq/later/store"
)

// Config is the settings of a Worker.
type Config struct {
	Name            string // for the failures of messages
	Concurrency     int
	StarvationLimit time.Duration
	FailureLevel    slog.Leveler // of the log messages about failed attempts
	DeathLevel      slog.Level   // and about dead messages
	OnDead          func(ctx context.Context, queue string, info *store.Info)
	// Observed is set if there is an observer, which gets the start of handlers too.
	Observed bool
	// Backoff is used when the Backoff of a queue panics.
	Backoff func(attempt int, err error) time.Duration

	// IsFollowUps reports whether an error of a handler is an ack with follow-ups. Follow prepares them: it returns the
	// follow-ups to write with the ack, unless it has sent them itself. Followed reports the ones that were written.
	IsFollowUps func(err error) bool
	Follow      func(ctx context.Context, err error, m *Message) ([]store.FollowUp, error)
	Followed    func(ctx context.Context, then []store.FollowUp)
}

// Queue is a queue with a handler.
type Queue struct {
	Name    string
	Lease   time.Duration
	Timeout time.Duration // limits one run of a handler; 0 for no limit
	Backoff func(attempt int, err error) time.Duration
	Share   slots.Config
	Misfits *outcome.Misfits // messages that this version of the program does not handle

	Handler func(ctx context.Context, m *Message) error
	// Batch, in place of Handler, handles several messages. It returns an error for each message, or nil if all are
	// done, or one error for all of them.
	Batch func(ctx context.Context, tasks []*Task) (each []error, all error)
	// ByKey has Batch called for each key of a batch, one after the other.
	ByKey bool

	Settles   *batch.Batcher[store.Settlement, store.SettleResult]
	Activity  *report.Queue
	FoundDead func(store.Claim)
	Report    func(kind store.EventKind, t *Task, err error) // reports an event that is not counted

	worker      *Worker
	sendSettles func() // Settles.Send
	slots       *slots.Queue
	leases      *hold.Queue
	watch       pump.Watch // of claims
	outage      pump.Outage
}

// Worker is the state of a running worker that its handlers, forwarders, topics and schedules share, and the loops of
// its handlers.
type Worker struct {
	pump.Env // for all loops
	Config
	Dead      outcome.Dead
	Misfits   []*outcome.Misfits // of all queues
	Abandoned atomic.Int32       // calls of Deliver that ignored the end of their context

	queues    []*Queue
	scheduler *slots.Scheduler
	endCalls  context.CancelCauseFunc

	claimBuffers sync.Pool // *[]store.Claimed, shared by the queues so that idle ones need none
	claimedOnce  sync.Once
	claiming     atomic.Int32 // claims and forwarded batches in progress
	loops        sync.WaitGroup
	looping      atomic.Int32 // number of loops
	changes      pump.Changes // of the work that keeps the worker busy
}

// New returns a Worker of queues on a store. Its contexts have the values of ctx, and claimed is closed after its first
// claim.
func New(
	ctx context.Context, s store.Store, log *slog.Logger, cfg Config, queues []*Queue, claimed chan struct{},
) *Worker {
	w := &Worker{Config: cfg, queues: queues}
	w.claimBuffers.New = func() any { return new([]store.Claimed) }
	w.Store, w.Log, w.Begun = s, log, time.Now()
	w.Handling = context.WithoutCancel(ctx)
	w.Calling, w.endCalls = context.WithCancelCause(w.Handling)
	w.Leases = hold.New(w.Calling, s, w.changes.Notify)
	w.Claimed = func() { w.claimedOnce.Do(func() { close(claimed) }) }
	w.BeginClaim = w.beginClaim
	w.Dead.Store, w.Dead.Log, w.Dead.Level, w.Dead.Calling = s, log, cfg.DeathLevel, w.Calling
	w.Dead.OnDead, w.Dead.Changed = cfg.OnDead, w.changes.Notify
	shares := make([]*slots.Queue, len(queues))
	for i, q := range queues {
		q.worker, q.sendSettles = w, q.Settles.Send
		w.Misfits = append(w.Misfits, q.Misfits)
		q.outage = pump.Outage{
			Log: log, Fails: "later: the store is failing; retrying", Works: "later: the store is back",
			Attrs: []any{"queue", q.Name},
		}
		q.leases = &hold.Queue{
			Name: q.Name, Length: q.Lease, Looks: true, Called: q.extended,
			Beat: q.releaseStale, BeatAfter: q.maxBuffer(),
		}
		if q.Batch != nil {
			q.Share.Together = q.newBatch
		}
		q.Share.FetchAhead = func() { w.Go(func() { q.fetchAhead(ctx) }) }
		q.slots = slots.NewQueue(q.Share)
		shares[i] = q.slots
	}
	w.scheduler = slots.New(cfg.Concurrency, cfg.StarvationLimit, shares, w.changes.Notify)
	return w
}

// Start starts the loops of the handlers, which claim until ctx ends. The caller then calls Drain.
func (w *Worker) Start(ctx context.Context) {
	w.Leases.Start()
	for _, q := range w.queues {
		w.Go(func() { q.fetch(ctx) })
	}
}

// Go starts a loop that Drain waits for.
func (w *Worker) Go(loop func()) {
	w.looping.Add(1)
	w.loops.Go(func() {
		loop()
		if w.looping.Add(-1) == 0 {
			w.changes.Notify()
		}
	})
}

// SetPaused stops or continues claiming.
func (w *Worker) SetPaused(paused bool) {
	w.scheduler.SetPaused(paused)
	w.Gate.Set(paused)
}

// Drain releases the messages that no handler has started. It lets handlers, loops, settles and calls of OnDead
// continue for a time; then it ends their contexts with ErrShutdown and releases all messages. It returns the number of
// messages that handlers have left unsettled, and an error if code of the program ignores the end of its context.
func (w *Worker) Drain(timeout time.Duration) (unsettled int64, err error) {
	for _, t := range w.scheduler.Stop() {
		t.(*Task).release(nil)
	}
	if !w.awaitIdle(timeout) {
		w.endCalls(ErrShutdown)
		for _, t := range w.tasks() {
			t.release(ErrShutdown)
		}
		w.awaitIdle(pump.Grace)
	}
	w.endCalls(ErrShutdown)
	w.loops.Wait()
	w.Leases.Stop()
	if n := w.scheduler.Handlers(); n > 0 {
		return 0, fmt.Errorf("%d handlers ignored the end of their context and are still running", n)
	}
	if n := w.Abandoned.Load(); n > 0 {
		return 0, fmt.Errorf("%d calls of Deliver ignored the end of their context and are still running", n)
	}
	w.scheduler.Wait()
	if w.Dead.Busy() {
		return 0, fmt.Errorf("OnDead ignored the end of its context and is still running")
	}
	w.Dead.Wait()
	return w.Leases.Unsettled(), nil
}

// awaitIdle waits until all loops, handlers, settles and calls of OnDead have ended, and reports whether they did so in
// time.
func (w *Worker) awaitIdle(limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(w.Handling, limit)
	defer cancel()
	return w.changes.Await(ctx, func() bool { return w.looping.Load() == 0 && w.idle() }) == nil
}

// WaitIdle waits until the worker holds no message, or returns the cause of ctx when that ends first.
func (w *Worker) WaitIdle(ctx context.Context) error { return w.changes.Await(ctx, w.idle) }

// idle reports whether the worker holds no message. A claim counts until its messages are counted as unsettled, and
// unsettled messages until OnDead knows of them, so the order of the conditions matters.
func (w *Worker) idle() bool {
	return w.claiming.Load() == 0 && w.Leases.Unsettled() == 0 && w.scheduler.Handlers() == 0 && !w.Dead.Busy()
}

// beginClaim counts a claim, or a forwarded batch, until the function that it returns is called.
func (w *Worker) beginClaim() (done func()) {
	w.claiming.Add(1)
	return func() {
		if w.claiming.Add(-1) == 0 {
			w.changes.Notify()
		}
	}
}

// tasks returns the tasks of all leases, including ended tasks.
func (w *Worker) tasks() (all []*Task) {
	for _, h := range w.Leases.Holders() {
		if l, ok := h.(*lease); ok {
			for _, t := range l.tasks {
				all = append(all, t.(*Task))
			}
		}
	}
	return all
}

// Held returns the messages that handlers hold, longest-running handlers first, and the number of handlers that run.
func (w *Worker) Held() (all []fleet.Held, n int) {
	for _, t := range w.tasks() {
		if t.stage.Load() != stageRunning {
			continue
		}
		// Due plus lateness is when the handler was called, by the store's clock.
		all = append(all, fleet.Held{Queue: t.Queue, ID: t.ID, Key: t.Key, Attempt: t.Attempt,
			Since: t.Due.Add(t.LatenessNow())})
	}
	slices.SortFunc(all, func(a, b fleet.Held) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID)) })
	return all[:min(len(all), fleet.MaxHeld)], len(all)
}

// GivenBack returns the kinds of messages that wait for another version of the program, most messages first.
func (w *Worker) GivenBack() (all []fleet.GivenBack) {
	for _, x := range w.Misfits {
		all = append(all, x.Waiting()...)
	}
	slices.SortFunc(all, func(a, b fleet.GivenBack) int {
		return cmp.Or(cmp.Compare(b.Messages, a.Messages), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Kind, b.Kind))
	})
	return all
}

// Load returns how much of the worker's concurrency is in use, for tests.
func (w *Worker) Load() slots.Load { return w.scheduler.Load() }

// StuckAfter is how long a part of a worker may be late before it counts as stuck.
const StuckAfter = 10 * time.Second

// Alive returns an error if leases were not looked after, or a claim for a handler has not returned in time. It does
// not return if the worker is locked up.
func (w *Worker) Alive() error {
	w.scheduler.Handlers() // needs its lock
	if late := w.Leases.Late(time.Now()); late > StuckAfter {
		return fmt.Errorf("worker is stuck: leases were not looked after for %v", late.Round(time.Second))
	}
	for _, q := range w.queues {
		if err := w.CheckClaims(q.Name, &q.watch); err != nil {
			return err
		}
	}
	return nil
}

// CheckClaims returns an error if a claim of a queue has not returned in time.
func (w *Worker) CheckClaims(queue string, watch *pump.Watch) error {
	if took := watch.Longest(time.Since(w.Begun)); took > calls.Timeout+StuckAfter {
		return fmt.Errorf("worker is stuck: a claim of queue %q has not returned for %v",
			queue, took.Round(time.Second))
	}
	return nil
}
