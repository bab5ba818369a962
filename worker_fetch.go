package later

import (
	"context"
	"runtime"
	"time"

	"github.com/laterq/later/internal/batch"
	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/internal/hold"
	"github.com/laterq/later/internal/pump"
	"github.com/laterq/later/internal/slots"
	"github.com/laterq/later/store"
)

// minAckGroup is the number of messages in the smallest claim with acks that wait for each other. Acking half a lease
// of 500 costs three quarters of acking all of it; for a lease of 32 it is nine tenths (docs/benchmarks.md, Scripts).
const minAckGroup = 64

// taskSlab is the number of tasks allocated at a time, because the fetching goroutine limits a busy queue.
// A handler that keeps a message keeps its whole claim in memory.
const taskSlab = 32

// fetch claims messages for a queue until ctx ends. It claims for free slots, and for the buffer when that
// is low. When a claim found fewer messages than it asked for, fetch waits in the store without holding a
// slot.
func (r *run) fetch(ctx context.Context, qw *queueWorker) {
	var reserved *slots.Reservation
	loop := pump.Loop{Env: r.env, Outage: qw.outage, Attrs: []any{"doing", "claim messages"}}
	loop.Ready = func(ctx context.Context) bool {
		reserved = r.scheduler.Reserve(ctx, qw.slots)
		return reserved != nil
	}
	loop.Once = func(ctx context.Context) (more bool, err error) {
		short, err := r.fetchOnce(ctx, qw, reserved)
		return !short, err
	}
	loop.Wait = func(ctx context.Context) error { return r.wait(ctx, qw) }
	loop.Run(ctx)
}

// fetchAhead makes a second claim while one is in flight and more messages are ready, so that the store
// need not wait for this process to handle the reply. It ends when no messages are left behind. It does not
// report errors: the other claim does.
func (r *run) fetchAhead(ctx context.Context, qw *queueWorker) {
	for failures := 0; ; {
		reserved := r.scheduler.ReserveAhead(ctx, qw.slots)
		if reserved == nil {
			return
		}
		if _, err := r.fetchOnce(ctx, qw, reserved); err != nil {
			calls.Pause(ctx, failures)
			failures++
		} else {
			failures = 0
		}
	}
}

// fetchOnce makes one claim for the reserved slots and room. It reports whether it got fewer messages.
func (r *run) fetchOnce(ctx context.Context, qw *queueWorker, reserved *slots.Reservation) (short bool, err error) {
	defer r.beginClaim()()
	// The claim does not end with ctx: it may have claimed messages, and they must be released.
	calling, cancel := context.WithTimeout(r.calling, min(callTimeout, qw.cfg.Lease))
	defer cancel()
	asked := time.Now()
	buffer := r.claimBuffers.Get().(*[]store.Claimed)
	defer r.claimBuffers.Put(buffer)
	req := store.ClaimRequest{Max: reserved.Max, Lease: qw.cfg.Lease, Buffer: *buffer}
	call := qw.watch.Begin(reserved.Ahead, asked.Sub(r.begun))
	claim, err := r.client.store.Claim(calling, qw.queue.name, req)
	call.End()
	if err != nil {
		r.scheduler.Fail(qw.slots, reserved)
		return false, err
	}
	r.hasClaimed()
	*buffer = claim.Messages[:0]
	defer clear(claim.Messages) // let the garbage collector free the messages
	// A claim that returned all that it asked for is not short, even if no more messages are ready: without a
	// free slot this worker must not consume a wake-up that another process could use.
	short = !claim.More && len(claim.Messages) < reserved.Max
	qw.FoundDead(claim)
	tasks := r.receive(qw, claim, asked)
	for _, t := range r.scheduler.Deliver(ctx, qw.slots, reserved, tasks, short) {
		t.(*task).release(nil)
	}
	if short {
		runtime.Gosched() // let the handlers start before this goroutine prepares to wait
	}
	return short, nil
}

// receive creates the tasks of a claim and hands their lease to the hold.Keeper.
func (r *run) receive(qw *queueWorker, claim store.Claim, asked time.Time) []slots.Task {
	if len(claim.Messages) == 0 {
		return nil
	}
	held := &lease{
		Lease:   hold.Lease{ID: claim.Messages[0].Receipt.Lease, Queue: qw.leases},
		claim:   claim.Messages[0].Receipt.Claim,
		qw:      qw,
		arrived: time.Now(),
		tasks:   make([]slots.Task, len(claim.Messages)),
	}
	if len(held.tasks) >= minAckGroup {
		held.acks = batch.NewGroup(len(held.tasks))
	}
	held.Holder = held
	reports := qw.queue.wantsEvents()
	var tasks []task
	for i := range claim.Messages {
		if len(tasks) == 0 {
			tasks = make([]task, min(taskSlab, len(claim.Messages)-i))
		}
		t := &tasks[0]
		tasks = tasks[1:]
		t.init(held, &claim.Messages[i], claim.Now)
		held.tasks[i] = t
		if reports {
			t.report(EventClaimed, nil)
		}
	}
	qw.queue.activity.Count(EventClaimed, len(held.tasks))
	r.leases.Keep(&held.Lease, len(held.tasks), asked)
	if !held.arrived.Before(hold.End(asked, qw.cfg.Lease)) {
		held.Lost() // the reply came too late
	}
	return held.tasks
}

// wait blocks until a claim may find messages. It returns early when the worker is paused.
func (r *run) wait(ctx context.Context, qw *queueWorker) error {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	if !r.scheduler.BeginWait(qw.slots, cancel) {
		return nil
	}
	defer r.scheduler.EndWait(qw.slots)
	err := r.client.store.Wait(waiting, qw.queue.name)
	if waiting.Err() != nil && ctx.Err() == nil {
		return nil // paused
	}
	return err
}

// lease holds the messages of one claim until all are settled.
type lease struct {
	hold.Lease
	claim   any // opaque to the worker; see store.Receipt
	qw      *queueWorker
	arrived time.Time    // when the claim returned
	tasks   []slots.Task // each a *task
	acks    *batch.Group // batches its acks; nil below minAckGroup
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
