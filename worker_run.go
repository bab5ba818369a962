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

// run is what a worker is made of while Run runs. Its parts are:
//
//	lane       a queue in this worker; fetch.go claims for it
//	slots      hands the worker's concurrency to the lanes (slots.go)
//	task       a claimed message on its way through here (task.go, settle.go)
//	heart      extends leases, ends the handlers of lost ones, repeats failed settles (heartbeat.go)
//	deadNotifier   calls OnDead (deadNotifier.go)
type run struct {
	client *Client
	cfg    WorkerConfig
	log    *slog.Logger

	queueWorkers []*queueWorker
	scheduler    *scheduler
	leases       *leaseKeeper
	dead         *deadNotifier

	end      context.CancelCauseFunc // begins the drain
	handling context.Context         // parent of the handlers' contexts; it does not end
	calling  context.Context         // for calls to the store and OnDead; ends when the drain gives up
	endCalls context.CancelCauseFunc

	fetching   sync.WaitGroup
	background sync.WaitGroup // the heart and its calls
	changed    chan struct{}  // holds a token after something that drain waits for may have happened
}

// lane is a queue in this worker.
type queueWorker struct {
	run     *run
	queue   *Queue
	cfg     QueueConfig
	handler HandlerFunc // with its middleware

	queueShare                 // guarded by slots.mu
	settling   atomic.Int64    // settles under way
	claimed    []store.Claimed // memory for the next claim; the fetcher's
	away       atomic.Bool     // the store is failing, and that was logged
}

// Run takes messages and handles them until ctx ends, then drains: it stops claiming, gives back what has not
// begun, lets handlers finish within ShutdownTimeout, then ends their contexts with ErrShutdown and gives
// their messages back at once, uncounted. It returns when all is settled: nil, or an error when handlers
// ignored the end of their context (they are left running), or when the client was closed or the store stopped for good
// meanwhile (ErrClosed). A configuration that is not allowed is ErrInvalid. Run may be called once.
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
		if qw.limit > 1 { // one handler alone gets messages in their order
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

// drain ends what runs; see Run.
func (r *run) drain() error {
	for _, t := range r.scheduler.stop() {
		t.giveBack(nil)
	}
	if !r.awaitQuiet(max(0, r.cfg.ShutdownTimeout)) {
		r.endCalls(ErrShutdown)
		for _, t := range r.leases.tasks() {
			t.giveBack(ErrShutdown)
		}
		r.awaitQuiet(shutdownGrace)
	}
	r.endCalls(ErrShutdown)
	r.fetching.Wait()
	r.leases.stop()
	r.background.Wait()
	return r.drainError()
}

// drainError is the error of a drain that did not get everything done.
func (r *run) drainError() error {
	if n := r.scheduler.handlers(); n > 0 {
		return fmt.Errorf("%d handlers ignored the end of their context and still run", n)
	}
	r.scheduler.goroutines.Wait() // none has a handler to run
	if r.dead.busy() {
		return errors.New("OnDead ignored the end of its context and still runs")
	}
	r.dead.goroutine.Wait()
	if n := r.leases.unsettled(); n > 0 {
		return fmt.Errorf("%d messages could not be settled and come again when their leases end: %w",
			n, ErrUnavailable)
	}
	if r.client.ending.Err() != nil {
		return &detail{"client was closed while the worker ran", ErrClosed}
	}
	return nil
}

// awaitQuiet waits for the end of all handlers, settles and notices, for so long; false when time ran out.
func (r *run) awaitQuiet(limit time.Duration) bool {
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

// signalChange lets awaitQuiet look again.
func (r *run) signalChange() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// Pause stops claiming, until Resume; messages that this worker has are still handled. It may come before
// Run. Queue.Pause does it for all processes.
func (w *Worker) Pause() { w.setPaused(true) }

// Resume goes on claiming.
func (w *Worker) Resume() { w.setPaused(false) }

func (w *Worker) setPaused(paused bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paused = paused
	if w.run != nil {
		w.run.scheduler.setPaused(paused)
	}
}

// failed notes that a call to the store failed. An outage is logged once.
func (qw *queueWorker) failed(doing string, err error) {
	if !qw.away.Swap(true) {
		qw.run.log.Error("later: the store is failing; trying on",
			"queue", qw.queue.name, "doing", doing, "error", err)
	}
}

// worked notes that a call to the store succeeded.
func (qw *queueWorker) worked() {
	if qw.away.Load() && qw.away.Swap(false) {
		qw.run.log.Info("later: the store is back", "queue", qw.queue.name)
	}
}
