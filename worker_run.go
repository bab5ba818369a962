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

	"github.com/laterq/later/internal/fleet"
	"github.com/laterq/later/internal/hold"
	"github.com/laterq/later/internal/outcome"
	"github.com/laterq/later/internal/pump"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/internal/schedule"
	"github.com/laterq/later/internal/slots"
	"github.com/laterq/later/internal/topic"
	"github.com/laterq/later/store"
)

// run is the state of a Worker during Run. Its parts are:
//
//	queueWorker   one queue of the worker; claims its messages (worker_fetch.go)
//	scheduler     divides the worker's concurrency among the queues (internal/slots)
//	forwarder     moves the messages of a queue to a destination (forward.go)
//	topics        distributes messages of topics to subscribed queues, and starts sendScheduled (internal/topic)
//	sendScheduled  sends the runs of schedules (internal/schedule)
//	task          a claimed message (worker_task.go)
//	messageBatch  tasks that a handler gets together (worker_batch.go)
//	leases        extends leases, says which are lost, retries failed settles (internal/hold, worker_fetch.go)
//	dead          logs dead messages and calls OnDead (internal/outcome)
//	member        lists the worker and obeys commands (internal/fleet)
type run struct {
	client *Client
	cfg    WorkerConfig
	log    *slog.Logger

	queueWorkers []*queueWorker
	forwarders   []*forwarder
	env          *pump.Env    // for its loops
	abandoned    atomic.Int32 // calls of Deliver that ignored the end of their context
	scheduler    *slots.Scheduler
	leases       *hold.Keeper
	dead         *outcome.Dead
	member       *fleet.Member // nil if the worker is unlisted
	begun        time.Time
	claimed      chan struct{} // closed after the first claim; see Worker.Claimed
	claimedOnce  sync.Once

	end      context.CancelCauseFunc // begins the drain
	handling context.Context         // parent of the handlers' contexts; never ends
	calling  context.Context         // for calls to the store and OnDead; ends when the drain runs out of time
	endCalls context.CancelCauseFunc

	claimBuffers sync.Pool // *[]store.Claimed, shared by the queues so that idle ones need none

	fetching sync.WaitGroup
	changed  chan struct{} // has a token when awaitIdle should check again
	changes  changes       // the same for WaitIdle
	claiming atomic.Int32  // claims and forwarded batches in progress
	local    store.Local   // the store, or nil
}

// queueWorker is one queue of a running worker.
type queueWorker struct {
	run     *run
	queue   *Queue
	cfg     QueueConfig
	handler HandlerFunc   // with its middleware; nil if there is a batch handler
	batch   *batchHandler // nil if there is a handler of single messages

	slots   *slots.Queue
	leases  *hold.Queue
	watch   pump.Watch // of claims
	outage  *pump.Outage
	misfits *outcome.Misfits // messages that this version of the program does not handle
}

// Run claims and handles messages until ctx ends, then drains. It may be called once.
//
// To drain, the worker stops claiming and releases the messages that no handler has started. Handlers have
// ShutdownTimeout to finish. Then their contexts end with ErrShutdown and their messages are released at
// once, without counting an attempt; handlers have one more second to return.
//
// Run returns nil when everything is settled, or ErrRestart if CommandRestart asked for the drain. It returns
// ErrInvalid for a configuration that is not allowed, and ErrClosed when the client is closed or the store has
// stopped for good. It returns an error when handlers, Deliver or OnDead ignore the end of their context, and
// leaves them running. It returns ErrUnavailable when messages could not be settled; they are delivered again when
// their leases end.
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
	r.env.End = cancel
	defer r.endCalls(nil)

	r.member.Start()
	defer r.member.Leave()
	r.leases.Start()
	for _, qw := range r.queueWorkers {
		r.fetching.Go(func() { r.fetch(ctx, qw) })
	}
	for _, f := range r.forwarders {
		r.fetching.Go(func() { r.forward(ctx, f) })
	}
	r.fetching.Go(func() { r.topics().Run(ctx) })
	<-ctx.Done()
	r.member.Drain()
	err = r.drain()
	switch cause := context.Cause(ctx); {
	case cause != errClientClosed && errors.Is(cause, ErrClosed):
		return fmt.Errorf("worker ended with its store: %w", cause)
	case cause == ErrRestart && err == nil:
		return ErrRestart
	}
	return err
}

