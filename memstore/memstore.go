// Package memstore is Later's reference engine: a simple store in memory, with a clock that tests can move. Messages do
// not outlive the process. One lock guards all data, so every call is one atomic step. Start reading at Store for the
// calls and at queue for the transitions. Of Later, the package imports the store contract, rates, turns of keys,
// precise timers and the shared code for events.
package memstore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/laterq/later/internal/activity"
	"github.com/laterq/later/store"
)

func init() {
	store.Register("mem", open)
}

// Store is a store.Store in memory.
type Store struct {
	data    *data
	invalid error // see ConfigError
	closing sync.Once
	closed  chan struct{}
	release func() // drops one use of a shared name; nil for a private store
}

// data holds the queues of a store. Stores opened by the same name share it.
type data struct {
	clock Clock

	mu        sync.Mutex
	queues    map[string]*queue
	signs     map[string]string // by the name at which they stand
	notifiers map[string]*notifier

	hub activity.Hub
}

// Option configures a Store made by New.
type Option func(*data)

// WithClock makes the store use c. The default, also for nil, is the time package's clock.
func WithClock(c Clock) Option {
	return func(d *data) {
		if c != nil {
			d.clock = c
		}
	}
}

// New returns an empty store that shares its data with no other. A nil option is an
// ErrInvalid of later.New and ConfigError.
func New(opts ...Option) *Store {
	d := &data{clock: systemClock{}, queues: map[string]*queue{}, signs: map[string]string{},
		notifiers: map[string]*notifier{}}
	var invalid error
	for i, opt := range opts {
		if opt == nil {
			invalid = store.Invalid("option %d is nil: leave it out", i)
			continue
		}
		opt(d)
	}
	return &Store{data: d, invalid: invalid, closed: make(chan struct{})}
}

// ConfigError implements store.Configured.
func (s *Store) ConfigError() error { return s.invalid }

// shared holds the data of the stores opened by name, with the number of their users.
var shared = struct {
	sync.Mutex
	byName map[string]*sharedData
}{byName: map[string]*sharedData{}}

type sharedData struct {
	data  *data
	users int
}

