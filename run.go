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

// lastWords is how long handlers have to return after their contexts ended with ErrShutdown.
const lastWords = time.Second

// run is what a worker is made of while Run runs. Its parts are:
//
//	lane       a queue in this worker; fetch.go claims for it
//	slots      hands the worker's concurrency to the lanes (slots.go)
//	task       a claimed message on its way through here (task.go, settle.go)
//	heart      extends leases, ends the handlers of lost ones, repeats failed settles (heartbeat.go)
//	obituary   calls OnDead (obituary.go)
type run struct {
	client *Client
	cfg    WorkerConfig
	log    *slog.Logger

	lanes []*lane
	slots *slots
	heart *heart
	dead  *obituary

	end      context.CancelCauseFunc // begins the drain
	handling context.Context         // parent of the handlers' contexts; it does not end
	calling  context.Context         // for calls to the store and OnDead; ends when the drain gives up
	endCalls context.CancelCauseFunc

	fetching   sync.WaitGroup
	background sync.WaitGroup // the heart and its calls
	changed    chan struct{}  // holds a token after something that drain waits for may have happened
}

// lane is a queue in this worker.
type lane struct {
	run     *run
	queue   *Queue
	cfg     QueueConfig
	handler HandlerFunc // with its middleware

	share                    // guarded by slots.mu
	settling atomic.Int64    // settles under way
	claimed  []store.Claimed // memory for the next claim; the fetcher's
	away     atomic.Bool     // the store is failing, and that was logged
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

	r.background.Go(r.heart.run)
	for _, l := range r.lanes {
		r.fetching.Go(func() { r.fetch(ctx, l) })
		if l.limit > 1 { // one handler alone gets messages in their order
			r.fetching.Go(func() { r.fetchAhead(ctx, l) })
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
		l, err := r.newLane(name, w.handlers[name])
		if err != nil {
			return nil, err
		}
		r.lanes = append(r.lanes, l)
	}
	r.calling, r.endCalls = context.WithCancelCause(r.handling)
	r.heart = newHeart(r)
	r.dead = &obituary{run: r}
	r.slots = newSlots(r.cfg.Concurrency, r.lanes, r.work)
	r.slots.changed = r.noteChange
	if w.paused {
		r.slots.setPaused(true)
	}
	w.run = r
	return r, nil
}

func (r *run) newLane(name string, h HandlerFunc) (*lane, error) {
	for i, wrap := range slices.Backward(r.cfg.Middleware) {
		if h = wrap(h); h == nil {
			return nil, store.Invalid("worker's Middleware %d returned nil for queue %q: return a handler", i, name)
		}
	}
	cfg := r.cfg.queue(name)
	return &lane{
		run:     r,
		queue:   r.client.Queue(name),
		cfg:     cfg,
		handler: h,
		share:   newShare(cfg, r.cfg.MaxPrefetch),
	}, nil
}

// drain ends what runs; see Run.
func (r *run) drain() error {
	for _, t := range r.slots.stop() {
		t.giveBack(nil)
	}
	if !r.awaitQuiet(max(0, r.cfg.ShutdownTimeout)) {
		r.endCalls(ErrShutdown)
		for _, t := range r.heart.tasks() {
			t.giveBack(ErrShutdown)
		}
		r.awaitQuiet(lastWords)
	}
	r.endCalls(ErrShutdown)
	r.fetching.Wait()
	r.heart.stop()
	r.background.Wait()
	return r.leftovers()
}

// leftovers is the error of a drain that did not get everything done.
func (r *run) leftovers() error {
	if n := r.slots.handlers(); n > 0 {
		return fmt.Errorf("%d handlers ignored the end of their context and still run", n)
	}
	r.slots.goroutines.Wait() // none has a handler to run
	if r.dead.busy() {
		return errors.New("OnDead ignored the end of its context and still runs")
	}
	r.dead.goroutine.Wait()
	if n := r.heart.unsettled(); n > 0 {
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
		if !fetching && r.slots.handlers() == 0 && r.heart.unsettled() == 0 && !r.dead.busy() {
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

// noteChange lets awaitQuiet look again.
func (r *run) noteChange() {
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
		w.run.slots.setPaused(paused)
	}
}

// failed notes that a call to the store failed. An outage is logged once.
func (l *lane) failed(doing string, err error) {
	if !l.away.Swap(true) {
		l.run.log.Error("later: the store is failing; trying on",
			"queue", l.queue.name, "doing", doing, "error", err)
	}
}

// worked notes that a call to the store succeeded.
func (l *lane) worked() {
	if l.away.Load() && l.away.Swap(false) {
		l.run.log.Info("later: the store is back", "queue", l.queue.name)
	}
}
