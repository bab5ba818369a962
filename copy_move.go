package later

import (
	"context"
	"errors"
	"time"

	"github.com/laterq/later/store"
)

// move pauses the queue and moves what it has, again and again while it finds more: messages come back from workers
// or are sent meanwhile.
func (q *queueCopy) move(ctx context.Context) error {
	if _, err := on(q.from, func(s store.Store) (any, error) { return nil, s.SetPaused(ctx, q.Queue, true) }); err != nil {
		return err
	}
	left := int64(0)
	for range maxPasses {
		if err := q.endLeases(ctx); err != nil {
			return err
		}
		before := q.Copied + q.Duplicates
		q.Conflicts, q.Refused, q.refusals = 0, 0, nil // they are met in each pass
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

// endLeases has the source end the leases that have run out. On a paused queue a claim does no more than that.
func (q *queueCopy) endLeases(ctx context.Context) error {
	for {
		claim, err := on(q.from, func(s store.Store) (store.Claim, error) {
			return s.Claim(ctx, q.Queue, store.ClaimRequest{Max: 1, Lease: time.Minute})
		})
		if err != nil {
			return err
		}
		if len(claim.Messages) == 0 {
			if claim.More {
				continue
			}
			return nil
		}
		// Somebody resumed the queue.
		_, err = on(q.from, func(s store.Store) (any, error) {
			return s.Settle(ctx, q.Queue, []store.Settlement{{Receipt: claim.Messages[0].Receipt, Action: store.Release}})
		})
		if err == nil {
			err = errors.New("the queue was resumed while it was moved: let it be paused, and move again")
		}
		return err
	}
}

// settle removes from the source what the target has: what it was just given, and what it had before if that is known
// to be the same. A target that acknowledges before its disk has the messages is synced first: the removal may be
// durable at once, and a power cut between the two would lose the messages from both stores.
func (q *queueCopy) settle(ctx context.Context, infos []store.Info, results []store.SendResult) error {
	var added, present, doubtful []store.Info
	for i, r := range results {
		if r.Duplicate {
			doubtful = append(doubtful, infos[i])
		} else {
			added = append(added, infos[i])
		}
	}
	if len(doubtful) > 0 {
		more, same, err := q.compare(ctx, doubtful)
		if err != nil {
			return err
		}
		added, present = append(added, more...), same
	}
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

// compare looks at the messages that the target has under ids of the source. It gives those that are the same; those
// that were gone when it looked, and have been added now; and counts the others.
func (q *queueCopy) compare(ctx context.Context, infos []store.Info) (added, same []store.Info, err error) {
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
	// Remembered, or settled a moment ago. Which of both shows when it is tried again.
	results, err := q.to.restore(ctx, q.Queue, gone)
	if err != nil {
		return nil, nil, err
	}
	for i, r := range results {
		if r.Duplicate {
			q.Conflicts++
		} else {
			added = append(added, gone[i])
		}
	}
	return added, same, nil
}

// isCopy tells whether what the target has is the source's message as it is, or as workers of the target have had it
// since. One that the source has changed since is none.
func isCopy(there, here *store.Info) bool {
	if !there.SameMessage(here) {
		return false
	}
	since := there.Attempts > here.Attempts || there.Delivered && !here.Delivered ||
		there.State == StateDead && here.State != StateDead
	now := *there
	now.DiedAt = here.DiedAt // the target's clock may be behind
	return since || now.Same(here)
}

// takeAway removes messages from the source, and gives those that are no longer as they were.
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

// takeBack removes from the target what it was given and has changed in the source meanwhile: the next pass copies that
// as it is now. What is gone from the source stays, since another Copy may have moved it.
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
