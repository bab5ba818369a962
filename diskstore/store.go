package diskstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/laterq/later/store"
)

var _ store.Store = (*Store)(nil)

// how says how the writer executes a step.
type how struct {
	urgent bool // before others; see request.go
	any    bool // also on a damaged queue
	looks  bool // it reads messages, so the changes of earlier steps are made readable
	change change
	size   int // about how many bytes it writes

	// Of calls of store.SubQueues; see subqueue.go.
	anyName   bool // also at a name with a sign, or of a sub-queue that does not exist
	confirmed bool // it is fsynced with syncEvery too, and no request remembers it
}

// change says which of the checks of a full disk a step has to pass; see checkChange. Sends have a check of their own.
type change uint8

const (
	noChange change = iota
	changes
	makesRoom
)

// call has the writer execute one step on a queue. The queue is an empty one of number 0 when it does not exist.
func call[T any](ctx context.Context, s *Store, name string, h how, step func(t *tx, q *queue) (T, error)) (T, error) {
	var result, none T
	var failed error
	checked := func(t *tx, q *queue) (_ T, err error) {
		if h.looks {
			err = t.flush()
		}
		if err == nil && h.change != noChange {
			err = t.checkChange(h.change)
		}
		if err != nil {
			return none, err
		}
		return step(t, q)
	}
	err := s.doSized(ctx, name, h.urgent, h.size, func(t *tx) {
		q := s.queue(name)
		if failed = s.moved(name); failed != nil && !h.anyName {
			return
		}
		if failed = q.damage; failed != nil && !h.any {
			return
		}
		if t.durable = t.durable || h.confirmed; h.confirmed {
			result, failed = checked(t, q)
		} else {
			result, failed = executeOnce(ctx, t, q, checked)
		}
		t.notify(name)
	})
	if err == nil { // else the writer may never leave it
		err = failed
	}
	if err != nil {
		return none, err
	}
	return result, nil
}

// update is call for a step without a result.
func (s *Store) update(ctx context.Context, name string, h how, step func(t *tx, q *queue) error) error {
	_, err := call(ctx, s, name, h, func(t *tx, q *queue) (struct{}, error) { return struct{}{}, step(t, q) })
	return err
}

// Send implements store.Store. It is refused with ErrFull while the disk has too little room left for claims and acks;
// see room.go. A durable send is fsynced before Send returns, with SyncEvery too. The store does not have replicas, so
// a send that asks for one returns ErrUnsupported.
func (s *Store) Send(ctx context.Context, name string, msgs []store.Outgoing) ([]store.SendResult, error) {
	return s.send(ctx, name, msgs, false)
}

// SendKnown implements store.SubQueues.
func (s *Store) SendKnown(ctx context.Context, name string, msgs []store.Outgoing) ([]store.SendResult, error) {
	return s.send(ctx, name, msgs, true)
}

// send sends messages. With ifKnown it adds none, and is fsynced before it returns.
func (s *Store) send(
	ctx context.Context, name string, msgs []store.Outgoing, ifKnown bool,
) ([]store.SendResult, error) {
	durable := len(msgs) > 0 && msgs[0].Durable.Asked()
	if durable && msgs[0].Durable.Replicas > 0 {
		return nil, fmt.Errorf(
			"durability asks for replicas and the embedded store has none: ask for 0, its disk, or use Redis: %w",
			store.ErrUnsupported)
	}
	size := 0
	for i := range msgs {
		size += msgs[i].Size()
	}
	oneByOne := len(msgs) > 0 && msgs[0].OneByOne()
	h := how{looks: oneByOne || ifKnown, size: size}
	return call(ctx, s, name, h, func(t *tx, q *queue) ([]store.SendResult, error) {
		if err := q.checkUrgencies(msgs); err != nil {
			return nil, err
		}
		t.durable = t.durable || durable || ifKnown
		if oneByOne {
			return t.sendOneByOne(name, msgs, ifKnown)
		}
		if len(msgs) > 0 {
			if met, err := t.meets(q, msgs[0].If); err != nil {
				return nil, err
			} else if !met {
				return slices.Repeat([]store.SendResult{{Err: store.ErrConflict}}, len(msgs)), nil
			}
		}
		if ifKnown {
			return t.sendOneByOne(name, msgs, true)
		}
		return t.send(name, msgs)
	})
}

// Claim implements store.Store. It does not wait for the fsync, unless messages died; see sync.go.
func (s *Store) Claim(ctx context.Context, name string, req store.ClaimRequest) (store.Claim, error) {
	return call(ctx, s, name, how{urgent: true, change: changes}, func(t *tx, q *queue) (store.Claim, error) {
		c, err := t.claim(q, req, s.clock.Now()) // finer than the engine counts, for measurements of lateness
		t.quick = err == nil && len(c.Died) == 0
		return c, err
	})
}

