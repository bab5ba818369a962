package diskstore

import (
	"context"
	"slices"

	"github.com/laterq/later/internal/codec"
	"github.com/laterq/later/internal/gcra"
	"github.com/laterq/later/internal/turns"
	"github.com/laterq/later/store"
)

// A key of messages that departs from a Fair queue is an item of the parcel, with its override and the state of its
// rate; see turns.Handover. Its messages departed before, with their places, and with the hold if one of them had it. A
// key that is expected from another sub-queue has that in its state, so that it starts no message after a restart
// either.

// checkKeys returns an ErrInvalid unless all keys can be keys of messages: others could not be read again.
func checkKeys(keys []string) error {
	for _, key := range keys {
		if err := store.CheckKey(key); err != nil {
			return err
		}
	}
	return nil
}

// isHandover reports whether a key can be handed over like that.
func isHandover(key string, h *turns.Handover) bool {
	return store.CheckKey(key) == nil && isRateState(h.Starts, h.N) && (h.Override == nil || isOverride(key, h.Override))
}

// addBusy notes the keys of a message that stays: its key, and that of its lease, which may be the key of a message
// before it.
func (t *tx) addBusy(p *departing, id string) error {
	q := p.queue
	if q.lanes == nil {
		return nil
	}
	if m := q.held[id]; m != nil {
		p.addBusy(m.key)
	}
	key := ""
	_, err := t.view(appendIDKey(t.key[:0], q.number, kindMessage, id), func(value []byte) error {
		key = keyIn(value).Key
		return nil
	})
	p.addBusy(key)
	return err
}

func (p *departing) addBusy(key string) {
	if key != "" && !slices.Contains(p.Busy, key) {
		p.Busy = append(p.Busy, key)
	}
}

// handOver takes keys out of the queue, unless they stay. It reads nothing.
func (p *departing) handOver(t *tx, keys []string) {
	q := p.queue
	if q.lanes == nil {
		return
	}
	order := q.lanes.order
	for _, key := range slices.Compact(slices.Sorted(slices.Values(keys))) {
		if !order.Idle(key) {
			p.addBusy(key)
			continue
		}
		h := order.HandOver(t.micros, key)
		if h.Override != nil {
			t.remove(appendIDKey(t.key[:0], q.number, kindKeyFlow, key))
		}
		p.data = appendItem(p.data, &item{ID: key, Handover: &h})
		t.touch(q)
	}
}

// receive gives a queue what another one has handed over of a key. A queue that is not Fair keeps nothing of it.
func (t *tx) receive(q *queue, x *landing) {
	if q.lanes == nil {
		return
	}
	if o := x.Handover.Override; o != nil {
		t.value = codec.Append(t.value[:0], o)
		t.set(appendIDKey(t.key[:0], q.number, kindKeyFlow, x.ID), t.value)
	}
	q.lanes.order.Receive(t.micros, x.ID, *x.Handover)
	t.touch(q)
}

// scanKeys adds the keys from one on of which the queue knows something that departs at a time in microseconds, of
// which a lease counts that has the mark keyed, or that a message holds. It adds store.MaxBatch keys at most, in order.
func (v *view) scanKeys(part *store.Scanned, keyed uint64, now int64, from string) (err error) {
	var names []string
	known, held := map[string]bool{}, map[string]bool{}
	add := func(to map[string]bool, name string) {
		names, to[name] = append(names, name), true
	}
	most := 2 * (store.MaxBatch + 1) // as many as the part can have, and one more; a key may be added twice
	for key := range v.keys(&err, v.number, kindKeyFlow, from) {
		if add(known, key); len(names) == most {
			break
		}
	}
	if err != nil {
		return err
	}
	most += len(names)
	for key, value := range v.keys(&err, v.number, kindKeyState, from) {
		var s turns.State
		if s, err = parseKeyState(key, value); err != nil {
			break
		}
		if s.Starts != (gcra.State{}) && s.Starts.Micros >= now {
			add(known, key)
		}
		if s.Holder != "" {
			add(held, key)
		}
		if len(names) >= most {
			break
		}
	}
	if err != nil {
		return err
	}
	for id, value := range v.keys(&err, v.number, kindLease, "") { // all of them, which the memory has too
		var l *lease
		if l, err = parseLease(id, value); err != nil {
			return err
		}
		if l.keyed == keyed {
			l.eachKey(func(key string) {
				if key != "" && key >= from {
					add(known, key)
				}
			})
		}
	}
	if err != nil {
		return err
	}
	slices.Sort(names)
	if names = slices.Compact(names); len(names) > store.MaxBatch {
		names = names[:store.MaxBatch]
		part.Next = string(kindKeyState) + names[store.MaxBatch-1]
	}
	for _, name := range names {
		if known[name] {
			part.Keys = append(part.Keys, name)
		}
		if held[name] {
			part.Holds = append(part.Holds, name)
		}
	}
	return nil
}

// maxPlace is the largest Expected.Last that is accepted. Later places and fences can be stored for ages.
const maxPlace = lastTime / 2 * 1000

// Expect implements store.SubQueues.
func (s *Store) Expect(ctx context.Context, name string, e store.Expected) (int64, error) {
	if err := checkKeys(e.Keys); err != nil {
		return 0, err
	}
	if e.Last > maxPlace {
		return 0, store.Invalid("the last place %d is too late", e.Last)
	}
	return call(ctx, s, name, how{looks: true, confirmed: true, change: changes},
		func(t *tx, q *queue) (int64, error) {
			arrived, err := t.arrived(q.number, e.From)
			if err != nil {
				return 0, err
			}
			if arrived > e.Number {
				return 0, store.ErrConflict
			}
			if e.Last > 0 {
				if q, err = t.create(name); err != nil {
					return 0, err
				}
				q.flow.Arrivals.Raise(e.Last)
				q.flow.Fences.Raise(e.Last)
				t.touch(q)
			}
			if q.lanes != nil {
				t.expect(q, &e)
			}
			return int64(max(q.flow.Arrivals, q.flow.Fences)), nil
		})
}

// expect has a Fair queue expect keys.
func (t *tx) expect(q *queue, e *store.Expected) {
	if e.None {
		q.lanes.order.ExpectNone(t.micros, e.Keys)
	} else {
		for _, key := range e.Keys {
			q.lanes.order.Expect(t.micros, key)
		}
	}
	if len(e.Keys) > 0 || e.None {
		t.touch(q)
	}
}
