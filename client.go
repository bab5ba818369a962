package later

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"
	"weak"

	"github.com/laterq/later/internal/event"
	"github.com/laterq/later/internal/fleet"
	"github.com/laterq/later/internal/report"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/internal/schedule"
	"github.com/laterq/later/internal/shard"
	"github.com/laterq/later/store"

	// These engines register the URL schemes that Open always supports.
	_ "github.com/laterq/later/memstore"
	_ "github.com/laterq/later/redisstore"
	_ "github.com/laterq/later/remotestore"
)

// Client provides access to the queues of one store. Create it with Open or New, and call Close when done.
// Its methods are safe for concurrent use.
type Client struct {
	store          store.Store
	owned          bool // the store was opened by Open, so Close closes it
	log            *slog.Logger
	observe        func(Event)      // nil without an observer
	reporter       *report.Reporter // nil with WithoutActivity
	eventHeaders   *event.Headers
	defaults       *Outgoing // for sends; nil if there are none
	sendMiddleware []func(context.Context, *Outgoing) error

	// ending is cancelled with ErrClosed when Close begins.
	ending context.Context
	end    context.CancelCauseFunc
	loops  sync.WaitGroup // workers and receivers, which end with ending
	calls  sync.WaitGroup // calls to the store in flight
	// confirming is cancelled with ErrClosed once Close has waited confirmGrace for calls in flight.
	confirming context.Context
	giveUp     context.CancelCauseFunc

	mu      sync.RWMutex                   // guards the fields below, and adding to loops and calls
	closing bool                           // no new loops
	closed  bool                           // no new calls
	queues  map[string]weak.Pointer[Queue] // the queues in use
	watches map[*Watch]struct{}            // open ones

	fleet     fleet.Directory
	schedules schedule.Book

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
	logger         *slog.Logger
	observer       func(Event)
	unreported     bool
	eventHeaders   *event.Headers
	defaults       Outgoing
	defaultsGiven  bool
	sendMiddleware []func(context.Context, *Outgoing) error
	wait           time.Duration // of Open, for a store that does not answer
}

// WithLogger sets the logger of the client, its workers and the store. The default, also for nil, is
// slog.Default(). Later logs little: outages and recoveries of the store, panics of handlers, and work it
// had to give up.
func WithLogger(l *slog.Logger) Option {
	return option(func(o *options) { o.logger = l })
}

// WithObserver adds a function that is called for every Event, for example to record metrics. It is called from many
// goroutines at once and blocks the caller's work, so it must be fast. A client without an observer has no overhead.
// Several observers are called in the order of the options; nil adds none.
func WithObserver(f func(Event)) Option {
	return option(func(o *options) {
		before := o.observer
		switch {
		case f == nil:
		case before == nil:
			o.observer = f
		default:
			o.observer = func(e Event) {
				before(e)
				f(e)
			}
		}
	})
}

// WithEventHeaders adds headers of messages to their events, for this client's observer and for the watchers of all
// processes: the headers with the given names, or all headers without names. By default events carry no headers,
// because watchers receive a bounded number of bytes.
func WithEventHeaders(names ...string) Option {
	return option(func(o *options) { o.eventHeaders = &event.Headers{Names: slices.Clone(names)} })
}

// WithoutActivity turns off the client's reports: its events reach no Watch and do not count in
// Queue.Activity. Reports cost one call a second while the client does something; see Client.Watch. An observer
// and the client's own watches are not affected.
func WithoutActivity() Option {
	return option(func(o *options) { o.unreported = true })
}

// Open opens the store at url and returns a client that closes it on Close.
//
// The schemes are redis, rediss, unix, redis+sentinel, redis+cluster, http, https and mem, and those of the engines
// that the program imports. mem:// opens a new store in memory that no other client can see. mem://NAME opens
// the store of that name in this process: all clients that open the same name share it, and its messages
// are gone when the last of them closes it.
//
// Open returns ErrInvalid for a malformed URL or for an option that is nil or not allowed, ErrUnsupported
// for a server that cannot be used, ErrMisconfigured for one that refuses the client, and ErrUnavailable for a
// server that does not answer; see WaitForStore.
func Open(ctx context.Context, url string, opts ...Option) (*Client, error) {
	o, err := optionsOf(opts)
	if err != nil {
		return nil, err
	}
	s, err := openStore(ctx, url, &o)
	if err != nil {
		return nil, err
	}
	c := newClient(s, o)
	c.owned = true
	return c, nil
}

