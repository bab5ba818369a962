package handle

import (
	"context"
	"runtime"
	"time"

	"github.com/laterq/later/internal/batch"
	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/internal/event"
	"github.com/laterq/later/internal/hold"
	"github.com/laterq/later/internal/pump"
	"github.com/laterq/later/internal/slots"
	"github.com/laterq/later/store"
)

const (
	// MinAckGroup is the number of messages in the smallest claim with acks that wait for each other. Acking half a
	// lease of 500 costs three quarters of acking all of it; for a lease of 32 it is nine tenths (docs/benchmarks.md,
	// Scripts).
	MinAckGroup = 64
	// taskSlab is the number of tasks allocated at a time, because the fetching goroutine limits a busy queue.
	// A handler that keeps a message keeps its whole claim in memory.
	taskSlab = 32
)

// fetch claims messages until ctx ends. It claims for free slots, and for the buffer when that is low. When a claim
// found fewer messages than it asked for, fetch waits in the store without holding a slot.
func (q *Queue) fetch(ctx context.Context) {
	var reserved *slots.Reservation
	loop := pump.Loop{Env: &q.worker.Env, Outage: &q.outage, Attrs: []any{"doing", "claim messages"}, Wait: q.wait}
	loop.Ready = func(ctx context.Context) bool {
		reserved = q.worker.scheduler.Reserve(ctx, q.slots)
		return reserved != nil
	}
	loop.Once = func(ctx context.Context) (more bool, err error) { return q.claim(ctx, reserved) }
	loop.Run(ctx)
}

// fetchAhead makes a second claim while one is in flight and more messages are ready, so that the store
// need not wait for this process to handle the reply. It ends when no messages are left behind. It does not
// report errors: the other claim does.
func (q *Queue) fetchAhead(ctx context.Context) {
	for failures := 0; ; {
		reserved := q.worker.scheduler.ReserveAhead(ctx, q.slots)
		if reserved == nil {
			return
		}
		if _, err := q.claim(ctx, reserved); err != nil {
			calls.Pause(ctx, failures)
			failures++
		} else {
			failures = 0
		}
	}
}

// claim makes one claim for the reserved slots and room. It reports whether more messages may be ready.
func (q *Queue) claim(ctx context.Context, reserved *slots.Reservation) (more bool, err error) {
	w := q.worker
	defer w.beginClaim()()
	// The claim does not end with ctx: it may have claimed messages, and they must be released.
	calling := calls.Limit(w.Calling, min(calls.Timeout, q.Lease))
	defer calling.End()
	asked := time.Now()
	buffer := w.claimBuffers.Get().(*[]store.Claimed)
	defer w.claimBuffers.Put(buffer)
	req := store.ClaimRequest{Max: reserved.Max, Ahead: reserved.Buffer, Lease: q.Lease, Buffer: *buffer}
	call := q.watch.Begin(reserved.Ahead, asked.Sub(w.Begun))
	claim, err := w.Store.Claim(calling, q.Name, req)
	call.End()
	if err != nil {
		w.scheduler.Fail(q.slots, reserved)
		return false, err
	}
	w.Claimed()
	*buffer = claim.Messages[:0]
	defer clear(claim.Messages) // let the garbage collector free the messages
	// A claim that returned all that it asked for is not short, even if no more messages are ready: without a
	// free slot this worker must not consume a wake-up that another process could use.
	want := reserved.Max
	if claim.Limited {
		want -= reserved.Buffer
	}
	short := !claim.More && len(claim.Messages) < want
	q.FoundDead(claim)
	for _, t := range w.scheduler.Deliver(ctx, q.slots, reserved, q.receive(claim, asked), short, &claim) {
		t.(*Task).release(nil)
	}
	if short {
		runtime.Gosched() // let the handlers start before this goroutine prepares to wait
	}
	return !short, nil
}

