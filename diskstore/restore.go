package diskstore

import (
	"context"

	"github.com/laterq/later/internal/envelope"
	"github.com/laterq/later/store"
)

// Restore implements store.Store. Like Send it is refused with ErrFull.
func (s *Store) Restore(ctx context.Context, name string, msgs []store.Info) ([]store.SendResult, error) {
	size := 0
	for i := range msgs {
		size += msgs[i].Size()
	}
	return lookSized(ctx, s, name, size, func(t *tx, _ *queue) ([]store.SendResult, error) {
		q, results, err := t.accept(name, "", len(msgs), func(i int) string { return msgs[i].ID })
		if err != nil || q == nil {
			return results, err
		}
		for i := range msgs {
			if !results[i].Duplicate {
				t.restoreOne(q, &msgs[i])
			}
		}
		return results, nil
	})
}

// Remove implements store.Store.
func (s *Store) Remove(ctx context.Context, name string, msgs []store.Info) ([]bool, error) {
	return lookAndChange(ctx, s, name, makeRoom, func(t *tx, q *queue) (removed []bool, err error) {
		places := make([]*place, len(msgs))
		for i := range msgs { // everything is read before the first change
			if places[i], err = t.unchanged(q, &msgs[i]); err != nil {
				return nil, err
			}
		}
		removed = make([]bool, len(msgs))
		for i, p := range places {
			removed[i] = p != nil && t.cancel(q, msgs[i].ID, p).Err == nil
		}
		return removed, nil
	})
}

func (t *tx) restoreOne(q *queue, m *store.Info) {
	r := record{due: store.UnixMillis(m.Due), attempts: m.Attempts, delivered: m.Delivered, lastError: m.LastError,
		failures: string(envelope.AppendFailures(nil, m.Failures))}
	t.value = envelope.AppendInfo(appendTime(t.value[:0], r.due), m)
	t.addMessage(q, m.ID, t.value)
	group := groupNumber(m.Group)
	if m.Raw != nil {
		group = groupIn(string(m.Raw)) // another version of this engine may have written it
	}
	t.joinGroup(q, m.ID, group)
	dead := m.State == store.StateDead
	if dead {
		r.deadReason, r.diedAt = m.DeadReason, min(store.UnixMillis(m.DiedAt), t.now)
	}
	if dead || r.attempts > 0 || r.delivered || r.lastError != "" || r.failures != "" {
		t.keep(q, m.ID, &r)
	}
	if !dead {
		t.addDue(q, m.ID, &r)
		return
	}
	t.addDead(q, entry{r.diedAt, m.ID})
}

// unchanged returns the place of a message that is still as it was told, and not leased, else nil.
func (t *tx) unchanged(q *queue, as *store.Info) (*place, error) {
	p, ok, err := t.place(q, as.ID)
	if isFormatError(err) {
		return nil, nil // it was never told
	}
	if !ok || err != nil || p.held != nil {
		return nil, err
	}
	info, err := t.info(q.number, as.ID, &p, t.now)
	if err != nil || info == nil || !info.Same(as) {
		return nil, err
	}
	p.group = groupNumber(info.Group)
	return &p, nil
}
