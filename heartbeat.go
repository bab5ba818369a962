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
	lane    *lane
	arrived time.Time // when the claim came back
	tasks   []*task
	acks    *group       // in which its acks go; nil for a lease that is so small that acking it in parts costs little
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
func (l *lane) maxBuffer() time.Duration { return min(l.cfg.Lease/4, maxBuffered) }

// heart is the one goroutine of a worker that works by the clock. It extends the leases at a third of their
// length, all that are about due in one call a queue; ends the handlers whose leases have ended because the
// store could not be reached; gives back what has waited in a buffer for too long; and repeats failed settles.
type heart struct {
	worker *run
	wake   chan struct{} // holds a token when there is something to do before next
	ended  chan struct{}

	mu      sync.Mutex
	leases  map[*lease]struct{}
	retries []*task   // settles to repeat
	next    time.Time // when it wakes by itself; zero while it works, and when it has no reason to
	stopped bool
}

func newHeart(r *run) *heart {
	return &heart{worker: r, wake: make(chan struct{}, 1), ended: make(chan struct{}), leases: map[*lease]struct{}{}}
}

// add takes care of a lease that was asked for at asked.
func (h *heart) add(held *lease, asked time.Time) {
	length := held.lane.cfg.Lease
	h.mu.Lock()
	defer h.mu.Unlock()
	held.deadline = leaseEnd(asked, length)
	held.beatAt = asked.Add(length / 3)
	h.leases[held] = struct{}{}
	h.wakeBy(earlier(held.beatAt, held.arrived.Add(held.lane.maxBuffer())))
}

// forget drops a lease whose tasks have all ended.
func (h *heart) forget(held *lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.leases, held)
	if len(h.leases) == 0 {
		h.worker.noteChange()
	}
}

// unsettled counts the messages that were claimed and are neither settled nor lost.
func (h *heart) unsettled() (n int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for held := range h.leases {
		n += held.open.Load()
	}
	return n
}

// tasks gives the tasks of all leases, ended ones too.
func (h *heart) tasks() (all []*task) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for held := range h.leases {
		all = append(all, held.tasks...)
	}
	return all
}

// end gives the time before which the lease cannot have ended.
func (h *heart) end(held *lease) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return held.deadline
}

// retry has the task's settle repeated at its time; false when the worker has ended.
func (h *heart) retry(t *task) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return false
	}
	h.retries = append(h.retries, t)
	h.wakeBy(t.unusual.retry.at)
	return true
}

// wakeBy sees to it that the heart beats at the given time or before. The lock is held.
func (h *heart) wakeBy(at time.Time) {
	if h.next.IsZero() || at.Before(h.next) {
		h.next = at
		select {
		case h.wake <- struct{}{}:
		default:
		}
	}
}

func (h *heart) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if next := h.beat(time.Now()); next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
		select {
		case <-timer.C:
		case <-h.wake:
		case <-h.ended:
			return
		}
	}
}

// stop ends run.
func (h *heart) stop() {
	h.mu.Lock()
	h.stopped = true
	h.mu.Unlock()
	close(h.ended)
}

// beat does what is due and gives the time of the next beat; zero when there is no reason for one.
func (h *heart) beat(now time.Time) time.Time {
	h.mu.Lock()
	h.next = time.Time{} // so that whatever comes from here on wakes us
	ended, due, next := h.sortLeases(now)
	again := h.takeRetries(now)
	for _, t := range h.retries {
		next = earlier(next, t.unusual.retry.at)
	}
	h.mu.Unlock()

	for _, held := range ended {
		for _, t := range held.tasks {
			t.lose(ErrLeaseLost)
		}
	}
	for l, leases := range due {
		for part := range slices.Chunk(leases, store.MaxBatch) {
			h.worker.background.Go(func() { h.extend(l, part) })
		}
	}
	for _, t := range again {
		t.settle()
	}
	for _, l := range h.worker.lanes {
		stale, oldest := h.worker.slots.stale(l, now.Add(-l.maxBuffer()))
		for _, t := range stale {
			t.giveBack(nil)
		}
		if !oldest.IsZero() {
			next = earlier(next, oldest.Add(l.maxBuffer()))
		}
	}

	h.mu.Lock()
	defer h.mu.Unlock()
	h.next = earlier(h.next, next)
	return h.next
}

// sortLeases finds the leases that have ended and those that are to be extended: where one of a lane is due, all
// that soon will be. next is when one of the others has to be looked at. The lock is held.
func (h *heart) sortLeases(now time.Time) (ended []*lease, due map[*lane][]*lease, next time.Time) {
	due = map[*lane][]*lease{}
	for held := range h.leases {
		if !held.lost && !held.beating && !now.Before(held.beatAt) {
			due[held.lane] = nil
		}
	}
	for held := range h.leases {
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
		_, laneDue := due[held.lane]
		if slack := held.lane.cfg.Lease / 10; laneDue && !now.Before(held.beatAt.Add(-slack)) {
			held.beating = true
			due[held.lane] = append(due[held.lane], held)
		} else {
			next = earlier(next, held.beatAt)
		}
	}
	return ended, due, next
}

// takeRetries gives the tasks whose settle is to be repeated now. The lock is held.
func (h *heart) takeRetries(now time.Time) (due []*task) {
	h.retries = slices.DeleteFunc(h.retries, func(t *task) bool {
		if now.Before(t.unusual.retry.at) {
			return false
		}
		due = append(due, t)
		return true
	})
	return due
}

// extend extends leases of one lane and ends the handlers of messages that are lost.
func (h *heart) extend(l *lane, leases []*lease) {
	extensions := make([]store.Extension, len(leases))
	for i, held := range leases {
		extensions[i] = store.Extension{Lease: held.id, For: l.cfg.Lease}
	}
	ctx, cancel := context.WithTimeout(h.worker.calling, min(callTimeout, l.cfg.Lease))
	defer cancel()
	asked := time.Now()
	results, err := h.worker.client.store.Extend(ctx, l.queue.name, extensions)
	if err == nil {
		l.worked()
	} else if h.worker.calling.Err() == nil {
		l.failed("extend leases", err)
	}
	for i, held := range leases {
		if err != nil {
			h.extended(held, asked, store.ExtendResult{Err: err})
		} else {
			h.extended(held, asked, results[i])
		}
	}
}

// extended notes the result of an extension that was asked for at asked.
func (h *heart) extended(held *lease, asked time.Time, result store.ExtendResult) {
	length := held.lane.cfg.Lease
	lost := errors.Is(result.Err, ErrLeaseLost)
	h.mu.Lock()
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
	h.wakeBy(held.beatAt)
	h.mu.Unlock()

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