// New returns a client of a store that the caller created. The caller closes the store, after the client.
// New returns ErrInvalid when the store is nil, when an option is nil or not allowed, and the error of a
// store that was created with arguments that are not allowed (see store.Configured).
func New(s store.Store, opts ...Option) (*Client, error) {
	o, err := optionsOf(opts)
	if err != nil {
		return nil, err
	}
	if s == nil {
		return nil, store.Invalid("store is nil: give one, or call Open with a URL")
	}
	if c, ok := s.(store.Configured); ok {
		if err := c.ConfigError(); err != nil {
			return nil, err
		}
	}
	return newClient(s, o), nil
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
	s = shard.New(s, o.logger)
	c := &Client{
		store: s, log: o.logger, observe: o.observer, sendMiddleware: o.sendMiddleware,
		eventHeaders: o.eventHeaders,
		queues:       map[string]weak.Pointer[Queue]{},
	}
	if o.defaultsGiven || o.defaults.Durability.kind != durabilityDefault {
		c.defaults = &o.defaults
	}
	c.schedules.Store, c.fleet.Store, c.fleet.Log = s, s, o.logger
	c.fleet.Fault = func(w fleet.Info, err error) error { return &WorkerError{WorkerInfo(w), err} }
	if c.defaults != nil {
		c.schedules.Durable = c.defaults.Durability.asked
	}
	if !o.unreported {
		c.reporter = report.New(s, o.logger)
	}
	c.ending, c.end = context.WithCancelCause(context.Background())
	c.confirming, c.giveUp = context.WithCancelCause(context.Background())
	return c
}

// Queue returns the queue with the given name. The queue need not exist; its first message creates it. If
// the name is not allowed, every method of the Queue returns ErrInvalid. Calls with the same name return the
// same Queue while it is in use; after that its memory, a few hundred bytes, is freed.
func (c *Client) Queue(name string) *Queue {
	c.mu.RLock()
	q := c.queues[name].Value()
	c.mu.RUnlock()
	if q != nil {
		return q
	}
	if err := cmp.Or(store.CheckQueue(name), checkUse(name, reserved.Open)); err != nil {
		return &Queue{client: c, name: name, invalid: err}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if q := c.queues[name].Value(); q != nil {
		return q
	}
	if c.closed {
		return &Queue{client: c, name: name, invalid: errClientClosed}
	}
	q = newQueue(c, name)
	c.queues[name] = weak.Make(q)
	runtime.AddCleanup(q, c.forget, name)
	return q
}

// used returns the queues that are in use.
func (c *Client) used() (queues []*Queue) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, used := range c.queues {
		if q := used.Value(); q != nil {
			queues = append(queues, q)
		}
	}
	return queues
}

// forget is called when a Queue is no longer used.
func (c *Client) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.queues[name].Value() == nil {
		delete(c.queues, name)
	}
}

// Queues returns the names of all existing queues, sorted. A queue exists from its first message or pause
// until it is deleted. Later's internal queues are not among them.
func (c *Client) Queues(ctx context.Context) ([]string, error) {
	var all []string
	for cursor := ""; ; {
		names, next, err := c.queuesPage(ctx, cursor)
		if err != nil {
			return nil, err
		}
		all = append(all, names...)
		if cursor = next; cursor == "" {
			slices.Sort(all)
			return slices.DeleteFunc(slices.Compact(all), func(name string) bool { return !reserved.IsListed(name) }), nil
		}
	}
}

func (c *Client) queuesPage(ctx context.Context, cursor string) (names []string, next string, err error) {
	if err := c.begin(); err != nil {
		return nil, "", err
	}
	defer c.calls.Done()
	return c.store.Queues(ctx, cursor)
}

