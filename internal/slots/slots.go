// Package slots decides which message of a process may run next. It divides the concurrency of a worker among its
// queues by priority and weight, says how many messages a queue should claim and when, and buffers messages that were
// claimed ahead. It knows neither stores nor messages: a Task is a message to it.
//
// It imports package store for its limits only. Start reading at Scheduler; then turns.go says whose turn a slot is,
// claim.go what a claim reserves and delivers, queue.go how much a queue claims ahead, and forming.go how batches form.
package slots

import (
	"context"
	"sync"
	"time"
)

// Task is a claimed message, or several that a handler gets together.
type Task interface {
	Slots() *Queue
	Arrived() time.Time // when the claim returned
	// Begin moves the task from the buffer to its handler. It reports false if the message is no longer held.
	Begin() bool
	// Run runs the handler. If that ends the goroutine, Exited is called in its place, also for the rest of a batch.
	// It may return a function, to be called without the slot, that takes as long as a call to the store.
	Run() (rest func())
	Exited()
	Ran() time.Duration // how long the handler ran
}

// Scheduler divides a worker's concurrency among its queues. Every handler that runs, or is about to, has a slot.
//
// A queue alone gets all the slots that it can use. When several queues want more than there are, each slot
// that becomes free goes to the highest priority among them, and there to the queue whose turn is next, so each
// queue starts messages in proportion to its weight and none starves (turns.go). A goroutine with a slot
// continues with the next message until there is none. A claim holds slots only for as long as claims usually take
// (claim.go).
//
// Idle queues cost nothing: no step depends on their number, except for pausing and the drain.
type Scheduler struct {
	changed    func()         // called when the last handler has ended
	goroutines sync.WaitGroup // with a task

	mu      sync.Mutex
	queues  []*Queue
	turns   turns // the queues that can use a slot
	claims  claimWatch
	free    int
	running int       // goroutines that run a handler
	spare   chan Task // of a goroutine that waits for a task; nil without one
	paused  bool
	stopped bool
}

// New returns a Scheduler of n slots, in which the queues of a priority are kept waiting for up to a starvation limit,
// or for as long as it takes if that is below zero. changed is called when the last handler has ended.
func New(n int, starvation time.Duration, queues []*Queue, changed func()) *Scheduler {
	return &Scheduler{
		changed: changed, queues: queues, free: n, turns: newTurns(queues, starvation),
		claims: claimWatch{inFlight: map[*Queue]struct{}{}},
	}
}

// putBack frees n slots of a queue. The lock is held.
func (s *Scheduler) putBack(q *Queue, n int) {
	q.held -= n
	s.free += n
}

// update records whether the queue can use a slot. It is called after each change that may affect this.
// The lock is held.
func (s *Scheduler) update(q *Queue) {
	s.turns.update(q, q.held < q.Concurrency && (q.buffer.len() > 0 || q.want > 0 && !s.paused))
}

// work runs a task that has a slot, and then further tasks on that slot. After the last one it becomes the spare
// goroutine. A new one would have to grow its stack for the calls of the next task.
func (s *Scheduler) work(t Task) {
	defer func() {
		if t == nil {
			return
		}
		// The handler called runtime.Goexit, as testing's FailNow does. Another goroutine takes over the slot.
		defer s.goroutines.Done()
		t.Exited()
		if next := s.next(t); next != nil {
			s.goroutines.Add(1)
			go s.work(next)
		}
	}()
	var tasks chan Task
	for t != nil {
		rest := t.Run()
		t = s.next(t)
		switch {
		case t != nil && rest != nil:
			go rest()
		case t == nil:
			s.goroutines.Done()
			if rest != nil {
				rest()
			}
			if tasks == nil {
				tasks = make(chan Task, 1)
			}
			if s.becomeSpare(tasks) {
				t = <-tasks
			}
		}
	}
}

// becomeSpare makes the goroutine that receives from tasks the spare one, unless there is one. Stop closes tasks.
func (s *Scheduler) becomeSpare(tasks chan Task) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || s.spare != nil {
		return false
	}
	s.spare = tasks
	return true
}

