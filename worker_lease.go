package later

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laterq/later/internal/slots"
	"github.com/laterq/later/store"
)

// cancelCheck is the time between two looks for messages that were cancelled: a handler learns of it within a second.
const cancelCheck = 750 * time.Millisecond

// lease holds the messages of one claim until all are settled.
type lease struct {
	id      string
	claim   any // opaque to the worker; see store.Receipt
	qw      *queueWorker
	arrived time.Time    // when the claim returned
	tasks   []slots.Task // each a *task
	acks    *ackGroup    // batches its acks; nil below minAckGroup
	open    atomic.Int64 // tasks that are neither settled nor lost

	// Guarded by leaseKeeper.mu.
	deadline time.Time // see leaseEnd
	beatAt   time.Time // when to extend it
	lookAt   time.Time // when to ask what was cancelled
	beating  bool      // one of both is in flight
	extend   bool      // that is an extension; unchanged while beating
	lost     bool      // it has ended; settles in flight keep it here
}

// leaseEnd returns a time before which a lease of this length, requested at asked, cannot end. The store
// adds the length to a clock of whole milliseconds, and does so after asked.
func leaseEnd(asked time.Time, length time.Duration) time.Time {
	return asked.Add(length - time.Millisecond)
}

// maxBuffer returns how long a message of the queue may wait in the buffer.
func (qw *queueWorker) maxBuffer() time.Duration { return min(qw.cfg.Lease/4, slots.MaxBuffered) }

// leaseKeeper is the one goroutine of a worker that acts on time. It extends leases at a third of their
// length, and asks every cancelCheck which of their messages were cancelled, with one call for all leases
// of a queue that are almost due for one of these. It ends the handlers of leases that
// expired because the store could not be reached. It releases messages that waited in a buffer for too
// long, and retries failed settles.
type leaseKeeper struct {
	r     *run
	wake  chan struct{} // has a token when there is something to do before next
	ended chan struct{}

	mu      sync.Mutex
	leases  map[*lease]struct{}
	retries []*task   // settles to retry
	next    time.Time // the next beat; zero during a beat and when none is scheduled
	beating time.Time // when the beat in progress began; zero when there is none
	stopped bool
}

func newLeaseKeeper(r *run) *leaseKeeper {
	return &leaseKeeper{r: r, wake: make(chan struct{}, 1), ended: make(chan struct{}), leases: map[*lease]struct{}{}}
}

// add starts to extend a lease that was requested at asked.
func (k *leaseKeeper) add(held *lease, asked time.Time) {
	length := held.qw.cfg.Lease
	k.mu.Lock()
	defer k.mu.Unlock()
	held.deadline = leaseEnd(asked, length)
	held.beatAt, held.lookAt = asked.Add(length/3), asked.Add(cancelCheck)
	k.leases[held] = struct{}{}
	k.wakeBy(earlier(held.attention(), held.arrived.Add(held.qw.maxBuffer())))
}

// attention returns when the lease is to be extended or asked about.
func (held *lease) attention() time.Time { return earlier(held.beatAt, held.lookAt) }

// forget removes a lease whose tasks have all ended.
func (k *leaseKeeper) forget(held *lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.leases, held)
	if len(k.leases) == 0 {
		k.r.signalChange()
	}
}

// unsettled returns the number of claimed messages that are neither settled nor lost.
func (k *leaseKeeper) unsettled() (n int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for held := range k.leases {
		n += held.open.Load()
	}
	return n
}

// tasks returns the tasks of all leases, including ended tasks.
func (k *leaseKeeper) tasks() (all []*task) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for held := range k.leases {
		for _, t := range held.tasks {
			all = append(all, t.(*task))
		}
	}
	return all
}

// end returns a time before which the lease cannot have ended.
func (k *leaseKeeper) end(held *lease) time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return held.deadline
}

// retry schedules the task's next settle. It reports false when the worker has ended.
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

// wakeBy schedules a beat at the given time or earlier. The lock is held.
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

func (k *leaseKeeper) stop() {
	k.mu.Lock()
	k.stopped = true
	k.mu.Unlock()
	close(k.ended)
}

