package later

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/laterq/later/store"
)

// Client gives access to the queues of one store. Make it with Open or New, and Close it. All methods may be
// called from many goroutines.
type Client struct {
	store      store.Store
	owned      bool // Open opened the store, so Close closes it
	log        *slog.Logger
	observe    func(Event) // nil when nobody observes
	durability Durability  // of sends that do not say

	// ending ends, with ErrClosed, when Close begins.
	ending context.Context
	end    context.CancelCauseFunc
	loops  sync.WaitGroup // workers and receivers; they end when ending does
	calls  sync.WaitGroup // calls to the store that are under way
	// confirming ends, with ErrClosed, confirmGrace after Close has begun to wait for the calls.
	confirming context.Context
	giveUp     context.CancelCauseFunc

	mu      sync.RWMutex // guards the adding to loops and calls, and what follows
	closing bool         // no new loops
	closed  bool         // no new calls
	queues  map[string]*Queue

	closeOnce sync.Once
	closeErr  error
}

// Option changes what Open and New make.
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

// WithLogger sets where the client, its workers and the store log. Default: slog.Default(). Later logs
// little: outages and recoveries of the store, panics of handlers, and what it had to give up.
func WithLogger(l *slog.Logger) Option {
	return option(func(o *options) { o.logger = l })
}

// WithObserver calls f for every Event, for metrics. f is called by many goroutines at once and holds up
// the work of the one that calls it: it must be quick. An observer that is not there costs nothing.
func WithObserver(f func(Event)) Option {
	return option(func(o *options) { o.observer = f })
}

// AllowEviction lets Open open a Redis whose maxmemory-policy may evict keys, and so lose messages. It has
// no effect on New: give the engine's own option there.
func AllowEviction() Option {
	return option(func(o *options) { o.allowEviction = true })
}

// Open opens the store that the URL names and gives a client that closes it on Close. The schemes are
// redis, rediss, unix, redis+sentinel, redis+cluster, mem, and those of the engines that the program imports
// besides. A URL that is not understood is ErrInvalid, a server that cannot be used ErrUnsupported, one that
// does not answer ErrUnavailable. An option that is nil or not
// allowed is ErrInvalid.
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

// New gives a client of a store that the caller made. The caller closes the store, after the client. An option
// that is nil or not allowed is a mistake in the program, and New panics.
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

// Queue gives the queue of that name. It need not exist: its first message makes it. A name that is not
// allowed is reported, as ErrInvalid, by each method of the Queue. The client keeps every Queue it gave, a
// few hundred bytes each.
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
	q = newQueue(c, name)
	c.queues[name] = q
	return q
}

// Queues gives the names of all queues that exist, sorted. A queue exists from its first message or pause
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
			return slices.Compact(all), nil // a name may be on two pages
		}
		cursor = next
	}
}

// Close ends every Receive with ErrClosed, makes the client's workers drain, sends and settles what is under
// way, and returns when the client's goroutines have ended; calls after that, those on a Delivery too, are
// refused with ErrClosed. It may take as long as a worker's ShutdownTimeout. Durable sends wait for their
// confirmation a second longer, and then end with ErrNotDurable. It closes the store if Open opened it. A handler must not call it, since it waits for handlers.
func (c *Client) Close() error {
	c.closeOnce.Do(func() {
		c.mu.Lock()
		c.closing = true
		c.mu.Unlock()
		c.end(errClientClosed)
		c.loops.Wait() // handlers may still send

		c.mu.Lock()
		c.closed = true
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

// begin announces a call to the store; the caller says calls.Done when it is back.
func (c *Client) begin() error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.closed {
		return errClientClosed
	}
	c.calls.Add(1)
	return nil
}

// beginLoop announces something that runs until ending ends; the caller says loops.Done then.
func (c *Client) beginLoop() error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.closing {
		return errClientClosed
	}
	c.loops.Add(1)
	return nil
}
