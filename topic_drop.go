package later

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/laterq/later/store"
)

// noSubscribersText is the reason of messages that are dropped.
const noSubscribersText = "no queue was subscribed to the topic"

// dropEvery is how often a process that publishes to a topic drops messages that are due while nobody is subscribed.
const dropEvery = 10 * time.Second

// dropSometimes drops messages, in the background, if the topic has no subscriptions and is configured so.
func (t *Topic) dropSometimes() {
	if t.queue.invalid != nil {
		return
	}
	now, last := time.Now(), t.queue.dropped.Load()
	if now.UnixNano()-last < int64(dropEvery) || !t.queue.dropped.CompareAndSwap(last, now.UnixNano()) ||
		t.client.begin() != nil {
		return
	}
	go func() {
		defer t.client.calls.Done()
		ctx, cancel := context.WithTimeout(t.client.ending, callTimeout)
		defer cancel()
		if err := t.dropReady(ctx); err != nil && ctx.Err() == nil {
			t.client.log.Warn("later: messages of a topic without subscriptions cannot be dropped", "topic", t.name,
				"error", err)
		}
	}()
}

// dropReady makes the topic's ready messages dead, while no queue is subscribed.
func (t *Topic) dropReady(ctx context.Context) error {
	for {
		state, err := t.load(ctx)
		if err != nil || !state.cfg.DropUnsubscribed || len(state.subscriptions) > 0 {
			return err
		}
		claim, err := t.client.store.Claim(ctx, t.queue.name, store.ClaimRequest{
			Max: store.MaxBatch, Lease: defaultLease, Uncounted: true,
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

// drop makes claimed messages dead, or releases them if a queue was subscribed meanwhile. Those that only wait for
// queues that could not be written are complete.
func (t *Topic) drop(ctx context.Context, state *topicState, msgs []store.Claimed) error {
	drops := make([]store.Settlement, len(msgs))
	for i := range msgs {
		m, s := &msgs[i], &drops[i]
		s.Receipt, s.If = m.Receipt, state.unchanged()
		if s.Action, s.Reason = store.Bury, noSubscribersText; missedBy(m) != nil {
			s.Action, s.Reason, s.DedupWindow, s.Grouped = store.Ack, "", m.DedupWindow, m.Group != ""
		}
	}
	results, err := t.client.store.Settle(ctx, t.queue.name, drops)
	if err != nil {
		return err
	}
	var releases []store.Settlement
	for i, result := range results {
		switch {
		case errors.Is(result.Err, ErrConflict):
			releases = append(releases, store.Settlement{Receipt: msgs[i].Receipt, Action: store.Release})
		case result.Err != nil && !errors.Is(result.Err, ErrLeaseLost):
			err = result.Err
		}
	}
	if len(releases) > 0 {
		_, failed := t.client.store.Settle(ctx, t.queue.name, releases)
		err = cmp.Or(err, failed)
	}
	return err
}
