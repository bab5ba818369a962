package later

import (
	"context"
	"sync"
	"time"
)

// scheduler divides the worker's concurrency among its queues. Every handler that runs, or is about to, has
// a slot.
//
// A queue alone gets all the slots that it can use. When several queues want more than there are, each slot
// that becomes free goes to the highest priority among them, and there to the queue whose turn is next, so each
// queue starts messages in proportion to its weight and none starves (worker_turns.go). A goroutine with a slot
// continues with the next message until there is none. A claim holds slots only for as long as claims usually take
// (worker_claim.go).
//
// Idle queues cost nothing: no step depends on their number, except for pausing and the drain.
type scheduler struct {
	work       func(*task)        // runs a task and those that next returns after it; called in a new goroutine
	fetchAhead func(*queueWorker) // starts fetchAhead; called with the lock held
	changed    func()             // called when the last handler has ended

	goroutines sync.WaitGroup // goroutines that call work

	mu           sync.Mutex
	queueWorkers []*queueWorker
	turns        turns // the queues that can use a slot
	claims       claimWatch
	free         int
	running      int // goroutines that run a handler
	paused       bool
	stopped      bool
}

func newScheduler(n int, starvation time.Duration, queueWorkers []*queueWorker, work func(*task)) *scheduler {
	return &scheduler{
		work: work, fetchAhead: func(*queueWorker) {}, changed: func() {}, queueWorkers: queueWorkers, free: n,
		turns: newTurns(queueWorkers, starvation), claims: claimWatch{inFlight: map[*queueWorker]struct{}{}},
	}
}

// putBack frees n slots of a queue. The lock is held.
func (s *scheduler) putBack(qw *queueWorker, n int) {
	qw.held -= n
	s.free += n
}

// update records whether the queue can use a slot. It is called after each change of what that depends on.
// The lock is held.
func (s *scheduler) update(qw *queueWorker) {
	s.turns.update(qw, qw.held < qw.limit && (qw.buffer.len() > 0 || qw.want > 0 && !s.paused))
}

// next frees the slot of a goroutine whose task is done, and returns the task to continue with. It returns
// nil when the goroutine should end.
func (s *scheduler) next(done *task) *task {
	s.mu.Lock()
	defer s.mu.Unlock()
	qw := done.lease.qw
	qw.recordRun(time.Duration(done.ran.Load()))
	s.putBack(qw, 1)
	s.update(qw)
	var t *task
	s.distribute(&t)
	if t == nil {
		s.running--
		if s.running == 0 {
			s.changed()
		}
	}
	return t
}

// distribute assigns free slots to the queues that can use them. The first task goes to the asking goroutine,
// if there is one. The lock is held.
func (s *scheduler) distribute(asks **task) {
	for s.free > 0 && !s.stopped {
		qw := s.turns.first()
		if qw == nil {
			return
		}
		t := qw.take()
		if t == nil && (qw.want == 0 || s.paused) {
			s.update(qw)
			s.wakeIfLow(qw)
			continue // its buffer had only lost messages
		}
		s.turns.taken(qw)
		s.free--
		qw.held++
		if t == nil {
			qw.want--
			qw.given++
		}
		s.update(qw)
		s.wakeIfLow(qw)
		switch {
		case t == nil:
			qw.fetcher.wake()
		case asks != nil && *asks == nil:
			*asks = t
		default:
			s.start(t)
		}
	}
}

func (s *scheduler) start(t *task) {
	s.running++
	s.goroutines.Add(1)
	go s.work(t)
}

// settled wakes a queue's fetchers that wait for settles.
func (s *scheduler) settled(qw *queueWorker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	qw.fetcher.wake()
	qw.ahead.wake()
}

// stale removes from the buffer the tasks that arrived by the given time, and ends prefetching until
// handlers are fast again. It also returns the arrival time of the oldest task that stays, or zero when
// there is none.
func (s *scheduler) stale(qw *queueWorker, by time.Time) (tasks []*task, oldest time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for qw.buffer.len() > 0 {
		if oldest = qw.buffer.first().lease.arrived; oldest.After(by) {
			break
		}
		tasks, oldest = append(tasks, qw.pop()), time.Time{}
		qw.handlerTime = max(qw.handlerTime, maxBuffered)
	}
	if len(tasks) > 0 {
		s.update(qw)
		s.wakeIfLow(qw)
	}
	return tasks, oldest
}

// beginWait registers that the queue's fetcher is about to wait in the store, and how to end that. It
// reports false when the fetcher must not wait.
func (s *scheduler) beginWait(qw *queueWorker, end context.CancelFunc) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused {
		return false
	}
	qw.endWait = end
	return true
}

func (s *scheduler) endedWait(qw *queueWorker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	qw.endWait = nil
}

// setPaused stops or continues claiming for all queues. Claims in flight are completed.
func (s *scheduler) setPaused(paused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = paused
	for _, qw := range s.queueWorkers {
		if paused {
			s.relinquish(qw)
			if qw.endWait != nil {
				qw.endWait()
			}
		}
		qw.fetcher.wake()
	}
}

// stop stops assigning slots and returns the tasks that have not begun.
func (s *scheduler) stop() []*task {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	if s.claims.timer != nil {
		s.claims.timer.Stop()
	}
	var tasks []*task
	for _, qw := range s.queueWorkers {
		for qw.buffer.len() > 0 {
			tasks = append(tasks, qw.pop())
		}
		tasks = append(tasks, s.dropForming(qw)...)
	}
	return tasks
}

// handlers returns the number of running handlers.
func (s *scheduler) handlers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}
