package later

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/laterq/later/internal/fleet"
	"github.com/laterq/later/internal/slots"
	"github.com/laterq/later/store"
)

// HandlerFunc handles one message.
//
// Its result settles the message. nil is an Ack, and Then an Ack with follow-ups. RetryIn, Snooze and Bury
// select their own settlement. Any other error, a panic, and nil or Then after the time limit are a failed
// attempt, which is retried after the worker's Backoff.
//
// The context ends when the handler should stop. Its context.Cause is ErrTimeout, ErrLeaseLost,
// ErrCancelled or ErrShutdown. After ErrLeaseLost, ErrCancelled and ErrShutdown the result is ignored,
// because the worker no longer holds the message. ErrLeaseLost and ErrCancelled reach the handler within a
// second while the store can be reached. Otherwise ErrLeaseLost does at the end of the lease.
type HandlerFunc func(ctx context.Context, m *Message) error

// WorkerConfig configures a Worker. The zero value is valid.
type WorkerConfig struct {
	// Concurrency is the maximum number of handlers that run at a time, over all queues. A batch of messages
	// counts as one (see HandleBatch). Default: 10 times GOMAXPROCS.
	Concurrency int
	// Queues has the settings of individual queues. Each of them must have a handler.
	Queues map[string]QueueConfig
	// Lease is how long a message is held between heartbeats, store.MinLease to store.MaxLease. If this
	// process dies, its messages are delivered again after that time. Default: 30 s.
	Lease time.Duration
	// Timeout limits one run of a handler, up to store.MaxTimeout. When it is exceeded, the handler's context
	// ends with ErrTimeout, and its result, even nil, is a failed attempt with that error. The exception is a
	// handler that returns RetryIn, Snooze or Bury: they take effect as usual. A message's own Timeout takes
	// precedence. Default: 0, no limit.
	Timeout time.Duration
	// Backoff returns how long a failed message waits. Default: ExponentialBackoff(time.Second,
	// 10*time.Minute).
	Backoff Backoff
	// GiveBackFor is how long a message is given back, if this version of the program cannot decode its payload or a
	// handler gives it back with GiveBack, up to store.MaxDelay. Workers of a new version take such messages over in a
	// rolling deploy. Afterwards it becomes dead as DeadUnreadable. Messages of unknown kinds are given back for ever;
	// see UnknownRelease. Default: 1 h. Below zero means that it is dead at once.
	GiveBackFor time.Duration
	// ShutdownTimeout is how long handlers may continue after Run's context has ended. After that their
	// contexts end with ErrShutdown and their messages are released. Default: 25 s, which leaves time to settle
	// and close within the 30 s that Kubernetes allows by default. Below zero means at once.
	ShutdownTimeout time.Duration
	// MaxPrefetch limits how many messages of a queue wait in this process for a free handler, up to 2000.
	// Within that limit a queue prefetches as much as its handlers do in about 20 ms, and nothing when they
	// are slow. Default: 2000. Below zero disables prefetching. A lower limit makes the calls to Redis shorter
	// and a busy worker slower: with 250, by a third where a million messages fall due at once
	// (docs/benchmarks.md).
	MaxPrefetch int
	// StarvationLimit is how long the queues of a Priority can be kept waiting by queues of a higher one. Then one
	// message of theirs starts in the next handler that becomes free, and the time begins again. Below zero means for
	// as long as the higher queues have messages. Default: 5 s.
	StarvationLimit time.Duration
	// Middleware wraps every handler when Run begins, other than handlers of HandleBatch. The first is the outermost.
	Middleware []func(HandlerFunc) HandlerFunc
	// OnDead is called, by one goroutine, after a message became dead in this worker. Its last attempt failed,
	// it was buried, or a claim of this worker found it expired or out of attempts. Calls are best-effort: one
	// can be lost if the process dies. When OnDead is so slow that 10,000 messages wait for it, further ones are
	// skipped, and the Logger reports how many. The dead messages themselves are kept.
	OnDead func(ctx context.Context, info *Info)
	// Name names the worker in Client.Workers and for Client.ControlWorkers, up to 128 bytes. Workers with
	// the same name obey the same commands. Default: the machine's name and the process id, "host:1234".
	Name string
	// Version is the version of the program in Client.Workers, up to 128 bytes. Default: the version of its
	// main module, or else its commit.
	Version string
	// Unlisted keeps the worker out of Client.Workers and out of reach of Client.ControlWorkers. To be listed takes a
	// call to the store every 14 seconds, and one every minute.
	Unlisted bool
	// OnCommand is called with each command of Client.ControlWorkers, before the worker obeys it. If
	// it returns an error, the worker does not obey, and the sender receives the error's text. One goroutine calls it,
	// and further commands wait for it.
	OnCommand func(WorkerCommand) error
	// FailureLevel is the log level of a failed attempt, and DeathLevel of a message that became dead in this worker.
	// Defaults: slog.LevelDebug and slog.LevelWarn.
	FailureLevel, DeathLevel slog.Leveler
	// Logger receives the worker's log messages. Default: the client's logger.
	Logger *slog.Logger
}

