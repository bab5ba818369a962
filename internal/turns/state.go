package turns

import (
	"time"

	"github.com/laterq/later/internal/gcra"
	"github.com/laterq/later/store"
)

// FlowState returns the limits of a queue with their state: that of the rate, the number of messages that count, and
// the order of the keys, which is nil unless the queue is Fair.
func FlowState(f store.Flow, starts gcra.State, leased int, o *Order, now int64) (s store.FlowState) {
	if !f.Limited() {
		return s
	}
	s = store.FlowState{Flow: f, Leased: leased, Now: time.UnixMicro(now)}
	if f.Rate.N != 0 {
		s.Next = time.UnixMicro(starts.Next(f.Rate, now))
	}
	if o != nil {
		s.Keys = o.Counts(now)
	}
	return s
}

// Counts counts the keys that wait.
func (o *Order) Counts(now int64) store.KeyCounts {
	c := store.KeyCounts{Waiting: int64(o.turning()), Halted: int64(o.halted.Len())}
	for _, s := range append([]*scores{o.rests}, o.stale...) {
		c.Waiting += int64(s.len())
		rested, slotless := s.below(float64(now)+1), s.below(full)
		c.Full += int64(s.len() - slotless)
		c.Resting += int64(slotless - rested)
	}
	return c
}

// Keys returns a page of the keys with their states, as store.Store describes it.
func (o *Order) Keys(now int64, req store.KeysRequest) (page []store.KeyState) {
	keys := 0 // with a name
	add := func(name string) bool {
		if name > req.After {
			keys++
			page = append(page, o.Key(now, name))
		} else if name == "" && req.After == "" {
			page = append(page, o.Key(now, name))
		}
		return keys < req.Limit
	}
	switch {
	case req.Key != "":
		add(req.Key)
	case req.Overridden:
		o.overrides.Ascend(req.After, func(name string, _ store.KeyOverride) bool { return add(name) })
	case req.Halted:
		o.halted.Ascend(req.After, add)
	default:
		o.waiting.Ascend(req.After, add)
	}
	return page
}

// Key returns the state of a key.
func (o *Order) Key(now int64, name string) store.KeyState {
	s := store.KeyState{
		Key: name, KeyFlow: o.Limits(name), Override: o.Override(name), Now: time.UnixMicro(now),
	}
	next := now
	if k := o.keys[name]; k != nil {
		next = o.next(k, s.KeyFlow, now)
		s.Leased = k.leased
		if k.hold != nil {
			s.Holder, s.Halted = k.hold.id, k.hold.dead
			s.Held = !k.hold.dead && !k.hold.ready
		}
		if s.Waiting = int64(k.sorted()); s.Waiting > 0 {
			s.Since = k.since()
		}
	}
	if s.Rate.N != 0 {
		s.Next = time.UnixMicro(next)
	}
	return s
}

// since returns when the first message of a key with a sorted one fell due.
func (k *key) since() time.Time {
	first, _ := k.next()
	if k.messages() > 0 {
		earliest, _ := k.earliest()
		first.place = min(first.place, earliest.place)
	}
	return store.Time(time.UnixMicro(first.place).UnixMilli())
}

// State is the state of a key that an engine must keep. It counts the leased messages itself. The pass of a key is not
// kept: after a restart, all keys begin to wait.
type State struct {
	Starts gcra.State
	N      int    // the N of the rate that Starts is in parts of
	Holder string // the id of the message that holds the key and is not leased, or ""
	Dead   bool   // the holder is dead
	// Expected is set from an Expect to a Receive or ExpectNone.
	Expected bool
}

// Track has the Order remember which keys change, for Changes.
func (o *Order) Track() { o.changed = map[string]struct{}{} }

// Changes calls f for each key with a state that may have changed since the last call. The zero State is that of a key
// that was forgotten.
func (o *Order) Changes(f func(name string, s State)) {
	for name := range o.changed {
		var s State
		if k := o.keys[name]; k != nil {
			s.Expected = k.expected
			if s.Starts, s.N = k.rate(); k.hold != nil {
				s.Holder, s.Dead = k.hold.id, k.hold.dead
			}
		}
		f(name, s)
	}
	clear(o.changed)
}

// rate returns the state of the rate of a key, and the N that it is in parts of, both zero if the key has rested.
func (k *key) rate() (starts gcra.State, n int) {
	if k.starts == (gcra.State{}) {
		return k.starts, 0
	}
	return k.starts, k.n
}

// Restore gives a key the state that Changes has returned. The engine then restores the counted messages with Hold, and
// sorts messages.
func (o *Order) Restore(now int64, name string, s State) {
	k := o.key(name)
	k.starts, k.n, k.expected = s.Starts, s.N, s.Expected
	if s.Holder != "" {
		o.Regain(now, name, s.Holder, s.Dead)
	}
	o.place(k, now)
}