// next frees the slot of a goroutine whose task is done, and returns the task to continue with. It returns
// nil when the goroutine should end.
func (s *Scheduler) next(done Task) (t Task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := done.Slots()
	q.recordRun(done.Ran())
	s.putBack(q, 1)
	s.update(q)
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
func (s *Scheduler) distribute(asks *Task) {
	for s.free > 0 && !s.stopped {
		q := s.turns.first()
		if q == nil {
			return
		}
		t := q.take()
		if t == nil && (q.want == 0 || s.paused) {
			s.update(q)
			s.wakeIfLow(q)
			continue // its buffer had only lost messages
		}
		s.turns.taken(q)
		s.free--
		q.held++
		if t == nil {
			q.want--
			q.given++
		}
		s.update(q)
		s.wakeIfLow(q)
		switch {
		case t == nil:
			q.fetcher.wake()
		case asks != nil && *asks == nil:
			*asks = t
		default:
			s.start(t)
		}
	}
}

func (s *Scheduler) start(t Task) {
	s.running++
	s.goroutines.Add(1)
	if s.spare == nil {
		go s.work(t)
		return
	}
	s.spare <- t
	s.spare = nil
}

// BeginSettle counts a settle in flight. A queue with too many of them stops claiming.
func (q *Queue) BeginSettle() { q.settling.Add(1) }

// EndSettle ends the count of a settle, and wakes the queue's fetchers that wait for settles.
func (s *Scheduler) EndSettle(q *Queue) {
	if q.settling.Add(-1) != maxSettling/2 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q.fetcher.wake()
	q.ahead.wake()
}

// Stale removes from the buffer the tasks that arrived by the given time, and ends prefetching until
// Handlers are fast again. It also returns the arrival time of the oldest task that stays, or zero when
// there is none.
func (s *Scheduler) Stale(q *Queue, by time.Time) (tasks []Task, oldest time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for q.buffer.len() > 0 {
		if oldest = q.buffer.first().Arrived(); oldest.After(by) {
			break
		}
		tasks, oldest = append(tasks, q.pop()), time.Time{}
		q.handlerTime = max(q.handlerTime, MaxBuffered)
	}
	if len(tasks) > 0 {
		s.update(q)
		s.wakeIfLow(q)
	}
	return tasks, oldest
}

// Takes reports whether the queue may claim now and would find a slot.
func (s *Scheduler) Takes(q *Queue) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.paused && q.settling.Load() < maxSettling && (q.given > 0 || s.free > 0 && q.held < q.Concurrency)
}

// BeginWait registers that the queue's fetcher is about to wait in the store, and how to end that. It
// reports false when the fetcher must not wait.
func (s *Scheduler) BeginWait(q *Queue, end context.CancelFunc) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused {
		return false
	}
	q.endWait = end
	return true
}

// EndWait registers that the queue's fetcher waits no longer.
func (s *Scheduler) EndWait(q *Queue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q.endWait = nil
}

// SetPaused stops or continues claiming for all queues. Claims in flight are completed.
func (s *Scheduler) SetPaused(paused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = paused
	for _, q := range s.queues {
		if paused {
			s.relinquish(q)
			if q.endWait != nil {
				q.endWait()
			}
		}
		q.fetcher.wake()
	}
}

// Stop stops assigning slots and returns the tasks that have not begun.
func (s *Scheduler) Stop() []Task {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	if s.spare != nil {
		close(s.spare)
		s.spare = nil
	}
	if s.claims.timer != nil {
		s.claims.timer.Stop()
	}
	var tasks []Task
	for _, q := range s.queues {
		for q.buffer.len() > 0 {
			tasks = append(tasks, q.pop())
		}
		tasks = append(tasks, s.dropForming(q)...)
	}
	return tasks
}

// Handlers returns the number of running handlers.
func (s *Scheduler) Handlers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}

// Wait returns when no handler runs and their goroutines have ended, but for the rest of tasks.
func (s *Scheduler) Wait() { s.goroutines.Wait() }

// Load is how much of a Scheduler is in use.
type Load struct {
	Free     int // slots
	Held     int // slots
	Coming   int // messages for which buffers keep room
	Forming  int // batches
	Turns    int // queues that can use a slot
	Claims   int // in flight, and not overdue
	Waits    int // fetchers that wait in the store
	Capacity int // of the largest buffer
}

// Load returns how much is in use now, for tests.
func (s *Scheduler) Load() Load {
	s.mu.Lock()
	defer s.mu.Unlock()
	load := Load{Free: s.free, Claims: len(s.claims.inFlight)}
	for _, l := range s.turns.levels {
		load.Turns += len(l.waiting)
	}
	for _, q := range s.queues {
		load.Held += q.held
		load.Coming += q.coming
		load.Capacity = max(load.Capacity, cap(q.buffer.tasks))
		if q.forming != nil {
			load.Forming++
		}
		if q.endWait != nil {
			load.Waits++
		}
	}
	return load
}
