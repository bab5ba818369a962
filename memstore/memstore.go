// Package memstore is Later's reference engine: a store in the process's own memory, plain and obviously
// right, with a clock that tests can move. Nothing of it outlives the process. One lock guards everything, so
// every call is one atomic step. It imports the store contract and an ordered tree, nothing else of Later.
package memstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/laterq/later/store"
)

func init() {
	store.Register("mem", open)
}

// Store is an engine in memory. It implements store.Store.
type Store struct {
	data    *data
	closing sync.Once
	closed  chan struct{}
	release func() // gives a shared name back; nil for a private store
}

// data is what several Stores opened by one name share.
type data struct {
	clock Clock

	mu     sync.Mutex
	queues map[string]*queue
	bells  map[string]*bell
}

// Option changes a Store that New makes.
type Option func(*data)

// WithClock makes the store live by c instead of the time package's clock.
func WithClock(c Clock) Option {
	return func(d *data) { d.clock = c }
}

// New makes an empty store that nobody else sees.
func New(opts ...Option) *Store {
	d := &data{clock: systemClock{}, queues: map[string]*queue{}, bells: map[string]*bell{}}
	for _, opt := range opts {
		opt(d)
	}
	return &Store{data: d, closed: make(chan struct{})}
}

// shared holds the stores opened by name, with the number of their users.
var shared = struct {
	sync.Mutex
	byName map[string]*sharedData
}{byName: map[string]*sharedData{}}

type sharedData struct {
	data  *data
	users int
}

// open serves mem://, a store of its own, and mem://name, the one store of that name in this process, which is
// freed when its last user closes it.
func open(_ context.Context, url string, _ store.OpenConfig) (store.Store, error) {
	name := strings.TrimPrefix(url, "mem://")
	if name, parameters, ok := strings.Cut(name, "?"); ok {
		return nil, store.Invalid("store URL mem://%s has the parameters %q: mem:// takes none", name, parameters)
	}
	if strings.ContainsAny(name, "/#@:") {
		return nil, store.Invalid("store URL %s is more than a name: give mem:// or mem://NAME", store.RedactURL(url))
	}
	s := New()
	if name == "" {
		return s, nil
	}
	shared.Lock()
	defer shared.Unlock()
	sh := shared.byName[name]
	if sh == nil {
		sh = &sharedData{data: s.data}
		shared.byName[name] = sh
	}
	sh.users++
	s.data = sh.data
	s.release = func() {
		shared.Lock()
		defer shared.Unlock()
		if sh.users--; sh.users == 0 {
			delete(shared.byName, name)
		}
	}
	return s, nil
}

// Close ends every Wait with ErrClosed. The messages of a store that nobody else has open are gone.
func (s *Store) Close() error {
	s.closing.Do(func() {
		close(s.closed)
		if s.release != nil {
			s.release()
		}
	})
	return nil
}

// check refuses a call on a closed store or under a context that has ended.
func (s *Store) check(ctx context.Context) error {
	select {
	case <-s.closed:
		return store.ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	default:
		return nil
	}
}

// now is the engine's clock in whole milliseconds.
func (d *data) now() int64 { return d.clock.Now().UnixMilli() }

// queue gives the queue of a name, or an empty one that nobody has yet.
func (d *data) queue(name string) *queue {
	if q := d.queues[name]; q != nil {
		return q
	}
	return newQueue()
}

// view runs one reading step on a queue.
func view[T any](ctx context.Context, s *Store, name string, step func(q *queue, now int64) T) (T, error) {
	if err := s.check(ctx); err != nil {
		var none T
		return none, err
	}
	s.data.mu.Lock()
	defer s.data.mu.Unlock()
	now := s.data.clock.Now()
	q := s.data.queue(name)
	q.soonest = store.UnixMillis(now)
	return step(q, now.UnixMilli()), nil
}

// update runs one changing step on a queue, keeps the queue if the step made it, and lets its waiters look again.
func update[T any](ctx context.Context, s *Store, name string, step func(q *queue, now int64) T) (T, error) {
	return view(ctx, s, name, func(q *queue, now int64) T {
		result := step(q, now)
		if q.exists {
			s.data.queues[name] = q
		}
		s.data.ring(name)
		return result
	})
}

// Send implements store.Store. Payloads and headers are copied. Memory is not durable, so a Send that asks for it
// is ErrUnsupported.
func (s *Store) Send(ctx context.Context, queueName string, msgs []store.Outgoing) ([]store.SendResult, error) {
	if len(msgs) > 0 && msgs[0].Durable.Asked() {
		return nil, fmt.Errorf("messages in memory are not durable: send without durability, or use Redis or the embedded store: %w",
			store.ErrUnsupported)
	}
	return update(ctx, s, queueName, func(q *queue, now int64) []store.SendResult {
		return q.send(now, msgs)
	})
}

// Claim implements store.Store.
func (s *Store) Claim(ctx context.Context, queueName string, req store.ClaimRequest) (store.Claim, error) {
	return update(ctx, s, queueName, func(q *queue, now int64) store.Claim {
		c := q.claim(now, req)
		c.Now = s.data.clock.Now() // finer than it counts, for who measures lateness
		return c
	})
}

