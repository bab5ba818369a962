package remote

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laterq/later/internal/codec"
	"github.com/laterq/later/store"
)

const (
	minPause       = 5 * time.Millisecond
	maxPause       = 500 * time.Millisecond
	logOutageAfter = time.Second // an outage is logged once, after this time
)

// Router decides where the calls of a Client go.
type Router interface {
	// Target returns where calls go now. lost is the Target that a call has just lost its connection to, or nil.
	Target(ctx context.Context, lost *Target) (*Target, error)
	// Close frees the resources of the Router.
	Close() error
}

// Client is a store.Store that executes calls elsewhere, or in this process while its Router says so. It has the
// optional interfaces of all engines, and returns ErrUnsupported for interfaces that the engine does not have.
type Client struct {
	router   Router
	log      *slog.Logger
	retryFor time.Duration

	sessions sessions
	waits    atomic.Uint64 // numbers calls of Wait
	closing  context.Context
	shutdown context.CancelCauseFunc

	mu     sync.Mutex
	closed bool
	loops  sync.WaitGroup // goroutines of watchers, and calls under way
	outage bool           // logged, and not over

	answers answers
}

// NewClient returns a client that closes its Router. A call is repeated for retryFor while nothing answers.
func NewClient(r Router, log *slog.Logger, retryFor time.Duration) *Client {
	c := &Client{router: r, log: log, retryFor: retryFor, sessions: sessions{name: rand.Text()}}
	c.closing, c.shutdown = context.WithCancelCause(context.Background())
	return c
}

// Close implements store.Store.
func (c *Client) Close() error {
	c.mu.Lock()
	closed := c.closed
	c.closed = true
	c.mu.Unlock()
	c.shutdown(store.ErrClosed)
	var err error
	if !closed {
		err = c.router.Close()
	}
	c.loops.Wait()
	return err
}

// begin begins a call or a goroutine; c.loops.Done ends it.
func (c *Client) begin(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return store.ErrClosed
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	c.loops.Add(1)
	return nil
}

// lostError is the cause that a call has no reply. A repetition of the call may have one.
type lostError struct {
	cause  error
	unsent bool // the server has certainly not executed the call
	// silence is how long the call has waited without a sign of life before.
	silence time.Duration
}

func (e *lostError) Error() string { return fmt.Sprintf("%v: %v", store.ErrUnavailable, e.cause) }
func (e *lostError) Unwrap() []error {
	return []error{store.ErrUnavailable, e.cause}
}

// invoke makes a call.
func invoke[A, R any](ctx context.Context, c *Client, op *operation[A, R], args *A) (R, error) {
	var none R
	if err := c.begin(ctx); err != nil {
		return none, err
	}
	defer c.loops.Done()
	target, err := c.router.Target(ctx, nil)
	if err == nil && target.Local != nil {
		return op.run(ctx, target.Local, args)
	}
	if err != nil {
		return none, c.explain(ctx, err)
	}
	req := request[A]{Patient: store.IsPatient(ctx), Args: *args}
	var id store.Request
	if op.kind == changes {
		id = c.sessions.acquire()
		defer c.sessions.release(id)
		req.Session, req.Number = id.Session, id.Number
	}
	if deadline, ok := ctx.Deadline(); ok {
		req.Timeout = max(time.Until(deadline), 1)
	}
	var empty R
	if op.reuse != nil {
		empty = op.reuse(&req.Args)
	}
	body := bodies.Get().(*[]byte)
	defer bodies.Put(body)
	*body = codec.Append((*body)[:0], &req)
	takes := time.Duration(0)
	if op.takes != nil {
		takes = op.takes(args)
	}
	attempts := 0
	return retry(ctx, c, target, op.kind != once, func(ctx context.Context, target *Target) (R, error) {
		if target.Local != nil {
			if op.kind == changes {
				ctx = store.WithRequest(ctx, id) // its previous holder may have executed the call
			}
			return op.run(ctx, target.Local, args)
		}
		if attempts++; attempts == 2 && op.repeated != nil {
			op.repeated(&req.Args)
			*body = codec.Append((*body)[:0], &req)
		}
		answer := reply[R]{Result: empty}
		err := exchange(ctx, target, op.name, op.kind, *body, takes, &answer)
		if err == nil && errors.Is(answer.Err, store.ErrClosed) {
			err = &lostError{cause: answer.Err} // closed there, or stopped, and not here
		}
		if err != nil {
			return none, err
		}
		return answer.Result, answer.Err
	})
}

// invokeOnly makes a call that returns only an error.
func invokeOnly[A any](ctx context.Context, c *Client, op *operation[A, none], args *A) error {
	_, err := invoke(ctx, c, op, args)
	return err
}

// retry makes attempts until one is answered. After a lost attempt, the Router chooses the target of the next one.
func retry[R any](ctx context.Context, c *Client, target *Target, repeats bool,
	attempt func(ctx context.Context, target *Target) (R, error)) (R, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.closing, func() { cancel(store.ErrClosed) })()
	var none R
	var began time.Time
	var silent error // of the last attempt without a sign of life
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		result, err := attempt(ctx, target)
		lost, again := errors.AsType[*lostError](err)
		if !again {
			c.noteOutage(began, nil)
			return result, err
		}
		now := time.Now()
		if began.IsZero() {
			began = now.Add(-lost.silence)
		}
		if ctx.Err() != nil && silent != nil {
			return none, c.explain(ctx, silent) // it says more than the error of the last attempt, which ctx ended
		}
		if ctx.Err() != nil || !repeats && !lost.unsent || now.Sub(began) > min(c.retryFor, maxRetry) {
			return none, c.explain(ctx, err)
		}
		if lost.silence > 0 {
			silent = err
		}
		c.noteOutage(began, err)
		before := target
		if target, err = c.router.Target(ctx, before); err != nil {
			return none, c.explain(ctx, err)
		}
		if target != before {
			continue
		}
		timer := time.NewTimer(pause/2 + mathrand.N(pause))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return none, c.explain(ctx, lost)
		}
	}
}

// explain returns the error of a call that was not answered: why its context ended, if it has.
func (c *Client) explain(ctx context.Context, err error) error {
	switch {
	case c.closing.Err() != nil:
		return store.ErrClosed
	case ctx.Err() == nil:
		return err
	}
	return fmt.Errorf("%w: %w", context.Cause(ctx), err)
}

// noteOutage logs an outage that began a while ago, once, and its end when err is nil.
func (c *Client) noteOutage(began time.Time, err error) {
	if began.IsZero() || time.Since(began) < logOutageAfter && err != nil {
		return
	}
	c.mu.Lock()
	changed := c.outage != (err != nil)
	c.outage = err != nil
	c.mu.Unlock()
	switch {
	case changed && err != nil:
		c.log.Warn("later: the store does not answer, retrying", "error", err)
	case changed:
		c.log.Info("later: the store answers again")
	}
}

// encode returns the body of a call that is not repeated.
func encode[A any](args *A) []byte { return codec.Append(nil, &request[A]{Args: *args}) }

// sessions are the sessions of a client that are not in use. A client has as many as it ever had calls in progress at
// once.
type sessions struct {
	mu    sync.Mutex
	name  string
	count int
	free  []store.Request // the last of each session
}

// acquire returns the next request of a session that is not in use.
func (s *sessions) acquire() store.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free); n > 0 {
		r := s.free[n-1]
		s.free = s.free[:n-1]
		r.Number++
		return r
	}
	s.count++
	return store.Request{Session: s.name + ":" + strconv.Itoa(s.count), Number: 1}
}

func (s *sessions) release(r store.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, r)
}
