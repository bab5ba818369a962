package diskstore

import (
	"context"
	"fmt"

	"github.com/laterq/later/store"
)

var _ store.Store = (*Store)(nil)

// call has the writer do one step on a queue. The queue is an empty one of number 0 when it does not exist.
func call[T any](ctx context.Context, s *Store, name string, step func(t *tx, q *queue) (T, error)) (T, error) {
	var result T
	var failed error
	err := s.do(ctx, func(t *tx) {
		q := s.queue(name)
		if failed = q.damage; failed != nil {
			return
		}
		result, failed = step(t, q)
		t.ring(name)
	})
	if err == nil { // else the writer may never come back from it
		err = failed
	}
	if err != nil {
		var none T
		return none, err
	}
	return result, nil
}

// look is call for a step that reads messages.
func look[T any](ctx context.Context, s *Store, name string, step func(t *tx, q *queue) (T, error)) (T, error) {
	return call(ctx, s, name, func(t *tx, q *queue) (T, error) {
		if err := t.flush(); err != nil {
			var none T
			return none, err
		}
		return step(t, q)
	})
}

// Send implements store.Store. It is refused with ErrFull while the disk has less than 256 MiB left, or was found
// full. A durable one is fsynced before it returns, with WithSyncEvery too; there are no replicas, so asking for one
// is ErrUnsupported.
func (s *Store) Send(ctx context.Context, name string, msgs []store.Outgoing) ([]store.SendResult, error) {
	durable := len(msgs) > 0 && msgs[0].Durable.Asked()
	if durable && msgs[0].Durable.Replicas > 0 {
		return nil, fmt.Errorf("durability asks for replicas and the embedded store has none: ask for 0, its disk, or use Redis: %w",
			store.ErrUnsupported)
	}
	return call(ctx, s, name, func(t *tx, _ *queue) ([]store.SendResult, error) {
		t.durable = t.durable || durable
		return t.send(name, msgs)
	})
}

// Claim implements store.Store.
func (s *Store) Claim(ctx context.Context, name string, req store.ClaimRequest) (store.Claim, error) {
	return call(ctx, s, name, func(t *tx, q *queue) (store.Claim, error) {
		return t.claim(q, req, s.clock.Now()) // finer than the engine counts, for who measures lateness
	})
}

// Settle implements store.Store.
func (s *Store) Settle(ctx context.Context, name string, settlements []store.Settlement) ([]store.SettleResult, error) {
	return call(ctx, s, name, func(t *tx, q *queue) ([]store.SettleResult, error) {
		results := make([]store.SettleResult, len(settlements))
		for i := range settlements {
			results[i] = t.settle(q, &settlements[i])
		}
		return results, nil
	})
}

// Extend implements store.Store.
func (s *Store) Extend(ctx context.Context, name string, extensions []store.Extension) ([]store.ExtendResult, error) {
	return call(ctx, s, name, func(t *tx, q *queue) ([]store.ExtendResult, error) {
		results := make([]store.ExtendResult, len(extensions))
		for i, e := range extensions {
			results[i] = t.extend(q, e)
		}
		return results, nil
	})
}

// Cancel implements store.Store.
func (s *Store) Cancel(ctx context.Context, name string, ids []string) ([]store.CancelResult, error) {
	return look(ctx, s, name, func(t *tx, q *queue) ([]store.CancelResult, error) { return t.cancelAll(q, ids) })
}

// Reschedule implements store.Store.
func (s *Store) Reschedule(ctx context.Context, name string, ids []string, due store.Due) ([]error, error) {
	return look(ctx, s, name, func(t *tx, q *queue) ([]error, error) { return t.rescheduleAll(q, ids, due) })
}

// Get implements store.Store. What is longer than store.MaxBatchBytes is read in parts, between which other calls come.
func (s *Store) Get(ctx context.Context, name string, ids []string) ([]*store.Info, error) {
	infos := make([]*store.Info, 0, len(ids))
	for {
		rest := ids[len(infos):]
		part, err := look(ctx, s, name, func(t *tx, q *queue) ([]*store.Info, error) { return t.infos(q, rest) })
		if err != nil {
			return nil, err
		}
		if infos = append(infos, part...); len(infos) == len(ids) {
			return infos, nil
		}
	}
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, name string, req store.ListRequest) (store.Page, error) {
	switch req.State {
	case store.StateLeased:
		return look(ctx, s, name, func(t *tx, q *queue) (store.Page, error) { return t.listLeased(q, req) })
	case store.StateScheduled, store.StateReady, store.StateDead:
	default:
		return store.Page{}, store.Invalid("state is %q: list scheduled, ready, leased or dead", req.State)
	}
	from, err := parseCursor(req.Cursor)
	if err != nil {
		return store.Page{}, err
	}
	return look(ctx, s, name, func(t *tx, q *queue) (store.Page, error) { return t.list(q, req, from) })
}

// Replay implements store.Store.
func (s *Store) Replay(ctx context.Context, name string, sel store.Selection, due store.Due) (store.Bulk, error) {
	if len(sel.IDs) == 0 && sel.State != store.StateDead {
		return store.Bulk{}, store.Invalid("state is %q: only dead messages are replayed", sel.State)
	}
	return look(ctx, s, name, func(t *tx, q *queue) (store.Bulk, error) { return t.replay(q, sel, due) })
}

// Purge implements store.Store.
func (s *Store) Purge(ctx context.Context, name string, sel store.Selection) (store.Bulk, error) {
	if sel.State == store.StateLeased {
		return store.Bulk{}, store.Invalid("state is leased: purge scheduled, ready, dead or all messages")
	}
	return look(ctx, s, name, func(t *tx, q *queue) (store.Bulk, error) { return t.purge(q, sel) })
}

// SetPaused implements store.Store.
func (s *Store) SetPaused(ctx context.Context, name string, paused bool) error {
	_, err := call(ctx, s, name, func(t *tx, _ *queue) (struct{}, error) {
		q, err := t.create(name)
		if err == nil {
			q.paused = paused
			t.touch(q)
		}
		return struct{}{}, err
	})
	return err
}

// Queues implements store.Store.
func (s *Store) Queues(ctx context.Context, cursor string) (names []string, next string, err error) {
	var found []string
	var failed error
	err = s.do(ctx, func(t *tx) {
		if failed = t.flush(); failed == nil {
			found, failed = t.names(cursor)
		}
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return nil, "", err
	}
	if len(found) > store.MaxBatch {
		found = found[:store.MaxBatch]
		next = found[store.MaxBatch-1]
	}
	return found, next, nil
}

// Delete implements store.Store. It deletes a damaged queue too.
func (s *Store) Delete(ctx context.Context, name string) error {
	var failed error
	err := s.do(ctx, func(t *tx) { failed = t.removeQueue(s.queue(name)) })
	if err == nil {
		err = failed
	}
	return err
}
