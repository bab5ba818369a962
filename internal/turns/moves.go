package turns

import (
	"slices"

	"github.com/laterq/later/internal/gcra"
	"github.com/laterq/later/store"
)

// Handover moves with a key to another queue: its State without a holder, and its override.
type Handover struct {
	Starts   gcra.State
	N        int
	Override *store.KeyOverride
}

// Known returns the keys that have more than sorted messages, in order: an override, starts ahead of their rate, or
// messages that take slots. A hold moves with its message.
func (o *Order) Known(now int64) (names []string) {
	for name, k := range o.keys {
		if k.leased > 0 || k.starts.Micros >= now {
			names = append(names, name)
		}
	}
	o.overrides.Scan(func(name string, _ store.KeyOverride) bool {
		names = append(names, name)
		return true
	})
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "" })
}

// Held returns the keys that a message holds, in order.
func (o *Order) Held() (names []string) {
	for name, k := range o.keys {
		if k.hold != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Idle reports whether a key can be handed over: no message takes its slots, holds it or is sorted.
func (o *Order) Idle(name string) bool {
	k := o.keys[name]
	return k == nil || k.leased == 0 && k.hold == nil && k.sorted() == 0
}

// HandOver takes an Idle key out of the Order.
func (o *Order) HandOver(now int64, name string) (h Handover) {
	h.Override = o.Override(name)
	k := o.keys[name]
	if k != nil {
		o.next(k, o.Limits(k.name), now)
		h.Starts, h.N = k.rate()
		k.starts, k.n, k.expected = gcra.State{}, 0, false
	}
	o.overrides.Delete(name)
	if k != nil {
		o.place(k, now)
	}
	return h
}

// Receive gives a key the state that another Order has handed over. The key is expected no longer. Of two states of its
// rate the one that is further ahead stays.
func (o *Order) Receive(now int64, name string, h Handover) {
	if h.Override != nil {
		o.SetOverride(now, name, *h.Override)
	}
	k := o.key(name)
	l := o.Limits(k.name)
	o.convert(k, l, now)
	came := key{name: name, starts: h.Starts, n: h.N, rates: o.rates}
	if h.N > 0 {
		o.convert(&came, l, now)
		k.starts = k.starts.Latest(came.starts)
	}
	k.expected = false
	o.place(k, now)
}

// Expect lets a key start no message until it is received.
func (o *Order) Expect(now int64, name string) {
	k := o.key(name)
	k.expected = true
	o.place(k, now)
}

// ExpectNone lets all expected keys go on, but some.
func (o *Order) ExpectNone(now int64, but []string) {
	kept := make(map[string]bool, len(but))
	for _, name := range but {
		kept[name] = true
	}
	for _, k := range o.keys {
		if k.expected && !kept[k.name] {
			k.expected = false
			o.place(k, now)
		}
	}
}
