package topic

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/laterq/later/store"
)

// noSubscribersText is the reason of messages that are dropped.
const noSubscribersText = "no queue was subscribed to the topic"

// dropLease is the lease of a claim of messages that are to be dropped.
const dropLease = 30 * time.Second

// DropReady makes the topic's ready messages dead, while no queue is subscribed.
func (t *Topic) DropReady(ctx context.Context) error {
	for {
		state, err := t.Load(ctx)
		if err != nil || !state.Config.DropUnsubscribed || len(state.Subscriptions) > 0 {
			return err
		}
		claim, err := t.Store.Claim(ctx, t.Queue, store.ClaimRequest{
			Max: store.MaxBatch, Lease: dropLease, Uncounted: true,
		})
		if err != nil {
			return err
		}
		if len(claim.Messages) > 0 {
			if err := t.drop(ctx, &state, claim.Messages); err != nil {
				return err
			}
		}
		if !claim.More {
			return nil
		}
	}
}

// drop makes claimed messages dead, or releases them if a queue has subscribed since. Messages that only wait for
// queues that could not be written are complete.
func (t *Topic) drop(ctx context.Context, state *State, msgs []store.Claimed) error {
	drops := make([]store.Settlement, len(msgs))
	for i := range msgs {
		m, s := &msgs[i], &drops[i]
		s.Receipt, s.If = m.Receipt, state.Unchanged()
		if s.Action, s.Reason = store.Bury, noSubscribersText; missedBy(m) != nil {
			s.Action, s.Reason, s.DedupWindow, s.Grouped = store.Ack, "", m.DedupWindow, m.Group != ""
		}
	}
	results, err := t.Store.Settle(ctx, t.Queue, drops)
	if err != nil {
		return err
	}
	var releases []store.Settlement
	for i, result := range results {
		switch {
		case errors.Is(result.Err, store.ErrConflict):
			releases = append(releases, store.Settlement{Receipt: msgs[i].Receipt, Action: store.Release})
		case result.Err != nil && !errors.Is(result.Err, store.ErrLeaseLost):
			err = result.Err
		}
	}
	if len(releases) > 0 {
		_, failed := t.Store.Settle(ctx, t.Queue, releases)
		err = cmp.Or(err, failed)
	}
	return err
}
