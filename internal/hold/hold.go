// Package hold keeps the leases of a process: one Keeper extends the leases of all handlers, forwarders, topics and
// schedules of a worker, and says when one was lost. It imports packages store and internal/calls. Start reading at
// Keeper; whole.go has leases whose messages are worked on together.
package hold

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/store"
)

// cancelCheck is the time between two looks for messages that were cancelled: a handler learns of it within a second.
const cancelCheck = 750 * time.Millisecond

// Queue is a queue whose messages are held.
type Queue struct {
	Name   string
	Length time.Duration // of its leases
	// Looks is set if holders want to know soon which of their messages were cancelled.
	Looks bool
	// Called is called with the result of each call for the leases of the queue.
	Called func(error)
	// Beat, if set, is called at each beat while the queue has leases, the first time at the latest BeatAfter a lease
	// began. It returns when it is to be called again, or zero.
	Beat      func(now time.Time) (next time.Time)
	BeatAfter time.Duration
}

// Holder has the messages of a lease.
type Holder interface {
	// Lost is called when the lease has ended, also if all of its messages were cancelled.
	Lost()
	// Cancelled is called with messages of the lease that were cancelled.
	Cancelled([]store.Receipt)
}

// Lease is the lease of one claim until all of its messages are settled.
type Lease struct {
	ID     string
	Queue  *Queue
	Holder Holder
	open   atomic.Int64 // messages that are neither settled nor lost

	// Guarded by Keeper.mu.
	deadline time.Time // see End
	beatAt   time.Time // when to extend it
	lookAt   time.Time // when to ask what was cancelled; zero for never
	beating  bool      // one of both is in flight
	extend   bool      // that is an extension; unchanged while beating
	lost     bool      // it has ended; settles in flight keep it here
}

// End returns a time before which a lease of this length, requested at asked, cannot end. The store adds the length to
// a clock of whole milliseconds, and does so after asked.
func End(asked time.Time, length time.Duration) time.Time {
	return asked.Add(length - time.Millisecond)
}

// Keeper is the one goroutine of a worker that acts on time. It extends leases at a third of their length, and asks
// every cancelCheck which of their messages were cancelled, with one call for all leases of a queue that are almost due
// for one of these. It says when a lease expired because the store could not be reached, and calls what is to be
// retried later.
type Keeper struct {
	store   store.Store
	ctx     context.Context // for calls to the store
	changed func()          // called when the last lease is over
	running sync.WaitGroup  // run and its calls
	wake    chan struct{}   // has a token when there is something to do before next
	ended   chan struct{}

	mu      sync.Mutex
	leases  map[*Lease]struct{}
	retries []retry
	next    time.Time // the next beat; zero during a beat and when none is scheduled
	beating time.Time // when the beat in progress began; zero when there is none
	stopped bool
}

type retry struct {
	at    time.Time
	again func()
}

// New returns a Keeper whose calls to the store end with ctx. It calls changed when the last lease is over.
func New(ctx context.Context, s store.Store, changed func()) *Keeper {
	return &Keeper{
		store: s, ctx: ctx, changed: changed, wake: make(chan struct{}, 1), ended: make(chan struct{}),
		leases: map[*Lease]struct{}{},
	}
}

// Start starts to keep leases, until Stop is called.
func (k *Keeper) Start() { k.running.Go(k.run) }

// Stop returns when the goroutine and its calls have ended.
func (k *Keeper) Stop() {
	k.mu.Lock()
	k.stopped = true
	k.mu.Unlock()
	close(k.ended)
	k.running.Wait()
}

// Keep starts to extend a lease of n messages that was requested at asked.
func (k *Keeper) Keep(l *Lease, n int, asked time.Time) {
	length := l.Queue.Length
	l.open.Store(int64(n))
	k.mu.Lock()
	defer k.mu.Unlock()
	l.deadline, l.beatAt = End(asked, length), asked.Add(length/3)
	l.lookAgain(asked)
	k.leases[l] = struct{}{}
	next := l.attention()
	if l.Queue.Beat != nil {
		next = earlier(next, time.Now().Add(l.Queue.BeatAfter))
	}
	k.wakeBy(next)
}

// lookAgain sets the time of the next look.
func (l *Lease) lookAgain(from time.Time) {
	if l.Queue.Looks {
		l.lookAt = from.Add(cancelCheck)
	}
}

// attention returns when the lease is to be extended or asked about.
func (l *Lease) attention() time.Time { return earlier(l.beatAt, l.lookAt) }

// Close ends the holding of one message of a lease. After the last one the lease needs no more heartbeats.
func (k *Keeper) Close(l *Lease) {
	if l.open.Add(-1) != 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.leases, l)
	if len(k.leases) == 0 {
		k.changed()
	}
}

// Unsettled returns the number of messages that are neither settled nor lost.
func (k *Keeper) Unsettled() (n int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for l := range k.leases {
		n += l.open.Load()
	}
	return n
}

// Holders returns the holders of all leases.
func (k *Keeper) Holders() (all []Holder) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for l := range k.leases {
		all = append(all, l.Holder)
	}
	return all
}

// End returns a time before which the lease cannot have ended.
func (k *Keeper) End(l *Lease) time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return l.deadline
}

// Retry calls again, which must not block, at a time. It returns false when the Keeper has ended.
func (k *Keeper) Retry(at time.Time, again func()) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopped {
		return false
	}
	k.retries = append(k.retries, retry{at, again})
	k.wakeBy(at)
	return true
}