// open opens mem://, a private store, or mem://name, the store that this process shares under that name. A shared
// store is freed when its last user closes it.
func open(_ context.Context, url string, _ store.OpenConfig) (store.Store, error) {
	name := strings.TrimPrefix(url, "mem://")
	if name, parameters, ok := strings.Cut(name, "?"); ok {
		return nil, store.Invalid("store URL mem://%s has the parameters %q: mem:// has none", name, parameters)
	}
	if strings.ContainsAny(name, "/#@:") {
		return nil, store.Invalid("store URL %s has more than a name: give mem:// or mem://NAME", store.RedactURL(url))
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

// Ping implements store.Pinger.
func (s *Store) Ping(ctx context.Context) error { return s.check(ctx) }

// Close ends every Wait with ErrClosed. If no other Store shares the data, its messages are lost.
func (s *Store) Close() error {
	s.closing.Do(func() {
		close(s.closed)
		if s.release != nil {
			s.release()
		}
	})
	return nil
}

// check returns an error if the store is closed or the context has ended.
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

// queue returns the queue of a name, or a new one that d does not hold yet.
func (d *data) queue(name string) *queue {
	if q := d.queues[name]; q != nil {
		return q
	}
	return newQueue()
}

// view runs a read-only step on a queue, under the lock.
func view[T any](ctx context.Context, s *Store, name string, step func(q *queue, now int64) T) (T, error) {
	var none T
	if err := s.check(ctx); err != nil {
		return none, err
	}
	s.data.mu.Lock()
	defer s.data.mu.Unlock()
	if err := s.data.moved(name); err != nil {
		return none, err
	}
	now := s.data.clock.Now()
	q := s.data.queue(name)
	q.tell(now)
	return step(q, now.UnixMilli()), nil
}

// update runs a step on a queue, under the lock. It then stores the queue if the step created it, and notifies its
// waiters if a claim has something to do earlier than before.
func update[T any](ctx context.Context, s *Store, name string, step func(q *queue, now int64) T) (T, error) {
	return view(ctx, s, name, func(q *queue, now int64) T {
		before := q.next()
		result := step(q, now)
		if q.exists {
			s.data.queues[name] = q
		}
		if s.data.wakes(name, q, before) {
			s.data.notify(name)
		}
		return result
	})
}

// update is update for a step that returns nothing but an error.
func (s *Store) update(ctx context.Context, name string, step func(q *queue, now int64) error) error {
	refused, err := update(ctx, s, name, step)
	return cmp.Or(err, refused)
}

// Send implements store.Store. It copies payloads and headers. Memory is not durable, so a Send that asks for
// durability returns ErrUnsupported.
func (s *Store) Send(ctx context.Context, name string, msgs []store.Outgoing) ([]store.SendResult, error) {
	return s.send(ctx, name, msgs, false)
}

func (s *Store) send(
	ctx context.Context, name string, msgs []store.Outgoing, ifKnown bool,
) ([]store.SendResult, error) {
	if len(msgs) > 0 && msgs[0].Durable.Asked() {
		return nil, fmt.Errorf("messages in memory are not durable: send without durability, "+
			"or use Redis or the embedded store: %w", store.ErrUnsupported)
	}
	var refused error
	sent, err := update(ctx, s, name, func(q *queue, now int64) []store.SendResult {
		for i := range msgs {
			if refused = store.CheckUrgency(name, &q.flow.Flow, &msgs[i]); refused != nil {
				return nil
			}
		}
		if ifKnown || len(msgs) > 0 && msgs[0].OneByOne() {
			return q.sendOneByOne(now, msgs, ifKnown)
		}
		if len(msgs) > 0 && !q.meets(msgs[0].If) {
			return each(msgs, func(store.Outgoing) store.SendResult { return store.SendResult{Err: store.ErrConflict} })
		}
		return q.send(now, msgs)
	})
	return sent, cmp.Or(err, refused)
}

// Claim implements store.Store.
func (s *Store) Claim(ctx context.Context, name string, req store.ClaimRequest) (store.Claim, error) {
	return update(ctx, s, name, func(q *queue, now int64) store.Claim { return q.claim(now, req, false) })
}

// Settle implements store.Store.
func (s *Store) Settle(ctx context.Context, name string, settlements []store.Settlement) ([]store.SettleResult, error) {
	var moved error
	results, err := update(ctx, s, name, func(q *queue, now int64) []store.SettleResult {
		for i := range settlements {
			for _, f := range settlements[i].Then {
				if moved = s.data.moved(f.Queue); moved != nil {
					return nil
				}
			}
		}
		return each(settlements, func(one store.Settlement) store.SettleResult {
			if err := one.CheckThen(s, name); err != nil {
				return store.SettleResult{Err: err}
			}
			if !q.meets(one.If) {
				return store.SettleResult{Err: store.ErrConflict}
			}
			result := q.settle(now, one)
			if result.Err == nil {
				s.data.followUp(q, name, now, one.Then)
			}
			return result
		})
	})
	return results, cmp.Or(err, moved)
}

// Linked implements store.Linker.
func (s *Store) Linked(string, string) bool { return true }

// followUp sends the follow-ups of an ack on a queue.
func (d *data) followUp(acked *queue, name string, now int64, then []store.FollowUp) {
	for i := range then {
		d.sendTo(then[i].Queue, acked, name, func(q *queue) { q.send(now, []store.Outgoing{then[i].Message}) })
	}
}

// sendTo sends to a queue in a step on the queue from, which has a name.
func (d *data) sendTo(to string, from *queue, name string, send func(q *queue)) {
	q := from
	if to != name {
		q = d.queue(to)
		q.delayStart, q.micros = from.delayStart, from.micros
	}
	send(q)
	if q.exists {
		d.queues[to] = q
	}
	d.notify(to)
}

// Extend implements store.Store.
func (s *Store) Extend(ctx context.Context, name string, extensions []store.Extension) ([]store.ExtendResult, error) {
	return update(ctx, s, name, func(q *queue, now int64) []store.ExtendResult {
		return each(extensions, func(one store.Extension) store.ExtendResult { return q.extend(now, one) })
	})
}

// Cancel implements store.Store.
func (s *Store) Cancel(ctx context.Context, name string, req store.CancelRequest) ([]store.CancelResult, error) {
	return update(ctx, s, name, func(q *queue, now int64) []store.CancelResult {
		return each(req.IDs, func(id string) store.CancelResult { return q.cancel(now, id, req.KeepIDs) })
	})
}

// Reschedule implements store.Store.
func (s *Store) Reschedule(ctx context.Context, name string, ids []string, due store.Due) ([]error, error) {
	return update(ctx, s, name, func(q *queue, now int64) []error {
		return each(ids, func(id string) error { return q.reschedule(now, id, due) })
	})
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, name string, ids []string) ([]*store.Info, error) {
	return view(ctx, s, name, func(q *queue, now int64) []*store.Info {
		return each(ids, func(id string) *store.Info { return q.get(now, id) })
	})
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, name string, req store.ListRequest) (store.Page, error) {
	if err := req.Check(); err != nil {
		return store.Page{}, err
	}
	after, err := parseCursor(req.Cursor)
	if err != nil {
		return store.Page{}, err
	}
	return view(ctx, s, name, func(q *queue, now int64) store.Page { return q.list(now, req, after) })
}

// Restore implements store.Store. It copies payloads, headers and raw bytes.
func (s *Store) Restore(ctx context.Context, name string, msgs []store.Info) ([]store.SendResult, error) {
	return update(ctx, s, name, func(q *queue, now int64) []store.SendResult { return q.restore(now, msgs) })
}

// Remove implements store.Store.
func (s *Store) Remove(ctx context.Context, name string, msgs []store.Info) ([]bool, error) {
	return update(ctx, s, name, func(q *queue, now int64) []bool {
		return each(msgs, func(was store.Info) bool { return q.removeUnchanged(now, &was) })
	})
}

// Replay implements store.Store.
func (s *Store) Replay(ctx context.Context, name string, sel store.Selection, due store.Due) (store.Bulk, error) {
	if err := sel.CheckReplay(); err != nil {
		return store.Bulk{}, err
	}
	return update(ctx, s, name, func(q *queue, now int64) store.Bulk { return q.replay(now, sel, due) })
}

// Purge implements store.Store.
func (s *Store) Purge(ctx context.Context, name string, sel store.Selection) (store.Bulk, error) {
	if err := sel.CheckPurge(); err != nil {
		return store.Bulk{}, err
	}
	return update(ctx, s, name, func(q *queue, now int64) store.Bulk { return q.purge(now, sel) })
}

// Stats implements store.Store.
func (s *Store) Stats(ctx context.Context, name string) (store.Stats, error) {
	return view(ctx, s, name, func(q *queue, now int64) store.Stats { return q.stats(now) })
}

// Histogram implements store.Store.
func (s *Store) Histogram(ctx context.Context, name string, bounds []time.Time) ([]int64, error) {
	return view(ctx, s, name, func(q *queue, _ int64) []int64 { return q.histogram(store.BoundMillis(bounds)) })
}

// SetPaused implements store.Store.
func (s *Store) SetPaused(ctx context.Context, name string, paused bool) error {
	return s.update(ctx, name, func(q *queue, _ int64) error {
		q.exists, q.paused = true, paused
		return nil
	})
}

// SetDeadRetention implements store.Store.
func (s *Store) SetDeadRetention(ctx context.Context, name string, r store.Retention, former *store.Retention) error {
	if err := r.Check(); err != nil {
		return err
	}
	return s.update(ctx, name, func(q *queue, _ int64) error {
		if former != nil && q.retention != *former {
			return store.ErrConflict
		}
		r.MaxAge = time.Duration(store.Millis(r.MaxAge)) * time.Millisecond
		q.exists, q.retention = true, r
		return nil
	})
}

// SetProperties implements store.Store.
func (s *Store) SetProperties(
	ctx context.Context, name string, set map[string]string, condition *store.Condition,
) error {
	if err := store.CheckProperties(set); err != nil {
		return err
	}
	return s.update(ctx, name, func(q *queue, _ int64) error { return q.setProperties(set, condition) })
}

// Properties implements store.Store.
func (s *Store) Properties(ctx context.Context, name string) (map[string]string, error) {
	return view(ctx, s, name, func(q *queue, _ int64) map[string]string { return maps.Clone(q.properties) })
}

// Queues implements store.Store.
func (s *Store) Queues(ctx context.Context, cursor string) (names []string, next string, err error) {
	if err := s.check(ctx); err != nil {
		return nil, "", err
	}
	s.data.mu.Lock()
	defer s.data.mu.Unlock()
	names = slices.AppendSeq(slices.Collect(maps.Keys(s.data.queues)), maps.Keys(s.data.signs))
	names = slices.DeleteFunc(names, func(name string) bool { return name <= cursor || store.IsSubQueue(name) })
	slices.Sort(names)
	if len(names) > store.MaxBatch {
		names = names[:store.MaxBatch]
		next = names[store.MaxBatch-1]
	}
	return names, next, nil
}

// Delete implements store.Store.
func (s *Store) Delete(ctx context.Context, name string) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	s.data.mu.Lock()
	defer s.data.mu.Unlock()
	if err := s.data.moved(name); err != nil {
		return err
	}
	delete(s.data.queues, name)
	s.data.notify(name)
	return nil
}

// each returns the results of f for all items, in order.
func each[In, Out any](items []In, f func(In) Out) []Out {
	out := make([]Out, len(items))
	for i, item := range items {
		out[i] = f(item)
	}
	return out
}
