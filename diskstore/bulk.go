package diskstore

import (
	"context"
	"errors"

	"github.com/laterq/later/internal/envelope"
	"github.com/laterq/later/store"
)

// chosen is a message that a Replay or Purge is about.
type chosen struct {
	entry
	record bool // it has one
	kind   byte // kindDue, kindDead or kindLease
	group  int64
}

// choice collects at most store.MaxBatch messages.
type choice struct {
	all  []chosen
	more bool
}

func (c *choice) add(x chosen) bool {
	if len(c.all) == store.MaxBatch {
		c.more = true
		return false
	}
	c.all = append(c.all, x)
	return true
}

// entries chooses the entries of an index from a millisecond to another.
func (t *tx) entries(q *queue, c *choice, x *index, first, last int64) (err error) {
	if c.more {
		return nil
	}
	for e, value := range t.each(&err, q, x, entry{at: first}, last) {
		stored := x.kind == kindDead || dueRecord(e, value).stored
		if !c.add(chosen{entry: e, record: stored, kind: x.kind}) {
			break
		}
	}
	return err
}

// deadOnes chooses the dead messages among ids, each once.
func (t *tx) deadOnes(q *queue, c *choice, ids []string) error {
	seen := make(map[string]bool, len(ids))
	for _, id := range ids {
		if seen[id] {
			continue
		}
		seen[id] = true
		p, ok, err := t.place(q, id)
		if err != nil {
			return err
		}
		if ok && p.state(t.now) == store.StateDead {
			c.add(chosen{entry: entry{p.record.diedAt, id}, record: true, kind: kindDead})
		}
	}
	return nil
}

func (t *tx) replay(q *queue, sel store.Selection, due store.Due) (store.Bulk, error) {
	var c choice
	var err error
	limit := sel.Limit(t.now)
	if len(sel.IDs) > 0 {
		err = t.deadOnes(q, &c, sel.IDs)
	} else {
		err = t.entries(q, &c, &q.dead, 0, limit)
	}
	if err != nil {
		return store.Bulk{}, err
	}
	failures := make([]string, len(c.all)) // everything is read before the first change
	for i, x := range c.all {
		r, _, err := t.find(q.number, x.id)
		if err != nil && !isFormatError(err) {
			return store.Bulk{}, err
		}
		failures[i] = r.failures
	}
	for _, x := range c.all {
		t.removeEntry(q, &q.dead, x.entry)
	}
	for i, x := range c.all {
		r := record{due: t.dueAt(due), delivered: true, failures: failures[i]} // its expiry no longer counts
		t.keep(q, x.id, &r)
		t.addDue(q, x.id, &r)
		if q.lanes != nil {
			q.lanes.order.Revive(t.micros, x.id)
		}
	}
	return store.Bulk{Done: len(c.all), More: c.more, Before: store.Time(limit)}, nil
}

func (t *tx) purge(q *queue, sel store.Selection) (store.Bulk, error) {
	var c choice
	limit := sel.Limit(t.now)
	if errors.Is(t.checkRoom(), store.ErrFull) && q.number != 0 {
		if all, err := t.selectsAll(q, sel, limit); err != nil || all {
			return t.dropMessages(q, limit, err)
		}
	}
	if err := t.choosePurged(q, &c, sel, limit); err != nil {
		return store.Bulk{}, err
	}
	for i := range c.all { // everything is read before the first change
		var err error
		if c.all[i].group, err = t.groupOf(q, c.all[i].id); err != nil {
			return store.Bulk{}, err
		}
	}
	b := store.Bulk{Done: len(c.all), More: c.more, Before: store.Time(limit)}
	for _, x := range c.all {
		r := record{stored: x.record}
		switch x.kind {
		case kindDue:
			t.removeDue(q, x.entry)
		case kindDead:
			t.removeEntry(q, &q.dead, x.entry)
		case kindLease:
			if m := q.held[x.id]; q.isCounted(m.lease) {
				t.takeLeased(q, m)
			} else {
				t.unhold(q, m)
			}
		}
		if key := t.erase(q, x.id, &r, x.group); key != "" {
			b.Resumed = append(b.Resumed, key)
		}
	}
	if len(sel.IDs) == 0 && sel.State == store.StateNone && !c.more {
		for _, l := range q.leases {
			if !q.isCounted(l) { // else its messages count until their holder has learned of it
				t.endLease(q, l)
			}
		}
	}
	return b, nil
}

