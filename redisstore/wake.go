package redisstore

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/laterq/later/store"
)

// How a process learns that a claim may find something.
//
// A queue's wake key holds one marker, whose score is the due time of the queue's earliest message. A script sets it
// when a message becomes the earliest, and when a claim was full and left messages behind. Idle processes block on it
// with BZPOPMIN (wakeloop.go), so one of them receives it and the others stay asleep.
//
// That process owns the queue's timer: it sleeps until the marker's time and then claims. After a claim that returned
// messages, but fewer than requested, its process owns the timer for whatever comes next. A process without waiters
// puts the marker back for others.
//
// Markers can get lost, with a killed process or a reply. So each waiting process claims every few seconds even if it
// heard nothing. If that safety claim returns nothing, the process runs a backup timer once, slightly delayed so as
// not to compete with a live timer owner. This limits the effect of any loss to a few seconds of lateness.
const (
	safetyInterval    = 5 * time.Second       // between claims without a notification, ± 20 %
	backupDelay       = 50 * time.Millisecond // maximum delay after the timer owner
	returnMarkerAfter = 50 * time.Millisecond // an unused notification returns to the marker
	clockGuard        = 100 * time.Microsecond
	clockReadingTTL   = 30 * time.Second // how long the best reading of the server's clock is kept
)

type role uint8

const (
	noTimer     role = iota
	backupTimer      // wakes once, slightly after next
	timerOwner       // wakes at next
)

// cause is why a waiter was woken. It determines what an empty claim means.
type cause uint8

const (
	noCause       cause = iota
	byMarker            // the marker's time has come
	byOwnTimer          // the timer owner's timer
	byBackupTimer       // the backup timer
	bySafety            // no notification for a long time
	byLocalClaim        // a claim of this process left messages behind
)

// waker wakes this process's waiters.
type waker struct {
	s      *Store
	mu     sync.Mutex
	closed bool
	queues map[string]*queueWake
	loops  map[string]*wakeLoop // by connection: "" for all queues, or a queue's name in a Cluster
	done   sync.WaitGroup
	clock  serverClock
}

// queueWake is the waker's state of one queue.
type queueWake struct {
	name        string
	waiters     []chan struct{}
	role        role
	next        time.Time // server's clock; set unless role is noTimer
	delay       time.Duration
	notified    bool // a notification came, and no claim has started since
	why         cause
	safety      time.Time
	timer       *time.Timer // wakes a waiter
	returnTimer *time.Timer // returns the marker
	claimed     bool
	full        bool // the last claim left messages behind
	popCount    int  // number of markers popped before their time
}

func (w *waker) init(s *Store) {
	w.s = s
	w.queues = map[string]*queueWake{}
	w.loops = map[string]*wakeLoop{}
}

