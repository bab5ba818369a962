package later

import (
	"context"
	"sync"
	"time"

	"github.com/laterq/later/store"
)

const (
	// prefetchWindow is how much work a queue prefetches.
	prefetchWindow = 20 * time.Millisecond
	// maxPrefetch is the maximum number of messages of a queue that are claimed or being claimed ahead of a
	// free slot. It is four claims' worth, so that one is handled while two are fetched before fewer than half
	// of them are left.
	maxPrefetch = 4 * store.MaxBatch
	// maxSettling is the number of settles in flight above which a queue stops claiming.
	maxSettling = 4 * store.MaxBatch
	// minAhead is the minimum room for a second claim while one is in flight.
	minAhead = store.MaxBatch / 2
)

// scheduler divides the worker's concurrency among its queues. Every handler that runs, or is about to, has
// a slot.
//
// A queue alone gets all the slots that it can use. When several queues want more than there are, each slot
// that becomes free is assigned by smooth weighted round robin (as in nginx), so each queue starts messages
// in proportion to its weight and none starves. A goroutine with a slot continues with the next message
// until there is none.
type scheduler struct {
	work    func(*task) // runs a task and those that next returns after it; called in a new goroutine
	changed func()      // called when the last handler has ended

	goroutines sync.WaitGroup // goroutines that call work

	mu           sync.Mutex
	queueWorkers []*queueWorker
	free         int
	running      int // goroutines that run a handler
	paused       bool
	stopped      bool
}

// queueShare is the scheduling state of one queue, guarded by scheduler.mu.
type queueShare struct {
	weight, limit  int
	maxPrefetch    int
	held           int  // slots of running handlers and the fetcher
	given          int  // slots assigned to the fetcher and not yet used
	want           int  // further slots that the fetcher can use
	backlog        bool // the last claim reported that it left messages behind
	coming         int  // room reserved in the buffer by claims in flight
	credit         int  // for the round robin
	buffer         fifo
	handlerTime    time.Duration // moving average; 0 before the first
	fetcher, ahead waitSlot
	endWait        context.CancelFunc // ends the fetcher's Wait; nil when it does not wait
}

// waitSlot is where a fetcher waits until it may claim.
type waitSlot struct {
	asleep bool
	signal chan struct{}
}

func newWaitSlot() waitSlot { return waitSlot{signal: make(chan struct{}, 1)} }

// wake wakes the fetcher that waits. scheduler.mu is held.
func (s *waitSlot) wake() {
	if s.asleep {
		s.asleep = false
		select {
		case s.signal <- struct{}{}:
		default:
		}
	}
}

func newQueueShare(cfg QueueConfig, maxPrefetch int) queueShare {
	return queueShare{
		weight: cfg.Weight, limit: cfg.Concurrency, maxPrefetch: maxPrefetch,
		fetcher: newWaitSlot(), ahead: newWaitSlot(),
	}
}

func newScheduler(n int, queueWorkers []*queueWorker, work func(*task)) *scheduler {
	return &scheduler{work: work, changed: func() {}, queueWorkers: queueWorkers, free: n}
}

// reserve blocks until the queue may claim, and reserves slots for n messages and room in the buffer for
// more. n+room is 1 to store.MaxBatch. When ctx has ended, ok is false and nothing is reserved.
func (s *scheduler) reserve(ctx context.Context, qw *queueWorker) (n, room int, ok bool) {
	for {
		s.mu.Lock()
		if ctx.Err() != nil {
			s.relinquish(qw)
			s.mu.Unlock()
			return 0, 0, false
		}
		qw.want = 0
		if !s.paused && qw.settling.Load() < maxSettling {
			if qw.buffer.len() == 0 {
				qw.want = store.MaxBatch - qw.given
			}
			s.distribute(nil)
			room = qw.room()
		}
		if n = qw.given; n+room > 0 {
			qw.given, qw.fetcher.asleep = 0, false
			if !qw.backlog {
				qw.want = 0
			} // otherwise it keeps taking its turns during the claim
			room = min(room, store.MaxBatch-n)
			qw.coming += room
			qw.wakeIfLow() // there may be room for another claim
			s.mu.Unlock()
			return n, room, true
		}
		qw.fetcher.asleep = true
		s.mu.Unlock()
		select {
		case <-qw.fetcher.signal:
		case <-ctx.Done():
		}
	}
}

// reserveAhead blocks until the queue may make a second claim: one is in flight, the last one left messages
// behind, and there is room for many. It returns 0 when ctx has ended.
func (s *scheduler) reserveAhead(ctx context.Context, qw *queueWorker) (room int) {
	for ctx.Err() == nil {
		s.mu.Lock()
		if qw.mayFetchAhead() {
			room = min(qw.room(), store.MaxBatch)
			qw.coming += room
			s.mu.Unlock()
			return room
		}
		qw.ahead.asleep = true
		s.mu.Unlock()
		select {
		case <-qw.ahead.signal:
		case <-ctx.Done():
		}
	}
	return 0
}

// mayFetchAhead reports whether a second claim is worthwhile.
func (qw *queueWorker) mayFetchAhead() bool {
	return qw.backlog && qw.coming > 0 && qw.settling.Load() < maxSettling && qw.room() >= minAhead
}

// relinquish returns the fetcher's unused slots and clears its requests. The lock is held.
func (s *scheduler) relinquish(qw *queueWorker) {
	qw.want, qw.backlog = 0, false
	s.putBack(qw, qw.given)
	qw.given = 0
	s.distribute(nil)
}

// putBack frees n slots of a queue. The lock is held.
func (s *scheduler) putBack(qw *queueWorker, n int) {
	qw.held -= n
	s.free += n
}

