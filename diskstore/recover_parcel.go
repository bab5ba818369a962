package diskstore

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
func (r *recovery) findSent(from *reader, queues []uint32) error {
	r.sent = map[string]int64{}
	for _, number := range queues {
		it, err := from.iterate(appendKey(nil, number, kindArrived), appendKey(nil, number, kindArrived+1))
		if err != nil {
			return err
		}
		for valid := it.First(); valid; valid = it.Next() {
			if n, err := parseArrived(it.Value()); err == nil {
				name := string(it.Key()[prefixLength:])
				r.sent[name] = max(r.sent[name], n)
			}
		}
		if err := from.end(it, nil); err != nil {
			return err
		}
	}
	return nil
}

// copyOutbox copies an outbox. If it cannot be read to its end, the items before the damage are back in the queue. Some
// of them may have arrived too. The outbox is the last key of its queue, so all messages have been copied.
func (r *recovery) copyOutbox(t *tx, q *queue, found *issues, value []byte) error {
	o, err := parseOutbox(value)
	items, damage := parseItems(o.data)
	damaged := err != nil || damage != nil
	if damaged {
		found.add("outbox", q.name)
		o = outbox{number: o.number}
	}
	if o.number > 0 && o.number >= r.sent[q.name] { // else it is an older state, and its parcel has arrived
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
		if len(x.handover) > 0 {
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
		_, err := t.copyKeyState(q, nil, kind, appendIDKey(nil, q.number, kind, x.id), value)
		return err
	}
	if x.received.Override != nil {
		err = copyOne(kindKeyFlow, x.handover[rateStateLength:])
	}
	if x.received.N != 0 && err == nil {
		err = copyOne(kindKeyState, x.handover[:rateStateLength])
	}
	return err
}
