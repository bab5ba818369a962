package shard

import (
	"context"
	"errors"
	"time"

	"github.com/laterq/later/store"
)

// forwardLease is how long messages are held that are forwarded in two steps.
const forwardLease = time.Minute

func (s forwarder) moves() store.Forwarder { return s.engine.(store.Forwarder) }

// ForwardsTo implements store.Forwarder. A queue with shards forwards to every queue, in steps.
func (s forwarder) ForwardsTo(queue string, to store.Target) (bool, error) {
	return s.moves().ForwardsTo(queue, to)
}

// Forward implements store.Forwarder. From or to a queue with shards, messages move at least once: they are sent under
// their ids and then acked.
func (s forwarder) Forward(
	ctx context.Context, queue string, req store.ForwardRequest,
) (forwarded store.Forwarded, err error) {
	if s.known(queue) == nil && (req.To.Kind != store.TargetQueue || s.known(req.To.Name) == nil) {
		forwarded, err = s.moves().Forward(ctx, queue, req)
		if !isMoved(err) {
			return forwarded, err
		}
		moved, _ := errors.AsType[*store.Moved](err)
		if of, _, _, _ := cut(moved); of != "" {
			if _, err := s.read(ctx, of); err != nil {
				return store.Forwarded{}, err
			}
		}
	}
	if _, err := s.ForwardsTo(queue, req.To); err != nil {
		return store.Forwarded{}, err
	}
	claim, err := s.Claim(in(ctx, "claim"), queue,
		store.ClaimRequest{Max: req.Max, Lease: forwardLease, Uncounted: true})
	if err != nil {
		return store.Forwarded{}, err
	}
	forwarded = store.Forwarded{Now: claim.Now, More: claim.More, Died: claim.Died, Expired: claim.Expired,
		Dropped: claim.Dropped}
	if len(claim.Messages) == 0 {
		return forwarded, nil
	}
	if err := s.forward(in(ctx, "send"), req.To, claim.Messages); err != nil {
		return store.Forwarded{}, errors.Join(err, s.release(in(ctx, "release"), queue, claim.Messages))
	}
	settlements := make([]store.Settlement, len(claim.Messages))
	for i, m := range claim.Messages {
		settlements[i] = store.Settlement{Receipt: m.Receipt, Action: store.Ack, DedupWindow: m.DedupWindow,
			Grouped: m.Group != ""}
	}
	results, err := s.Settle(in(ctx, "settle"), queue, settlements)
	if err != nil {
		return store.Forwarded{}, err
	}
	for i, r := range results {
		if r.Err == nil {
			forwarded.Count++
			if req.IDs {
				forwarded.IDs = append(forwarded.IDs, claim.Messages[i].ID)
			}
		}
	}
	return forwarded, nil
}

// forward writes messages to a destination.
func (s forwarder) forward(ctx context.Context, to store.Target, msgs []store.Claimed) error {
	if to.Kind != store.TargetQueue {
		return s.moves().Deliver(ctx, to, msgs)
	}
	out := make([]store.Outgoing, len(msgs))
	for i := range msgs {
		out[i] = store.Outgoing{Message: msgs[i].Message, Due: store.Due{At: msgs[i].Due}, Relayed: true}
	}
	results, err := s.Send(ctx, to.Name, out)
	if err == nil {
		err = store.SendError(results)
	}
	return err
}

// release gives messages back that could not be forwarded.
func (s forwarder) release(ctx context.Context, queue string, msgs []store.Claimed) error {
	settlements := make([]store.Settlement, len(msgs))
	for i, m := range msgs {
		settlements[i] = store.Settlement{Receipt: m.Receipt, Action: store.Release}
	}
	_, err := s.Settle(ctx, queue, settlements)
	return err
}

// Deliver implements store.Forwarder.
func (s forwarder) Deliver(ctx context.Context, to store.Target, msgs []store.Claimed) error {
	return s.moves().Deliver(ctx, to, msgs)
}
