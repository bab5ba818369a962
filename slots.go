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
type slots struct {
	work    func(*task) // runs a task and what next gives after it; called in a goroutine of its own
	changed func()      // called when the last handler has ended

	goroutines sync.WaitGroup // those with a slot

	mu      sync.Mutex
	lanes   []*lane
	free    int
	running int // how many have a slot and run a handler
	paused  bool
	stopped bool
}

// share is a lane's part in slots, guarded by slots.mu.
type share struct {
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
	fetcher, ahead seat
	endWait        context.CancelFunc // ends the fetcher's Wait; nil when it does not wait
}

// seat is where a fetcher waits until it may claim.
type seat struct {
	asleep bool
	wake   chan struct{}
}

func newSeat() seat { return seat{wake: make(chan struct{}, 1)} }

// rouse wakes who waits there. slots.mu is held.
func (s *seat) rouse() {
	if s.asleep {
		s.asleep = false
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

func newShare(cfg QueueConfig, maxPrefetch int) share {
	return share{weight: cfg.Weight, limit: cfg.Concurrency, maxPrefetch: maxPrefetch, fetcher: newSeat(), ahead: newSeat()}
}

func newSlots(n int, lanes []*lane, work func(*task)) *slots {
	return &slots{work: work, changed: func() {}, lanes: lanes, free: n}
}

// reserve blocks until the lane may claim: slots are reserved for n messages, and room more may wait in the
// buffer; n+room is 1 to store.MaxBatch. It gives ok == false, and nothing is reserved, when ctx has ended.
func (s *slots) reserve(ctx context.Context, l *lane) (n, room int, ok bool) {
	for {
		s.mu.Lock()
		if ctx.Err() != nil {
			s.giveUp(l)
			s.mu.Unlock()
			return 0, 0, false
		}
		l.want = 0
		if !s.paused && l.settling.Load() < maxSettling {
			if l.buffer.len() == 0 {
				l.want = store.MaxBatch - l.given
			}
			s.distribute(nil)
			room = l.room()
		}
		if n = l.given; n+room > 0 {
			l.given, l.fetcher.asleep = 0, false
			if !l.backlog {
				l.want = 0
			} // else it takes its turns while it claims, too
			room = min(room, store.MaxBatch-n)
			l.coming += room
			l.rouseIfLow() // there may be room for a second claim
			s.mu.Unlock()
			return n, room, true
		}
		l.fetcher.asleep = true
		s.mu.Unlock()
		select {
		case <-l.fetcher.wake:
		case <-ctx.Done():
		}
	}
}

// reserveAhead blocks until the lane may make a second claim while one is under way: there is room for many messages,
// and the last claim left some behind. It gives 0 when ctx has ended.
func (s *slots) reserveAhead(ctx context.Context, l *lane) (room int) {
	for ctx.Err() == nil {
		s.mu.Lock()
		if l.mayFetchAhead() {
			room = min(l.room(), store.MaxBatch)
			l.coming += room
			s.mu.Unlock()
			return room
		}
		l.ahead.asleep = true
		s.mu.Unlock()
		select {
		case <-l.ahead.wake:
		case <-ctx.Done():
		}
	}
	return 0
}

// mayFetchAhead tells whether a second claim is worth while.
func (l *lane) mayFetchAhead() bool {
	return l.backlog && l.coming > 0 && l.settling.Load() < maxSettling && l.room() >= minAhead
}

// giveUp takes back what the fetcher was given and wants. The lock is held.
func (s *slots) giveUp(l *lane) {
	l.want, l.backlog = 0, false
	s.putBack(l, l.given)
	l.given = 0
	s.distribute(nil)
}

// putBack frees n slots of a lane. The lock is held.
func (s *slots) putBack(l *lane, n int) {
	l.held -= n
	s.free += n
}

// cancel frees n slots, and room places, that were reserved for a claim that failed or came too late.
func (s *slots) cancel(l *lane, n, room int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.coming -= room
	s.putBack(l, n)
	s.giveUp(l)
}

// deliver uses n slots and room places that were reserved for a claim: it starts n of its tasks and buffers the rest.
// short says that the claim found less than it asked for. When the drain has begun it gives the tasks back instead.
func (s *slots) deliver(l *lane, n, room int, tasks []*task, short bool) (unwanted []*task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.coming -= room
	if s.stopped {
		unwanted, tasks = tasks, nil
	}
	for len(tasks) > 0 && n+l.given > 0 {
		t := tasks[0]
		tasks = tasks[1:]
		switch {
		case !t.begin():
		case n > 0:
			n--
			s.start(t)
		default:
			l.given--
			s.start(t)
		}
	}
	l.buffer.push(tasks)
	s.putBack(l, n)
	if l.backlog = !short; short {
		s.giveUp(l)
	}
	s.distribute(nil)
	return unwanted
}

// next frees the slot of a goroutine whose task has run for so long, and gives the task it shall go on with:
// nil when it shall end.
func (s *slots) next(done *task) *task {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := done.lease.lane
	l.note(time.Duration(done.ran.Load()))
	l.held--
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
func (s *slots) distribute(asks **task) {
	for s.free > 0 && !s.stopped {
		l := s.pick()
		if l == nil {
			return
		}
		t := l.take()
		if t == nil && l.want == 0 {
			l.rouseIfLow()
			continue // its buffer held lost messages only
		}
		s.free--
		l.held++
		l.rouseIfLow()
		switch {
		case t == nil:
			l.want--
			l.given++
			l.fetcher.rouse()
		case asks != nil && *asks == nil:
			*asks = t
		default:
			s.start(t)
		}
	}
}

// pick gives the lane whose turn it is among those that can use a slot; nil when none can.
func (s *slots) pick() *lane {
	var best *lane
	total := 0
	for _, l := range s.lanes {
		if l.held >= l.limit || l.buffer.len() == 0 && (l.want == 0 || s.paused) {
			continue
		}
		l.credit += l.weight
		total += l.weight
		if best == nil || l.credit > best.credit {
			best = l
		}
	}
	if best != nil {
		best.credit -= total
	}
	return best
}

func (s *slots) start(t *task) {
	s.running++
	s.goroutines.Add(1)
	go s.work(t)
}

// take gives the next buffered task that is still ours.
func (l *lane) take() *task {
	for l.buffer.len() > 0 {
		if t := l.buffer.pop(); t.begin() {
			return t
		}
	}
	return nil
}

// rouseIfLow wakes a fetcher when the buffer has become low enough to claim again.
func (l *lane) rouseIfLow() {
	if l.fetcher.asleep && (l.buffer.len() == 0 || l.room() > 0) {
		l.fetcher.rouse()
	}
	if l.ahead.asleep && l.mayFetchAhead() {
		l.ahead.rouse()
	}
}

// room is the number of messages to fetch ahead now: none while the buffer is more than half full, with what is on
// its way, so that claims stay large.
func (l *lane) room() int {
	if l.handlerTime == 0 {
		return 0
	}
	target := max(0, min(int(prefetchWindow*time.Duration(l.held)/l.handlerTime), l.maxPrefetch))
	filled := l.buffer.len() + l.coming
	if filled > target/2 {
		return 0
	}
	return target - filled
}

// note adds the running time of a handler to the moving average. The average rises faster than it falls, so
// that fetching ahead ends with the first slow message.
func (l *lane) note(ran time.Duration) {
	ran = max(ran, 1)
	if l.handlerTime == 0 || ran > l.handlerTime*8 {
		l.handlerTime = ran
		return
	}
	l.handlerTime += (ran - l.handlerTime) / 8
}

// settled lets a fetcher that waits for settles look again.
func (s *slots) settled(l *lane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.fetcher.rouse()
	l.ahead.rouse()
}

// stale takes from the buffer what came by the given time, and ends fetching ahead until handlers are
// fast again. It gives the time of the oldest that stays; zero when there is none.
func (s *slots) stale(l *lane, by time.Time) (tasks []*task, oldest time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer l.rouseIfLow()
	for l.buffer.len() > 0 {
		arrived := l.buffer.first().lease.arrived
		if arrived.After(by) {
			return tasks, arrived
		}
		tasks = append(tasks, l.buffer.pop())
		l.handlerTime = max(l.handlerTime, maxBuffered)
	}
	return tasks, time.Time{}
}

// beginWait says that the lane's fetcher is about to Wait, and how to end that; false when it must not.
func (s *slots) beginWait(l *lane, end context.CancelFunc) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused {
		return false
	}
	l.endWait = end
	return true
}

func (s *slots) endedWait(l *lane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.endWait = nil
}

// setPaused stops the claiming of all lanes or lets it go on. A claim that is on its way comes back.
func (s *slots) setPaused(paused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = paused
	for _, l := range s.lanes {
		if paused {
			s.giveUp(l)
			if l.endWait != nil {
				l.endWait()
			}
		}
		l.fetcher.rouse()
	}
}

// stop ends all handing out and gives the tasks that have not begun.
func (s *slots) stop() []*task {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	var tasks []*task
	for _, l := range s.lanes {
		for l.buffer.len() > 0 {
			tasks = append(tasks, l.buffer.pop())
		}
	}
	return tasks
}

// handlers is the number of handlers that run.
func (s *slots) handlers() int {
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