// Close shuts the client down and returns when all of its goroutines have ended.
//
// It ends every Receive with ErrClosed, drains the client's workers, and completes the sends and settles in
// flight. This may take as long as a worker's ShutdownTimeout. Durable sends wait for their confirmation
// for one more second and then return ErrNotDurable. The last report of the client's events may take 0.1
// seconds. Watches end with ErrClosed. Later calls return ErrClosed, including calls on a Delivery. Close
// closes the store if Open opened it.
//
// A handler should not call Close, which waits for it: the worker drains until its ShutdownTimeout has passed, leaves
// the handler running and releases its message, and then Close returns. End the context of Worker.Run instead, and
// close the client when Run has returned.
func (c *Client) Close() error {
	c.closeOnce.Do(func() {
		c.mu.Lock()
		c.closing = true
		c.mu.Unlock()
		c.end(errClientClosed)
		c.closeWatches()
		c.loops.Wait() // handlers may still send

		c.mu.Lock()
		c.closed = true // from here on no queue is added
		c.mu.Unlock()
		grace := time.AfterFunc(confirmGrace, func() { c.giveUp(errClientClosed) })
		for _, q := range c.used() {
			q.sends.Close()
			q.settles.Close()
		}
		c.calls.Wait()
		grace.Stop()
		c.giveUp(errClientClosed)
		c.reporter.Close()
		if c.owned {
			c.closeErr = c.store.Close()
		} else {
			shard.Stop(c.store)
		}
		c.reporter.Wait()
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

// inBackground has a goroutine call f once, unless the client is closed. The context ends with the time limit of a
// call, and when Close begins.
func (c *Client) inBackground(f func(ctx context.Context)) {
	if c.begin() != nil {
		return
	}
	go func() {
		defer c.calls.Done()
		ctx, cancel := context.WithTimeout(c.ending, callTimeout)
		defer cancel()
		f(ctx)
	}()
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

// Store returns the client's engine, for tools that work below the client, such as package migrate. The
// engine does not check its input: call the Check functions of package store first. Do not close the
// engine. Close closes it if Open opened it, and does not wait for calls made through Store.
func (c *Client) Store() store.Store { return c.store }

// Backup writes a consistent copy of the whole store to the new directory dir and verifies it.
//
// The copy is a store of its own that can be opened. It contains everything that was acknowledged before the call;
// other calls and workers continue. dir must be missing or empty, and outside the store's own directory. It appears
// only when the copy is complete, so there is none after an error.
//
// Only the embedded store supports Backup. Other stores return ErrUnsupported: use package migrate or the
// server's own backups. A copy on the same disk takes little time and space because it shares immutable
// files with the store; for the same reason it does not help when that disk fails.
func (c *Client) Backup(ctx context.Context, dir string) error {
	if err := c.begin(); err != nil {
		return err
	}
	defer c.calls.Done()
	b, ok := store.As[store.Backuper](c.store)
	if !ok {
		return fmt.Errorf("%w: only the embedded store can back itself up to a directory: write the messages to a file "+
			"with later export, or use the backups of the server", ErrUnsupported)
	}
	return b.Backup(ctx, dir)
}

// Ping returns nil if the store serves calls now: in a Cluster, all of its primaries do. Use it for a readiness probe.
// It does not retry, and returns when ctx ends, for example after a second; a server that hangs is noticed only then.
//
// Errors: ErrUnavailable, ErrMisconfigured, ErrUnauthenticated, ErrForbidden, ErrUnsupported, ErrClosed, the cause of
// ctx.
func (c *Client) Ping(ctx context.Context) error {
	if err := c.begin(); err != nil {
		return err
	}
	defer c.calls.Done()
	if p, ok := store.As[store.Pinger](c.store); ok {
		return p.Ping(ctx)
	}
	_, err := c.store.Stats(ctx, "ping")
	return err
}

// WaitForStore has Open wait for a store that does not answer yet, for example because it starts at the same time as
// the program, or because another process has the embedded store open. Open tries again until d has passed or its
// context ends, and then returns the last error. d is more than 0.
func WaitForStore(d time.Duration) Option { return waitForStore(d) }

type waitForStore time.Duration

func (w waitForStore) applyClient(o *options) error {
	if w <= 0 {
		return store.Invalid("WaitForStore is %v: give more than 0", time.Duration(w))
	}
	if o.wait > 0 {
		return twice("WaitForStore")
	}
	o.wait = time.Duration(w)
	return nil
}

const (
	minOpenPause = 50 * time.Millisecond
	maxOpenPause = time.Second
)

// openStore opens the store at url, and tries again if it is to wait for it.
func openStore(ctx context.Context, url string, o *options) (store.Store, error) {
	began, logged := time.Now(), false
	for pause := minOpenPause; ; pause = min(2*pause, maxOpenPause) {
		s, err := store.Open(ctx, url, store.OpenConfig{Logger: o.logger})
		if err == nil && logged {
			o.logger.Info("later: the store is open", "after", time.Since(began).Round(time.Millisecond))
		}
		left := o.wait - time.Since(began)
		if err == nil || !errors.Is(err, ErrUnavailable) || left <= 0 {
			return s, err
		}
		if !logged {
			logged = true
			o.logger.Warn("later: waiting for the store", "store", store.RedactURL(url), "limit", o.wait, "error", err)
		}
		select {
		case <-time.After(min(pause, left)):
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), err)
		}
	}
}
