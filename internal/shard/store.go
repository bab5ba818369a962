package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/laterq/later/store"
)

// Engine is a store that can give queues shards.
type Engine interface {
	store.Store
	store.SubQueues
	store.Linker
}

// Store is a store.Store over an engine, whose queues have shards. A call on a queue with a single shard goes to the
// engine as it is.
type Store struct {
	engine   Engine
	log      *slog.Logger
	name     string        // of this process among movers
	late     time.Duration // see lateCalls
	turn     time.Duration // see moverTime
	anyID    bool          // see AnyID
	window   int           // see windowMessages
	ahead    time.Duration // see windowAhead
	patience time.Duration // see usualPatience

	routes    sync.Map // queue → *route, of queues with shards
	consumers sync.Map // queue → *consumer, of the same

	ending   context.Context
	end      context.CancelFunc
	mu       sync.Mutex
	ended    bool
	stepwise bool               // see Stepwise
	movers   map[string]bool    // queues whose messages this process moves
	windows  map[string]windows // of the queues with later messages that it moves
	loops    sync.WaitGroup
}

var (
	_ store.Store   = (*Store)(nil)
	_ store.Sharder = (*Store)(nil)
)

// The types of a Store over engines that can do more.
type (
	forwarder struct{ *Store }    // a store.Forwarder
	local     struct{ forwarder } // and a store.Local
	prompt    struct{ forwarder } // and a store.PromptSender
)

// New returns a store over a store whose queues can have shards, and any other store as it is. Close closes the engine.
func New(s store.Store, log *slog.Logger) store.Store {
	engine, ok := s.(Engine)
	if _, sharded := s.(store.Sharder); !ok || sharded {
		return s
	}
	over := &Store{engine: engine, log: log, name: store.NewID(), late: lateCalls, turn: moverTime,
		window: windowMessages, ahead: windowAhead, patience: usualPatience, movers: map[string]bool{},
		windows: map[string]windows{}}
	over.ending, over.end = context.WithCancel(context.Background())
	if _, ok := s.(store.Forwarder); !ok {
		return over
	}
	forwards := forwarder{over}
	if _, ok := s.(store.Local); ok {
		return local{forwards}
	}
	if _, ok := s.(store.PromptSender); ok {
		return prompt{forwards}
	}
	return forwards
}

// Unwrap returns the engine.
func (s *Store) Unwrap() store.Store { return s.engine }

// Close ends the moves of this process, and closes the engine.
func (s *Store) Close() error {
	s.Stop()
	return s.engine.Close()
}

// Stop ends the moves of this process. Another process goes on with them.
func Stop(s store.Store) {
	if s, ok := s.(interface{ Stop() }); ok {
		s.Stop()
	}
}

// Stop is the function of this name.
func (s *Store) Stop() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.end()
	s.loops.Wait()
}

// maxTries is how often a call is made while the shards of its queue change.
const maxTries = 100

// with calls f with the route of a queue, nil if it has a single shard, and again whenever f returns that it has
// others. What f has done before is done.
func (s *Store) with(ctx context.Context, queue string, f func(r *route) error) error {
	r := s.known(queue)
	for try := 1; ; try++ {
		var err error
		if r, err = s.usable(ctx, queue, r); err != nil {
			return err
		}
		err = f(r)
		moved, ok := errors.AsType[*store.Moved](err)
		if of, _, _, _ := cut(moved); !ok || of != queue {
			return err
		}
		if try == maxTries {
			return fmt.Errorf("shards of queue %q changed %d times during a call: %w", queue, try, err)
		}
		if try > 2 {
			if err := pause(ctx, time.Duration(try)*time.Millisecond); err != nil {
				return err
			}
		}
		if r, err = s.learn(ctx, queue, r, moved); err != nil {
			return err
		}
	}
}