func (w *Worker) newRun(ctx context.Context) (*run, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.run != nil {
		return nil, store.Invalid("Run was called before: make a new Worker to run again")
	}
	if w.invalid != nil {
		return nil, w.invalid
	}
	handled := slices.Sorted(maps.Keys(w.handlers))
	forwarded := slices.Sorted(maps.Keys(w.destinations))
	if len(handled)+len(forwarded) == 0 && !w.onlySchedules {
		return nil, store.Invalid("worker has no queue: call Handle or Forward before Run")
	}
	if err := w.cfg.validate(slices.Concat(handled, forwarded)); err != nil {
		return nil, err
	}
	r := &run{
		client:   w.client,
		cfg:      w.cfg,
		log:      w.cfg.Logger,
		handling: context.WithoutCancel(ctx),
		changed:  make(chan struct{}, 1),
		begun:    time.Now(),
		claimed:  w.claimed,
	}
	r.local, _ = w.client.store.(store.Local)
	r.calling, r.endCalls = context.WithCancelCause(r.handling)
	r.leases = hold.New(r.calling, w.client.store, r.signalChange)
	r.env = &pump.Env{
		Store: w.client.store, Log: r.log, Leases: r.leases, Begun: r.begun, Handling: r.handling, Calling: r.calling,
		Claimed: r.hasClaimed, BeginClaim: r.beginClaim,
	}
	for _, name := range handled {
		qw, err := r.newQueueWorker(name, w.handlers[name])
		if err != nil {
			return nil, err
		}
		r.queueWorkers = append(r.queueWorkers, qw)
	}
	for _, name := range forwarded {
		f, err := r.newForwarder(name, w.destinations[name])
		if err == nil {
			err = checkCycle(w.client, w.destinations, name)
		}
		if err != nil {
			return nil, err
		}
		r.forwarders = append(r.forwarders, f)
	}
	r.dead = &outcome.Dead{
		Store: w.client.store, Log: r.log, Level: levelOf(r.cfg.DeathLevel, slog.LevelWarn), Calling: r.calling,
		Changed: r.signalChange,
	}
	if call := r.cfg.OnDead; call != nil {
		r.dead.OnDead = func(ctx context.Context, queue string, info *store.Info) { call(ctx, newInfo(queue, *info)) }
	}
	queues := make([]*slots.Queue, len(r.queueWorkers))
	for i, qw := range r.queueWorkers {
		queues[i] = qw.slots
		qw.slots.FetchAhead = func() { r.fetching.Go(func() { r.fetchAhead(ctx, qw) }) }
	}
	r.scheduler = slots.New(r.cfg.Concurrency, r.cfg.StarvationLimit, queues, r.signalChange)
	r.claimBuffers.New = func() any { return new([]store.Claimed) }
	if !w.cfg.Unlisted {
		r.member = r.newMember(w)
	}
	if w.paused {
		r.scheduler.SetPaused(true)
		r.env.Gate.Set(true)
	}
	for _, registered := range w.handlers {
		if registered.mux != nil {
			registered.mux.freeze(r.log)
		}
	}
	w.run = r
	return r, nil
}

// topics returns the Finder that distributes messages of topics to the worker's queues, and runs schedules.
func (r *run) topics() *topic.Finder {
	return &topic.Finder{
		Store: r.client.store, Log: r.log, Queues: r.queueNames(), New: r.newDistributor, SendScheduled: r.sendScheduled,
	}
}