// beat does what is due and returns the time of the next beat, or zero when there is nothing to wait for.
func (k *leaseKeeper) beat(now time.Time) time.Time {
	k.mu.Lock()
	k.next, k.beating = time.Time{}, now // anything scheduled from here on wakes run
	ended, due, next := k.sortLeases(now)
	queues := map[*queueWorker]struct{}{} // those that may have messages in their buffer
	for held := range k.leases {
		queues[held.qw] = struct{}{}
	}
	again := k.takeRetries(now)
	for _, t := range k.retries {
		next = earlier(next, t.unusual.retry.at)
	}
	k.mu.Unlock()

	for _, held := range ended {
		for _, t := range held.tasks {
			t.(*task).lose(ErrLeaseLost)
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
	for qw := range queues {
		stale, oldest := k.r.scheduler.Stale(qw.slots, now.Add(-qw.maxBuffer()))
		for _, t := range stale {
			t.(*task).release(nil)
		}
		if !oldest.IsZero() {
			next = earlier(next, oldest.Add(qw.maxBuffer()))
		}
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	k.next, k.beating = earlier(k.next, next), time.Time{}
	return k.next
}

// sortLeases returns the leases that have ended and those to extend or ask about. When a lease of a queue is
// due, the queue's leases that are almost due are included. next is when another lease needs attention. The lock
// is held.
func (k *leaseKeeper) sortLeases(now time.Time) (ended []*lease, due map[*queueWorker][]*lease, next time.Time) {
	due = map[*queueWorker][]*lease{}
	extend := map[*queueWorker]bool{}
	for held := range k.leases {
		if !held.lost && !held.beating && !now.Before(held.attention()) {
			due[held.qw] = nil
			extend[held.qw] = extend[held.qw] || !now.Before(held.beatAt)
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
		held.extend = extend[held.qw] && !now.Before(held.beatAt.Add(-held.qw.cfg.Lease/10))
		if held.extend || queueDue && !now.Before(held.lookAt.Add(-cancelCheck/5)) {
			held.beating = true
			due[held.qw] = append(due[held.qw], held)
		} else {
			next = earlier(next, held.attention())
		}
	}
	return ended, due, next
}

// takeRetries returns the tasks whose settles are to be retried now. The lock is held.
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

// extend extends leases of one queue, or asks about them, and ends the handlers of lost messages.
func (k *leaseKeeper) extend(qw *queueWorker, leases []*lease) {
	extensions := make([]store.Extension, len(leases))
	for i, held := range leases {
		extensions[i] = store.Extension{Lease: held.id}
		if held.extend {
			extensions[i].For = qw.cfg.Lease
		}
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
			k.extended(held, asked, extensions[i].For, store.ExtendResult{Err: err})
		} else {
			k.extended(held, asked, extensions[i].For, results[i])
		}
	}
}

// extended records the result of an extension that was requested at asked. If it was by 0, it was a question only.
func (k *leaseKeeper) extended(held *lease, asked time.Time, by time.Duration, result store.ExtendResult) {
	lost := errors.Is(result.Err, ErrLeaseLost)
	k.mu.Lock()
	held.beating, held.lookAt = false, asked.Add(cancelCheck)
	switch {
	case lost:
		held.lost = true
	case result.Err != nil:
		held.lookAt = time.Now().Add(cancelCheck)
		if by > 0 {
			held.beatAt = time.Now().Add(min(by/10, time.Second))
		}
	case by > 0:
		held.deadline = leaseEnd(asked, by)
		held.beatAt = asked.Add(by / 3)
	}
	k.wakeBy(held.attention())
	k.mu.Unlock()

	for _, held := range held.tasks {
		t := held.(*task)
		switch {
		case slices.ContainsFunc(result.Lost, func(r store.Receipt) bool { return r.ID == t.ID }):
			t.lose(ErrCancelled)
		case lost: // also when all of its messages were cancelled
			t.lose(ErrLeaseLost)
		}
	}
}

// earlier returns the earlier of two times, ignoring zero times.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