func (t *tx) choosePurged(q *queue, c *choice, sel store.Selection, limit int64) error {
	if len(sel.IDs) > 0 {
		return t.deadOnes(q, c, sel.IDs)
	}
	all := sel.State == store.StateNone
	if all || sel.State == store.StateReady {
		if err := t.entries(q, c, &q.due, 0, min(limit, t.now)); err != nil {
			return err
		}
	}
	if all || sel.State == store.StateScheduled {
		if err := t.entries(q, c, &q.due, t.now+1, lastTime); err != nil {
			return err
		}
	}
	if all || sel.State == store.StateDead {
		if err := t.entries(q, c, &q.dead, 0, limit); err != nil {
			return err
		}
	}
	if all {
		for _, m := range q.held {
			if !c.add(chosen{entry: entry{m.record.due, m.id}, record: m.record.stored, kind: kindLease}) {
				break
			}
		}
	}
	return nil
}

// selectsAll reports whether a Purge is about all messages of a queue. The caller has flushed.
func (t *tx) selectsAll(q *queue, sel store.Selection, limit int64) (bool, error) {
	switch {
	case len(sel.IDs) > 0 || len(q.held) > 0:
		return false, nil
	case sel.State == store.StateDead:
		return q.due.n == 0 && sel.Before.IsZero(), nil
	case sel.State == store.StateNone:
		return sel.Before.IsZero(), nil
	case q.dead.n > 0:
		return false, nil
	}
	first, err := t.earliest(q)
	if sel.State == store.StateScheduled || err != nil {
		return first.at > t.now, err
	}
	later := false
	for range t.each(&err, q, &q.due, entry{at: limit + 1}, lastTime) {
		later = true
		break
	}
	return !later, err
}

// dropMessages purges all messages of a queue without leased messages, however many, when sends find no room. It
// writes next to nothing, and Pebble at once removes tables that lie in a removed range. If the messages were purged
// one by one, Pebble would have to merge tables before it could remove any, and there is not enough room for that.
func (t *tx) dropMessages(q *queue, limit int64, err error) (store.Bulk, error) {
	if err != nil {
		return store.Bulk{}, err
	}
	b := store.Bulk{Done: int(q.due.n + q.dead.n), Before: store.Time(limit)}
	for _, kind := range []byte{kindCount, kindMessage, kindRecord, kindDue, kindDead, kindGroup} {
		t.removeRange(appendKey(nil, q.number, kind), appendKey(nil, q.number, kind+1))
	}
	for _, x := range []*index{&q.due, &q.dead, &q.groups} {
		x.n = 0
		x.startAt(entry{at: never}, true)
	}
	if q.isOrdered() {
		b.Resumed = q.lanes.haltedKeys()
	}
	t.resetLanes(q)
	t.touch(q)
	t.s.room.emptied = true
	return b, t.flush() // a send in this group looks for its id on the disk
}

// removeQueue deletes a queue with all it has: one range of keys.
func (t *tx) removeQueue(q *queue) error {
	if err := t.flush(); err != nil {
		return err
	}
	if q.number == 0 && q.damage == nil {
		return nil
	}
	full := errors.Is(t.checkRoom(), store.ErrFull) // before the removal, which it might not flush otherwise
	t.remove(appendIDKey(t.key[:0], 0, kindName, q.name))
	delete(t.s.queues, q.name)
	if q.number != 0 { // else the other keys cannot be found
		t.removeRange(numberKey(q.number), numberKey(q.number+1))
		t.s.room.emptied = t.s.room.emptied || full
	}
	return nil
}

// Restore implements store.Store. Like Send it is refused with ErrFull.
func (s *Store) Restore(ctx context.Context, name string, msgs []store.Info) ([]store.SendResult, error) {
	size := 0
	for i := range msgs {
		size += msgs[i].Size()
	}
	return call(ctx, s, name, how{looks: true, size: size}, func(t *tx, _ *queue) ([]store.SendResult, error) {
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
	return call(ctx, s, name, how{looks: true, change: makesRoom}, func(t *tx, q *queue) (removed []bool, err error) {
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
	if m.State == store.StateDead {
		r.deadReason, r.diedAt = m.DeadReason, min(store.UnixMillis(m.DiedAt), t.now)
	}
	r.stored = r != record{due: r.due}
	group := groupNumber(m.Group)
	if m.Raw != nil {
		group = groupIn(string(m.Raw)) // another version of this engine may have written it
	}
	t.value = envelope.AppendInfo(appendTime(t.value[:0], r.due), m)
	t.landMessage(q, m.ID, t.value, group, &r)
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
