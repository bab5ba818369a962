package diskstore

import (
	"context"

	"github.com/cockroachdb/pebble/v2"

	"github.com/laterq/later/internal/gcra"
	"github.com/laterq/later/internal/turns"
	"github.com/laterq/later/store"
)

// An override has a key of its own: a byte that tells which fields it has, and their numbers. The memory has all
// overrides of a queue, which are store.MaxKeyFlows at most.

const (
	overridesConcurrency = 1 << iota
	overridesRate
	overridesWeight
)

func appendOverride(b []byte, o *store.KeyOverride) []byte {
	begin := len(b)
	b = append(b, 0)
	if o.Concurrency != nil {
		b[begin] |= overridesConcurrency
		b = appendNumbers(b, int64(*o.Concurrency))
	}
	if o.Rate != nil {
		b[begin] |= overridesRate
		b = appendNumbers(b, int64(o.Rate.N), o.Rate.Per.Microseconds(), int64(o.Rate.Burst))
	}
	if o.Weight != nil {
		b[begin] |= overridesWeight
		b = appendNumbers(b, int64(*o.Weight))
	}
	return b
}

// parseOverride reads the override of a key that appendOverride wrote.
func parseOverride(key string, b []byte) (*store.KeyOverride, error) {
	bad := corrupt("limits %x of key %q are not of this format", b, key)
	if len(b) < 1 || len(b)%8 != 1 {
		return nil, bad
	}
	bits, n, o := b[0], numbers(b[1:]), &store.KeyOverride{}
	take := func(bit byte, k int, set func(n []int64)) bool {
		switch {
		case bits&bit == 0:
			return true
		case len(n) < k || !areLimits(n[:k]):
			return false
		}
		set(n[:k])
		bits, n = bits&^bit, n[k:]
		return true
	}
	number := func(to **int) func(n []int64) {
		return func(n []int64) {
			value := int(n[0])
			*to = &value
		}
	}
	known := take(overridesConcurrency, 1, number(&o.Concurrency)) &&
		take(overridesRate, 3, func(n []int64) {
			rate := rateOf(n)
			o.Rate = &rate
		}) &&
		take(overridesWeight, 1, number(&o.Weight))
	if !known || bits != 0 || len(n) > 0 || o.IsZero() || store.CheckKeyFlow("", key, *o) != nil {
		return nil, bad
	}
	return o, nil
}

// The state of the rate of a key has a key of its own. The claim that starts a message writes it in its batch, so no
// crash lets the key start more than its rate allows. A later claim removes it when it has no effect any more. Behind
// the time of the next start it has the N that Part is in parts of, so a change of the rate of all keys writes no
// state: a lower rate shortens a rest in memory at once, and a stored one when the store is opened.

type rateState struct {
	gcra.State
	n int
}

const rateStateLength = 3 * 8

func appendRateState(b []byte, s rateState) []byte {
	return appendNumbers(b, s.Micros, s.Part, int64(s.n))
}

// parseRateState reads what appendRateState wrote.
func parseRateState(key string, b []byte) (rateState, error) {
	if len(b) == rateStateLength && store.CheckKey(key) == nil {
		n := numbers(b)
		s := rateState{gcra.State{Micros: n[0], Part: n[1]}, int(min(n[2], store.MaxRate+1))}
		if s.n >= 1 && s.n <= store.MaxRate && isState(s.State, s.n) {
			return s, nil
		}
	}
	return rateState{}, corrupt("next start %x of key %q is not of this format", b, key)
}

// keepRate stores the state of the rate of a key.
func (t *tx) keepRate(q *queue, key string, s rateState) {
	q.lanes.rates[key] = s
	t.value = appendRateState(t.value[:0], s)
	t.set(appendIDKey(t.key[:0], q.number, kindKeyRate, key), t.value)
}

func (l *lanes) restoreRate(now int64, key string, s rateState) {
	l.rates[key] = s
	l.order.Restore(now, key, turns.State{Starts: s.State, N: s.n})
}

