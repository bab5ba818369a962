package later

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))

// inBubble runs a test on fake time, which advances only when all goroutines wait.
func inBubble(t *testing.T, f func(t *testing.T, c *Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(t, newClientOn(t, memstore.New()))
	})
}

// newClientOn returns a client that is closed when the test ends.
func newClientOn(t *testing.T, s store.Store, opts ...Option) *Client {
	t.Helper()
	c := mustNew(t, s, append([]Option{quiet}, opts...)...)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return c
}

// mustNew returns a client that the test closes.
func mustNew(t testing.TB, s store.Store, opts ...Option) *Client {
	t.Helper()
	c, err := New(s, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// start runs a worker. stop ends it and returns the result of Run; the end of the test also stops it.
func start(t *testing.T, w *Worker) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- w.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-result
	})
	t.Cleanup(func() { stop() })
	return stop
}

// faulty is a store with calls that can fail, before or after they take effect.
type faulty struct {
	store.Store
	mu     sync.Mutex
	before func(ctx context.Context, call string) error
	after  func(ctx context.Context, call string) error
}

func (f *faulty) set(before, after func(ctx context.Context, call string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before, f.after = before, after
}

// do makes one call with its injected faults.
func do[R any](f *faulty, ctx context.Context, call string, do func() (R, error)) (R, error) {
	f.mu.Lock()
	before, after := f.before, f.after
	f.mu.Unlock()
	var none R
	if before != nil {
		if err := before(ctx, call); err != nil {
			return none, err
		}
	}
	result, err := do()
	if err == nil && after != nil {
		if err := after(ctx, call); err != nil {
			return none, err
		}
	}
	return result, err
}

// callOn returns the name of a call on a queue. Calls on the queues of workers have names of their own, such as "claim
// of workers".
func callOn(queue, call string) string {
	if reserved.IsWorker(queue) {
		return call + " of workers"
	}
	return call
}

func (f *faulty) SetProperties(
	ctx context.Context, queue string, set map[string]string, condition *store.Condition,
) error {
	_, err := do(f, ctx, callOn(queue, "set properties"), func() (struct{}, error) {
		return struct{}{}, f.Store.SetProperties(ctx, queue, set, condition)
	})
	return err
}

func (f *faulty) Send(ctx context.Context, queue string, msgs []store.Outgoing) ([]store.SendResult, error) {
	return do(f, ctx, callOn(queue, "send"), func() ([]store.SendResult, error) { return f.Store.Send(ctx, queue, msgs) })
}

func (f *faulty) Claim(ctx context.Context, queue string, req store.ClaimRequest) (store.Claim, error) {
	return do(f, ctx, callOn(queue, "claim"), func() (store.Claim, error) { return f.Store.Claim(ctx, queue, req) })
}

func (f *faulty) Settle(ctx context.Context, queue string, s []store.Settlement) ([]store.SettleResult, error) {
	return do(f, ctx, callOn(queue, "settle"), func() ([]store.SettleResult, error) {
		return f.Store.Settle(ctx, queue, s)
	})
}

func (f *faulty) Extend(ctx context.Context, queue string, e []store.Extension) ([]store.ExtendResult, error) {
	name := "look" // for cancelled messages
	if slices.ContainsFunc(e, func(one store.Extension) bool { return one.For > 0 }) {
		name = "extend"
	}
	return do(f, ctx, callOn(queue, name), func() ([]store.ExtendResult, error) {
		return f.Store.Extend(ctx, queue, e)
	})
}

func (f *faulty) Wait(ctx context.Context, queue string) error {
	_, err := do(f, ctx, callOn(queue, "wait"), func() (struct{}, error) { return struct{}{}, f.Store.Wait(ctx, queue) })
	return err
}

// unavailable makes the named calls, or all calls when none is named, fail as if the store could not be
// reached.
func unavailable(calls ...string) func(context.Context, string) error {
	return func(_ context.Context, call string) error {
		if len(calls) == 0 {
			return store.ErrUnavailable
		}
		for _, c := range calls {
			if c == call {
				return store.ErrUnavailable
			}
		}
		return nil
	}
}

func mustSend(t *testing.T, q *Queue, payload string, opts ...SendOption) string {
	t.Helper()
	id, err := q.Send(t.Context(), []byte(payload), opts...)
	if err != nil {
		t.Fatalf("Send: %v", err)
	}
	return id
}

func mustReceive(t *testing.T, q *Queue, n int, opts ...ReceiveOption) []*Delivery {
	t.Helper()
	got, err := q.Receive(t.Context(), n, opts...)
	if err != nil {
		t.Fatalf("Receive: %v", err)
	}
	return got
}

func mustStats(t *testing.T, q *Queue) Stats {
	t.Helper()
	s, err := q.Stats(t.Context())
	if err != nil {
		t.Fatalf("Stats: %v", err)
	}
	return s
}

// wantCounts checks the number of messages in each state.
func wantCounts(t *testing.T, q *Queue, scheduled, ready, leased, dead int64) {
	t.Helper()
	s := mustStats(t, q)
	if s.Scheduled != scheduled || s.Ready != ready || s.Leased != leased || s.Dead != dead {
		t.Errorf("queue has scheduled %d, ready %d, leased %d, dead %d; want %d, %d, %d, %d",
			s.Scheduled, s.Ready, s.Leased, s.Dead, scheduled, ready, leased, dead)
	}
}

func wantError(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error is %v; want %v", err, want)
	}
}

// events records the events of an observer.
type events struct {
	mu  sync.Mutex
	all []Event
}

func (e *events) add(ev Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, ev)
}

// of returns the events of one kind.
func (e *events) of(kind EventKind) (found []Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ev := range e.all {
		if ev.Kind == kind {
			found = append(found, ev)
		}
	}
	return found
}

// kinds returns the kinds of all events of a message, in order.
func (e *events) kinds(id string) (kinds []EventKind) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ev := range e.all {
		if ev.ID == id {
			kinds = append(kinds, ev.Kind)
		}
	}
	return kinds
}

// log is a list that can be appended to concurrently.
type log[T any] struct {
	mu  sync.Mutex
	all []T
}

func (l *log[T]) add(v T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, v)
}

func (l *log[T]) list() []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]T(nil), l.all...)
}

// sleep lets a handler work for d, in fake time, until its context ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// lockedBuffer is a buffer that a logger can write to.
type lockedBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func (b *lockedBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }
