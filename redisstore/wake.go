package redisstore

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/laterq/later/internal/precise"
	"github.com/laterq/later/store"
)

// How a process learns that a claim may find something.
//
// Each process listens on one channel of each server (wake_server.go). A claim that returns fewer messages than
// requested lists the process in the queue's wake key, in the same step. If no other listed process has, it promises to
// claim at the time of the next event, which it does by a timer. A script that makes a message the earliest looks there
// for a process that has promised to claim by its due time, and otherwise sends one of them the time, which is then its
// promise (lua/_waiting.lua). So one message wakes one process, and waiting takes no commands.
//
// A process that stops waiting leaves the list, and another one takes over its promise. If it dies, the others learn of
// it by its missing beats, remove it from the lists of their queues and renew the promises. If it loses its connection
// or its place in the lists, it looks at all its queues. All of that takes seconds, and concerns lists, not messages.
// In case a loss goes unnoticed, every waiting queue is claimed from time to time.
const (
	// safetyInterval is the time between claims without a notification, ± 20 %, for a process that waits for few
	// queues; all its queues together are claimed safetyRate times a second at most.
	safetyInterval = 10 * time.Second
	safetyRate     = 10
	// patientInterval is safetyInterval for a queue with a patient waiter; see store.Patient.
	patientInterval = time.Minute
	// deafInterval and deafRate are the same while processes cannot be notified.
	deafInterval = 100 * time.Millisecond
	deafRate     = 200
	unusedAfter  = 50 * time.Millisecond // when a process that does not wait leaves the list
)

// listing is the knowledge of a process about its place in a queue's list.
type listing uint8

const (
	notListed   listing = iota
	maybeListed         // it depends on a call with an unknown outcome, or unknown place among others
	listed
)

// waker wakes this process's waiters.
type waker struct {
	s       *Store
	mu      sync.Mutex
	closed  bool
	queues  map[string]*queueWake  // the queues with something to remember
	servers map[string]*wakeServer // by address
	waiting int                    // number of queues with waiters
	done    sync.WaitGroup
}

// queueWake is the waker's state of one queue.
type queueWake struct {
	name     string
	server   *wakeServer
	waiters  []chan error // closed when the waiter is woken, after the error that it returns, if any
	notified bool         // a notification came, and no claim has started since
	next     time.Time    // server's clock: when this process has to claim; zero if it need not
	heard    int          // number of messages from others
	listing  listing
	begun    int            // calls begun that can change the listing
	calls    int            // in flight
	queued   bool           // it is in server.pending
	deaths   int            // server.deaths at the last look
	safety   time.Time      // of the next claim without a notification
	patient  bool           // the last waiter was; see store.Patient
	timer    *precise.Timer // wakes a waiter
	unused   *time.Timer    // calls giveUp
	giving   bool           // unused is running
}

// claimStart is the state at the start of a claim, or of another call that can change the listing.
type claimStart struct {
	q       *queueWake
	server  *wakeServer
	channel string // to be listed; "" if this process does not listen
	at      time.Time
	begun   int
	heard   int
	epoch   int
	alone   bool // no other such call was in flight
}

func (w *waker) init(s *Store) {
	w.s = s
	w.queues = map[string]*queueWake{}
	w.servers = map[string]*wakeServer{}
}

// queue returns the state of a queue on the server at an address. The lock is held.
func (w *waker) queue(name string, at serverAddr) *queueWake {
	v := w.servers[at.addr]
	if v == nil {
		v = newWakeServer(w, at)
		w.servers[at.addr] = v
	}
	q := w.queues[name]
	if q == nil {
		q = &queueWake{name: name, server: v}
		w.queues[name] = q
		v.queues++
	}
	if q.server != v { // the queue has moved
		q.server.queues--
		v.queues++
		q.server, q.listing = v, min(q.listing, maybeListed)
	}
	return q
}

// release forgets a queue about which there is nothing to remember. The lock is held.
func (w *waker) release(q *queueWake) {
	if q.calls > 0 || len(q.waiters) > 0 || q.listing != notListed || q.queued || q.notified || w.queues[q.name] != q {
		return
	}
	if q.timer != nil {
		q.timer.Stop()
	}
	if q.unused != nil {
		q.unused.Stop()
	}
	delete(w.queues, q.name)
	q.server.queues--
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
	at := s.serverOf(ctx, queue)
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return store.ErrClosed
	}
	q := w.queue(queue, at)
	if q.notified {
		w.mu.Unlock()
		return nil
	}
	woken := make(chan error, 1)
	q.waiters = append(q.waiters, woken)
	if len(q.waiters) == 1 {
		w.waiting++
	}
	if patient := store.IsPatient(ctx); q.safety.IsZero() || patient != q.patient {
		q.patient = patient
		q.safety = time.Now().Add(w.safetyAfter(q))
	}
	q.server.start()
	w.settle(q)
	w.mu.Unlock()

	select {
	case err := <-woken:
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.closed {
			return store.ErrClosed
		}
		return err
	case <-ctx.Done():
		w.leave(q, woken)
		return context.Cause(ctx)
	}
}

// leave removes a waiter. If the waiter was already woken, the next one is woken.
func (w *waker) leave(q *queueWake, woken chan error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	for i, other := range q.waiters {
		if other == woken {
			q.waiters = append(q.waiters[:i], q.waiters[i+1:]...)
			if len(q.waiters) == 0 {
				w.waiting--
			}
			w.settle(q)
			return
		}
	}
	w.wakeOne(q, q.notified)
}

// Notify implements store.Notifier.
func (s *Store) Notify(_ context.Context, queue string) error {
	w := &s.waker
	w.mu.Lock()
	defer w.mu.Unlock()
	if q := w.queues[queue]; q != nil && !w.closed {
		w.wakeOne(q, q.notified)
	}
	return nil
}

// wakeOne wakes the longest waiting waiter. A notification is kept until a claim starts, or for the next waiter, so
// that it is not lost with a waiter that does not use it. The lock is held.
func (w *waker) wakeOne(q *queueWake, notified bool) {
	q.notified = q.notified || notified
	if len(q.waiters) > 0 {
		close(q.waiters[0])
		q.waiters = q.waiters[1:]
		if len(q.waiters) == 0 {
			q.waiters = nil
			w.waiting--
		}
	}
	w.settle(q)
}

// begin is called before a call that can change the listing. The lock is held.
func (w *waker) begin(q *queueWake) claimStart {
	q.begun++
	q.calls++
	start := claimStart{q: q, server: q.server, at: time.Now(), begun: q.begun, heard: q.heard, epoch: q.server.epoch,
		alone: q.calls == 1}
	if q.server.listening {
		start.channel = q.server.channel
		q.listing = maybeListed
	}
	return start
}

// end is called after it. It reports whether its outcome is the current state: no other such call was in flight, and
// this process still listens on the same connection. The lock is held.
func (w *waker) end(start claimStart) bool {
	q := start.q
	q.calls--
	return start.alone && q.begun == start.begun && q.server == start.server && q.server.epoch == start.epoch
}

// claiming is called before a claim; its outcome is then passed to claimed or failed.
func (w *waker) claiming(ctx context.Context, queue string) claimStart {
	at := w.s.serverOf(ctx, queue)
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.queue(queue, at)
	q.notified = false
	return w.begin(q)
}

// claimReply is the part about waiting in the reply to a claim.
type claimReply struct {
	now     time.Time // server's clock
	next    time.Time // when this process has to claim again; zero if it need not
	more    bool      // more messages were left behind
	busy    bool      // nothing is left to do now, and this process does not wait
	removed bool      // this process was removed from the list
}

func (w *waker) claimed(start claimStart, r claimReply) {
	w.mu.Lock()
	defer w.mu.Unlock()
	received := time.Now()
	if step := start.server.clock.read(start.at, received, r.now); step.Abs() >= minLoggedStep {
		w.s.log.Warn("later: the server's clock was stepped; messages are early or late by that much",
			"by", step.Round(time.Millisecond))
	}
	q := start.q
	current := w.end(start)
	q.safety = received.Add(w.safetyAfter(q))
	switch {
	case r.more:
		if current && (r.removed || start.channel == "") {
			q.listing = notListed
		}
		q.next = time.Time{}
		if len(q.waiters) > 0 {
			w.wakeOne(q, true)
		}
	case r.busy && start.channel != "":
		if current {
			q.listing = notListed
		}
		q.next = time.Time{}
	default:
		w.expect(q, start, current, r.next)
	}
	w.settle(q)
}

// expect records when this process has to claim, according to a reply. The lock is held.
func (w *waker) expect(q *queueWake, start claimStart, current bool, next time.Time) {
	if current {
		q.listing = notListed
		if start.channel != "" {
			q.listing = listed
		}
	}
	// A message on the other connection may be newer than this reply, and so may the reply to another claim.
	if (!current || q.heard != start.heard) && !q.next.IsZero() && (next.IsZero() || q.next.Before(next)) {
		return
	}
	q.next = next
}

