package later

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laterq/later/store"
)

// maxBuffered is how long a message may wait in a buffer at most; it then goes to whoever is free.
const maxBuffered = time.Second

// lease holds the messages of one claim, from the claim until all are settled.
type lease struct {
	id      string
	claim   any // the store's note, see store.Receipt
	qw      *queueWorker
	arrived time.Time // when the claim came back
	tasks   []*task
	acks    *ackGroup    // in which its acks go; nil for a lease that is so small that acking it in parts costs little
	open    atomic.Int64 // tasks that are neither settled nor lost

	// Guarded by heart.mu.
	deadline time.Time // see leaseEnd
	beatAt   time.Time // when to extend it
	beating  bool      // an extension is on its way
	lost     bool      // it has ended; only settles under way keep it here
}

// leaseEnd is a time before which a lease that was asked for, or extended, at asked cannot end: the store adds
// the length to a clock of whole milliseconds and began later than it was asked.
func leaseEnd(asked time.Time, length time.Duration) time.Time {
	return asked.Add(length - time.Millisecond)
}

// maxBuffer is how long a message of the lane may wait in the buffer.
func (qw *queueWorker) maxBuffer() time.Duration { return min(qw.cfg.Lease/4, maxBuffered) }

// heart is the one goroutine of a worker that works by the clock. It extends the leases at a third of their
// length, all that are about due in one call a queue; ends the handlers whose leases have ended because the
// store could not be reached; gives back what has waited in a buffer for too long; and repeats failed settles.
type leaseKeeper struct {
	r     *run
	wake  chan struct{} // holds a token when there is something to do before next
	ended chan struct{}

	mu      sync.Mutex
	leases  map[*lease]struct{}
	retries []*task   // settles to repeat
	next    time.Time // when it wakes by itself; zero while it works, and when it has no reason to
	stopped bool
}

func newLeaseKeeper(r *run) *leaseKeeper {
	return &leaseKeeper{r: r, wake: make(chan struct{}, 1), ended: make(chan struct{}), leases: map[*lease]struct{}{}}
}

// add takes care of a lease that was asked for at asked.
func (k *leaseKeeper) add(held *lease, asked time.Time) {
	length := held.qw.cfg.Lease
	k.mu.Lock()
	defer k.mu.Unlock()
	held.deadline = leaseEnd(asked, length)
	held.beatAt = asked.Add(length / 3)
	k.leases[held] = struct{}{}
	k.wakeBy(earlier(held.beatAt, held.arrived.Add(held.qw.maxBuffer())))
}

// forget drops a lease whose tasks have all ended.
func (k *leaseKeeper) forget(held *lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.leases, held)
	if len(k.leases) == 0 {
		k.r.signalChange()
	}
}

// unsettled counts the messages that were claimed and are neither settled nor lost.
func (k *leaseKeeper) unsettled() (n int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for held := range k.leases {
		n += held.open.Load()
	}
	return n
}

// tasks gives the tasks of all leases, ended ones too.
func (k *leaseKeeper) tasks() (all []*task) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for held := range k.leases {
		all = append(all, held.tasks...)
	}
	return all
}

// end gives the time before which the lease cannot have ended.
func (k *leaseKeeper) end(held *lease) time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return held.deadline
}

// retry has the task's settle repeated at its time; false when the worker has ended.
func (k *leaseKeeper) retry(t *task) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopped {
		return false
	}
	k.retries = append(k.retries, t)
	k.wakeBy(t.unusual.retry.at)
	return true
}

// wakeBy sees to it that the heart beats at the given time or before. The lock is held.
func (k *leaseKeeper) wakeBy(at time.Time) {
	if k.next.IsZero() || at.Before(k.next) {
		k.next = at
		select {
		case k.wake <- struct{}{}:
		default:
		}
	}
}

