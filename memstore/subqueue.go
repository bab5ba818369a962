package memstore

import (
	"context"

	"github.com/laterq/later/internal/gcra"
	"github.com/laterq/later/internal/turns"
	"github.com/laterq/later/store"
)

var _ store.SubQueues = (*Store)(nil)

// moves is what a sub-queue knows of the messages that move from it and to it.
type moves struct {
	outbox  *store.Parcel
	last    int64            // number of the last parcel that has departed
	arrived map[string]int64 // number of the last parcel that has arrived, by the name that it came from
}

// contents is the data of a parcel. It never changes.
type contents struct {
	messages []*message
	holds    map[string]hold // of messages on their keys, by id
	dedup    map[string]int64
	once     map[string]*once
	keys     map[string]turns.Handover
}

// hold is the hold of a message that departs.
type hold struct {
	key  string
	dead bool
}

// moved returns a *store.Moved if a name has a sign, or is one of a sub-queue that does not exist. The caller holds the
// lock.
func (d *data) moved(name string) error {
	sign, signed := d.signs[name]
	if !signed && (d.queues[name] != nil || !store.IsSubQueue(name)) {
		return nil
	}
	return &store.Moved{Name: name, Sign: sign}
}

// change runs a step that may change signs and queues, under the lock.
func (s *Store) change(ctx context.Context, step func(d *data) error) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	s.data.mu.Lock()
	defer s.data.mu.Unlock()
	return step(s.data)
}

// Sign implements store.SubQueues.
func (s *Store) Sign(ctx context.Context, name string) (sign string, err error) {
	err = s.change(ctx, func(d *data) error {
		sign = d.signs[name]
		return nil
	})
	return sign, err
}

// SetSign implements store.SubQueues.
func (s *Store) SetSign(ctx context.Context, name, sign, former string) error {
	return s.change(ctx, func(d *data) error {
		now, ok := d.signs[name]
		if !ok || now != former {
			return store.ErrConflict
		}
		if d.signs[name] = sign; sign == "" {
			delete(d.signs, name)
		}
		return nil
	})
}

// Create implements store.SubQueues.
func (s *Store) Create(ctx context.Context, name string, to store.Settings) error {
	return s.change(ctx, func(d *data) error {
		if _, signed := d.signs[name]; !signed && d.queues[name] == nil {
			q := newQueue()
			q.exists, q.paused, q.retention = true, to.Paused, to.DeadRetention
			q.tell(d.clock.Now())
			q.setFlow(to.Flow.Normal())
			if to.Flow.Rate.N != 0 {
				q.flow.starts = gcra.UsedUp(to.Flow.Normal().Rate, q.micros)
			}
			d.queues[name] = q
		}
		return nil
	})
}

// Rename implements store.SubQueues.
func (s *Store) Rename(ctx context.Context, from, to, sign, former string) error {
	return s.change(ctx, func(d *data) error {
		q := d.queues[from]
		switch {
		case q == nil:
			return nil
		case d.queues[to] != nil || d.signs[to] != former:
			return store.ErrConflict
		}
		delete(d.queues, from)
		delete(d.signs, to)
		q.moves.arrived = nil
		d.queues[to], d.signs[from] = q, sign
		d.notify(from)
		d.notify(to)
		return nil
	})
}

// Retire implements store.SubQueues.
func (s *Store) Retire(ctx context.Context, name, sign string) error {
	return s.change(ctx, func(d *data) error {
		delete(d.queues, name)
		d.signs[name] = sign
		d.notify(name)
		return nil
	})
}

// Scan implements store.SubQueues. It returns all at once.
func (s *Store) Scan(ctx context.Context, name, cursor string) (store.Scanned, error) {
	return view(ctx, s, name, func(q *queue, now int64) (all store.Scanned) {
		all.Leases = len(q.leases)
		if q.flow.Fair {
			all.Keys, all.Holds = q.flow.keys.Known(q.micros), q.flow.keys.Held()
		}
		if cursor == store.ScanKeys {
			return all
		}
		for id := range q.messages {
			all.IDs = append(all.IDs, id)
		}
		for id, until := range q.dedup {
			if q.messages[id] == nil && until > now {
				all.IDs = append(all.IDs, id)
			}
		}
		for key, o := range q.once {
			if o.ends > now {
				all.Once = append(all.Once, store.OnceID{Key: key, ID: o.first.ID})
			}
		}
		return all
	})
}

// SendKnown implements store.SubQueues.
func (s *Store) SendKnown(ctx context.Context, name string, msgs []store.Outgoing) ([]store.SendResult, error) {
	return s.send(ctx, name, msgs, true)
}

