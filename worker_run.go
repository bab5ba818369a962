package later

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laterq/later/store"
)

// shutdownGrace is how long handlers have to return after their contexts ended with ErrShutdown.
const shutdownGrace = time.Second

// run is the state of a Worker during Run. Its parts are:
//
//	queueWorker   one queue of the worker; claims its messages (worker_fetch.go)
//	scheduler     divides the worker's concurrency among the queues (worker_scheduler.go)
//	task          a claimed message (worker_task.go, worker_settle.go, worker_context.go)
//	leaseKeeper   extends leases, ends handlers of lost ones, retries failed settles (worker_lease.go)
//	deadNotifier  calls OnDead (worker_dead_notifier.go)
type run struct {
	client *Client
	cfg    WorkerConfig
	log    *slog.Logger

	queueWorkers []*queueWorker
	scheduler    *scheduler
	leases       *leaseKeeper
	dead         *deadNotifier

	end      context.CancelCauseFunc // begins the drain
	handling context.Context         // parent of the handlers' contexts; never ends
	calling  context.Context         // for calls to the store and OnDead; ends when the drain runs out of time
	endCalls context.CancelCauseFunc

	fetching   sync.WaitGroup
	background sync.WaitGroup // the leaseKeeper and its calls
	changed    chan struct{}  // has a token when awaitIdle should check again
}

// queueWorker is one queue of a running worker.
type queueWorker struct {
	run     *run
	queue   *Queue
	cfg     QueueConfig
	handler HandlerFunc // with its middleware

	queueShare                 // guarded by scheduler.mu
	settling   atomic.Int64    // settles in flight
	claimed    []store.Claimed // buffer for the next claim; used by fetch only
	failing    atomic.Bool     // the store is failing, and this was logged
}

// Run claims and handles messages until ctx ends, then drains. It may be called once.
//
// To drain, the worker stops claiming and releases the messages that no handler has started. Handlers have
// ShutdownTimeout to finish. Then their contexts end with ErrShutdown and their messages are released at
// once, without counting an attempt; handlers have one more second to return.
//
// Run returns nil when everything is settled. It returns ErrInvalid for a configuration that is not
// allowed, and ErrClosed when the client is closed or the store has stopped for good. It returns an error
// when handlers or OnDead ignore the end of their context, and leaves them running. It returns
// ErrUnavailable when messages could not be settled; they are delivered again when their leases end.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.client.beginLoop(); err != nil {
		return err
	}
	defer w.client.loops.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(w.client.ending, func() { cancel(errClientClosed) })()
	r, err := w.newRun(ctx)
	if err != nil {
		return err
	}
	r.end = cancel
	defer r.endCalls(nil)

	r.background.Go(r.leases.run)
	for _, qw := range r.queueWorkers {
		r.fetching.Go(func() { r.fetch(ctx, qw) })
		if qw.limit > 1 { // a single handler gets messages in order
			r.fetching.Go(func() { r.fetchAhead(ctx, qw) })
		}
	}
	<-ctx.Done()
	err = r.drain()
	if cause := context.Cause(ctx); cause != errClientClosed && errors.Is(cause, ErrClosed) {
		return fmt.Errorf("worker ended with its store: %w", cause)
	}
	return err
}

func (w *Worker) newRun(ctx context.Context) (*run, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.run != nil {
		return nil, store.Invalid("Run was called before: make a new Worker to run again")
	}
	if err := w.cfg.validate(w.handlers); err != nil {
		return nil, err
	}
	r := &run{
		client:   w.client,
		cfg:      w.cfg,
		log:      w.cfg.Logger,
		handling: context.WithoutCancel(ctx),
		changed:  make(chan struct{}, 1),
	}
	for _, name := range slices.Sorted(maps.Keys(w.handlers)) {
		qw, err := r.newQueueWorker(name, w.handlers[name])
		if err != nil {
			return nil, err
		}
		r.queueWorkers = append(r.queueWorkers, qw)
	}
	r.calling, r.endCalls = context.WithCancelCause(r.handling)
	r.leases = newLeaseKeeper(r)
	r.dead = &deadNotifier{run: r}
	r.scheduler = newScheduler(r.cfg.Concurrency, r.queueWorkers, r.work)
	r.scheduler.changed = r.signalChange
	if w.paused {
		r.scheduler.setPaused(true)
	}
	w.run = r
	return r, nil
}

