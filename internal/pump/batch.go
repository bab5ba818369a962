package pump

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/internal/event"
	"github.com/laterq/later/internal/hold"
	"github.com/laterq/later/store"
)

// Work processes the messages of a Batch.
type Work interface {
	// Do works on claimed messages, whose settlements are acks that it may change. An error says that it cannot go on
	// now. Messages are settled in either case.
	Do(ctx context.Context, claim store.Claim, settlements []store.Settlement) error
	// Acked is called with each message that was acked, to report it.
	Acked(m *store.Claimed, s *store.Settlement)
	// Settled is called with each other settlement that took effect.
	Settled(m *store.Claimed, s *store.Settlement, state store.State)
	// Refused is called when the store refuses settlements for good. It may change them. Without settlements, the
	// result of a single one was err, and the answer must not be SettleAgain.
	Refused(err error, settlements []store.Settlement) Answer
}

// Answer says how to go on with messages whose settlements were refused.
type Answer int

// The answers of Work.Refused.
const (
	GiveUp      Answer = iota // they are released
	DoAgain                   // Do gets them again
	SettleAgain               // they are settled again, one by one
)

// Reports is told the outcomes of the messages of a queue.
type Reports interface {
	Event(kind store.EventKind, id string)
	// FoundDead is called with the messages that a claim found dead.
	FoundDead(store.Claim)
	// Died is called with a message that is dead because of its settlement.
	Died(m *store.Claimed, reason string)
}

// Batch claims messages of a queue, does the Work with all of them under one lease, and settles them.
type Batch struct {
	*Env
	Queue *hold.Queue
	// Uncounted claims do not count attempts. The messages can be tried for ever.
	Uncounted bool
	Work      Work
	Reports   Reports
	Outage    *Outage
	Watch     Watch // of claims
	Unsettled int   // messages of the last claim that could be neither settled nor released
}

// Once is the Once of a Loop.
func (b *Batch) Once(context.Context) (more bool, err error) {
	defer b.BeginClaim()()
	claim, asked, err := b.claim()
	if n := int64(len(claim.Messages)); n > 0 && err == nil {
		b.Holding.Add(n)
		defer b.Holding.Add(-n)
		err = b.do(claim, asked)
	}
	return claim.More, err
}

// claim claims messages, and returns when it asked for them.
func (b *Batch) claim() (claim store.Claim, asked time.Time, err error) {
	lease := b.Queue.Length
	ctx := calls.Limit(b.Calling, min(calls.Timeout, lease))
	defer ctx.End()
	asked = time.Now()
	call := b.Watch.Begin(false, asked.Sub(b.Begun))
	req := store.ClaimRequest{Max: store.MaxBatch, Lease: lease, Uncounted: b.Uncounted}
	claim, err = b.Store.Claim(ctx, b.Queue.Name, req)
	call.End()
	if err == nil {
		b.Claimed()
		b.Unsettled = 0
		b.Reports.FoundDead(claim)
	}
	return claim, asked, err
}

// do does the work with claimed messages, and settles them.
func (b *Batch) do(claim store.Claim, asked time.Time) error {
	held := b.Leases.Whole(b.Calling, b.Queue, claim.Messages[0].Receipt.Lease, asked)
	defer held.Release()
	for {
		settlements := make([]store.Settlement, len(claim.Messages))
		for i := range claim.Messages {
			m := &claim.Messages[i]
			settlements[i] = store.Settlement{
				Receipt: m.Receipt, Action: store.Ack, DedupWindow: m.DedupWindow, Grouped: m.Group != "",
			}
		}
		err := b.Work.Do(held.Context, claim, settlements)
		again, failed := b.settle(held, claim.Messages, settlements)
		if err = cmp.Or(err, failed); err != nil || len(again) == 0 {
			return err
		}
		claim.Messages = again
	}
}

// settle settles claimed messages, and returns the messages to do again. After an error it releases the messages that
// are left.
func (b *Batch) settle(
	held *hold.Whole, msgs []store.Claimed, settlements []store.Settlement,
) (again []store.Claimed, err error) {
	alone := false // one message in a call
	for first := 0; first < len(settlements); {
		last := first + 1
		if !alone {
			last = partEnd(settlements, first)
		}
		part := settlements[first:last]
		results, err := b.trySettle(held, part)
		if calls.IsRefusal(err) {
			switch b.Work.Refused(err, part) {
			case DoAgain:
				again = append(again, msgs[first:last]...)
				first = last
				continue
			case SettleAgain:
				alone = true
				continue
			}
		}
		for i, result := range results {
			redo, failed := b.settled(&msgs[first+i], &part[i], result)
			if redo {
				again = append(again, msgs[first+i])
			}
			err = cmp.Or(err, failed)
		}
		if err != nil {
			rest := settlements[first:]
			for i := range again {
				rest = append(rest, store.Settlement{Receipt: again[i].Receipt})
			}
			b.release(rest)
			return nil, err
		}
		first = last
	}
	return again, nil
}