// failed is called instead of claimed after an error.
func (w *waker) failed(start claimStart) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end(start)
	w.settle(start.q)
}

// hear is called when another process has sent the time when this one has to claim.
func (w *waker) hear(q *queueWake, due time.Time) {
	q.heard++
	q.listing = max(q.listing, maybeListed)
	now, known := q.server.clock.arrival()
	if !known || !due.After(now) {
		w.wakeOne(q, true)
		return
	}
	if q.next.IsZero() || due.Before(q.next) {
		q.next = due
	}
	w.settle(q)
}

// settle sets the queue's timers according to its state and wakes the server's goroutine if it has work. The lock is
// held.
func (w *waker) settle(q *queueWake) {
	if w.closed {
		return
	}
	unused := q.calls == 0 && (q.notified || len(q.waiters) == 0 && q.listing != notListed)
	switch {
	case unused && !q.giving:
		q.giving = true
		if q.unused == nil {
			q.unused = time.AfterFunc(unusedAfter, func() { w.giveUp(q) })
		} else {
			q.unused.Reset(unusedAfter)
		}
	case !unused && q.giving:
		q.giving = false
		q.unused.Stop()
	}
	if len(q.waiters) == 0 {
		if q.timer != nil {
			q.timer.Stop()
		}
		w.release(q)
		return
	}
	if q.calls == 0 && q.server.mustLook(q) {
		q.server.attend(q)
	}
	w.arm(q)
}

// arm sets the timer that wakes a waiter. The lock is held.
func (w *waker) arm(q *queueWake) {
	wait := time.Until(q.safety)
	if now, known := q.server.clock.arrival(); known && !q.next.IsZero() {
		wait = min(wait, q.next.Sub(now))
	}
	if q.timer == nil {
		q.timer = precise.AfterFunc(max(wait, 0), func() { w.fire(q) })
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
	now, known := q.server.clock.arrival()
	switch {
	case known && !q.next.IsZero() && !q.next.After(now):
		q.next = time.Time{}
		w.wakeOne(q, true)
	case time.Until(q.safety) <= 0:
		// The woken waiter claims. If it does not, the next waiter makes a safety claim.
		q.safety = time.Now().Add(w.safetyAfter(q))
		w.wakeOne(q, false)
	default:
		w.arm(q) // a stale timer
	}
}

// giveUp is called when a notification was not used, or the process does not wait any more. It wakes the next waiter of
// this process or, if there is none, leaves the list, so that another process is notified.
func (w *waker) giveUp(q *queueWake) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !q.giving || w.closed {
		return
	}
	q.giving = false
	switch {
	case len(q.waiters) > 0:
		w.wakeOne(q, true)
	case q.listing == notListed:
		q.notified = false
		w.release(q)
	default:
		q.server.attend(q)
	}
}

// safetyAfter returns a random time until the next safety claim of a queue. The lock is held.
func (w *waker) safetyAfter(q *queueWake) time.Duration {
	interval, deaf, rate := safetyInterval, deafInterval, time.Duration(safetyRate)
	if q.patient {
		interval, deaf = patientInterval, safetyInterval
	}
	for _, v := range w.servers {
		if v.deaf() {
			interval, rate = deaf, deafRate
		}
	}
	d := max(interval, time.Duration(w.waiting)*time.Second/rate)
	return d*4/5 + rand.N(d*2/5)
}

// hasten brings safety claims forward that would now be set to an earlier time. The lock is held.
func (w *waker) hasten() {
	now := time.Now()
	for _, q := range w.queues {
		if soon := now.Add(w.safetyAfter(q)); len(q.waiters) > 0 && soon.Before(q.safety) {
			q.safety = soon
			w.arm(q)
		}
	}
}

// close ends every wait and leaves all lists, so that other processes take over.
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
		if q.unused != nil {
			q.unused.Stop()
		}
	}
	for _, v := range w.servers {
		v.stop()
	}
	w.mu.Unlock()
	w.done.Wait()
	if !first {
		return
	}
	w.mu.Lock()
	servers := slices.Collect(maps.Values(w.servers))
	w.mu.Unlock()
	var leaving sync.WaitGroup
	for _, v := range servers {
		leaving.Go(v.leaveAll)
	}
	leaving.Wait()
}
