package migrate

import (
	"context"
	"errors"
	"time"

	"github.com/laterq/later/store"
)

// move pauses the queue and moves its messages. It repeats while it finds more, because messages come back
// from workers or are sent during a pass.
func (q *queueCopy) move(ctx context.Context) error {
	if err := q.from.store.SetPaused(ctx, q.Queue, true); err != nil {
		return q.from.wrap(err)
	}
	left := int64(0)
	for range maxPasses {
		if err := q.endLeases(ctx); err != nil {
			return err
		}
		before := q.Copied + q.Duplicates
		q.Conflicts, q.Refused, q.refusals = 0, 0, refusals{} // every pass counts them again
		if err := q.pass(ctx, moveOrder); err != nil {
			return err
		}
		stats, err := q.from.stats(ctx, q.Queue)
		if err != nil {
			return err
		}
		q.Leased = stats.Leased
		left = stats.Scheduled + stats.Ready + stats.Dead - q.Conflicts - q.Refused
		if left <= 0 || q.Copied+q.Duplicates == before {
			break
		}
	}
	q.late += max(left, 0)
	return nil
}

// endLeases makes the source end the leases that have expired. On a paused queue a claim does no more than
// that.
func (q *queueCopy) endLeases(ctx context.Context) error {
	for {
		claim, err := q.from.store.Claim(ctx, q.Queue, store.ClaimRequest{Max: 1, Lease: time.Minute})
		if err != nil {
			return q.from.wrap(err)
		}
		if len(claim.Messages) == 0 {
			if claim.More {
				continue
			}
			return nil
		}
		// The queue was resumed.
		_, err = q.from.store.Settle(ctx, q.Queue,
			[]store.Settlement{{Receipt: claim.Messages[0].Receipt, Action: store.Release}})
		if err != nil {
			return q.from.wrap(err)
		}
		return errors.New("the queue was resumed while it was moved: leave it paused and move again")
	}
}

// settle removes from the source the messages that the target has: messages that were just added, and messages that it
// already had if they are known to be the same. A target that acknowledges messages before they are on its disk is
// synced first: the removal may be durable at once, and a power cut between the two would lose the messages from both
// stores.
func (q *queueCopy) settle(ctx context.Context, infos []store.Info, results []store.SendResult) error {
	added, doubtful := divide(infos, results)
	more, present, err := q.compare(ctx, doubtful)
	if err != nil {
		return err
	}
	added = append(added, more...)
	q.Copied += int64(len(added))
	if len(added)+len(present) > 0 {
		if err := q.to.sync(ctx); err != nil {
			return err
		}
	}
	stale, err := q.takeAway(ctx, added)
	if err != nil {
		return err
	}
	if err := q.takeBack(ctx, stale); err != nil {
		return err
	}
	stale, err = q.takeAway(ctx, present)
	q.Duplicates += int64(len(present) - len(stale))
	return err
}

// compare looks at the messages that the target has under ids of the source. It returns the messages that are the same,
// and the messages that were gone when it looked and have been added now. It counts the others as conflicts.
func (q *queueCopy) compare(ctx context.Context, infos []store.Info) (added, same []store.Info, err error) {
	if len(infos) == 0 {
		return nil, nil, nil
	}
	there, err := q.to.get(ctx, q.Queue, infos)
	if err != nil {
		return nil, nil, err
	}
	var gone []store.Info
	for i, t := range there {
		switch {
		case t == nil:
			gone = append(gone, infos[i])
		case isCopy(t, &infos[i]):
			same = append(same, infos[i])
		default:
			q.Conflicts++
		}
	}
	if len(gone) == 0 {
		return nil, same, nil
	}
	// The ids are within their dedup window, or were just settled. Another restore shows which.
	results, err := q.to.restore(ctx, q.Queue, gone)
	if err != nil {
		return nil, nil, err
	}
	added, remembered := divide(gone, results)
	q.Conflicts += int64(len(remembered))
	return added, same, nil
}

// isCopy reports whether the target's message is the source's message, either unchanged or as changed by
// workers of the target. If the source has changed it since, it is not a copy.
func isCopy(there, here *store.Info) bool {
	if !there.SameMessage(here) {
		return false
	}
	since := there.Attempts > here.Attempts || there.Delivered && !here.Delivered ||
		there.State == store.StateDead && here.State != store.StateDead
	now := *there
	now.DiedAt = here.DiedAt // the target's clock may be behind
	return since || now.Same(here)
}

// takeAway removes messages from the source and returns the messages that have changed.
func (q *queueCopy) takeAway(ctx context.Context, infos []store.Info) (stale []store.Info, err error) {
	if len(infos) == 0 {
		return nil, nil
	}
	removed, err := q.from.remove(ctx, q.Queue, infos)
	if err != nil {
		return nil, err
	}
	for i, ok := range removed {
		if !ok {
			stale = append(stale, infos[i])
		}
	}
	return stale, nil
}

// takeBack removes from the target messages that have changed in the source since they were copied. The
// next pass copies them as they are now. A message that is gone from the source stays, because another Copy
// may have moved it.
func (q *queueCopy) takeBack(ctx context.Context, stale []store.Info) error {
	if len(stale) == 0 {
		return nil
	}
	here, err := q.from.get(ctx, q.Queue, stale)
	if err != nil {
		return err
	}
	var back []store.Info
	for i, info := range here {
		if info != nil {
			back = append(back, stale[i])
		}
	}
	if len(back) == 0 {
		return nil
	}
	removed, err := q.to.remove(ctx, q.Queue, back)
	for _, ok := range removed {
		if ok {
			q.Copied--
		}
	}
	return err
}