// queueNames returns the names of all queues of the worker.
func (r *run) queueNames() (names []string) {
	for _, qw := range r.queueWorkers {
		names = append(names, qw.queue.name)
	}
	for _, f := range r.forwarders {
		names = append(names, f.queue.name)
	}
	return names
}

func (r *run) newDistributor(t *topic.Topic) *topic.Distributor {
	qw := &queueWorker{run: r, queue: r.client.Queue(t.Queue)}
	return topic.NewDistributor(t, qw.claims(r.cfg.queue(t.Queue).Lease, &pump.Outage{
		Fails: "later: messages cannot be forwarded and stay in the queue; retrying",
		Works: "later: messages are forwarded again",
		Attrs: []any{"queue", t.Queue, "to", "queue:subscribed queues"},
	}))
}

// sendScheduled sends the runs of all schedules until ctx ends.
func (r *run) sendScheduled(ctx context.Context) {
	qw := &queueWorker{run: r, queue: r.client.Queue(reserved.Schedules)}
	s := schedule.Sender{Batch: qw.claims(schedule.Lease, &pump.Outage{
		Fails: "later: messages cannot be forwarded and stay in the queue; retrying",
		Works: "later: messages are forwarded again",
		Attrs: []any{"queue", reserved.Schedules, "to", "queue:queues of schedules"},
	})}
	s.Complete = func(ctx context.Context, queue string, m store.Outgoing) (store.Outgoing, error) {
		o := outgoingRun(m)
		return r.client.Queue(queue).complete(ctx, &o)
	}
	s.Sent = func(queue, schedule, id string) {
		r.client.Queue(queue).occurred(Event{Kind: EventSent, ID: id, Context: r.handling, Schedule: schedule}, 1)
	}
	s.LeftOut = func(kind EventKind, queue, schedule string, n int) {
		r.client.Queue(queue).occurred(
			Event{Kind: kind, ID: schedule, Context: r.handling, Count: n, Schedule: schedule}, n)
	}
	s.Run(ctx)
}

// occurred reports and counts an event that happened n times.
func (q *Queue) occurred(e Event, n int) {
	if q.wantsEvents() {
		q.report(e)
	}
	q.activity.Count(e.Kind, n)
}

// unlessLocal returns how often the worker reads or writes the state that it shares with other processes.
func (r *run) unlessLocal(every time.Duration) time.Duration {
	if r.local != nil {
		return topic.LocalEvery
	}
	return every
}

func (r *run) newQueueWorker(name string, registered queueHandler) (qw *queueWorker, err error) {
	defer recoverRefusal(&err)
	cfg := r.cfg.queue(name)
	qw = &queueWorker{run: r, queue: r.client.Queue(name), cfg: cfg, batch: registered.batch,
		misfits: outcome.NewMisfits(name, cfg.GiveBackFor, r.log)}
	qw.outage = &pump.Outage{
		Log: r.log, Fails: "later: the store is failing; retrying", Works: "later: the store is back",
		Attrs: []any{"queue", name},
	}
	qw.leases = &hold.Queue{
		Name: name, Length: cfg.Lease, Looks: true, Called: qw.extended, Beat: qw.releaseStale, BeatAfter: qw.maxBuffer(),
	}
	share := slots.Config{
		Weight: cfg.Weight, Priority: cfg.Priority, Concurrency: cfg.Concurrency, MaxPrefetch: r.cfg.MaxPrefetch,
	}
	if b := registered.batch; b != nil {
		share.MaxPrefetch, share.BatchSize, share.BatchWait, share.Together = 0, b.Size, b.Wait, qw.newBatch
		qw.slots = slots.NewQueue(share)
		return qw, nil
	}
	h := registered.single
	if registered.mux != nil {
		if h, err = registered.mux.handler(qw.misfits); err != nil {
			return nil, fmt.Errorf("worker's HandleMux of queue %q: %w", name, err)
		}
	}
	for i, wrap := range slices.Backward(r.cfg.Middleware) {
		if h = wrap(h); h == nil {
			return nil, store.Invalid("worker's Middleware %d returned nil for queue %q: return a handler", i, name)
		}
	}
	qw.handler, qw.slots = h, slots.NewQueue(share)
	return qw, nil
}