// queue returns the state of a queue. The lock is held.
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
	if q.notified {
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

// leave removes a waiter. If the waiter was woken meanwhile, its notification is passed on.
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

// wakeOne wakes the longest waiting waiter. The notification is kept until a claim starts, or for the next waiter, so
// that it is not lost with a waiter that does not use it. The lock is held.
func (w *waker) wakeOne(q *queueWake, why cause) {
	q.why = why
	if why != bySafety {
		q.notified = true
	}
	if len(q.waiters) > 0 {
		close(q.waiters[0])
		q.waiters = q.waiters[1:]
	}
	w.arm(q)
}

// claiming is called before a claim. Its result is passed to claimed.
func (w *waker) claiming(queue string) claimStart {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.queue(queue)
	start := claimStart{at: time.Now(), why: q.why, popCount: q.popCount}
	q.why, q.notified = noCause, false
	w.arm(q)
	return start
}

type claimStart struct {
	at       time.Time
	why      cause
	popCount int
}

// claimed evaluates a claim's reply: the server's clock, the time of the next event (ms, -1 for none), the number of
// messages claimed, and whether more were left behind.
func (w *waker) claimed(queue string, start claimStart, now time.Time, next int64, given int, more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if step := w.clock.read(start.at, time.Now(), now); step.Abs() >= minLoggedStep {
		w.s.log.Warn("later: the server's clock was stepped; messages are early or late by that much",
			"by", step.Round(time.Millisecond))
	}
	q := w.queue(queue)
	q.safety = time.Now().Add(safetyInterval*4/5 + rand.N(safetyInterval*2/5))
	first := !q.claimed
	q.claimed, q.full = true, more
	if q.role == timerOwner && q.popCount != start.popCount {
		// The other connection popped the marker meanwhile, perhaps the very one that this claim set. It is newer
		// than this reply, and no other process knows it.
		if next >= 0 && time.UnixMilli(next).Before(q.next) {
			q.next = time.UnixMilli(next)
		}
		w.arm(q)
		return
	}
	if next < 0 {
		q.role = noTimer
		w.arm(q)
		return
	}
	before := q.next
	q.next = time.UnixMilli(next)
	switch {
	case more:
		// If messages were claimed, the script has set the marker for all processes; a local waiter need not wait for
		// it.
		q.role = noTimer
		if len(q.waiters) > 0 {
			w.wakeOne(q, byLocalClaim)
		}
	case given > 0 || start.why == byMarker:
		q.role = timerOwner
	case start.why == byOwnTimer && q.next.Equal(before):
		q.role = timerOwner // the timer fired slightly early
	case start.why == byOwnTimer:
		q.become(backupTimer) // another process was faster, or the message was cancelled
	case start.why == byBackupTimer:
		q.role = noTimer
	case start.why == bySafety || first:
		if q.role == noTimer {
			q.become(backupTimer)
		}
	}
	w.arm(q)
}

func (q *queueWake) become(r role) {
	q.role = r
	if r == backupTimer {
		q.delay = backupDelay/10 + rand.N(backupDelay*9/10)
	}
}

// markerPopped is called with the marker's score, the due time of the queue's earliest message.
func (w *waker) markerPopped(queue string, due time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.queue(queue)
	now, known := w.clock.now()
	if !known || !due.After(now) {
		w.wakeOne(q, byMarker)
		return
	}
	if q.role != timerOwner || due.Before(q.next) {
		q.role, q.next = timerOwner, due
	}
	q.popCount++
	w.arm(q)
}

// arm sets the queue's timers according to its state. The lock is held.
func (w *waker) arm(q *queueWake) {
	if w.closed {
		return
	}
	switch unused := q.notified || q.role == timerOwner && len(q.waiters) == 0; {
	case unused && q.returnTimer == nil:
		after := returnMarkerAfter
		if q.full && len(q.waiters) == 0 {
			after = 0 // this process is at capacity
		}
		q.returnTimer = time.AfterFunc(after, func() { w.returnMarker(q) })
	case !unused && q.returnTimer != nil:
		q.returnTimer.Stop()
		q.returnTimer = nil
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
	if q.role != noTimer {
		if now, known := w.clock.now(); known {
			until := q.next.Sub(now) + clockGuard
			if q.role == backupTimer {
				until += q.delay
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

// fire is called by the queue's timer.
func (w *waker) fire(q *queueWake) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || len(q.waiters) == 0 {
		return
	}
	why := noCause
	if now, known := w.clock.now(); known && q.role != noTimer {
		switch {
		case q.role == timerOwner && !q.next.After(now):
			why = byOwnTimer
		case q.role == backupTimer && !q.next.Add(q.delay).After(now):
			why = byBackupTimer
		}
	}
	if why == noCause {
		if time.Until(q.safety) > 0 {
			w.arm(q) // a stale timer
			return
		}
		why = bySafety
	}
	// The woken waiter claims, which determines what comes next. If it does not, the next waiter makes a safety claim.
	q.safety = time.Now().Add(safetyInterval)
	if why != bySafety {
		q.role = noTimer
	}
	w.wakeOne(q, why)
}

// returnMarker is called by the timer of an unused notification or unused timer ownership. It passes it on to the
// next waiter of this process or, if there is none, puts the marker back.
func (w *waker) returnMarker(q *queueWake) {
	w.mu.Lock()
	q.returnTimer = nil
	if w.closed || !q.notified && q.role != timerOwner {
		w.mu.Unlock()
		return
	}
	if len(q.waiters) > 0 {
		if q.notified {
			w.wakeOne(q, byMarker)
		}
		w.mu.Unlock()
		return
	}
	due := int64(0)
	if !q.notified {
		due = q.next.UnixMilli()
	}
	q.notified, q.role = false, noTimer
	w.forget(q)
	w.done.Add(1)
	w.mu.Unlock()
	defer w.done.Done()
	w.put(q.name, due) // if this fails, safety claims of other processes find the queue
}

// put sets the marker, unless an earlier one exists or the queue is gone.
func (w *waker) put(queue string, due int64) (written bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	c := w.s.newCall(&w.s.scripts.mark, queue, 1)
	c.add(due)
	reply, err := w.s.do(ctx, c)
	return reply == any(int64(1)), err
}

// close ends every wait. It then puts back the markers that this process holds, but only after its blocking reads
// have ended, so that they do not pop them again.
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
		if q.returnTimer != nil {
			q.returnTimer.Stop()
		}
	}
	var interrupts sync.WaitGroup
	for _, l := range w.loops {
		interrupts.Go(l.interrupt)
	}
	w.mu.Unlock()
	interrupts.Wait()
	w.done.Wait()
	if !first {
		return
	}
	markers := map[string]int64{}
	w.mu.Lock()
	for _, q := range w.queues {
		if q.notified {
			markers[q.name] = 0
		} else if q.role == timerOwner {
			markers[q.name] = q.next.UnixMilli()
		}
	}
	w.mu.Unlock()
	for queue, due := range markers {
		if _, err := w.put(queue, due); err != nil {
			return // the server does not answer; safety claims of other processes find the queues
		}
	}
}

// serverClock estimates the server's clock from the replies of claims.
type serverClock struct {
	known  bool
	offset time.Duration // server minus local
	trip   time.Duration // round trip of the reading, which bounds its error
	at     time.Time     // time of the reading
	server time.Time     // the server's clock then
}

// minLoggedStep is the smallest step of the server's clock that is logged.
const minLoggedStep = time.Second

// read records a reading: the server's clock was server at some moment between sent and received. It returns the
// difference from what earlier readings predict.
func (c *serverClock) read(sent, received, server time.Time) (step time.Duration) {
	trip := received.Sub(sent)
	if c.known {
		elapsed := received.Sub(c.at) // by the monotonic clock, which is never stepped
		step = server.Sub(c.server) - elapsed
	}
	if c.known && trip > c.trip && received.Sub(c.at) < clockReadingTTL {
		if d := server.Sub(received.Add(-trip/2)) - c.offset; d.Abs() <= (trip+c.trip)/2+time.Millisecond {
			return 0 // the older reading is more accurate and consistent
		}
	}
	c.known, c.trip, c.at, c.server = true, trip, received, server
	c.offset = server.Sub(received.Add(-trip / 2))
	return step
}

func (c *serverClock) now() (time.Time, bool) {
	return time.Now().Add(c.offset), c.known
}
