package later

import (
	"errors"
	"time"

	"github.com/laterq/later/store"
)

// settle sends the task's settlement on its way; complete hears of it.
func (t *task) settle() {
	t.lease.lane.settling.Add(1)
	o := t.ending()
	s := store.Settlement{Receipt: t.receipt(), Action: o.action, Delay: o.delay, Reason: o.reason}
	if s.Action == store.Ack {
		s.Remember = t.remember
	}
	var g *group
	if o == &plainAck {
		g = t.lease.acks
	}
	if err := t.lease.lane.queue.settles.put(s, t, g); err != nil {
		t.complete(store.SettleResult{}, err)
	}
}

// complete notes the outcome of a settle. It does not block.
func (t *task) complete(result store.SettleResult, err error) {
	l := t.lease.lane
	if l.settling.Add(-1) == maxSettling/2 {
		l.run.slots.settled(l)
	}
	if err == nil {
		err = result.Err
	}
	switch {
	case err == nil || errors.Is(err, ErrNotDurable):
		t.settled(result.State)
	case errors.Is(err, ErrLeaseLost) && t.ending().retry != nil && time.Now().Before(l.run.heart.end(t.lease)):
		// The lease is still ours, so it was our own call before that settled the message; its reply was lost.
		t.settled(result.State)
	case errors.Is(err, ErrLeaseLost):
		t.event(EventLeaseLost, err)
		t.close()
	case t.tryAgain(err):
	default:
		l.run.log.Error("later: a message could not be settled and comes again when its lease ends",
			"queue", t.Queue, "id", t.ID, "attempt", t.Attempt, "action", t.ending().action, "error", err)
		t.event(EventUnsettled, err)
		t.close()
	}
}

func (t *task) settled(state State) {
	l := t.lease.lane
	l.worked()
	o := t.ending()
	t.event(eventOf[o.action], o.err)
	if state == StateDead {
		t.event(EventDied, o.err)
		l.run.dead.add(l, t.ID)
	}
	t.close()
}

// tryAgain has the settle repeated, with the same receipt, until its lease would have ended when it first
// failed; false when there is no point in it.
func (t *task) tryAgain(err error) bool {
	if isPermanent(err) {
		return false
	}
	t.lease.lane.failed("settle messages", err)
	heart := t.lease.lane.run.heart
	o := *t.ending()
	if o.retry == nil {
		o.retry = &settleRetry{giveUpAt: heart.end(t.lease)}
		t.unusual = &o
	}
	o.retry.at = time.Now().Add(outagePause(o.retry.failures))
	o.retry.failures++
	return o.retry.at.Before(o.retry.giveUpAt) && heart.retry(t)
}

// close takes the task out of its lease; it needs no more heartbeats.
func (t *task) close() {
	if t.lease.open.Add(-1) == 0 {
		t.lease.lane.run.heart.forget(t.lease)
	}
}