func cut(moved *store.Moved) (queue, generation, salt string, ok bool) {
	if moved == nil {
		return "", "", "", false
	}
	return store.CutSubQueue(moved.Name)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// known returns the route that this process remembers.
func (s *Store) known(queue string) *route {
	if r, ok := s.routes.Load(queue); ok {
		return r.(*route)
	}
	return nil
}

// usable returns a route that calls can take: it reads an old one again, and makes the steps of a change that come
// before other calls.
func (s *Store) usable(ctx context.Context, queue string, r *route) (_ *route, err error) {
	if r != nil && !time.Now().Before(r.until) {
		if r, err = s.readAgain(ctx, r); err != nil {
			return nil, err
		}
	}
	for try := 1; r != nil && (r.Phase == preparing || r.Phase == deleting || r.SetsFlow || r.single()); try++ {
		switch {
		case r.Phase == preparing:
			err = s.prepare(ctx, r)
		case r.Phase == deleting:
			err = s.finishDelete(ctx, r)
		case !r.SetsFlow:
			err = s.takeNameBack(ctx, r)
		default:
			err = s.setShares(ctx, r)
			if errors.Is(err, store.ErrUnavailable) && !isMoved(err) && ctx.Err() == nil {
				s.log.Warn("later: limits are not in force yet in a shard that does not answer", "queue", queue, "error", err)
				return s.inUse(s.keep(r)), nil
			}
		}
		moved, ok := errors.AsType[*store.Moved](err)
		switch {
		case ok && try < maxTries: // other processes have made this step and later ones
			r, err = s.learn(ctx, queue, r, moved)
		case err == nil:
			r, err = s.read(ctx, queue)
		}
		if err != nil {
			return nil, err
		}
	}
	return s.inUse(r), nil
}

// inUse returns a route that calls take, and has this process move messages if some have to.
func (s *Store) inUse(r *route) *route {
	if r != nil && r.Phase == moving {
		s.moveSoon(r)
	}
	return r
}

// readAgain reads the directory of an old route. While its server is down the route stays in use, so that the other
// shards go on: calls for sub-queues that have another name now are refused.
func (s *Store) readAgain(ctx context.Context, old *route) (*route, error) {
	r, err := s.read(ctx, old.queue)
	if !errors.Is(err, store.ErrUnavailable) || ctx.Err() != nil {
		return r, err
	}
	return s.keep(old), nil
}

// keep returns a route for use for some more time.
func (s *Store) keep(old *route) *route {
	same := *old
	same.until = time.Now().Add(movingAge)
	s.routes.CompareAndSwap(old.queue, old, &same)
	return &same
}

// learn returns the route of a queue after a call found that another one is wrong.
func (s *Store) learn(ctx context.Context, queue string, wrong *route, moved *store.Moved) (*route, error) {
	if moved.Name == queue && moved.Sign != "" {
		return s.remember(queue, moved.Sign)
	}
	r, err := s.read(ctx, queue)
	if err == nil && r != nil && r.ends(moved) {
		if err := s.finish(ctx, r); err != nil && !errors.Is(err, store.ErrConflict) {
			return nil, err
		}
		return s.read(ctx, queue)
	}
	if err != nil || r == nil || wrong == nil || r.text != wrong.text || moved.Sign != "" || r.Phase == preparing {
		return r, err
	}
	return r, s.createAgain(ctx, r, moved.Name)
}

// createAgain creates a sub-queue that the directory names and that does not exist: its server has lost all data.
func (s *Store) createAgain(ctx context.Context, r *route, name string) error {
	s.log.Warn("later: a shard was lost with all its messages; it is created again", "queue", r.queue, "shard", name)
	shard := slices.Index(r.names, name)
	settings := store.Settings{Flow: share(r.limits(), max(0, shard), len(r.names))}
	if name != r.first() {
		stats, err := s.engine.Stats(ctx, r.first())
		if err != nil {
			return err
		}
		settings.Paused, settings.DeadRetention = stats.Paused, stats.DeadRetention
	}
	return s.engine.Create(ctx, name, settings)
}

// read reads the directory of a queue.
func (s *Store) read(ctx context.Context, queue string) (*route, error) {
	sign, err := s.engine.Sign(ctx, queue)
	if err != nil {
		return nil, err
	}
	return s.remember(queue, sign)
}

// remember returns the route in a directory, nil if there is none.
func (s *Store) remember(queue, sign string) (*route, error) {
	if sign == "" {
		s.routes.Delete(queue)
		s.consumers.Delete(queue)
		return nil, nil
	}
	r, err := newRoute(queue, sign)
	if err == nil {
		s.routes.Store(queue, r)
	}
	return r, err
}

// on returns the result of a call on a queue: of plain if the queue has a single shard, and else of sharded.
func on[T any](
	ctx context.Context, s *Store, queue string, plain func() (T, error), sharded func(r *route) (T, error),
) (result T, err error) {
	err = s.with(ctx, queue, func(r *route) error {
		if r == nil {
			result, err = plain()
		} else {
			result, err = sharded(r)
		}
		return err
	})
	return result, err
}

// one makes a call on the first sub-queue, or on the queue itself.
func one[T any](ctx context.Context, s *Store, queue string, call func(name string) (T, error)) (T, error) {
	return on(ctx, s, queue, func() (T, error) { return call(queue) },
		func(r *route) (T, error) { return call(r.first()) })
}

// all makes a call on every sub-queue, and hands over their results in order: first the shards from which messages
// leave, so that no message is missed. A message that moves at that moment may be found twice.
func all[T any](ctx context.Context, s *Store, r *route, call func(i int, name string) (T, error)) ([]T, error) {
	results := make([]T, len(r.names))
	errs := make([]error, len(r.names))
	run := func(shards []int) error {
		inParallel(len(shards), func(k int) {
			i := shards[k]
			results[i], errs[i] = call(i, r.names[i])
		})
		return errors.Join(errs...)
	}
	sources, others := r.sources()
	if err := run(sources); err != nil {
		return nil, err
	}
	if len(others) < len(r.names) {
		if err := s.deliverAll(ctx, r, sources); err != nil {
			return nil, err
		}
	}
	if err := run(others); err != nil {
		return nil, err
	}
	return results, nil
}

// inParallel calls f n times, and returns when all calls have.
func inParallel(n int, f func(i int)) {
	if n == 1 {
		f(0)
		return
	}
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { f(i) })
	}
	group.Wait()
}

// loop runs f on a goroutine that Close waits for, and returns true, unless the store has ended. f ends with s.ending.
func (s *Store) loop(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.loops.Go(f)
	return true
}
