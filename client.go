package later

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/laterq/later/store"
)

// Client provides access to the queues of one store. Create it with Open or New, and call Close when done.
// Its methods are safe for concurrent use.
type Client struct {
	store      store.Store
	owned      bool // the store was opened by Open, so Close closes it
	log        *slog.Logger
	observe    func(Event) // nil without an observer
	durability Durability  // default for sends

	// ending is cancelled with ErrClosed when Close begins.
	ending context.Context
	end    context.CancelCauseFunc
	loops  sync.WaitGroup // workers and receivers, which end with ending
	calls  sync.WaitGroup // calls to the store in flight
	// confirming is cancelled with ErrClosed once Close has waited confirmGrace for calls in flight.
	confirming context.Context
	giveUp     context.CancelCauseFunc

	mu      sync.RWMutex // guards the fields below, and adding to loops and calls
	closing bool         // no new loops
	closed  bool         // no new calls
	queues  map[string]*Queue

	closeOnce sync.Once
	closeErr  error
}

// Option configures a Client in Open and New.
type Option interface {
	applyClient(*options) error
}

type option func(*options)

func (f option) applyClient(o *options) error {
	f(o)
	return nil
}

type options struct {
	logger        *slog.Logger
	observer      func(Event)
	allowEviction bool
	durability    Durability
}

// WithLogger sets the logger of the client, its workers and the store. The default is slog.Default(). Later
// logs little: outages and recoveries of the store, panics of handlers, and work it had to give up.
func WithLogger(l *slog.Logger) Option {
	return option(func(o *options) { o.logger = l })
}

// WithObserver sets a function that is called for every Event, for example to record metrics. It is called
// from many goroutines at once and blocks the caller's work, so it must be fast. Without an observer there
// is no overhead.
func WithObserver(f func(Event)) Option {
	return option(func(o *options) { o.observer = f })
}

// AllowEviction lets Open accept a Redis server whose maxmemory-policy may evict keys. Evicted keys are
// lost messages. AllowEviction has no effect on New; use the engine's own option there.
func AllowEviction() Option {
	return option(func(o *options) { o.allowEviction = true })
}

// Open opens the store at url and returns a client that closes it on Close.
//
// The schemes are redis, rediss, unix, redis+sentinel, redis+cluster and mem, and those of the engines that
// the program imports. mem:// opens a new store in memory that no other client can see. mem://NAME opens
// the store of that name in this process: all clients that open the same name share it, and its messages
// are gone when the last of them closes it.
//
// Open returns ErrInvalid for a malformed URL or for an option that is nil or not allowed, ErrUnsupported
// for a server that cannot be used, and ErrUnavailable for a server that does not answer.
func Open(ctx context.Context, url string, opts ...Option) (*Client, error) {
	o, err := optionsOf(opts)
	if err != nil {
		return nil, err
	}
	s, err := store.Open(ctx, url, store.OpenConfig{Logger: o.logger, AllowEviction: o.allowEviction})
	if err != nil {
		return nil, err
	}
	c := newClient(s, o)
	c.owned = true
	return c, nil
}

// New returns a client of a store that the caller created. The caller closes the store, after the client.
// New panics when an option is nil or not allowed.
func New(s store.Store, opts ...Option) *Client {
	o, err := optionsOf(opts)
	if err != nil {
		panic("later: New: " + err.Error())
	}
	return newClient(s, o)
}

func optionsOf(opts []Option) (options, error) {
	var o options
	for i, set := range opts {
		if set == nil {
			return o, nilOption(i)
		}
		if err := set.applyClient(&o); err != nil {
			return o, err
		}
	}
	if o.logger == nil {
		o.logger = slog.Default()
	}
	return o, nil
}

func newClient(s store.Store, o options) *Client {
	c := &Client{store: s, log: o.logger, observe: o.observer, durability: o.durability, queues: map[string]*Queue{}}
	c.ending, c.end = context.WithCancelCause(context.Background())
	c.confirming, c.giveUp = context.WithCancelCause(context.Background())
	return c
}

// Queue returns the queue with the given name. The queue need not exist; its first message creates it. If
// the name is not allowed, every method of the Queue returns ErrInvalid. The client keeps each Queue that
// it returned, at a few hundred bytes each.
func (c *Client) Queue(name string) *Queue {
	c.mu.RLock()
	q := c.queues[name]
	c.mu.RUnlock()
	if q != nil {
		return q
	}
	if err := store.CheckQueue(name); err != nil {
		return &Queue{client: c, name: name, invalid: err}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if q := c.queues[name]; q != nil {
		return q
	}
	if c.closed {
		return &Queue{client: c, name: name, invalid: errClientClosed}
	}
	q = newQueue(c, name)
	c.queues[name] = q
	return q
}

// Queues returns the names of all existing queues, sorted. A queue exists from its first message or pause
// until it is deleted.
func (c *Client) Queues(ctx context.Context) ([]string, error) {
	if err := c.begin(); err != nil {
		return nil, err
	}
	defer c.calls.Done()
	var all []string
	for cursor := ""; ; {
		names, next, err := c.store.Queues(ctx, cursor)
		if err != nil {
			return nil, err
		}
		all = append(all, names...)
		if next == "" {
			slices.Sort(all)
			return slices.Compact(all), nil // a name can appear on two pages
		}
		cursor = next
	}
}

// Close shuts the client down and returns when all of its goroutines have ended.
//
// It ends every Receive with ErrClosed, drains the client's workers, and completes the sends and settles in
// flight. This may take as long as a worker's ShutdownTimeout. Durable sends wait for their confirmation
// for one more second and then return ErrNotDurable. Later calls return ErrClosed, including those on a
// Delivery. Close closes the store if Open opened it. Do not call Close from a handler: it waits for
// handlers.
func (c *Client) Close() error {
	c.closeOnce.Do(func() {
		c.mu.Lock()
		c.closing = true
		c.mu.Unlock()
		c.end(errClientClosed)
		c.loops.Wait() // handlers may still send

		c.mu.Lock()
		c.closed = true // from here on no queue is added
		c.mu.Unlock()
		grace := time.AfterFunc(confirmGrace, func() { c.giveUp(errClientClosed) })
		for _, q := range c.queues {
			q.sends.close()
			q.durables.close()
			q.settles.close()
		}
		c.calls.Wait()
		grace.Stop()
		c.giveUp(errClientClosed)
		if c.owned {
			c.closeErr = c.store.Close()
		}
	})
	return c.closeErr
}

// begin registers a call to the store. The caller calls calls.Done when the call returns.
func (c *Client) begin() error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.closed {
		return errClientClosed
	}
	c.calls.Add(1)
	return nil
}

// beginLoop registers a loop that runs until ending is cancelled. The caller then calls loops.Done.
func (c *Client) beginLoop() error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.closing {
		return errClientClosed
	}
	c.loops.Add(1)
	return nil
}
