package diskstore

import (
	"context"

	"github.com/laterq/later/internal/envelope"
	"github.com/laterq/later/store"
)

// Restore implements store.Store. It is refused with ErrFull as Send is.
func (s *Store) Restore(ctx context.Context, name string, msgs []store.Info) ([]store.SendResult, error) {
	return look(ctx, s, name, func(t *tx, _ *queue) ([]store.SendResult, error) { return t.restore(name, msgs) })
}

// Remove implements store.Store.
func (s *Store) Remove(ctx context.Context, name string, msgs []store.Info) ([]bool, error) {
	return look(ctx, s, name, func(t *tx, q *queue) (removed []bool, err error) {
		places := make([]*place, len(msgs))
		for i := range msgs { // all that is read comes before the first change
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

// restore adds messages as another store had them. All that is read comes before the first change.
func (t *tx) restore(name string, msgs []store.Info) ([]store.SendResult, error) {
	if err := t.checkRoom(); err != nil {
		return nil, err
	}
	q := t.s.queue(name)
	if err := t.forget(q); err != nil {
		return nil, err
	}
	results := make([]store.SendResult, len(msgs))
	earlier := make(map[string]bool, len(msgs)) // ids of this call that will be living
	for i := range msgs {
		id := msgs[i].ID
		taken := earlier[id]
		if !taken {
			var err error
			if taken, err = t.taken(q, id); err != nil {
				return nil, err
			}
		}
		results[i].Duplicate = taken
		earlier[id] = earlier[id] || !taken
	}
	if !containsFresh(results) {
		return results, nil
	}
	q, err := t.create(name)
	if err != nil {
		return nil, err
	}
	for i := range msgs {
		if !results[i].Duplicate {
			t.restoreOne(q, &msgs[i])
		}
	}
	return results, nil
}

func containsFresh(results []store.SendResult) bool {
	for _, r := range results {
		if !r.Duplicate {
			return true
		}
	}
	return false
}

func (t *tx) restoreOne(q *queue, m *store.Info) {
	r := record{due: store.UnixMillis(m.Due), attempts: m.Attempts, delivered: m.Delivered, lastError: m.LastError}
	t.value = envelope.AppendInfo(appendTime(t.value[:0], r.due), m)
	q.longest = max(q.longest, int64(len(t.value)))
	t.set(appendIDKey(t.key[:0], q.number, kindMessage, m.ID), t.value)
	q.unread[m.ID] = true
	q.highest = max(q.highest, m.ID)
	dead := m.State == store.StateDead
	if dead {
		r.deadReason, r.diedAt = m.DeadReason, min(store.UnixMillis(m.DiedAt), t.now)
	}
	if dead || r.attempts > 0 || r.delivered || r.lastError != "" {
		t.keep(q, m.ID, &r)
	}
	if !dead {
		t.addDue(q, m.ID, &r)
		return
	}
	t.addDead(q, entry{r.diedAt, m.ID})
}

// unchanged gives the place of a message that is still as it was told, and not leased, else nil.
func (t *tx) unchanged(q *queue, as *store.Info) (*place, error) {
	p, ok, err := t.place(q, as.ID)
	if isFormatError(err) {
		return nil, nil // it was never told
	}
	if !ok || err != nil || p.held != nil {
		return nil, err
	}
	info, err := t.tell(q, as.ID, &p)
	if err != nil || info == nil || !info.Same(as) {
		return nil, err
	}
	return &p, nil
}
