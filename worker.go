package later

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/laterq/later/store"
)

// HandlerFunc handles one message.
//
// Its result settles the message. nil is an Ack. RetryIn, Snooze and Bury select their own settlement. Any
// other error, a panic, and nil after the time limit are a failed attempt, which is retried after the
// worker's Backoff.
//
// The context ends when the handler should stop. Its context.Cause is ErrTimeout, ErrLeaseLost,
// ErrCancelled or ErrShutdown. After ErrLeaseLost, ErrCancelled and ErrShutdown the result is ignored,
// because the worker no longer holds the message. ErrLeaseLost and ErrCancelled are noticed at a heartbeat,
// so they reach the handler within a third of the lease (10 seconds by default) while the store can be
// reached, and at the end of the lease otherwise.
type HandlerFunc func(ctx context.Context, m *Message) error

// WorkerConfig configures a Worker. The zero value is valid.
type WorkerConfig struct {
	// Concurrency is the maximum number of handlers that run at a time, over all queues. Default: 10 times
	// GOMAXPROCS.
	Concurrency int
	// Queues has the settings of individual queues. Each of them must have a handler.
	Queues map[string]QueueConfig
	// Lease is how long a message is held between heartbeats, store.MinLease to store.MaxLease. If this
	// process dies, its messages are delivered again after that time. Default: 30 s.
	Lease time.Duration
	// Timeout limits one run of a handler, up to store.MaxDelay. When it is exceeded, the handler's context
	// ends with ErrTimeout, and its result, even nil, is a failed attempt with that error. The exception is a
	// handler that returns RetryIn, Snooze or Bury: they take effect as usual. A message's own Timeout takes
	// precedence. Default: 0, no limit.
	Timeout time.Duration
	// Backoff returns how long a failed message waits. Default: ExponentialBackoff(time.Second,
	// 10*time.Minute).
	Backoff Backoff
	// ShutdownTimeout is how long handlers may continue after Run's context has ended. After that their
	// contexts end with ErrShutdown and their messages are released. Default: 30 s. Below zero means at once.
	ShutdownTimeout time.Duration
	// MaxPrefetch limits how many messages of a queue wait in this process for a free handler, up to 2000.
	// Within that limit a queue prefetches as much as its handlers do in about 20 ms, and nothing when they
	// are slow. Default: 2000. Below zero disables prefetching. A lower limit makes the calls to Redis shorter
	// and a busy worker slower: with 250, by a third where a million messages fall due at once
	// (docs/benchmarks.md).
	MaxPrefetch int
	// Middleware wraps every handler when Run begins. The first is the outermost.
	Middleware []func(HandlerFunc) HandlerFunc
	// OnDead is called, by one goroutine, after a message became dead in this worker. Its last attempt failed,
	// it was buried, or a claim of this worker found it expired or out of attempts. Calls are best-effort: one
	// can be lost if the process dies. The dead messages themselves are kept.
	OnDead func(ctx context.Context, info *Info)
	// Logger receives the worker's log messages. Default: the client's logger.
	Logger *slog.Logger
}

// QueueConfig has the settings of one queue of a Worker. The zero value uses the worker's settings.
type QueueConfig struct {
	// Concurrency is the maximum number of handlers of this queue that run at a time. Default: the worker's.
	Concurrency int
	// Weight is the queue's share of the handlers when several queues have messages waiting, 1 to 1000. A
	// queue of weight 3 starts three messages for each message of a queue of weight 1. Default: 1.
	Weight int
	// Lease, Timeout and Backoff override the worker's settings.
	Lease   time.Duration
	Timeout time.Duration
	Backoff Backoff
}

func (c WorkerConfig) withDefaults(log *slog.Logger) WorkerConfig {
	if c.Concurrency == 0 {
		c.Concurrency = 10 * runtime.GOMAXPROCS(0)
	}
	if c.Lease == 0 {
		c.Lease = defaultLease
	}
	if c.Backoff == nil {
		c.Backoff = defaultBackoff
	}
	if c.ShutdownTimeout == 0 {
		c.ShutdownTimeout = 30 * time.Second
	}
	if c.MaxPrefetch == 0 {
		c.MaxPrefetch = maxPrefetch
	}
	if c.Logger == nil {
		c.Logger = log
	}
	return c
}