// partEnd returns the end of the settlements that fit into one call.
func partEnd(settlements []store.Settlement, first int) int {
	last, size := first, 0
	for last < len(settlements) {
		size += settlements[last].Size()
		if last > first && size > store.MaxBatchBytes {
			break
		}
		last++
	}
	return last
}

// trySettle settles messages. While they are held it tries again after a failure, because messages that were delivered
// would be delivered again.
func (b *Batch) trySettle(held *hold.Whole, settlements []store.Settlement) ([]store.SettleResult, error) {
	for failures := 0; ; failures++ {
		ctx, cancel := b.settling()
		results, err := b.Store.Settle(ctx, b.Queue.Name, settlements)
		cancel()
		if err == nil {
			if failures > 0 && held.Valid() {
				ownLosses(results)
			}
			return results, nil
		}
		refused := calls.IsPermanent(err) || calls.IsRefusal(err) ||
			errors.Is(err, store.ErrFull) && slices.ContainsFunc(settlements, hasFollowUps)
		if refused || !held.Valid() || b.Calling.Err() != nil {
			return nil, err
		}
		b.Outage.Begin(err)
		calls.Pause(b.Calling, failures)
	}
}

func hasFollowUps(s store.Settlement) bool { return len(s.Then) > 0 }

// ownLosses corrects the results of a repeated settle within the lease: messages that are not held any more were
// settled by an earlier call whose reply was lost.
func ownLosses(results []store.SettleResult) {
	for i := range results {
		if errors.Is(results[i].Err, store.ErrLeaseLost) {
			results[i].Err = nil
		}
	}
}

// Grace is how long a worker waits for calls that should have ended when its drain ran out of time.
const Grace = time.Second

// settling returns a context for a settle. It outlives a drain that runs out of time a little, because messages are
// still released then.
func (b *Batch) settling() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(b.Handling, calls.Timeout)
	stop := context.AfterFunc(b.Calling, func() { time.AfterFunc(Grace, cancel) })
	return ctx, func() {
		stop()
		cancel()
	}
}

// release releases messages as far as they are held.
func (b *Batch) release(settlements []store.Settlement) {
	ctx, cancel := b.settling()
	defer cancel()
	releases := make([]store.Settlement, len(settlements))
	for i := range settlements {
		releases[i] = store.Settlement{Receipt: settlements[i].Receipt, Action: store.Release}
	}
	if _, err := b.Store.Settle(ctx, b.Queue.Name, releases); err != nil {
		b.Unsettled = len(releases)
		b.Log.Error("later: messages that were not forwarded could not be released; they return when their lease ends",
			"queue", b.Queue.Name, "messages", len(releases), "error", err)
	}
}

// settled reports the result of a settlement. again is set if the message is to be done again. An error says that the
// store takes nothing now.
func (b *Batch) settled(m *store.Claimed, s *store.Settlement, result store.SettleResult) (again bool, err error) {
	switch {
	case errors.Is(result.Err, store.ErrLeaseLost):
		b.Reports.Event(event.LeaseLost, m.ID)
		return false, nil
	case errors.Is(result.Err, store.ErrConflict),
		calls.IsRefusal(result.Err) && b.Work.Refused(result.Err, nil) == DoAgain:
		return true, nil
	case result.Err != nil && !errors.Is(result.Err, store.ErrNotDurable):
		return false, result.Err
	case s.Action == store.Ack:
		b.Work.Acked(m, s)
	default:
		b.Reports.Event(event.OfSettle(s.Action, result.State), m.ID)
		b.Work.Settled(m, s, result.State)
	}
	if result.State == store.StateDead {
		b.Reports.Event(event.Died, m.ID)
		b.Reports.Died(m, s.Reason)
	}
	return false, nil
}

// Window is for how long a queue remembers the id of a message that is sent to it before it is acked elsewhere, unless
// its sender set a window. A message that was sent before a crash is then not sent again.
const Window = 24 * time.Hour

// Send sends claimed messages to a queue of another store or slot, if a condition is met, which may be nil. Their ids
// are remembered there, so that messages that were sent before a crash, or before an error, are not sent again.
func Send(ctx context.Context, to store.Store, queue string, msgs []store.Claimed, condition *store.Condition) error {
	out := make([]store.Outgoing, len(msgs))
	for i := range msgs {
		out[i] = store.Outgoing{Message: msgs[i].Message, Due: store.Due{At: msgs[i].Due}, If: condition, Relayed: true}
		out[i].DedupWindow = max(out[i].DedupWindow, Window)
	}
	ctx, cancel := context.WithTimeout(ctx, calls.Timeout)
	defer cancel()
	results, err := to.Send(ctx, queue, out)
	return cmp.Or(err, store.SendError(results))
}
