package later

import (
	"time"

	"github.com/laterq/later/internal/hold"
	"github.com/laterq/later/internal/slots"
	"github.com/laterq/later/store"
)

// lease holds the messages of one claim until all are settled.
type lease struct {
	hold.Lease
	claim   any // opaque to the worker; see store.Receipt
	qw      *queueWorker
	arrived time.Time    // when the claim returned
	tasks   []slots.Task // each a *task
	acks    *ackGroup    // batches its acks; nil below minAckGroup
}

// maxBuffer returns how long a message of the queue may wait in the buffer.
func (qw *queueWorker) maxBuffer() time.Duration { return min(qw.cfg.Lease/4, slots.MaxBuffered) }

// Lost implements hold.Holder: it ends the handlers of a lease that has ended.
func (l *lease) Lost() {
	for _, t := range l.tasks {
		t.(*task).lose(ErrLeaseLost)
	}
}

// Cancelled implements hold.Holder: it ends the handlers of messages that were cancelled.
func (l *lease) Cancelled(receipts []store.Receipt) {
	for _, r := range receipts {
		for _, held := range l.tasks {
			if t := held.(*task); t.ID == r.ID {
				t.lose(ErrCancelled)
			}
		}
	}
}

// extended records whether a call for leases succeeded.
func (qw *queueWorker) extended(err error) {
	if err == nil {
		qw.outage.Over()
	} else {
		qw.outage.Begin(err, "doing", "extend leases")
	}
}

// releaseStale releases the messages that have waited in the buffer for too long, so that other workers get them. It
// returns when the next one has.
func (qw *queueWorker) releaseStale(now time.Time) (next time.Time) {
	stale, oldest := qw.run.scheduler.Stale(qw.slots, now.Add(-qw.maxBuffer()))
	for _, t := range stale {
		t.(*task).release(nil)
	}
	if oldest.IsZero() {
		return oldest
	}
	return oldest.Add(qw.maxBuffer())
}

// tasks returns the tasks of all leases, including ended tasks.
func (r *run) tasks() (all []*task) {
	for _, h := range r.leases.Holders() {
		if l, ok := h.(*lease); ok {
			for _, t := range l.tasks {
				all = append(all, t.(*task))
			}
		}
	}
	return all
}