// drain stops the worker as described at Run.
func (r *run) drain() error {
	for _, t := range r.scheduler.Stop() {
		t.(*task).release(nil)
	}
	if !r.awaitIdle(max(0, r.cfg.ShutdownTimeout)) {
		r.endCalls(ErrShutdown)
		for _, t := range r.tasks() {
			t.release(ErrShutdown)
		}
		r.awaitIdle(pump.Grace)
	}
	r.endCalls(ErrShutdown)
	r.fetching.Wait()
	r.leases.Stop()
	return r.drainError()
}

// drainError returns an error if the drain was not completed.
func (r *run) drainError() error {
	if n := r.scheduler.Handlers(); n > 0 {
		return fmt.Errorf("%d handlers ignored the end of their context and are still running", n)
	}
	if n := r.abandoned.Load(); n > 0 {
		return fmt.Errorf("%d calls of Deliver ignored the end of their context and are still running", n)
	}
	r.scheduler.Wait()
	if r.dead.Busy() {
		return errors.New("OnDead ignored the end of its context and is still running")
	}
	r.dead.Wait()
	n := r.leases.Unsettled()
	for _, f := range r.forwarders {
		n += int64(f.batch.Unsettled)
	}
	if n > 0 {
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
		if !fetching && r.scheduler.Handlers() == 0 && r.leases.Unsettled() == 0 && !r.dead.Busy() {
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

// signalChange makes awaitIdle and WaitIdle check again.
func (r *run) signalChange() {
	r.changes.notify()
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

// Paused reports whether the worker is paused, by Pause or by a command.
func (w *Worker) Paused() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.paused
}

func (w *Worker) setPaused(paused bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paused = paused
	if w.run != nil {
		w.run.scheduler.SetPaused(paused)
		w.run.env.Gate.Set(paused)
		w.run.member.Changed()
	}
}

// Queues returns the names of the queues that have a handler or a destination, sorted.
func (w *Worker) Queues() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	names := slices.Collect(maps.Keys(w.handlers))
	return slices.Sorted(slices.Values(slices.AppendSeq(names, maps.Keys(w.destinations))))
}

// WaitIdle waits until the worker holds no message: no handler runs, claimed messages are settled and their events were
// reported, nothing is being forwarded, and OnDead is not being called. It is for tests that then look at the effects
// of the handlers; package latertest uses it. Ready messages that the worker has not claimed yet do not count; see
// Queue.Stats. It returns the context's cause if that ends first, and nil at once if the worker does not run.
func (w *Worker) WaitIdle(ctx context.Context) error {
	w.mu.Lock()
	r := w.run
	w.mu.Unlock()
	for r != nil {
		changed := r.changes.next()
		if r.idle() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// idle reports whether the worker holds no message. A claim counts until its messages are counted as unsettled, and
// unsettled messages until OnDead knows of them, so the order of the conditions matters.
func (r *run) idle() bool {
	return r.claiming.Load() == 0 && r.leases.Unsettled() == 0 && r.scheduler.Handlers() == 0 && !r.dead.Busy()
}

// beginClaim counts a claim, or a forwarded batch, until the function that it returns is called.
func (r *run) beginClaim() (done func()) {
	r.claiming.Add(1)
	return func() {
		if r.claiming.Add(-1) == 0 {
			r.changes.notify()
		}
	}
}

// changes lets any number of goroutines wait until something has changed.
type changes struct {
	mu      sync.Mutex
	changed chan struct{} // closed by the next change; nil without a waiter
}

// next returns a channel that the next change closes.
func (c *changes) next() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.changed
}

func (c *changes) notify() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}
