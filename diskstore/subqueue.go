package diskstore

import (
	"cmp"
	"context"
	"encoding/binary"
	"time"

	"github.com/laterq/later/internal/gcra"
	"github.com/laterq/later/store"
)

var _ store.SubQueues = (*Store)(nil)

// A queue has its number in its keys, so another name of it changes nothing else. The memory has all signs. A name has
// a queue or a sign, and not both; in a damaged store that has both, the sign counts, and the queue is refused.
//
// Calls of store.SubQueues are fsynced before they return, with SyncEvery too, also where they only read. They can be
// repeated, so a store.Request is not looked at, except by SendKnown.

// moved returns a *store.Moved if a name has a sign, or is one of a sub-queue that does not exist.
func (s *Store) moved(name string) error {
	sign, signed := s.signs[name]
	if !signed && (s.queues[name] != nil || !store.IsSubQueue(name)) {
		return nil
	}
	return &store.Moved{Name: name, Sign: sign}
}

// setSign sets the sign at a name; an empty one removes it.
func (t *tx) setSign(name, sign string) {
	key := appendIDKey(t.key[:0], 0, kindSign, name)
	if sign != "" {
		t.s.signs[name] = sign
		t.set(key, []byte(sign))
	} else if _, signed := t.s.signs[name]; signed {
		delete(t.s.signs, name)
		t.remove(key)
	}
}

// loadSigns reads all signs. Check reports one that cannot be.
func (s *Store) loadSigns(r *reader) (err error) {
	for name, sign := range r.keys(&err, 0, kindSign, "") {
		if isSign(name, sign) {
			s.signs[name] = string(sign)
		}
	}
	return err
}

func isSign(name string, value []byte) bool { return name != "" && len(value) > 0 }

// Sign implements store.SubQueues.
func (s *Store) Sign(ctx context.Context, name string) (string, error) {
	return call(ctx, s, name, how{urgent: true, any: true, anyName: true, confirmed: true},
		func(*tx, *queue) (string, error) { return s.signs[name], nil })
}

// SetSign implements store.SubQueues.
func (s *Store) SetSign(ctx context.Context, name, sign, former string) error {
	h := how{any: true, anyName: true, confirmed: true, change: changes}
	return s.update(ctx, name, h, func(t *tx, _ *queue) error {
		if now, signed := s.signs[name]; !signed || now != former {
			return store.ErrConflict
		}
		t.setSign(name, sign)
		return nil
	})
}

// Create implements store.SubQueues.
func (s *Store) Create(ctx context.Context, name string, to store.Settings) error {
	if err := cmp.Or(to.DeadRetention.Check(), to.Flow.Check()); err != nil {
		return err
	}
	return s.update(ctx, name, how{anyName: true, confirmed: true, change: changes}, func(t *tx, q *queue) error {
		if _, signed := s.signs[name]; signed || q.number != 0 {
			return nil
		}
		q, err := t.create(name)
		if err != nil {
			return err
		}
		q.paused, q.retention = to.Paused, wholeMillis(to.DeadRetention)
		if to.Flow.Normal().Limited() {
			t.setFlow(q, to.Flow.Normal())
		}
		if q.flow.Rate.N != 0 {
			q.flow.State = gcra.UsedUp(q.flow.Rate, t.micros)
		}
		return nil
	})
}

// wholeMillis returns a retention as it is stored.
func wholeMillis(r store.Retention) store.Retention {
	r.MaxAge = time.Duration(store.Millis(r.MaxAge)) * time.Millisecond
	return r
}

// Rename implements store.SubQueues. The queue forgets which parcels have arrived, because they name it as it was
// called.
func (s *Store) Rename(ctx context.Context, from, to, sign, former string) error {
	return s.update(ctx, from, how{anyName: true, confirmed: true, change: changes}, func(t *tx, q *queue) error {
		switch {
		case q.number == 0:
			return nil
		case s.queues[to] != nil || s.signs[to] != former:
			return store.ErrConflict
		}
		t.remove(appendIDKey(t.key[:0], 0, kindName, from))
		t.value = binary.BigEndian.AppendUint32(t.value[:0], q.number)
		t.set(appendIDKey(t.key[:0], 0, kindName, to), t.value)
		t.removeRange(appendKey(nil, q.number, kindArrived), appendKey(nil, q.number, kindArrived+1))
		delete(s.queues, from)
		s.queues[to], q.name = q, to
		t.setSign(to, "")
		t.setSign(from, sign)
		t.dismiss(from)
		q.wake = true
		t.notify(to)
		return nil
	})
}

// Retire implements store.SubQueues. It retires a damaged queue too.
func (s *Store) Retire(ctx context.Context, name, sign string) error {
	h := how{any: true, anyName: true, confirmed: true, change: makesRoom}
	return s.update(ctx, name, h, func(t *tx, q *queue) error {
		if err := t.removeQueue(q); err != nil {
			return err
		}
		t.setSign(name, sign)
		t.dismiss(name)
		return nil
	})
}

// Scan implements store.SubQueues. A cursor is the kind of the last key of a part, and the id in it. That of keys of
// messages is kindKeyState, whatever is known of them. They are in parts of their own if there are ids.
func (s *Store) Scan(ctx context.Context, name, cursor string) (store.Scanned, error) {
	kind, from := byte(kindMessage), ""
	switch cursor {
	case "":
	case store.ScanKeys:
		kind = kindKeyState
	default:
		kind, from = cursor[0], cursor[1:]+"\x00"
	}
	if kind != kindMessage && kind != kindRemembered && kind != kindKeyState {
		return store.Scanned{}, badCursor(cursor)
	}
	leases, keyed, now := 0, uint64(0), int64(0)
	look := func(t *tx, q *queue) {
		confirm(t, q)
		leases, keyed, now = len(q.leases), q.flow.Keyed, t.micros
	}
	return read(ctx, s, name, look, func(v *view) (part store.Scanned, err error) {
		part.Leases = leases
		size := 0
		if kind == kindMessage {
			if err = v.scanPart(&part, &size, kindMessage, from); part.Next != "" || err != nil {
				return part, err
			}
			kind, from = kindRemembered, ""
		}
		if kind == kindRemembered {
			if err = v.scanPart(&part, &size, kindRemembered, from); part.Next != "" || err != nil {
				return part, err
			}
			from = ""
		}
		switch {
		case keyed == 0: // it is not Fair
			return part, nil
		case len(part.IDs)+len(part.Once) > 0:
			part.Next = string(kindKeyState)
			return part, nil
		}
		return part, v.scanKeys(&part, keyed, now, from)
	})
}

// confirm has a view show only what is fsynced.
func confirm(t *tx, _ *queue) { t.durable = true }

// scanPart adds what can depart, by the keys of a kind from an id on, until the part has store.MaxBatch ids or size is
// larger than store.MaxBatchBytes.
func (v *view) scanPart(part *store.Scanned, size *int, kind byte, from string) (err error) {
	for id, value := range v.keys(&err, v.number, kind, from) {
		switch {
		case kind == kindMessage:
			part.IDs = append(part.IDs, id)
		case !isRemembered([]byte(id), value) || readTime(value) <= v.now:
			continue
		case id[:1] == oncePrefix:
			part.Once = append(part.Once, store.OnceID{Key: id[len(oncePrefix):], ID: string(value[onceID:])})
		default:
			part.IDs = append(part.IDs, id)
		}
		if *size += len(value); *size > store.MaxBatchBytes || len(part.IDs)+len(part.Once) == store.MaxBatch {
			part.Next = string(kind) + id
			break
		}
	}
	return err
}
