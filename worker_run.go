package later

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/laterq/later/internal/fleet"
	"github.com/laterq/later/internal/handle"
	"github.com/laterq/later/internal/outcome"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/internal/schedule"
	"github.com/laterq/later/internal/slots"
	"github.com/laterq/later/internal/topic"
	"github.com/laterq/later/store"
)

// run is the state of a Worker during Run. Its handle.Worker runs the handlers; forwarder moves the messages of a queue
// to a destination (forward.go).
type run struct {
	*handle.Worker
	client     *Client
	cfg        WorkerConfig
	queues     []string // with a handler, then with a destination
	forwarders []*forwarder
	member     *fleet.Member           // lists the worker and obeys commands; nil if the worker is unlisted
	end        context.CancelCauseFunc // begins the drain
}

// queueWorker is one queue of a running worker. It reports its events.
type queueWorker struct {
	run   *run
	queue *Queue
	cfg   QueueConfig
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
	r, err := w.newRun(ctx, cancel)
	if err != nil {
		return err
	}
	r.member.Start()
	defer r.member.Leave()
	r.Start(ctx)
	for _, f := range r.forwarders {
		r.Go(func() { r.forward(ctx, f) })
	}
	topics := topic.Finder{
		Store: r.Store, Log: r.Log, Queues: r.queues, New: r.newDistributor, SendScheduled: r.sendScheduled,
	}
	r.Go(func() { topics.Run(ctx) })
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

// newRun returns the state of a Run until ctx ends, which end does.
func (w *Worker) newRun(ctx context.Context, end context.CancelCauseFunc) (*run, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.run != nil {
		return nil, store.Invalid("Run was called before: make a new Worker to run again")
	}
	if w.invalid != nil {
		return nil, w.invalid
	}
	var handled, forwarded []string
	for _, name := range slices.Sorted(maps.Keys(w.handlers)) {
		if w.handlers[name].to == nil {
			handled = append(handled, name)
		} else {
			forwarded = append(forwarded, name)
		}
	}
	if len(handled)+len(forwarded) == 0 && !w.onlySchedules {
		return nil, store.Invalid("worker has no queue: call Handle or Forward before Run")
	}
	r := &run{client: w.client, cfg: w.cfg, queues: slices.Concat(handled, forwarded), end: end}
	if err := w.cfg.validate(r.queues); err != nil {
		return nil, err
	}
	queues := make([]*handle.Queue, len(handled))
	for i, name := range handled {
		var err error
		if queues[i], err = r.newHandlers(name, w.handlers[name]); err != nil {
			return nil, err
		}
	}
	r.Worker = handle.New(ctx, w.client.store, w.cfg.Logger, r.handleConfig(), queues, w.claimed)
	r.End = end
	for _, name := range forwarded {
		f, err := r.newForwarder(name, *w.handlers[name].to)
		if err == nil {
			err = w.checkCycle(name)
		}
		if err != nil {
			return nil, err
		}
		r.forwarders = append(r.forwarders, f)
	}
	if !w.cfg.Unlisted {
		r.member = r.newMember(w)
	}
	r.SetPaused(w.paused)
	for _, registered := range w.handlers {
		if registered.mux != nil {
			registered.mux.freeze(r.Log)
		}
	}
	w.run = r
	return r, nil
}

// handleConfig returns the settings of the handle.Worker.
func (r *run) handleConfig() handle.Config {
	cfg := handle.Config{
		Name: r.cfg.Name, Concurrency: r.cfg.Concurrency, StarvationLimit: r.cfg.StarvationLimit,
		FailureLevel: r.cfg.FailureLevel, DeathLevel: r.cfg.DeathLevel.Level(),
		Observed: r.client.observe != nil, Backoff: defaultBackoff,
		IsFollowUps: func(err error) bool { return followUpsOf(err) != nil }, Followed: r.client.sentWithAck,
	}
	cfg.Follow = func(ctx context.Context, err error, m *handle.Message) ([]store.FollowUp, error) {
		return followUpsOf(err).after(ctx, r.client, (*Message)(m))
	}
	if call := r.cfg.OnDead; call != nil {
		cfg.OnDead = func(ctx context.Context, queue string, info *store.Info) { call(ctx, InfoOf(queue, *info)) }
	}
	return cfg
}

func (r *run) newDistributor(t *topic.Topic) *topic.Distributor {
	qw := &queueWorker{run: r, queue: r.client.Queue(t.Queue)}
	return topic.NewDistributor(t, qw.claims(r.cfg.queue(t.Queue).Lease, "queue:subscribed queues"))
}

// sendScheduled sends the runs of all schedules until ctx ends.
func (r *run) sendScheduled(ctx context.Context) {
	qw := &queueWorker{run: r, queue: r.client.Queue(reserved.Schedules)}
	s := schedule.Sender{Batch: qw.claims(schedule.Lease, "queue:queues of schedules")}
	s.Complete = func(ctx context.Context, queue string, m store.Outgoing) (store.Outgoing, error) {
		o := outgoingRun(m)
		return r.client.Queue(queue).complete(ctx, &o, new(store.IDs))
	}
	s.Sent = func(queue, schedule, id string) {
		r.client.Queue(queue).occurred(Event{Kind: EventSent, ID: id, Context: r.Handling, Schedule: schedule}, 1)
	}
	s.LeftOut = func(kind EventKind, queue, schedule string, n int) {
		r.client.Queue(queue).occurred(
			Event{Kind: kind, ID: schedule, Context: r.Handling, Count: n, Schedule: schedule}, n)
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

// newHandlers returns a queue with its handler.
func (r *run) newHandlers(name string, registered queueHandler) (q *handle.Queue, err error) {
	defer recoverRefusal(&err)
	qw := &queueWorker{run: r, queue: r.client.Queue(name), cfg: r.cfg.queue(name)}
	cfg := qw.cfg
	q = &handle.Queue{
		Name: name, Lease: cfg.Lease, Timeout: cfg.Timeout, Backoff: cfg.Backoff,
		Misfits: outcome.NewMisfits(name, cfg.GiveBackFor, r.cfg.Logger),
		Settles: qw.queue.settles, Activity: qw.queue.activity, FoundDead: qw.FoundDead, Report: qw.report,
		Share: slots.Config{
			Weight: cfg.Weight, Priority: cfg.Priority, Concurrency: cfg.Concurrency, MaxPrefetch: r.cfg.MaxPrefetch,
		},
	}
	if b := registered.batch; b != nil {
		q.Share.MaxPrefetch, q.Share.BatchSize, q.Share.BatchWait = 0, b.Size, b.Wait
		q.Batch, q.ByKey = b.call, b.ByKey
		return q, nil
	}
	h := registered.single
	if registered.mux != nil {
		if h, err = registered.mux.handler(q.Misfits); err != nil {
			return nil, fmt.Errorf("worker's HandleMux of queue %q: %w", name, err)
		}
	}
	for i, wrap := range slices.Backward(r.cfg.Middleware) {
		if h = wrap(h); h == nil {
			return nil, store.Invalid("worker's Middleware %d returned nil for queue %q: return a handler", i, name)
		}
	}
	q.Handler = func(ctx context.Context, m *handle.Message) error { return h(ctx, (*Message)(m)) }
	return q, nil
}

// report reports an event of a task, which the handle.Worker counts.
func (qw *queueWorker) report(kind EventKind, t *handle.Task, err error) {
	qw.queue.report(Event{
		Kind:     kind,
		ID:       t.ID,
		Context:  t.Context(),
		Attempt:  t.Attempt,
		Lateness: t.LatenessNow(),
		Duration: t.Ran(),
		Err:      err,
		Headers:  qw.run.client.eventHeaders.Of(t.Headers),
	})
}

// drain stops the worker as described at Run.
func (r *run) drain() error {
	n, err := r.Drain(max(0, r.cfg.ShutdownTimeout))
	if err != nil {
		return err
	}
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
		w.run.SetPaused(paused)
		w.run.member.Changed()
	}
}

// Queues returns the names of the queues that have a handler or a destination, sorted.
func (w *Worker) Queues() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.handlers))
}

// WaitIdle waits until the worker holds no message: no handler runs, claimed messages are settled and their events were
// reported, nothing is being forwarded, and OnDead is not being called. It is for tests that then look at the effects
// of the handlers; package latertest uses it. Ready messages that the worker has not claimed yet do not count; see
// Queue.Stats. It returns the context's cause if that ends first, and nil at once if the worker does not run.
func (w *Worker) WaitIdle(ctx context.Context) error {
	w.mu.Lock()
	r := w.run
	w.mu.Unlock()
	if r == nil {
		return nil
	}
	return r.WaitIdle(ctx)
}