// QueueConfig has the settings of one queue of a Worker. The zero value uses the worker's settings.
type QueueConfig struct {
	// Concurrency is the maximum number of handlers of this queue that run at a time. Default: the worker's.
	Concurrency int
	// Weight is the queue's share of the handlers when several queues of the same Priority have messages
	// waiting, 1 to 1000. A queue of weight 3 starts three messages for each message of a queue of weight 1.
	// Default: 1.
	Weight int
	// Priority puts the queue before queues of a lower Priority: they start messages only while this one is known to
	// have none waiting, or runs its Concurrency. A message that runs is not interrupted. Below zero is allowed. See
	// WorkerConfig.StarvationLimit, and docs/workers.md. Default: 0.
	Priority int
	// Lease, Timeout, Backoff and GiveBackFor override the worker's settings.
	Lease       time.Duration
	Timeout     time.Duration
	Backoff     Backoff
	GiveBackFor time.Duration
}

func (c WorkerConfig) withDefaults(log *slog.Logger) WorkerConfig {
	c.Concurrency = cmp.Or(c.Concurrency, 10*runtime.GOMAXPROCS(0))
	c.Lease = cmp.Or(c.Lease, defaultLease)
	if c.Backoff == nil {
		c.Backoff = defaultBackoff
	}
	c.GiveBackFor = cmp.Or(c.GiveBackFor, defaultGiveBackFor)
	c.ShutdownTimeout = cmp.Or(c.ShutdownTimeout, 25*time.Second)
	c.MaxPrefetch = cmp.Or(c.MaxPrefetch, slots.MaxPrefetch)
	c.StarvationLimit = cmp.Or(c.StarvationLimit, 5*time.Second)
	if c.Name == "" {
		c.Name = fleet.DefaultName()
	}
	if c.Version == "" {
		c.Version = fleet.DefaultVersion()
	}
	c.FailureLevel = cmp.Or[slog.Leveler](c.FailureLevel, slog.LevelDebug)
	c.DeathLevel = cmp.Or[slog.Leveler](c.DeathLevel, slog.LevelWarn)
	c.Logger = cmp.Or(c.Logger, log)
	return c
}

// queue returns the configuration of a queue with the worker's settings filled in.
func (c WorkerConfig) queue(name string) QueueConfig {
	q := c.Queues[name]
	q.Concurrency, q.Weight = cmp.Or(q.Concurrency, c.Concurrency), cmp.Or(q.Weight, 1)
	q.Lease, q.Timeout = cmp.Or(q.Lease, c.Lease), cmp.Or(q.Timeout, c.Timeout)
	if q.Backoff == nil {
		q.Backoff = c.Backoff
	}
	q.GiveBackFor = cmp.Or(q.GiveBackFor, c.GiveBackFor)
	return q
}

// defaultGiveBackFor is the default of WorkerConfig.GiveBackFor: longer than a rolling deploy takes.
const defaultGiveBackFor = time.Hour

// maxWeight bounds weights so that a queue of weight 1 does not wait for long.
const maxWeight = 1000