// queue returns the configuration of a queue with the worker's settings filled in.
func (c WorkerConfig) queue(name string) QueueConfig {
	q := c.Queues[name]
	if q.Concurrency == 0 {
		q.Concurrency = c.Concurrency
	}
	if q.Weight == 0 {
		q.Weight = 1
	}
	if q.Lease == 0 {
		q.Lease = c.Lease
	}
	if q.Timeout == 0 {
		q.Timeout = c.Timeout
	}
	if q.Backoff == nil {
		q.Backoff = c.Backoff
	}
	return q
}

// maxWeight bounds weights so that a queue of weight 1 does not wait for long.
const maxWeight = 1000

// validate checks a configuration, with its defaults filled in, for the handled queues.
func (c WorkerConfig) validate(handled map[string]HandlerFunc) error {
	if len(handled) == 0 {
		return store.Invalid("worker has no queue: call Handle before Run")
	}
	if c.Concurrency < 1 {
		return store.Invalid("worker's Concurrency is %d: give 1 or more, or 0 for the default", c.Concurrency)
	}
	if c.MaxPrefetch > maxPrefetch {
		return store.Invalid("worker's MaxPrefetch is %d: give up to %d, or -1 for none", c.MaxPrefetch, maxPrefetch)
	}
	if err := checkTimes(c.Lease, c.Timeout); err != nil {
		return fmt.Errorf("worker's %w", err)
	}
	for i, m := range c.Middleware {
		if m == nil {
			return store.Invalid("worker's Middleware %d is nil: leave it out", i)
		}
	}
	for name := range c.Queues {
		if handled[name] == nil {
			return store.Invalid("worker's Queues has %q, which has no handler: call Handle for it or leave it out", name)
		}
	}
	for name := range handled {
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
		return store.Invalid("Weight is %d: give 1 to %d, or 0 for 1", q.Weight, maxWeight)
	}
	return checkTimes(q.Lease, q.Timeout)
}

func checkTimes(lease, timeout time.Duration) error {
	if store.CheckLease(lease) != nil {
		return store.Invalid("Lease is %v: give %v to %v, or 0 for the default", lease, store.MinLease, store.MaxLease)
	}
	if timeout < 0 || timeout > store.MaxDelay {
		return store.Invalid("Timeout is %v: give up to %v, or 0 for the default", timeout, store.MaxDelay)
	}
	return nil
}

// Worker claims messages and runs handlers for them. Create it with NewWorker, add handlers with Handle,
// and call Run.
type Worker struct {
	client *Client
	cfg    WorkerConfig

	mu       sync.Mutex // guards the fields below
	handlers map[string]HandlerFunc
	paused   bool
	run      *run // nil until Run is called
}

// NewWorker returns a Worker on c. It starts nothing, and Run reports a configuration that is not allowed.
func NewWorker(c *Client, cfg WorkerConfig) *Worker {
	return &Worker{client: c, cfg: cfg.withDefaults(c.log), handlers: map[string]HandlerFunc{}}
}

// Handle registers the handler of a queue. Like http.ServeMux, it panics on programming errors: a queue
// name that is not allowed, a nil handler, a second handler for a queue, or a call after Run.
func (w *Worker) Handle(queue string, h HandlerFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch err := store.CheckQueue(queue); {
	case err != nil:
		panic("later: Handle: " + err.Error())
	case h == nil:
		panic(fmt.Sprintf("later: Handle: handler of queue %q is nil", queue))
	case w.handlers[queue] != nil:
		panic(fmt.Sprintf("later: Handle: queue %q has a handler already", queue))
	case w.run != nil:
		panic(fmt.Sprintf("later: Handle: queue %q: call Handle before Run", queue))
	}
	w.handlers[queue] = h
}
