package diskstore

import (
	"context"
	"fmt"
	"sync"
)

// request is one call that the writer executes. Its caller may stop waiting: before execution that has no effect on the
// store; during execution the caller stays, because its arguments are still read; after it the outcome is unknown until
// the fsync.
type request struct {
	queue  string // "" for the store itself
	urgent bool
	large  bool // it writes more than largeRequest bytes
	run    func(*tx)
	done   chan struct{} // gets a token when all that the call did and saw is durable

	mu    sync.Mutex
	stage stage
	ended chan struct{} // made by a caller that wants to stop waiting during execution
}

type stage uint8

const (
	waiting stage = iota
	running
	executed
	abandoned
)

// requests are reused, since a channel for each call is a noticeable part of its cost.
var requests = sync.Pool{New: func() any { return &request{done: make(chan struct{}, 1)} }}

// execute is the writer's part.
func (r *request) execute(t *tx) {
	r.mu.Lock()
	begin := r.stage == waiting
	if begin {
		r.stage = running
	}
	r.mu.Unlock()
	if !begin {
		return
	}
	r.run(t)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stage = executed
	if r.ended != nil {
		close(r.ended)
	}
}

// abandon is for a caller that stops waiting. It reports whether the call will never be executed.
func (r *request) abandon(stuck <-chan struct{}) (unseen bool) {
	r.mu.Lock()
	if r.stage == waiting {
		r.stage = abandoned
	}
	unseen = r.stage == abandoned
	var ended chan struct{}
	if r.stage == running {
		ended = make(chan struct{})
		r.ended = ended
	}
	r.mu.Unlock()
	if ended != nil {
		select {
		case <-ended:
		case <-stuck: // the writer may never return; it applies nothing from here on
		}
	}
	return unseen
}

// How a request is scheduled; see backlog.
const (
	urgent  = true
	inOrder = false
)

// do has the writer execute a call on a queue, "" for the store, and returns when all that the call did and saw is
// durable. When ctx ends first it returns its cause, and says so if the call may have taken effect.
func (s *Store) do(ctx context.Context, queue string, urgent bool, run func(*tx)) error {
	return s.doSized(ctx, queue, urgent, 0, run)
}

// largeRequest is how many bytes a request writes at most that comes before large ones.
const largeRequest = 64 << 10

// doSized is do for a call that writes about size bytes.
func (s *Store) doSized(ctx context.Context, queue string, urgent bool, size int, run func(*tx)) error {
	r := requests.Get().(*request)
	r.queue, r.urgent, r.large, r.run = queue, urgent, size > largeRequest, run
	return s.submit(ctx, r)
}

func (s *Store) submit(ctx context.Context, r *request) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.calls.Done()
	s.backlog.add(r)
	select {
	case <-r.done:
		r.run, r.stage = nil, waiting
		requests.Put(r)
		return nil
	case <-s.failed:
		r.abandon(s.stuck)
		return s.failure
	case <-ctx.Done():
	}
	if r.abandon(s.stuck) {
		return context.Cause(ctx)
	}
	select {
	case <-r.done: // just in time
		return nil
	default:
		return fmt.Errorf("outcome unknown, the store is executing the call: %w", context.Cause(ctx))
	}
}

// post has the writer execute something without waiting for it. The caller is within a call, or left behind by one when
// Pebble gave up; then the writer may have ended.
func (s *Store) post(queue string, run func(*tx)) {
	if s.hasFailed() {
		return
	}
	s.backlog.add(&request{queue: queue, urgent: true, run: run, done: make(chan struct{}, 1)})
}