// keepRates stores changed states of rates, and removes states without an effect.
func (t *tx) keepRates(q *queue) {
	l := q.lanes
	l.order.Changes(func(name string, s *turns.State) {
		was, stored := l.rates[name]
		switch {
		case s != nil && s.N != 0 && s.Starts != (gcra.State{}):
			if now := (rateState{s.Starts, s.N}); now != was {
				t.keepRate(q, name, now)
			}
		case stored:
			delete(l.rates, name)
			t.remove(appendIDKey(t.key[:0], q.number, kindKeyRate, name))
		}
	})
}

// dropRates removes the states of the rates of keys, except for keys with a rate of their own. A rate of all keys that
// is set or removed starts with a full burst.
func (t *tx) dropRates(q *queue) {
	l := q.lanes
	t.removeRange(appendKey(nil, q.number, kindKeyRate), appendKey(nil, q.number, kindKeyRate+1))
	all := l.rates
	l.rates = map[string]rateState{}
	for key, s := range all {
		if o := l.order.Override(key); o != nil && o.Rate != nil && o.Rate.N != 0 {
			t.keepRate(q, key, s)
		}
	}
}

// SetKeyFlow implements store.Store.
func (s *Store) SetKeyFlow(ctx context.Context, name, key string, o store.KeyOverride) error {
	if err := store.CheckKeyFlow(name, key, o); err != nil {
		return err
	}
	_, err := call(ctx, s, name, how{looks: true, change: changes}, func(t *tx, q *queue) (struct{}, error) {
		return struct{}{}, t.setKeyFlow(q, key, o)
	})
	return err
}

func (t *tx) setKeyFlow(q *queue, key string, o store.KeyOverride) error {
	if q.lanes == nil {
		return store.NotFair(q.name)
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
		t.value = appendOverride(t.value[:0], &o)
		t.set(at, t.value)
		kept, err := parseOverride(key, t.value) // a copy, as a restart reads it
		if err != nil {
			return err
		}
		o = *kept
	}
	order.SetOverride(t.micros, key, o)
	t.keepRates(q)
	t.touch(q)
	return nil
}

// ResumeKey implements store.Store.
func (s *Store) ResumeKey(_ context.Context, name, key string) error {
	if err := store.CheckResume(name, key); err != nil {
		return err
	}
	return store.ErrUnsupported
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

// loadKeys reads the overrides and the states of the rates of a Fair queue with an iterator.
func (s *Store) loadKeys(it *pebble.Iterator, q *queue, now int64) error {
	boundTo(it, q.number, kindKeyFlow)
	for valid := it.First(); valid; valid = it.Next() {
		key := string(it.Key()[prefixLength:])
		o, err := parseOverride(key, it.Value())
		if err != nil {
			return err
		}
		q.lanes.order.SetOverride(now, key, *o)
	}
	if err := it.Error(); err != nil {
		return s.unreadable(err)
	}
	boundTo(it, q.number, kindKeyRate)
	for valid := it.First(); valid; valid = it.Next() {
		key := string(it.Key()[prefixLength:])
		state, err := parseRateState(key, it.Value())
		if err != nil {
			return err
		}
		q.lanes.restoreRate(now, key, state)
	}
	return s.unreadable(it.Error())
}

// copyKeyState recovers an override or the state of a rate of a key, unless it cannot be read or does not apply.
func (t *tx) copyKeyState(q *queue, kind byte, key string, value []byte) (ok bool) {
	if q.lanes == nil || !isSound(kind, []byte(key), value) {
		return false
	}
	t.set(appendIDKey(t.key[:0], q.number, kind, key), value)
	if kind == kindKeyFlow {
		o, _ := parseOverride(key, value)
		q.lanes.order.SetOverride(t.micros, key, *o)
	} else {
		state, _ := parseRateState(key, value)
		q.lanes.restoreRate(t.micros, key, state)
	}
	return true
}
