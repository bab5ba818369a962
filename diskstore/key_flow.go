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

// The state of a key has a key of its own, with the state of its rate, the message that holds it, and whether it is
// expected from another sub-queue (parcel_keys.go). The call that starts a message, or ends its lease, writes the state
// in its batch: so no crash lets the key start more than its rate allows, or another message than the one that holds
// it. A later call removes it when it has no effect any more. Behind the time of the next start it has the N that Part
// is in parts of, so a change of the rate of all keys writes no state: a lower rate shortens a rest in memory at once,
// and a stored one when the store is opened.

type keptState struct {
	gcra.State
	n int // 0 without the state of a rate
	hold
	expected bool // see turns.State
}

// hold is the message that holds a key while it is not leased; see turns.State.
type hold struct {
	id   string // or ""
	dead bool
}

const rateStateLength = 3 * 8

// The bits of the byte behind the rate in the state of a key.
const (
	stateDead     = 1
	stateExpected = 2
)

// appendKeyState writes the three numbers of the rate. If a message holds the key, or the key is expected, a byte
// follows that says whether the message is dead and whether the key is expected, and the id of the message.
func appendKeyState(b []byte, s keptState) []byte {
	b = appendNumbers(b, s.Micros, s.Part, int64(s.n))
	if s.id != "" || s.expected {
		b = append(append(b, boolByte(s.dead)*stateDead|boolByte(s.expected)*stateExpected), s.id...)
	}
	return b
}

// parseKeyState reads what appendKeyState wrote.
func parseKeyState(key string, b []byte) (s keptState, err error) {
	bad := corrupt("state %x of key %q is not of this format", b, key)
	if len(b) < rateStateLength || store.CheckKey(key) != nil {
		return s, bad
	}
	s, ok := parseRateState(b[:rateStateLength])
	if rest := b[rateStateLength:]; len(rest) > 0 {
		s.hold, s.expected = hold{string(rest[1:]), rest[0]&stateDead != 0}, rest[0]&stateExpected != 0
		ok = ok && rest[0] <= stateDead|stateExpected && len(s.id) <= store.MaxID &&
			(s.id != "" || rest[0] == stateExpected)
	}
	if !ok || s == (keptState{}) {
		return keptState{}, bad
	}
	return s, nil
}

// parseRateState reads the state of a rate, or that there is none.
func parseRateState(b []byte) (s keptState, ok bool) {
	n := numbers(b)
	s = keptState{State: gcra.State{Micros: n[0], Part: n[1]}, n: int(min(n[2], store.MaxRate+1))}
	isRate := s.State != (gcra.State{}) && s.n >= 1 && s.n <= store.MaxRate && isState(s.State, s.n)
	return s, isRate || s == (keptState{})
}

// rateState returns the state of the rate of a key as it is stored.
func rateState(starts gcra.State, n int) keptState {
	if n == 0 || starts == (gcra.State{}) {
		return keptState{}
	}
	return keptState{State: starts, n: n}
}

// keepState stores the state of a key, or removes it if it has no effect.
func (t *tx) keepState(q *queue, key string, s keptState) {
	switch was, stored := q.lanes.states[key]; {
	case s == keptState{} && stored:
		delete(q.lanes.states, key)
		t.remove(appendIDKey(t.key[:0], q.number, kindKeyState, key))
	case s != was:
		q.lanes.states[key] = s
		t.value = appendKeyState(t.value[:0], s)
		t.set(appendIDKey(t.key[:0], q.number, kindKeyState, key), t.value)
	}
}

func (l *lanes) restoreState(now int64, key string, s keptState) {
	l.states[key] = s
	l.order.Restore(now, key, s.turnsState())
}

func (s keptState) turnsState() turns.State {
	return turns.State{Starts: s.State, N: s.n, Holder: s.id, Dead: s.dead, Expected: s.expected}
}

// keepStates stores changed states of keys, and keeps the counts of the classes for the counters of the queue.
func (t *tx) keepStates(q *queue) {
	q.lanes.order.Changes(func(key string, s *turns.State) {
		var now keptState
		if s != nil {
			now = rateState(s.Starts, s.N)
			now.hold, now.expected = hold{s.Holder, s.Dead}, s.Expected
		}
		t.keepState(q, key, now)
	})
	q.flow.passed = q.lanes.order.Passed()
}

// dropRates removes the states of the rates of keys, except for keys with a rate of their own. A rate of all keys that
// is set or removed starts with a full burst.
func (t *tx) dropRates(q *queue) {
	l := q.lanes
	t.removeRange(appendKey(nil, q.number, kindKeyState), appendKey(nil, q.number, kindKeyState+1))
	all := l.states
	l.states = map[string]keptState{}
	for key, s := range all {
		if o := l.order.Override(key); o == nil || o.Rate == nil || o.Rate.N == 0 {
			s = keptState{hold: s.hold, expected: s.expected}
		}
		t.keepState(q, key, s)
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
		t.value = appendOverride(t.value[:0], &o)
		t.set(at, t.value)
		kept, err := parseOverride(key, t.value) // a copy, as a restart reads it
		if err != nil {
			return err
		}
		o = *kept
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
	_, err := call(ctx, s, name, how{looks: true, change: changes}, func(t *tx, q *queue) (struct{}, error) {
		if q.lanes == nil || !q.lanes.order.Resume(t.micros, key) {
			return struct{}{}, store.ErrNotFound
		}
		q.lanes.halts = entry{}
		t.touch(q)
		return struct{}{}, nil
	})
	return err
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

// loadKeys reads the overrides and the states of the keys of a Fair queue with an iterator.
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
	boundTo(it, q.number, kindKeyState)
	for valid := it.First(); valid; valid = it.Next() {
		key := string(it.Key()[prefixLength:])
		state, err := parseKeyState(key, it.Value())
		if err != nil {
			return err
		}
		q.lanes.restoreState(now, key, state)
	}
	return s.unreadable(it.Error())
}
