package later

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/laterq/later/internal/batch"
	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/internal/event"
	"github.com/laterq/later/internal/outcome"
	"github.com/laterq/later/store"
)

// settle sends the task's settlement. Complete is called with the result.
func (t *task) settle() {
	t.lease.qw.slots.BeginSettle()
	o := t.ending()
	s := store.Settlement{Receipt: t.receipt(), Action: o.Action, Delay: o.Delay, Reason: o.Reason, Then: o.then,
		ResetAttempts: o.Reset, Within: o.Within}
	switch s.Action {
	case store.Ack:
		s.DedupWindow, s.Grouped = t.dedupWindow, t.grouped
	case store.Nack, store.Bury, store.GiveBack:
		s.Duration, s.Worker = time.Duration(t.ran.Load()), t.lease.qw.run.cfg.Name
	}
	var g *batch.Group
	if o == &plainAck {
		g = t.lease.acks
	}
	if err := t.lease.qw.queue.settles.Put(s, t, g); err != nil {
		t.Complete(store.SettleResult{}, err)
	}
}

// Complete handles the result of a settle. It does not block.
func (t *task) Complete(result store.SettleResult, err error) {
	qw := t.lease.qw
	qw.run.scheduler.EndSettle(qw.slots)
	if err == nil {
		err = result.Err
	}
	switch {
	case err == nil || errors.Is(err, ErrNotDurable):
		t.settled(result.State)
	case errors.Is(err, ErrLeaseLost) && t.ending().retry != nil && time.Now().Before(qw.run.leases.End(&t.lease.Lease)):
		// The lease is still held, so our own earlier call settled the message and its reply was lost.
		t.settled(result.State)
	case errors.Is(err, ErrLeaseLost):
		t.event(EventLeaseLost, err)
		t.close()
	case t.tryAgain(err):
	default:
		qw.run.log.Error("later: a message could not be settled and will be delivered again when its lease ends",
			"queue", t.Queue, "id", t.ID, "attempt", t.Attempt, "action", t.ending().Action, "error", err)
		t.event(EventUnsettled, err)
		t.close()
	}
}

func (t *task) settled(state State) {
	qw := t.lease.qw
	qw.outage.Over()
	o := t.ending()
	t.event(event.OfSettle(o.Action, state), o.err)
	qw.run.client.sentWithAck(t.ctx(), o.then)
	switch {
	case state == StateDead:
		t.event(EventDied, o.err)
		qw.run.dead.Settled(t.Queue, t.ID, t.Attempt, t.MaxAttempts, o.err)
	case o.Action == store.Nack:
		t.logFailure(o.Delay, o.err)
	case o.Action == store.GiveBack:
		qw.misfits.Wait(outcome.MisfitOf(t.Headers, o.err), o.Delay)
	}
	t.close()
}

// tryAgain schedules another settle with the same receipt, until the time at which the lease would have
// ended when the settle first failed. It reports false when a retry has no point.
func (t *task) tryAgain(err error) bool {
	if calls.IsPermanent(err) {
		return false
	}
	t.lease.qw.outage.Begin(err, "doing", "settle messages")
	leases := t.lease.qw.run.leases
	o := *t.ending()
	if o.retry == nil {
		o.retry = &settleRetry{giveUpAt: leases.End(&t.lease.Lease)}
		t.unusual = &o
	}
	o.retry.at = time.Now().Add(calls.PauseAfter(o.retry.failures))
	o.retry.failures++
	return o.retry.at.Before(o.retry.giveUpAt) && leases.Retry(o.retry.at, t.settle)
}

// close ends the holding of the task.
func (t *task) close() { t.lease.qw.run.leases.Close(&t.lease.Lease) }

// levelOf returns the level that is configured, or else a default.
func levelOf(configured slog.Leveler, otherwise slog.Level) slog.Level {
	if configured == nil {
		return otherwise
	}
	return configured.Level()
}

// logFailure logs a failed attempt after which the message is delivered again.
func (t *task) logFailure(delay time.Duration, err error) {
	r := t.lease.qw.run
	level := levelOf(r.cfg.FailureLevel, slog.LevelDebug)
	if r.log.Enabled(context.Background(), level) {
		r.log.Log(context.Background(), level, "later: an attempt failed",
			"queue", t.Queue, "id", t.ID, "attempt", t.Attempt, "of", t.MaxAttempts, "again_in", delay, "error", err)
	}
}