// validate checks a configuration, with its defaults filled in, for queues.
func (c WorkerConfig) validate(queues []string) error {
	if c.Concurrency < 1 {
		return store.Invalid("worker's Concurrency is %d: give 1 or more, or 0 for the default", c.Concurrency)
	}
	if c.MaxPrefetch > slots.MaxPrefetch {
		return store.Invalid("worker's MaxPrefetch is %d: give up to %d, or -1 for none", c.MaxPrefetch, slots.MaxPrefetch)
	}
	if err := cmp.Or(checkTimes(c.Lease, c.Timeout), checkGiveBackFor(c.GiveBackFor)); err != nil {
		return fmt.Errorf("worker's %w", err)
	}
	if err := cmp.Or(fleet.CheckText("Name", c.Name), fleet.CheckText("Version", c.Version),
		store.CheckNew("worker's Name", c.Name)); err != nil {
		return err
	}
	for i, m := range c.Middleware {
		if m == nil {
			return store.Invalid("worker's Middleware %d is nil: leave it out", i)
		}
	}
	for name := range c.Queues {
		if !slices.Contains(queues, name) {
			return store.Invalid("worker's Queues has %q, which has no handler or destination: call Handle or Forward for it "+
				"or leave it out", name)
		}
	}
	for _, name := range queues {
		if err := c.queue(name).validate(); err != nil {
			return fmt.Errorf("worker's queue %q: %w", name, err)
		}
	}
	return nil
}

func (q QueueConfig) validate() error {
	if q.Concurrency < 1 {
		return store.Invalid("Concurrency is %d: give 1 or more, or 0 for the worker's", q.Concurrency)
	}
	if q.Weight < 1 || q.Weight > maxWeight {
		return store.Invalid("Weight is %d: must be 1 to %d, or 0 for 1", q.Weight, maxWeight)
	}
	return cmp.Or(checkTimes(q.Lease, q.Timeout), checkGiveBackFor(q.GiveBackFor))
}

func checkTimes(lease, timeout time.Duration) error {
	if store.CheckLease(lease) != nil {
		return store.Invalid("Lease is %v: give %v to %v, or 0 for the default", lease, store.MinLease, store.MaxLease)
	}
	if timeout < 0 || timeout > store.MaxTimeout {
		return store.Invalid("Timeout is %v: give up to %v, or 0 for the default", timeout, store.MaxTimeout)
	}
	return nil
}

// checkGiveBackFor checks a GiveBackFor.
func checkGiveBackFor(d time.Duration) error {
	if d > store.MaxDelay {
		return store.Invalid("GiveBackFor is %v: give up to %v, 0 for %v, or below zero to bury at once", d, store.MaxDelay,
			defaultGiveBackFor)
	}
	return nil
}

// Worker claims messages and runs handlers for them. Create it with NewWorker, add handlers with Handle,
// and call Run.
type Worker struct {
	client *Client
	cfg    WorkerConfig

	onlySchedules bool // it handles no queue; see Schedules.Worker

	mu       sync.Mutex // guards the fields below
	handlers map[string]queueHandler
	invalid  error // the first registration that is not allowed, for Run
	paused   bool
	run      *run          // nil until Run is called
	claimed  chan struct{} // see Claimed
}

// NewWorker returns a Worker on c. It starts nothing, and Run reports a configuration that is not allowed.
func NewWorker(c *Client, cfg WorkerConfig) *Worker {
	return &Worker{
		client: c, cfg: cfg.withDefaults(c.log),
		handlers: map[string]queueHandler{}, claimed: make(chan struct{}),
	}
}

// Handle registers the handler of a queue. Call it before Run.
//
// Run returns ErrInvalid, and delivers nothing, after a Handle with a queue name that is not allowed, a nil handler, or
// a queue that has a handler already. A Handle after Run has begun only logs an error.
func (w *Worker) Handle(queue string, h HandlerFunc) {
	var err error
	if h == nil {
		err = store.Invalid("handler of queue %q is nil: give a function", queue)
	}
	w.register("Handle", queue, queueHandler{single: h}, err)
}

// queueHandler is the handler of a worker for the messages of a queue, or their destination. One of its fields is set.
type queueHandler struct {
	to     *Destination
	single HandlerFunc
	mux    *Mux
	batch  *batchHandler
}

// register registers the handler or destination of a queue, unless err says that it is not allowed.
func (w *Worker) register(call, queue string, h queueHandler, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, taken := w.handlers[queue]
	switch err = cmp.Or(checkOwnQueue(queue), err); {
	case err != nil:
	case taken && before.to != nil:
		err = store.Invalid("queue %q has a destination: give it one, or a handler", queue)
	case taken:
		err = store.Invalid("queue %q has a handler already: give it one, or a destination", queue)
	case w.run != nil:
		w.cfg.Logger.Error("later: a call has no effect: call "+call+" before Run", "queue", queue)
		return
	default:
		w.handlers[queue] = h
		return
	}
	if w.invalid == nil {
		w.invalid = fmt.Errorf("worker's %s: %w", call, err)
	}
}
