package redisstore

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/laterq/later/store"
)

// How a process learns that a claim may give something.
//
// A queue's wake key holds one marker, with the due time of the queue's earliest message as its score. A
// script writes it when a message becomes the earliest, and when a claim was full and left something behind.
// Idle processes block on BZPOPMIN of it (wakeloop.go), so one of them gets it and the others stay asleep.
//
// That process is the queue's timekeeper: it sleeps until the marker's time and then claims. A claim that
// gave something, but less than was asked for, makes its process the timekeeper for what comes next. A process
// that has nobody waiting puts the marker back, for others.
//
// Markers get lost: with a killed process, with a reply. So each waiting process claims every few seconds
// whatever it has heard; if that gives nothing, it stands in as timekeeper once, a little late, so as not to
// compete with a living one. That bounds the harm of anything lost to a few seconds of lateness.
const (
	safetyInterval = 5 * time.Second       // between claims without a hint, plus or minus a fifth
	standInDelay   = 50 * time.Millisecond // at most this much later than the timekeeper
	handBackAfter  = 50 * time.Millisecond // a hint that nobody waits for goes back
	clockGuard     = 100 * time.Microsecond
	clockMemory    = 30 * time.Second // how long the best reading of the server's clock counts
)

type role uint8

const (
	bystander  role = iota
	standIn         // wakes once at next, a little late
	timekeeper      // wakes at next
)

// cause is why a waiter was woken; it decides what an empty claim means.
type cause uint8

const (
	noCause    cause = iota
	byMarker         // the marker's time has come
	byTimer          // the timekeeper's timer
	byStandIn        // the stand-in's timer
	bySafety         // nothing was heard for long
	byNeighbor       // a claim of this process left something behind
)

// waker wakes this process's waiters.
type waker struct {
	s      *Store
	mu     sync.Mutex
	closed bool
	queues map[string]*queueWake
	loops  map[string]*wakeLoop // by what shares a connection: "" for all queues, or a queue's name in a Cluster
	done   sync.WaitGroup
	clock  serverClock
}

// queueWake is what the waker knows of one queue.
type queueWake struct {
	name    string
	waiters []chan struct{}
	role    role
	next    time.Time // server's clock; when role is not bystander
	late    time.Duration
	hinted  bool // a hint came, and no claim began since
	why     cause
	safety  time.Time
	timer   *time.Timer // wakes a waiter
	back    *time.Timer // hands the marker back
	claimed bool
	full    bool // the last claim gave all that was asked for
	taken   int  // counts the markers taken whose time was still to come
}

func (w *waker) init(s *Store) {
	w.s = s
	w.queues = map[string]*queueWake{}
	w.loops = map[string]*wakeLoop{}
}

// queue gives the state of a queue. The lock is held.
func (w *waker) queue(name string) *queueWake {
	q := w.queues[name]
	if q == nil {
		q = &queueWake{name: name}
		w.queues[name] = q
	}
	return q
}

// Wait implements store.Store.
func (s *Store) Wait(ctx context.Context, queue string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := s.ready(ctx); err != nil {
		return err
	}
	w := &s.waker
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return store.ErrClosed
	}
	q := w.queue(queue)
	if q.hinted {
		q.why = byMarker
		w.mu.Unlock()
		return nil
	}
	woken := make(chan struct{})
	q.waiters = append(q.waiters, woken)
	w.arm(q)
	w.listen(q)
	w.mu.Unlock()

	select {
	case <-woken:
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.closed {
			return store.ErrClosed
		}
		return nil
	case <-ctx.Done():
		w.leave(q, woken)
		return context.Cause(ctx)
	}
}

// leave takes a waiter out; one that was woken meanwhile passes its hint on.
func (w *waker) leave(q *queueWake, woken chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, other := range q.waiters {
		if other == woken {
			q.waiters = append(q.waiters[:i], q.waiters[i+1:]...)
			w.arm(q)
			return
		}
	}
	w.wakeOne(q, q.why)
}

// wakeOne wakes the waiter that waits longest. The hint is kept until it claims, or the next one waits, lest it
// get lost with a waiter that has no use for it. The lock is held.
func (w *waker) wakeOne(q *queueWake, why cause) {
	q.why = why
	if why != bySafety {
		q.hinted = true
	}
	if len(q.waiters) > 0 {
		close(q.waiters[0])
		q.waiters = q.waiters[1:]
	}
	w.arm(q)
}

