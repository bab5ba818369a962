package diskstore

import (
	"github.com/laterq/later/internal/codec"
	"github.com/laterq/later/internal/turns"
)

// copySigns copies signs to the new store.
func (r *recovery) copySigns(signs map[string]string) error {
	return r.s.do(r.ctx, "", inOrder, func(t *tx) {
		for name, sign := range signs {
			t.setSign(name, sign)
		}
	})
}

// findSent finds which parcels have arrived. If the outbox from which they came is lost, the next parcel must have
// another number.
func (r *recovery) findSent(from *reader, queues []uint32) (err error) {
	r.sent = map[string]int64{}
	for i := 0; i < len(queues) && err == nil; i++ {
		for name, value := range from.keys(&err, queues[i], kindArrived, "") {
			if n, bad := parseArrived(value); bad == nil {
				r.sent[name] = max(r.sent[name], n)
			}
		}
	}
	return err
}

// copyOutbox copies an outbox. If it cannot be read to its end, the items before the damage are back in the queue. Some
// of them may have arrived too. The outbox is the last key of its queue, so all messages have been copied.
func (r *recovery) copyOutbox(t *tx, q *queue, found *issues, value []byte) error {
	o, err := parseOutbox(value)
	items, damage := parseItems(o.data)
	damaged := err != nil || damage != nil
	if damaged {
		found.add("outbox", q.name)
		o.data, o.From, o.To = nil, "", ""
	}
	if o.Number > 0 && o.Number >= r.sent[q.name] { // else it is an older state, and its parcel has arrived
		t.putOutbox(q, &o)
	}
	if !damaged {
		return nil
	}
	if err := t.flush(); err != nil {
		return err
	}
	var keys, others []landing
	for _, x := range items {
		if x.Handover != nil {
			keys = append(keys, x)
		} else {
			others = append(others, x)
		}
	}
	if err := t.land(q, others); err != nil {
		return err
	}
	for i := range keys {
		if err := t.copyHandover(q, &keys[i]); err != nil {
			return err
		}
	}
	return nil
}

// copyHandover gives a key back to the queue that it has departed from. The messages of the parcel are back.
func (t *tx) copyHandover(q *queue, x *landing) (err error) {
	copyOne := func(kind byte, value []byte) error {
		_, err := t.copyKeyState(q, nil, kind, appendIDKey(nil, q.number, kind, x.ID), value)
		return err
	}
	h := x.Handover
	if h.Override != nil {
		err = copyOne(kindKeyFlow, codec.Append(nil, h.Override))
	}
	if h.N != 0 && err == nil {
		err = copyOne(kindKeyState, codec.Append(nil, &turns.State{Starts: h.Starts, N: h.N}))
	}
	return err
}