// Late returns for how long the Keeper has had something to do.
func (k *Keeper) Late(now time.Time) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	since := earlier(k.next, k.beating)
	if since.IsZero() || k.stopped {
		return 0
	}
	return now.Sub(since)
}

// wakeBy schedules a beat at the given time or earlier. The lock is held.
func (k *Keeper) wakeBy(at time.Time) {
	if k.next.IsZero() || at.Before(k.next) {
		k.next = at
		select {
		case k.wake <- struct{}{}:
		default:
		}
	}
}

func (k *Keeper) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if next := k.beat(time.Now()); next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
		select {
		case <-timer.C:
		case <-k.wake:
		case <-k.ended:
			return
		}
	}
}

// beat does what is due and returns the time of the next beat, or zero when there is nothing to wait for.
func (k *Keeper) beat(now time.Time) time.Time {
	k.mu.Lock()
	k.next, k.beating = time.Time{}, now // anything scheduled from here on wakes run
	ended, due, next := k.sortLeases(now)
	beats := map[*Queue]struct{}{}
	for l := range k.leases {
		if l.Queue.Beat != nil {
			beats[l.Queue] = struct{}{}
		}
	}
	again := k.takeRetries(now)
	for _, r := range k.retries {
		next = earlier(next, r.at)
	}
	k.mu.Unlock()

	for _, l := range ended {
		l.Holder.Lost()
	}
	for q, leases := range due {
		for part := range slices.Chunk(leases, store.MaxBatch) {
			k.running.Go(func() { k.extend(q, part) })
		}
	}
	for _, r := range again {
		r.again()
	}
	for q := range beats {
		next = earlier(next, q.Beat(now))
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	k.next, k.beating = earlier(k.next, next), time.Time{}
	return k.next
}

// sortLeases returns the leases that have ended, to extend and to ask about. When a lease of a queue is
// due, the queue's leases that are almost due are included. next is when another lease needs attention. The lock
// is held.
func (k *Keeper) sortLeases(now time.Time) (ended []*Lease, due map[*Queue][]*Lease, next time.Time) {
	due = map[*Queue][]*Lease{}
	extend := map[*Queue]bool{}
	for l := range k.leases {
		if !l.lost && !l.beating && !now.Before(l.attention()) {
			due[l.Queue] = nil
			extend[l.Queue] = extend[l.Queue] || !now.Before(l.beatAt)
		}
	}
	for l := range k.leases {
		if l.lost {
			continue
		}
		if !now.Before(l.deadline) {
			l.lost = true
			ended = append(ended, l)
			continue
		}
		next = earlier(next, l.deadline)
		if l.beating {
			continue
		}
		_, queueDue := due[l.Queue]
		l.extend = extend[l.Queue] && !now.Before(l.beatAt.Add(-l.Queue.Length/10))
		if l.extend || queueDue && l.Queue.Looks && !now.Before(l.lookAt.Add(-cancelCheck/5)) {
			l.beating = true
			due[l.Queue] = append(due[l.Queue], l)
		} else {
			next = earlier(next, l.attention())
		}
	}
	return ended, due, next
}

// takeRetries returns the retries that are due. The lock is held.
func (k *Keeper) takeRetries(now time.Time) (due []retry) {
	k.retries = slices.DeleteFunc(k.retries, func(r retry) bool {
		if now.Before(r.at) {
			return false
		}
		due = append(due, r)
		return true
	})
	return due
}

// extend extends leases of one queue, or asks about them, and tells the holders of lost messages.
func (k *Keeper) extend(q *Queue, leases []*Lease) {
	extensions := make([]store.Extension, len(leases))
	for i, l := range leases {
		extensions[i] = store.Extension{Lease: l.ID}
		if l.extend {
			extensions[i].For = q.Length
		}
	}
	ctx, cancel := context.WithTimeout(k.ctx, min(calls.Timeout, q.Length))
	defer cancel()
	asked := time.Now()
	results, err := k.store.Extend(ctx, q.Name, extensions)
	if err == nil || k.ctx.Err() == nil {
		q.Called(err)
	}
	for i, l := range leases {
		if err != nil {
			k.extended(l, asked, extensions[i].For, store.ExtendResult{Err: err})
		} else {
			k.extended(l, asked, extensions[i].For, results[i])
		}
	}
}

// extended records the result of an extension that was requested at asked. If it was by 0, it was a question only.
func (k *Keeper) extended(l *Lease, asked time.Time, by time.Duration, result store.ExtendResult) {
	lost := errors.Is(result.Err, store.ErrLeaseLost)
	k.mu.Lock()
	l.beating = false
	l.lookAgain(asked)
	switch {
	case lost:
		l.lost = true
	case result.Err != nil:
		l.lookAgain(time.Now())
		if by > 0 {
			l.beatAt = time.Now().Add(min(by/10, time.Second))
		}
	case by > 0:
		l.deadline = End(asked, by)
		l.beatAt = asked.Add(by / 3)
	}
	k.wakeBy(l.attention())
	k.mu.Unlock()

	if len(result.Lost) > 0 {
		l.Holder.Cancelled(result.Lost)
	}
	if lost { // also when all of its messages were cancelled
		l.Holder.Lost()
	}
}

// earlier returns the earlier of two times, ignoring zero times.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