// claiming is called before a claim; what it gives goes to claimed.
func (w *waker) claiming(queue string) claimStart {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.queue(queue)
	start := claimStart{at: time.Now(), why: q.why, taken: q.taken}
	q.why, q.hinted = noCause, false
	w.arm(q)
	return start
}

type claimStart struct {
	at    time.Time
	why   cause
	taken int
}

// claimed learns from a claim's reply: the server's clock, when something comes next (ms, -1 for nothing), how
// much was given, and whether more was left behind.
func (w *waker) claimed(queue string, start claimStart, now time.Time, next int64, given int, more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if step := w.clock.read(start.at, time.Now(), now); step.Abs() >= stepTold {
		w.s.log.Warn("later: the server's clock was stepped; messages come that much early or late", "by", step.Round(time.Millisecond))
	}
	q := w.queue(queue)
	q.safety = time.Now().Add(safetyInterval*4/5 + rand.N(safetyInterval*2/5))
	first := !q.claimed
	q.claimed, q.full = true, more
	if q.role == timekeeper && q.taken != start.taken {
		// The marker was taken on the other connection meanwhile, perhaps the very one that this claim left. What
		// it says is newer than this reply, and nobody else knows it.
		if next >= 0 && time.UnixMilli(next).Before(q.next) {
			q.next = time.UnixMilli(next)
		}
		w.arm(q)
		return
	}
	if next < 0 {
		q.role = bystander
		w.arm(q)
		return
	}
	before := q.next
	q.next = time.UnixMilli(next)
	switch {
	case more:
		// Where messages were given, the script has put the marker back for everyone; a neighbor need not wait for it.
		q.role = bystander
		if len(q.waiters) > 0 {
			w.wakeOne(q, byNeighbor)
		}
	case given > 0 || start.why == byMarker:
		q.role = timekeeper
	case start.why == byTimer && q.next.Equal(before):
		q.role = timekeeper // a little too soon
	case start.why == byTimer:
		q.become(standIn) // another one was faster, or the message was cancelled
	case start.why == byStandIn:
		q.role = bystander
	case start.why == bySafety || first:
		if q.role == bystander {
			q.become(standIn)
		}
	}
	w.arm(q)
}

func (q *queueWake) become(r role) {
	q.role = r
	if r == standIn {
		q.late = standInDelay/10 + rand.N(standInDelay*9/10)
	}
}

// popped is called with the marker's score: the queue's earliest message is due then.
func (w *waker) popped(queue string, due time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.queue(queue)
	now, known := w.clock.now()
	if !known || !due.After(now) {
		w.wakeOne(q, byMarker)
		return
	}
	if q.role != timekeeper || due.Before(q.next) {
		q.role, q.next = timekeeper, due
	}
	q.taken++
	w.arm(q)
}

// arm sets the queue's timers to what it is up to now. The lock is held.
func (w *waker) arm(q *queueWake) {
	if w.closed {
		return
	}
	switch unused := q.hinted || q.role == timekeeper && len(q.waiters) == 0; {
	case unused && q.back == nil:
		after := handBackAfter
		if q.full && len(q.waiters) == 0 {
			after = 0 // this process has all it can do
		}
		q.back = time.AfterFunc(after, func() { w.handBack(q) })
	case !unused && q.back != nil:
		q.back.Stop()
		q.back = nil
	}
	if len(q.waiters) == 0 {
		if q.timer != nil {
			q.timer.Stop()
		}
		return
	}
	if q.safety.IsZero() {
		q.safety = time.Now()
	}
	wait := time.Until(q.safety)
	if q.role != bystander {
		if now, known := w.clock.now(); known {
			until := q.next.Sub(now) + clockGuard
			if q.role == standIn {
				until += q.late
			}
			wait = min(wait, until)
		}
	}
	if q.timer == nil {
		q.timer = time.AfterFunc(max(wait, 0), func() { w.fire(q) })
	} else {
		q.timer.Reset(max(wait, 0))
	}
}