func (r *run) newQueueWorker(name string, h HandlerFunc) (*queueWorker, error) {
	for i, wrap := range slices.Backward(r.cfg.Middleware) {
		if h = wrap(h); h == nil {
			return nil, store.Invalid("worker's Middleware %d returned nil for queue %q: return a handler", i, name)
		}
	}
	cfg := r.cfg.queue(name)
	return &queueWorker{
		run:        r,
		queue:      r.client.Queue(name),
		cfg:        cfg,
		handler:    h,
		queueShare: newQueueShare(cfg, r.cfg.MaxPrefetch),
	}, nil
}

// drain stops the worker as described at Run.
func (r *run) drain() error {
	for _, t := range r.scheduler.stop() {
		t.release(nil)
	}
	if !r.awaitIdle(max(0, r.cfg.ShutdownTimeout)) {
		r.endCalls(ErrShutdown)
		for _, t := range r.leases.tasks() {
			t.release(ErrShutdown)
		}
		r.awaitIdle(shutdownGrace)
	}
	r.endCalls(ErrShutdown)
	r.fetching.Wait()
	r.leases.stop()
	r.background.Wait()
	return r.drainError()
}

// drainError returns an error if the drain was not completed.
func (r *run) drainError() error {
	if n := r.scheduler.handlers(); n > 0 {
		return fmt.Errorf("%d handlers ignored the end of their context and are still running", n)
	}
	r.scheduler.goroutines.Wait() // no handlers are running
	if r.dead.busy() {
		return errors.New("OnDead ignored the end of its context and is still running")
	}
	r.dead.goroutine.Wait()
	if n := r.leases.unsettled(); n > 0 {
		return fmt.Errorf("%d messages could not be settled and will be delivered again when their leases end: %w",
			n, ErrUnavailable)
	}
	if r.client.ending.Err() != nil {
		return &detail{"client was closed while the worker ran", ErrClosed}
	}
	return nil
}

// awaitIdle waits until all handlers, settles and OnDead calls have ended, and reports whether that was
// within the limit.
func (r *run) awaitIdle(limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	fetched := make(chan struct{})
	go func() {
		r.fetching.Wait()
		close(fetched)
	}()
	for fetching := true; ; {
		if !fetching && r.scheduler.handlers() == 0 && r.leases.unsettled() == 0 && !r.dead.busy() {
			return true
		}
		select {
		case <-r.changed:
		case <-fetched:
			fetching, fetched = false, nil
		case <-timer.C:
			return false
		}
	}
}

// signalChange makes awaitIdle check again.
func (r *run) signalChange() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// Pause stops claiming until Resume. Messages already claimed are still handled. Pause may be called before
// Run. Queue.Pause pauses a queue for all processes.
func (w *Worker) Pause() { w.setPaused(true) }

// Resume continues claiming.
func (w *Worker) Resume() { w.setPaused(false) }

func (w *Worker) setPaused(paused bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paused = paused
	if w.run != nil {
		w.run.scheduler.setPaused(paused)
	}
}

// failed records that a call to the store failed. It logs once per outage.
func (qw *queueWorker) failed(doing string, err error) {
	if !qw.failing.Swap(true) {
		qw.run.log.Error("later: the store is failing; retrying",
			"queue", qw.queue.name, "doing", doing, "error", err)
	}
}

// worked records that a call to the store succeeded.
func (qw *queueWorker) worked() {
	if qw.failing.Load() && qw.failing.Swap(false) {
		qw.run.log.Info("later: the store is back", "queue", qw.queue.name)
	}
}
