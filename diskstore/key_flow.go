package diskstore

import (
	"context"

	"github.com/cockroachdb/pebble/v2"

	"github.com/laterq/later/internal/codec"
	"github.com/laterq/later/internal/gcra"
	"github.com/laterq/later/internal/turns"
	"github.com/laterq/later/store"
)

// An override has a key of its own. The memory has all overrides of a queue, which are store.MaxKeyFlows at most.

// parseOverride reads the stored override of a key.
func parseOverride(key string, b []byte) (*store.KeyOverride, error) {
	var o store.KeyOverride
	if !decode(b, &o) || !isOverride(key, &o) {
		return nil, corrupt("limits %x of key %q are not of this format", b, key)
	}
	return &o, nil
}

func isOverride(key string, o *store.KeyOverride) bool {
	return !o.IsZero() && store.CheckKeyFlow("", key, *o) == nil
}

// The state of a key has a key of its own, with the state of its rate, the message that holds it, and whether it is
// expected from another sub-queue (parcel_keys.go). The call that starts a message, or ends its lease, writes the state
// in its batch: so no crash lets the key start more than its rate allows, or another message than the one that holds
// it. A later call removes it when it has no effect any more. It has the N that its rate is in parts of, so a change of
// the rate of all keys writes no state: a lower rate shortens a rest in memory at once, and a stored one when the store
// is opened.

// parseKeyState reads the stored state of a key.
func parseKeyState(key string, b []byte) (s turns.State, err error) {
	known := decode(b, &s) && s != turns.State{} && store.CheckKey(key) == nil && isRateState(s.Starts, s.N) &&
		len(s.Holder) <= store.MaxID && (s.Holder != "" || !s.Dead)
	if !known {
		return turns.State{}, corrupt("state %x of key %q is not of this format", b, key)
	}
	return s, nil
}

// isRateState reports whether a state can be that of the rate of a key, or that of a key without a rate.
func isRateState(starts gcra.State, n int) bool {
	if starts == (gcra.State{}) {
		return n == 0
	}
	return n >= 1 && n <= store.MaxRate && isState(starts, n)
}

// keepState stores the state of a key, or removes it if it has no effect.
func (t *tx) keepState(q *queue, key string, s turns.State) {
	switch was, stored := q.lanes.states[key]; {
	case s == turns.State{} && stored:
		delete(q.lanes.states, key)
		t.remove(appendIDKey(t.key[:0], q.number, kindKeyState, key))
	case s != was:
		q.lanes.states[key] = s
		t.value = codec.Append(t.value[:0], &s)
		t.set(appendIDKey(t.key[:0], q.number, kindKeyState, key), t.value)
	}
}

func (l *lanes) restoreState(now int64, key string, s turns.State) {
	l.states[key] = s
	l.order.Restore(now, key, s)
}

// keepStates stores changed states of keys, and keeps the counts of the classes for the counters of the queue.
func (t *tx) keepStates(q *queue) {
	q.lanes.order.Changes(func(key string, s turns.State) { t.keepState(q, key, s) })
	q.flow.Passed = q.lanes.order.Passed()
}

// dropRates removes the states of the rates of keys, except for keys with a rate of their own. A rate of all keys that
// is set or removed starts with a full burst.
func (t *tx) dropRates(q *queue) {
	l := q.lanes
	t.removeRange(appendKey(nil, q.number, kindKeyState), appendKey(nil, q.number, kindKeyState+1))
	all := l.states
	l.states = map[string]turns.State{}
	for key, s := range all {
		if o := l.order.Override(key); o == nil || o.Rate == nil || o.Rate.N == 0 {
			s.Starts, s.N = gcra.State{}, 0
		}
		t.keepState(q, key, s)
	}
}

// SetKeyFlow implements store.Store.
func (s *Store) SetKeyFlow(ctx context.Context, name, key string, o store.KeyOverride) error {
	if err := store.CheckKeyFlow(name, key, o); err != nil {
		return err
	}
	return s.update(ctx, name, how{looks: true, change: changes}, func(t *tx, q *queue) error {
		return t.setKeyFlow(q, key, o)
	})
}

func (t *tx) setKeyFlow(q *queue, key string, o store.KeyOverride) error {
	if q.lanes == nil {
		return store.NotFair(q.name)
	}
	if q.isOrdered() && o.Concurrency != nil && *o.Concurrency != 1 {
		return store.OneOfOrder(q.name, *o.Concurrency)
	}
	order := q.lanes.order
	at := appendIDKey(t.key[:0], q.number, kindKeyFlow, key)
	switch isNew := order.Override(key) == nil; {
	case o.IsZero() && isNew:
		return nil
	case o.IsZero():
		t.remove(at)
	case isNew && order.Overrides() >= store.MaxKeyFlows:
		return store.TooManyKeyFlows(q.name)
	default:
		t.value = codec.Append(t.value[:0], &o)
		t.set(at, t.value)
	}
	order.SetOverride(t.micros, key, o)
	t.touch(q)
	return nil
}

// ResumeKey implements store.Store.
func (s *Store) ResumeKey(ctx context.Context, name, key string) error {
	if err := store.CheckResume(name, key); err != nil {
		return err
	}
	return s.update(ctx, name, how{looks: true, change: changes}, func(t *tx, q *queue) error {
		if q.lanes == nil || !q.lanes.order.Resume(t.micros, key) {
			return store.ErrNotFound
		}
		q.lanes.halts = entry{}
		t.touch(q)
		return nil
	})
}

// Keys implements store.Store.
func (s *Store) Keys(ctx context.Context, name string, req store.KeysRequest) ([]store.KeyState, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	return call(ctx, s, name, how{urgent: true}, func(t *tx, q *queue) ([]store.KeyState, error) {
		if q.lanes == nil {
			return nil, nil
		}
		return q.lanes.order.Keys(t.micros, req), nil
	})
}

// loadKeys reads the overrides and the states of the keys of a Fair queue.
func (q *queue) loadKeys(r *reader, it *pebble.Iterator, now int64) (err error) {
	for key, value := range r.keysBy(it, &err, q.number, kindKeyFlow) {
		var o *store.KeyOverride
		if o, err = parseOverride(key, value); err != nil {
			return err
		}
		q.lanes.order.SetOverride(now, key, *o)
	}
	if err != nil {
		return err
	}
	for key, value := range r.keysBy(it, &err, q.number, kindKeyState) {
		var state turns.State
		if state, err = parseKeyState(key, value); err != nil {
			return err
		}
		q.lanes.restoreState(now, key, state)
	}
	return err
}
