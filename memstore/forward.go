package memstore

import (
	"cmp"
	"context"
	"fmt"

	"github.com/laterq/later/store"
)

var _ store.Forwarder = (*Store)(nil)

// ForwardsTo implements store.Forwarder. Memory has no lists, streams and channels.
func (s *Store) ForwardsTo(queue string, to store.Target) (bool, error) {
	if err := to.Check(); err != nil {
		return false, err
	}
	switch {
	case to.Kind != store.TargetQueue:
		return false, fmt.Errorf("destination %q needs Redis, and this store has only queues: %w", to,
			store.ErrUnsupported)
	case to.Name == queue:
		return false, store.Invalid("destination of queue %q is the queue itself: give another one", queue)
	}
	return true, nil
}

// Forward implements store.Forwarder.
func (s *Store) Forward(ctx context.Context, name string, req store.ForwardRequest) (store.Forwarded, error) {
	if _, err := s.ForwardsTo(name, req.To); err != nil {
		return store.Forwarded{}, err
	}
	var moved error
	forwarded, err := update(ctx, s, name, func(q *queue, now int64) store.Forwarded {
		if moved = s.data.moved(req.To.Name); moved != nil {
			return store.Forwarded{}
		}
		c := q.claim(now, store.ClaimRequest{Max: req.Max, Lease: store.MaxLease}, true)
		f := store.Forwarded{
			Count: len(c.Messages), Now: c.Now, More: c.More, Died: c.Died, Expired: c.Expired,
			Dropped: c.Dropped,
		}
		for _, m := range c.Messages {
			place := q.messages[m.ID].place
			q.settle(now, store.Settlement{Receipt: m.Receipt, Action: store.Ack, DedupWindow: m.DedupWindow})
			out := store.Outgoing{Message: m.Message, Due: store.Due{At: m.Due}}
			s.data.sendTo(req.To.Name, q, name, func(q *queue) { q.sendForwarded(now, out, place) })
			if req.IDs {
				f.IDs = append(f.IDs, m.ID)
			}
		}
		return f
	})
	return forwarded, cmp.Or(err, moved)
}

// Deliver implements store.Forwarder.
func (s *Store) Deliver(_ context.Context, to store.Target, _ []store.Claimed) error {
	_, err := s.ForwardsTo("", to)
	if err == nil {
		err = store.Invalid("destination %q is a queue: send the messages to it", to)
	}
	return err
}