// Depart implements store.SubQueues.
func (s *Store) Depart(ctx context.Context, name string, d store.Departure) (store.Departed, error) {
	return update(ctx, s, name, func(q *queue, now int64) (departed store.Departed) {
		if q.moves.outbox != nil {
			return store.Departed{Parcel: q.moves.outbox, Before: true, Number: q.moves.last}
		}
		c := &contents{dedup: map[string]int64{}, once: map[string]*once{}, holds: map[string]hold{},
			keys: map[string]turns.Handover{}}
		size := 0
		for _, id := range d.IDs {
			m := q.messages[id]
			if until := q.dedup[id]; m == nil && until > now {
				c.dedup[id] = until
				q.endDedup(id)
			}
			switch {
			case m == nil:
			case m.lease != nil:
				departed.Leased = append(departed.Leased, id)
				if q.flow.Fair && m.Key != "" {
					departed.Busy = append(departed.Busy, m.Key)
				}
			case size > 0 && size+m.size() > store.MaxDepartureBytes:
				departed.More = true
			default:
				size += m.size()
				if q.flow.Fair {
					if key, dead := q.flow.keys.Holds(id); key != "" {
						c.holds[id] = hold{key, dead}
					}
				}
				q.remove(m)
				c.messages = append(c.messages, m)
			}
		}
		for _, key := range d.Once {
			o := q.once[key]
			if o == nil || o.ends <= now {
				continue
			}
			if m := q.messages[o.first.ID]; m != nil && m.lease != nil {
				departed.Kept = append(departed.Kept, key)
				continue
			}
			c.once[key] = o
			q.onceEnds.remove(o.ends, key)
			delete(q.once, key)
		}
		for _, key := range d.Keys {
			switch {
			case !q.flow.Fair:
			case q.flow.keys.Idle(key):
				c.keys[key] = q.flow.keys.HandOver(q.micros, key)
			default:
				departed.Busy = append(departed.Busy, key)
			}
		}
		if len(c.messages)+len(c.dedup)+len(c.once)+len(c.keys) > 0 {
			q.moves.last++
			q.moves.outbox = &store.Parcel{From: name, To: d.To, Number: q.moves.last, Data: c}
			departed.Parcel = q.moves.outbox
		}
		departed.Number = q.moves.last
		return departed
	})
}

// endDedup ends the dedup window of an id.
func (q *queue) endDedup(id string) {
	q.dedupEnds.remove(q.dedup[id], id)
	delete(q.dedup, id)
}

// Outbox implements store.SubQueues.
func (s *Store) Outbox(ctx context.Context, name string) (*store.Parcel, error) {
	return view(ctx, s, name, func(q *queue, _ int64) *store.Parcel { return q.moves.outbox })
}

// Arrive implements store.SubQueues.
func (s *Store) Arrive(ctx context.Context, p *store.Parcel) error {
	return s.update(ctx, p.To, func(q *queue, now int64) error {
		if q.moves.arrived[p.From] >= p.Number {
			return nil
		}
		if q.moves.arrived == nil {
			q.moves.arrived = map[string]int64{}
		}
		q.moves.arrived[p.From] = p.Number
		c := p.Data.(*contents)
		for _, m := range c.messages {
			m := *m
			q.add(&m)
			if m.deadReason != "" {
				q.die(m.diedAt, &m, m.deadReason)
			} else {
				q.wait(&m, m.arrived)
			}
			if h, ok := c.holds[m.ID]; ok && q.flow.Fair {
				q.flow.keys.Regain(q.micros, h.key, m.ID, h.dead)
			}
		}
		for key, h := range c.keys {
			if q.flow.Fair {
				q.flow.keys.Receive(q.micros, key, h)
			}
		}
		for id, until := range c.dedup {
			q.startDedup(id, until)
		}
		for key, o := range c.once {
			q.addOnce(key, o)
		}
		return nil
	})
}

// Expect implements store.SubQueues.
func (s *Store) Expect(ctx context.Context, name string, e store.Expected) (last int64, err error) {
	err = s.update(ctx, name, func(q *queue, _ int64) error {
		if q.moves.arrived[e.From] > e.Number {
			return store.ErrConflict
		}
		if !q.flow.Fair {
			return nil
		}
		q.flow.arrivals.Raise(e.Last)
		q.flow.fences.Raise(e.Last)
		last = int64(max(q.flow.arrivals, q.flow.fences))
		if e.None {
			q.flow.keys.ExpectNone(q.micros, e.Keys)
			s.data.notify(name)
			return nil
		}
		for _, key := range e.Keys {
			q.flow.keys.Expect(q.micros, key)
		}
		return nil
	})
	return last, err
}

// Empty implements store.SubQueues.
func (s *Store) Empty(ctx context.Context, name string, number int64) error {
	return s.update(ctx, name, func(q *queue, _ int64) error {
		if out := q.moves.outbox; out != nil && out.Number == number {
			q.moves.outbox = nil
		}
		return nil
	})
}