// Settle implements store.Store.
func (s *Store) Settle(ctx context.Context, name string, settlements []store.Settlement) ([]store.SettleResult, error) {
	return call(ctx, s, name, how{urgent: true, change: changes}, func(t *tx, q *queue) ([]store.SettleResult, error) {
		for i := range settlements {
			for j := range settlements[i].Then {
				if err := s.moved(settlements[i].Then[j].Queue); err != nil {
					return nil, err
				}
			}
		}
		results := make([]store.SettleResult, len(settlements))
		met := true // of the last settlement
		for i := range settlements {
			one := &settlements[i]
			var err error
			if i == 0 || !store.EqualCondition(one.If, settlements[i-1].If) {
				if met, err = t.meets(q, one.If); err != nil {
					return nil, err
				}
			}
			switch {
			case !met:
				results[i].Err = store.ErrConflict
			case len(one.Then) == 0:
				results[i] = t.settle(q, one)
			default:
				results[i], err = t.settleThen(q, one)
			}
			if err != nil {
				return nil, err
			}
		}
		return results, nil
	})
}

// Linked implements store.Linker: all queues are in one log.
func (s *Store) Linked(string, string) bool { return true }

// Extend implements store.Store. It waits for the fsync unless it extends nothing.
func (s *Store) Extend(ctx context.Context, name string, extensions []store.Extension) ([]store.ExtendResult, error) {
	return call(ctx, s, name, how{urgent: true, change: changes}, func(t *tx, q *queue) ([]store.ExtendResult, error) {
		results := make([]store.ExtendResult, len(extensions))
		t.quick = true
		for i, e := range extensions {
			results[i] = t.extend(q, e)
			t.quick = t.quick && e.For == 0
		}
		return results, nil
	})
}

// Cancel implements store.Store.
func (s *Store) Cancel(ctx context.Context, name string, req store.CancelRequest) ([]store.CancelResult, error) {
	return call(ctx, s, name, how{looks: true, change: makesRoom},
		func(t *tx, q *queue) ([]store.CancelResult, error) { return t.cancelAll(q, req) })
}

// Reschedule implements store.Store.
func (s *Store) Reschedule(ctx context.Context, name string, ids []string, due store.Due) ([]error, error) {
	return call(ctx, s, name, how{looks: true, change: changes},
		func(t *tx, q *queue) ([]error, error) { return t.rescheduleAll(q, ids, due) })
}

// Replay implements store.Store.
func (s *Store) Replay(ctx context.Context, name string, sel store.Selection, due store.Due) (store.Bulk, error) {
	if err := sel.CheckReplay(); err != nil {
		return store.Bulk{}, err
	}
	return call(ctx, s, name, how{looks: true, change: changes},
		func(t *tx, q *queue) (store.Bulk, error) { return t.replay(q, sel, due) })
}

// Purge implements store.Store.
func (s *Store) Purge(ctx context.Context, name string, sel store.Selection) (store.Bulk, error) {
	if err := sel.CheckPurge(); err != nil {
		return store.Bulk{}, err
	}
	return call(ctx, s, name, how{looks: true, change: makesRoom},
		func(t *tx, q *queue) (store.Bulk, error) { return t.purge(q, sel) })
}

// SetPaused implements store.Store.
func (s *Store) SetPaused(ctx context.Context, name string, paused bool) error {
	return s.update(ctx, name, how{looks: true, change: changes}, func(t *tx, _ *queue) error {
		q, err := t.create(name)
		if err == nil {
			q.paused = paused
			t.touch(q)
		}
		return err
	})
}

// SetDeadRetention implements store.Store.
func (s *Store) SetDeadRetention(ctx context.Context, name string, r store.Retention, former *store.Retention) error {
	if err := r.Check(); err != nil {
		return err
	}
	return s.changeIf(ctx, name, func(t *tx, q *queue) (met bool, err error) {
		if former != nil && q.retention != *former {
			return false, nil
		}
		q, err = t.create(name)
		if err == nil {
			q.retention = wholeMillis(r)
			t.touch(q)
		}
		return true, err
	})
}

// changeIf makes a change, unless step reports that its condition is not met. Unlike an error, that result is
// remembered of a request, so that a repetition is refused, too, even if the condition is met by then.
func (s *Store) changeIf(ctx context.Context, name string, step func(t *tx, q *queue) (met bool, err error)) error {
	met, err := call(ctx, s, name, how{looks: true, change: changes}, step)
	if err == nil && !met {
		err = store.ErrConflict
	}
	return err
}

// Delete implements store.Store. It deletes a damaged queue too.
func (s *Store) Delete(ctx context.Context, name string) error {
	return s.update(ctx, name, how{any: true, change: makesRoom}, func(t *tx, q *queue) error {
		err := t.removeQueue(q)
		t.dismiss(name)
		return err
	})
}