func (k *leaseKeeper) run() {
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

// stop ends run.
func (k *leaseKeeper) stop() {
	k.mu.Lock()
	k.stopped = true
	k.mu.Unlock()
	close(k.ended)
}

// beat does what is due and gives the time of the next beat; zero when there is no reason for one.
func (k *leaseKeeper) beat(now time.Time) time.Time {
	k.mu.Lock()
	k.next = time.Time{} // so that whatever comes from here on wakes us
	ended, due, next := k.sortLeases(now)
	again := k.takeRetries(now)
	for _, t := range k.retries {
		next = earlier(next, t.unusual.retry.at)
	}
	k.mu.Unlock()

	for _, held := range ended {
		for _, t := range held.tasks {
			t.lose(ErrLeaseLost)
		}
	}
	for qw, leases := range due {
		for part := range slices.Chunk(leases, store.MaxBatch) {
			k.r.background.Go(func() { k.extend(qw, part) })
		}
	}
	for _, t := range again {
		t.settle()
	}
	for _, qw := range k.r.queueWorkers {
		stale, oldest := k.r.scheduler.stale(qw, now.Add(-qw.maxBuffer()))
		for _, t := range stale {
			t.giveBack(nil)
		}
		if !oldest.IsZero() {
			next = earlier(next, oldest.Add(qw.maxBuffer()))
		}
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	k.next = earlier(k.next, next)
	return k.next
}

// sortLeases finds the leases that have ended and those that are to be extended: where one of a lane is due, all
// that soon will be. next is when one of the others has to be looked at. The lock is held.
func (k *leaseKeeper) sortLeases(now time.Time) (ended []*lease, due map[*queueWorker][]*lease, next time.Time) {
	due = map[*queueWorker][]*lease{}
	for held := range k.leases {
		if !held.lost && !held.beating && !now.Before(held.beatAt) {
			due[held.qw] = nil
		}
	}
	for held := range k.leases {
		if held.lost {
			continue
		}
		if !now.Before(held.deadline) {
			held.lost = true
			ended = append(ended, held)
			continue
		}
		next = earlier(next, held.deadline)
		if held.beating {
			continue
		}
		_, queueDue := due[held.qw]
		if slack := held.qw.cfg.Lease / 10; queueDue && !now.Before(held.beatAt.Add(-slack)) {
			held.beating = true
			due[held.qw] = append(due[held.qw], held)
		} else {
			next = earlier(next, held.beatAt)
		}
	}
	return ended, due, next
}

// takeRetries gives the tasks whose settle is to be repeated now. The lock is held.
func (k *leaseKeeper) takeRetries(now time.Time) (due []*task) {
	k.retries = slices.DeleteFunc(k.retries, func(t *task) bool {
		if now.Before(t.unusual.retry.at) {
			return false
		}
		due = append(due, t)
		return true
	})
	return due
}

// extend extends leases of one lane and ends the handlers of messages that are lost.
func (k *leaseKeeper) extend(qw *queueWorker, leases []*lease) {
	extensions := make([]store.Extension, len(leases))
	for i, held := range leases {
		extensions[i] = store.Extension{Lease: held.id, For: qw.cfg.Lease}
	}
	ctx, cancel := context.WithTimeout(k.r.calling, min(callTimeout, qw.cfg.Lease))
	defer cancel()
	asked := time.Now()
	results, err := k.r.client.store.Extend(ctx, qw.queue.name, extensions)
	if err == nil {
		qw.worked()
	} else if k.r.calling.Err() == nil {
		qw.failed("extend leases", err)
	}
	for i, held := range leases {
		if err != nil {
			k.extended(held, asked, store.ExtendResult{Err: err})
		} else {
			k.extended(held, asked, results[i])
		}
	}
}

// extended notes the result of an extension that was asked for at asked.
func (k *leaseKeeper) extended(held *lease, asked time.Time, result store.ExtendResult) {
	length := held.qw.cfg.Lease
	lost := errors.Is(result.Err, ErrLeaseLost)
	k.mu.Lock()
	held.beating = false
	switch {
	case lost:
		held.lost = true
	case result.Err != nil:
		held.beatAt = time.Now().Add(min(length/10, time.Second))
	default:
		held.deadline = leaseEnd(asked, length)
		held.beatAt = asked.Add(length / 3)
	}
	k.wakeBy(held.beatAt)
	k.mu.Unlock()

	for _, t := range held.tasks {
		switch {
		case slices.ContainsFunc(result.Lost, func(r store.Receipt) bool { return r.ID == t.ID }):
			t.lose(ErrCancelled)
		case lost: // which it is too when all of its messages were cancelled
			t.lose(ErrLeaseLost)
		}
	}
}

// earlier gives the earlier of two times; a zero one is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