// cancel frees the slots and room reserved for a claim that failed or came too late.
func (s *scheduler) cancel(qw *queueWorker, n, room int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	qw.coming -= room
	s.putBack(qw, n)
	s.relinquish(qw)
}

// deliver uses the slots and room reserved for a claim: it starts n of its tasks and buffers the rest.
// short means that the claim found fewer messages than it asked for. Once the drain has begun, deliver
// returns the tasks instead.
func (s *scheduler) deliver(qw *queueWorker, n, room int, tasks []*task, short bool) (unwanted []*task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	qw.coming -= room
	if s.stopped {
		unwanted, tasks = tasks, nil
	}
	for len(tasks) > 0 && n+qw.given > 0 {
		t := tasks[0]
		tasks = tasks[1:]
		switch {
		case !t.begin():
		case n > 0:
			n--
			s.start(t)
		default:
			qw.given--
			s.start(t)
		}
	}
	qw.buffer.push(tasks)
	s.putBack(qw, n)
	if qw.backlog = !short; short {
		s.relinquish(qw)
	}
	s.distribute(nil)
	return unwanted
}

// next frees the slot of a goroutine whose task is done, and returns the task to continue with. It returns
// nil when the goroutine should end.
func (s *scheduler) next(done *task) *task {
	s.mu.Lock()
	defer s.mu.Unlock()
	qw := done.lease.qw
	qw.recordRun(time.Duration(done.ran.Load()))
	qw.held--
	s.free++
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

// distribute assigns free slots to the queues that want them. The first task goes to the asking goroutine,
// if there is one. The lock is held.
func (s *scheduler) distribute(asks **task) {
	for s.free > 0 && !s.stopped {
		qw := s.pick()
		if qw == nil {
			return
		}
		t := qw.take()
		if t == nil && qw.want == 0 {
			qw.wakeIfLow()
			continue // its buffer had only lost messages
		}
		s.free--
		qw.held++
		qw.wakeIfLow()
		switch {
		case t == nil:
			qw.want--
			qw.given++
			qw.fetcher.wake()
		case asks != nil && *asks == nil:
			*asks = t
		default:
			s.start(t)
		}
	}
}

// pick returns the queue whose turn it is among those that can use a slot, or nil when none can.
func (s *scheduler) pick() *queueWorker {
	var best *queueWorker
	total := 0
	for _, qw := range s.queueWorkers {
		if qw.held >= qw.limit || qw.buffer.len() == 0 && (qw.want == 0 || s.paused) {
			continue
		}
		qw.credit += qw.weight
		total += qw.weight
		if best == nil || qw.credit > best.credit {
			best = qw
		}
	}
	if best != nil {
		best.credit -= total
	}
	return best
}

func (s *scheduler) start(t *task) {
	s.running++
	s.goroutines.Add(1)
	go s.work(t)
}

// take returns the next buffered task that is still held, or nil.
func (qw *queueWorker) take() *task {
	for qw.buffer.len() > 0 {
		if t := qw.buffer.pop(); t.begin() {
			return t
		}
	}
	return nil
}

// wakeIfLow wakes the fetchers when the buffer is low enough to claim again.
func (qw *queueWorker) wakeIfLow() {
	if qw.fetcher.asleep && (qw.buffer.len() == 0 || qw.room() > 0) {
		qw.fetcher.wake()
	}
	if qw.ahead.asleep && qw.mayFetchAhead() {
		qw.ahead.wake()
	}
}

// room returns the number of messages to prefetch now. It is 0 while the buffer, including messages being
// claimed, is more than half full, so that claims stay large.
func (qw *queueWorker) room() int {
	if qw.handlerTime == 0 {
		return 0
	}
	target := max(0, min(int(prefetchWindow*time.Duration(qw.held)/qw.handlerTime), qw.maxPrefetch))
	filled := qw.buffer.len() + qw.coming
	if filled > target/2 {
		return 0
	}
	return target - filled
}

// recordRun adds a handler's running time to the moving average. The average rises faster than it falls, so
// that prefetching ends with the first slow message.
func (qw *queueWorker) recordRun(ran time.Duration) {
	ran = max(ran, 1)
	if qw.handlerTime == 0 || ran > qw.handlerTime*8 {
		qw.handlerTime = ran
		return
	}
	qw.handlerTime += (ran - qw.handlerTime) / 8
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
	defer qw.wakeIfLow()
	for qw.buffer.len() > 0 {
		arrived := qw.buffer.first().lease.arrived
		if arrived.After(by) {
			return tasks, arrived
		}
		tasks = append(tasks, qw.buffer.pop())
		qw.handlerTime = max(qw.handlerTime, maxBuffered)
	}
	return tasks, time.Time{}
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
	var tasks []*task
	for _, qw := range s.queueWorkers {
		for qw.buffer.len() > 0 {
			tasks = append(tasks, qw.buffer.pop())
		}
	}
	return tasks
}

// handlers returns the number of running handlers.
func (s *scheduler) handlers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}

// fifo is a first-in, first-out queue of tasks.
type fifo struct {
	tasks []*task
	head  int
}

func (f *fifo) len() int { return len(f.tasks) - f.head }

func (f *fifo) first() *task { return f.tasks[f.head] }

func (f *fifo) push(tasks []*task) {
	kept := copy(f.tasks, f.tasks[f.head:])
	clear(f.tasks[kept:])
	f.tasks, f.head = append(f.tasks[:kept], tasks...), 0
}

func (f *fifo) pop() *task {
	t := f.tasks[f.head]
	f.tasks[f.head] = nil
	f.head++
	return t
}
