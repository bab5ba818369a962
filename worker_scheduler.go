package later

import (
	"context"
	"sync"
	"time"

	"github.com/laterq/later/store"
)

const (
	// prefetchWindow is how much work a lane fetches ahead.
	prefetchWindow = 20 * time.Millisecond
	// maxPrefetch is the most messages of a lane that wait for a free slot, or are on their way to: with four claims'
	// worth, one is being handled while two are fetched, before fewer than half of them are left.
	maxPrefetch = 4 * store.MaxBatch
	// maxSettling is the number of settles under way beyond which a lane stops claiming.
	maxSettling = 4 * store.MaxBatch
	// minAhead is the least room for which a second claim is made while one is under way.
	minAhead = store.MaxBatch / 2
)

// slots hands the worker's concurrency to its lanes, a slot for each handler that runs or is about to. A lane
// alone gets all it can use. Where several want more than there is, smooth weighted round robin (as in nginx)
// hands out each slot that becomes free, so each lane starts messages in proportion to its weight and none
// starves. A goroutine that has a slot goes on with the next message while there is one, else it ends.
type scheduler struct {
	work    func(*task) // runs a task and what next gives after it; called in a goroutine of its own
	changed func()      // called when the last handler has ended

	goroutines sync.WaitGroup // those with a slot

	mu           sync.Mutex
	queueWorkers []*queueWorker
	free         int
	running      int // how many have a slot and run a handler
	paused       bool
	stopped      bool
}

// share is a lane's part in slots, guarded by slots.mu.
type queueShare struct {
	weight, limit  int
	maxPrefetch    int
	held           int  // slots of running handlers and of the fetcher
	given          int  // those of the fetcher, not yet picked up
	want           int  // more slots that the fetcher can use
	backlog        bool // the last claim left messages behind, as far as it knows
	coming         int  // messages that claims under way may bring for the buffer
	credit         int  // of the round robin
	buffer         fifo
	handlerTime    time.Duration // moving average; 0 before the first
	fetcher, ahead waitSlot
	endWait        context.CancelFunc // ends the fetcher's Wait; nil when it does not wait
}

// seat is where a fetcher waits until it may claim.
type waitSlot struct {
	asleep bool
	signal chan struct{}
}

func newWaitSlot() waitSlot { return waitSlot{signal: make(chan struct{}, 1)} }

// rouse wakes who waits there. slots.mu is held.
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
	return queueShare{weight: cfg.Weight, limit: cfg.Concurrency, maxPrefetch: maxPrefetch, fetcher: newWaitSlot(), ahead: newWaitSlot()}
}

func newScheduler(n int, queueWorkers []*queueWorker, work func(*task)) *scheduler {
	return &scheduler{work: work, changed: func() {}, queueWorkers: queueWorkers, free: n}
}

// reserve blocks until the lane may claim: slots are reserved for n messages, and room more may wait in the
// buffer; n+room is 1 to store.MaxBatch. It gives ok == false, and nothing is reserved, when ctx has ended.
func (s *scheduler) reserve(ctx context.Context, qw *queueWorker) (n, room int, ok bool) {
	for {
		s.mu.Lock()
		if ctx.Err() != nil {
			s.giveUp(qw)
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
			} // else it takes its turns while it claims, too
			room = min(room, store.MaxBatch-n)
			qw.coming += room
			qw.wakeIfLow() // there may be room for a second claim
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

// reserveAhead blocks until the lane may make a second claim while one is under way: there is room for many messages,
// and the last claim left some behind. It gives 0 when ctx has ended.
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

// mayFetchAhead tells whether a second claim is worth while.
func (qw *queueWorker) mayFetchAhead() bool {
	return qw.backlog && qw.coming > 0 && qw.settling.Load() < maxSettling && qw.room() >= minAhead
}

// giveUp takes back what the fetcher was given and wants. The lock is held.
func (s *scheduler) giveUp(qw *queueWorker) {
	qw.want, qw.backlog = 0, false
	s.putBack(qw, qw.given)
	qw.given = 0
	s.distribute(nil)
}

// putBack frees n slots of a lane. The lock is held.
func (s *scheduler) putBack(qw *queueWorker, n int) {
	qw.held -= n
	s.free += n
}

// cancel frees n slots, and room places, that were reserved for a claim that failed or came too late.
func (s *scheduler) cancel(qw *queueWorker, n, room int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	qw.coming -= room
	s.putBack(qw, n)
	s.giveUp(qw)
}

// deliver uses n slots and room places that were reserved for a claim: it starts n of its tasks and buffers the rest.
// short says that the claim found less than it asked for. When the drain has begun it gives the tasks back instead.
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
		s.giveUp(qw)
	}
	s.distribute(nil)
	return unwanted
}

// next frees the slot of a goroutine whose task has run for so long, and gives the task it shall go on with:
// nil when it shall end.
func (s *scheduler) next(done *task) *task {
	s.mu.Lock()
	defer s.mu.Unlock()
	qw := done.lease.qw
	qw.note(time.Duration(done.ran.Load()))
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

// distribute hands free slots to the lanes that want them. The first task goes to the goroutine that asks, if
// one does. The lock is held.
func (s *scheduler) distribute(asks **task) {
	for s.free > 0 && !s.stopped {
		qw := s.pick()
		if qw == nil {
			return
		}
		t := qw.take()
		if t == nil && qw.want == 0 {
			qw.wakeIfLow()
			continue // its buffer held lost messages only
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

// pick gives the lane whose turn it is among those that can use a slot; nil when none can.
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

// take gives the next buffered task that is still ours.
func (qw *queueWorker) take() *task {
	for qw.buffer.len() > 0 {
		if t := qw.buffer.pop(); t.begin() {
			return t
		}
	}
	return nil
}

// wakeIfLow wakes a fetcher when the buffer has become low enough to claim again.
func (qw *queueWorker) wakeIfLow() {
	if qw.fetcher.asleep && (qw.buffer.len() == 0 || qw.room() > 0) {
		qw.fetcher.wake()
	}
	if qw.ahead.asleep && qw.mayFetchAhead() {
		qw.ahead.wake()
	}
}

// room is the number of messages to fetch ahead now: none while the buffer is more than half full, with what is on
// its way, so that claims stay large.
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

// note adds the running time of a handler to the moving average. The average rises faster than it falls, so
// that fetching ahead ends with the first slow message.
func (qw *queueWorker) note(ran time.Duration) {
	ran = max(ran, 1)
	if qw.handlerTime == 0 || ran > qw.handlerTime*8 {
		qw.handlerTime = ran
		return
	}
	qw.handlerTime += (ran - qw.handlerTime) / 8
}

// settled lets a fetcher that waits for settles look again.
func (s *scheduler) settled(qw *queueWorker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	qw.fetcher.wake()
	qw.ahead.wake()
}

// stale takes from the buffer what came by the given time, and ends fetching ahead until handlers are
// fast again. It gives the time of the oldest that stays; zero when there is none.
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

// beginWait says that the lane's fetcher is about to Wait, and how to end that; false when it must not.
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

// setPaused stops the claiming of all lanes or lets it go on. A claim that is on its way comes back.
func (s *scheduler) setPaused(paused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = paused
	for _, qw := range s.queueWorkers {
		if paused {
			s.giveUp(qw)
			if qw.endWait != nil {
				qw.endWait()
			}
		}
		qw.fetcher.wake()
	}
}

// stop ends all handing out and gives the tasks that have not begun.
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

// handlers is the number of handlers that run.
func (s *scheduler) handlers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}

// fifo is a queue of tasks, first in, first out.
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