// fire is the timer.
func (w *waker) fire(q *queueWake) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || len(q.waiters) == 0 {
		return
	}
	why := noCause
	if now, known := w.clock.now(); known && q.role != bystander {
		switch {
		case q.role == timekeeper && !q.next.After(now):
			why = byTimer
		case q.role == standIn && !q.next.Add(q.late).After(now):
			why = byStandIn
		}
	}
	if why == noCause {
		if time.Until(q.safety) > 0 {
			w.arm(q) // a stale timer
			return
		}
		why = bySafety
	}
	// Whoever is woken claims, and that decides what comes next. If it does not, the next in line wakes for safety.
	q.safety = time.Now().Add(safetyInterval)
	if why != bySafety {
		q.role = bystander
	}
	w.wakeOne(q, why)
}

// handBack is the timer of a hint, or of the timekeeper's knowledge, that nobody uses: it goes to the next waiter
// of this process or, when there is none, back to the marker.
func (w *waker) handBack(q *queueWake) {
	w.mu.Lock()
	q.back = nil
	if w.closed || !q.hinted && q.role != timekeeper {
		w.mu.Unlock()
		return
	}
	if len(q.waiters) > 0 {
		if q.hinted {
			w.wakeOne(q, byMarker)
		}
		w.mu.Unlock()
		return
	}
	due := int64(0)
	if !q.hinted {
		due = q.next.UnixMilli()
	}
	q.hinted, q.role = false, bystander
	w.forget(q)
	w.done.Add(1)
	w.mu.Unlock()
	defer w.done.Done()
	w.put(q.name, due) // if that fails, others find the queue by their safety claims
}

// put writes the marker, unless an earlier one is there or the queue is gone.
func (w *waker) put(queue string, due int64) (written bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	c := w.s.newCall(&w.s.scripts.mark, queue, 1)
	c.add(due)
	reply, err := w.s.do(ctx, c)
	return reply == any(int64(1)), err
}

// close ends every wait and puts back the markers that this process holds, once its own blocking reads have
// ended, lest they take them again.
func (w *waker) close() {
	w.mu.Lock()
	first := !w.closed
	w.closed = true
	for _, q := range w.queues {
		for _, woken := range q.waiters {
			close(woken)
		}
		q.waiters = nil
		if q.timer != nil {
			q.timer.Stop()
		}
		if q.back != nil {
			q.back.Stop()
		}
	}
	var pokes sync.WaitGroup
	for _, l := range w.loops {
		pokes.Go(l.interrupt)
	}
	w.mu.Unlock()
	pokes.Wait()
	w.done.Wait()
	if !first {
		return
	}
	markers := map[string]int64{}
	w.mu.Lock()
	for _, q := range w.queues {
		if q.hinted {
			markers[q.name] = 0
		} else if q.role == timekeeper {
			markers[q.name] = q.next.UnixMilli()
		}
	}
	w.mu.Unlock()
	for queue, due := range markers {
		if _, err := w.put(queue, due); err != nil {
			return // the server does not answer; others find the queues by their safety claims
		}
	}
}

// serverClock estimates the server's clock from the replies of claims.
type serverClock struct {
	known  bool
	offset time.Duration // server minus local
	trip   time.Duration // of the reading, which bounds its error
	at     time.Time     // of the reading
	server time.Time     // what it was
}

// stepTold is by how much the server's clock must have been stepped for that to be logged.
const stepTold = time.Second

// read takes a reading: the server's clock was server at some moment between sent and received. It gives by how much
// that differs from what the readings before promised.
func (c *serverClock) read(sent, received, server time.Time) (step time.Duration) {
	trip := received.Sub(sent)
	if c.known {
		elapsed := received.Sub(c.at) // by the monotonic clock, which nobody steps
		step = server.Sub(c.server) - elapsed
	}
	if c.known && trip > c.trip && received.Sub(c.at) < clockMemory {
		if d := server.Sub(received.Add(-trip/2)) - c.offset; d.Abs() <= (trip+c.trip)/2+time.Millisecond {
			return 0 // the older reading is the better one, and agrees
		}
	}
	c.known, c.trip, c.at, c.server = true, trip, received, server
	c.offset = server.Sub(received.Add(-trip / 2))
	return step
}

func (c *serverClock) now() (time.Time, bool) {
	return time.Now().Add(c.offset), c.known
}