// Settle implements store.Store.
func (s *Store) Settle(ctx context.Context, queueName string, settlements []store.Settlement) ([]store.SettleResult, error) {
	return update(ctx, s, queueName, func(q *queue, now int64) []store.SettleResult {
		return each(settlements, func(one store.Settlement) store.SettleResult { return q.settle(now, one) })
	})
}

// Extend implements store.Store.
func (s *Store) Extend(ctx context.Context, queueName string, extensions []store.Extension) ([]store.ExtendResult, error) {
	return update(ctx, s, queueName, func(q *queue, now int64) []store.ExtendResult {
		return each(extensions, func(one store.Extension) store.ExtendResult { return q.extend(now, one) })
	})
}

// Cancel implements store.Store.
func (s *Store) Cancel(ctx context.Context, queueName string, ids []string) ([]store.CancelResult, error) {
	return update(ctx, s, queueName, func(q *queue, now int64) []store.CancelResult {
		return each(ids, func(id string) store.CancelResult { return q.cancel(now, id) })
	})
}

// Reschedule implements store.Store.
func (s *Store) Reschedule(ctx context.Context, queueName string, ids []string, due store.Due) ([]error, error) {
	return update(ctx, s, queueName, func(q *queue, now int64) []error {
		return each(ids, func(id string) error { return q.reschedule(now, id, due) })
	})
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, queueName string, ids []string) ([]*store.Info, error) {
	return view(ctx, s, queueName, func(q *queue, now int64) []*store.Info {
		return each(ids, func(id string) *store.Info { return q.get(now, id) })
	})
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, queueName string, req store.ListRequest) (store.Page, error) {
	after, err := parseCursor(req.Cursor)
	if err != nil {
		return store.Page{}, err
	}
	switch req.State {
	case store.StateScheduled, store.StateReady, store.StateLeased, store.StateDead:
	default:
		return store.Page{}, store.Invalid("state is %q: list scheduled, ready, leased or dead", req.State)
	}
	return view(ctx, s, queueName, func(q *queue, now int64) store.Page {
		return q.list(now, req, after)
	})
}

// Restore implements store.Store. Payloads, headers and raw bytes are copied.
func (s *Store) Restore(ctx context.Context, queueName string, msgs []store.Info) ([]store.SendResult, error) {
	return update(ctx, s, queueName, func(q *queue, now int64) []store.SendResult { return q.restore(now, msgs) })
}

// Remove implements store.Store.
func (s *Store) Remove(ctx context.Context, queueName string, msgs []store.Info) ([]bool, error) {
	return update(ctx, s, queueName, func(q *queue, now int64) []bool {
		return each(msgs, func(as store.Info) bool { return q.removeAs(now, &as) })
	})
}

// Replay implements store.Store.
func (s *Store) Replay(ctx context.Context, queueName string, sel store.Selection, due store.Due) (store.Bulk, error) {
	if len(sel.IDs) == 0 && sel.State != store.StateDead {
		return store.Bulk{}, store.Invalid("state is %q: only dead messages are replayed", sel.State)
	}
	return update(ctx, s, queueName, func(q *queue, now int64) store.Bulk {
		return q.replay(now, sel, due)
	})
}

// Purge implements store.Store.
func (s *Store) Purge(ctx context.Context, queueName string, sel store.Selection) (store.Bulk, error) {
	if sel.State == store.StateLeased {
		return store.Bulk{}, store.Invalid("state is leased: purge scheduled, ready, dead or all messages")
	}
	return update(ctx, s, queueName, func(q *queue, now int64) store.Bulk {
		return q.purge(now, sel)
	})
}

// Stats implements store.Store.
func (s *Store) Stats(ctx context.Context, queueName string) (store.Stats, error) {
	return view(ctx, s, queueName, func(q *queue, now int64) store.Stats { return q.stats(now) })
}

// Histogram implements store.Store.
func (s *Store) Histogram(ctx context.Context, queueName string, from, to time.Time, buckets int) ([]int64, error) {
	return view(ctx, s, queueName, func(q *queue, _ int64) []int64 {
		return q.histogram(store.HistogramBounds(from, to, buckets))
	})
}

// SetPaused implements store.Store.
func (s *Store) SetPaused(ctx context.Context, queueName string, paused bool) error {
	_, err := update(ctx, s, queueName, func(q *queue, _ int64) struct{} {
		q.exists, q.paused = true, paused
		return struct{}{}
	})
	return err
}

// Queues implements store.Store.
func (s *Store) Queues(ctx context.Context, cursor string) (names []string, next string, err error) {
	if err := s.check(ctx); err != nil {
		return nil, "", err
	}
	s.data.mu.Lock()
	defer s.data.mu.Unlock()
	for name := range s.data.queues {
		if name > cursor {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if len(names) > store.MaxBatch {
		names = names[:store.MaxBatch]
		next = names[store.MaxBatch-1]
	}
	return names, next, nil
}

// Delete implements store.Store.
func (s *Store) Delete(ctx context.Context, queueName string) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	s.data.mu.Lock()
	defer s.data.mu.Unlock()
	delete(s.data.queues, queueName)
	s.data.ring(queueName)
	return nil
}

// each gives what f makes of every item.
func each[In, Out any](items []In, f func(In) Out) []Out {
	out := make([]Out, len(items))
	for i, item := range items {
		out[i] = f(item)
	}
	return out
}
