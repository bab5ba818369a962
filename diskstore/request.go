package diskstore

import (
	"context"
	"fmt"
	"slices"
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

// backlog is the requests that wait for the writer. Urgent requests come first: they are short, and a lease or a due
// time may depend on them. Small ones follow, and then large ones, from one queue after the other each, so that a flood
// to one queue does not delay others, and large messages do not delay small ones. At least one large request is
// executed in each group. Small requests of one queue stay in order, and so do large ones.
type backlog struct {
	wake chan struct{} // has a token when something was added; closed by close

	mu     sync.Mutex
	urgent []*request
	queues map[string]*queueBacklog // queues with small requests that are not urgent
	turns  []*queueBacklog          // the same, in the order of their turns
	large  *backlog                 // of large requests: queues and turns only
	taken  int                      // large requests that were taken last
	owed   bool                     // none of them was executed
}

// queueBacklog is the small or the large requests of one queue that are not urgent.
type queueBacklog struct {
	queue    string
	requests []*request
}

func newBacklog() *backlog {
	return &backlog{wake: make(chan struct{}, 1), queues: map[string]*queueBacklog{},
		large: &backlog{queues: map[string]*queueBacklog{}}}
}

// laneOf returns where a request that is not urgent waits.
func (b *backlog) laneOf(r *request) *backlog {
	if r.large {
		return b.large
	}
	return b
}

func (b *backlog) add(r *request) {
	b.mu.Lock()
	b.addLocked(r)
	b.mu.Unlock()
	b.wakeWriter()
}

func (b *backlog) wakeWriter() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *backlog) addLocked(r *request) {
	if r.urgent {
		b.urgent = append(b.urgent, r)
		return
	}
	lane := b.laneOf(r)
	l := lane.queues[r.queue]
	if l == nil {
		l = &queueBacklog{queue: r.queue}
		lane.queues[r.queue] = l
		lane.turns = append(lane.turns, l)
	}
	l.requests = append(l.requests, r)
}

// take moves up to limit requests to the end of group.
func (b *backlog) take(group []*request, limit int) []*request {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(limit, len(b.urgent))
	group = append(group, b.urgent[:n]...)
	b.urgent = slices.Delete(b.urgent, 0, n)
	before := len(group)
	if b.owed {
		group = b.large.takeTurns(group, min(before+1, limit))
	}
	b.taken, b.owed = len(group)-before, false
	group = b.takeTurns(group, limit)
	before = len(group)
	group = b.large.takeTurns(group, limit)
	b.taken += len(group) - before
	return group
}

// takeTurns moves requests to the end of group until that has the limit.
func (b *backlog) takeTurns(group []*request, limit int) []*request {
	for len(group) < limit && len(b.turns) > 0 {
		left := b.turns[:0]
		for i, l := range b.turns {
			if len(group) == limit {
				left = append(left, b.turns[i:]...)
				break
			}
			group = append(group, l.requests[0])
			if l.requests = l.requests[1:]; len(l.requests) > 0 {
				left = append(left, l)
			} else {
				delete(b.queues, l.queue)
			}
		}
		clear(b.turns[len(left):])
		b.turns = left
	}
	return group
}

// putBack returns requests that were taken and not begun to their places in front.
func (b *backlog) putBack(group []*request) {
	b.mu.Lock()
	var urgent []*request
	for _, r := range slices.Backward(group) {
		lane := b.laneOf(r)
		l := lane.queues[r.queue]
		if r.large {
			b.taken--
			b.owed = b.taken == 0
		}
		switch {
		case r.urgent:
			urgent = append(urgent, r)
		case l == nil:
			l = &queueBacklog{r.queue, []*request{r}}
			lane.queues[r.queue] = l
			lane.turns = slices.Insert(lane.turns, 0, l)
		default:
			l.requests = slices.Insert(l.requests, 0, r)
		}
	}
	slices.Reverse(urgent)
	b.urgent = slices.Insert(b.urgent, 0, urgent...)
	b.mu.Unlock()
	b.wakeWriter()
}