// receive creates the tasks of a claim and hands their lease to the hold.Keeper.
func (q *Queue) receive(claim store.Claim, asked time.Time) []slots.Task {
	if len(claim.Messages) == 0 {
		return nil
	}
	held := &lease{
		Lease:   hold.Lease{ID: claim.Messages[0].Receipt.Lease, Queue: q.leases},
		claim:   claim.Messages[0].Receipt.Claim,
		queue:   q,
		arrived: time.Now(),
		tasks:   make([]slots.Task, len(claim.Messages)),
	}
	if len(held.tasks) >= MinAckGroup {
		held.acks = batch.NewGroup(len(held.tasks))
	}
	held.Holder = held
	wanted := q.wantsEvents()
	var tasks []Task
	for i := range claim.Messages {
		if len(tasks) == 0 {
			tasks = make([]Task, min(taskSlab, len(claim.Messages)-i))
		}
		t := &tasks[0]
		tasks = tasks[1:]
		t.init(held, &claim.Messages[i], claim.Now)
		held.tasks[i] = t
		if wanted {
			q.Report(event.Claimed, t, nil)
		}
	}
	q.Activity.Count(event.Claimed, len(held.tasks))
	q.worker.Leases.Keep(&held.Lease, len(held.tasks), asked)
	if !held.arrived.Before(hold.End(asked, q.Lease)) {
		held.Lost() // the reply came too late
	}
	return held.tasks
}

// wantsEvents reports whether there is an observer, or watchers of the queue.
func (q *Queue) wantsEvents() bool { return q.worker.Observed || q.Activity.WantsDetails() }

// wait blocks until a claim may find messages. It returns early when the worker is paused.
func (q *Queue) wait(ctx context.Context) error {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	if !q.worker.scheduler.BeginWait(q.slots, cancel) {
		return nil
	}
	defer q.worker.scheduler.EndWait(q.slots)
	err := q.worker.Store.Wait(waiting, q.Name)
	if waiting.Err() != nil && ctx.Err() == nil {
		return nil // paused
	}
	if err == nil && !q.worker.scheduler.Takes(q.slots) {
		// Handlers of other queues have the slots of this worker: its message would wait for them.
		calls.PassOn(ctx, q.worker.Store, q.worker.Log, q.Name)
	}
	return err
}

// lease holds the messages of one claim until all are settled.
type lease struct {
	hold.Lease
	claim   any // opaque to the worker; see store.Receipt
	queue   *Queue
	arrived time.Time    // when the claim returned
	tasks   []slots.Task // each a *Task
	acks    *batch.Group // batches its acks; nil below MinAckGroup
}

// Lost implements hold.Holder: it ends the handlers of a lease that has ended.
func (l *lease) Lost() {
	for _, t := range l.tasks {
		t.(*Task).lose(store.ErrLeaseLost)
	}
}

// Cancelled implements hold.Holder: it ends the handlers of messages that were cancelled.
func (l *lease) Cancelled(receipts []store.Receipt) {
	for _, r := range receipts {
		for _, held := range l.tasks {
			if t := held.(*Task); t.ID == r.ID {
				t.lose(store.ErrCancelled)
			}
		}
	}
}

// extended records whether a call for leases succeeded.
func (q *Queue) extended(err error) {
	if err == nil {
		q.outage.Over()
	} else {
		q.outage.Begin(err, "doing", "extend leases")
	}
}

// maxBuffer returns how long a message of the queue may wait in the buffer.
func (q *Queue) maxBuffer() time.Duration { return min(q.Lease/4, slots.MaxBuffered) }

// releaseStale releases the messages that have waited in the buffer for too long, so that other workers get them. It
// returns when the next one has.
func (q *Queue) releaseStale(now time.Time) (next time.Time) {
	stale, oldest := q.worker.scheduler.Stale(q.slots, now.Add(-q.maxBuffer()))
	for _, t := range stale {
		t.(*Task).release(nil)
	}
	if oldest.IsZero() {
		return oldest
	}
	return oldest.Add(q.maxBuffer())
}
