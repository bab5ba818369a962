package turns

import (
	"github.com/laterq/later/internal/gcra"
	"github.com/laterq/later/store"
)

// SetLimits sets the limits of all keys without an override. The next calls of Wake look at waiting keys again. Without
// an order no message holds its key any more, and keys go on if the order does not halt them.
func (o *Order) SetLimits(now int64, f store.KeyFlow) {
	if f = f.Normal(); f == o.limits {
		return
	}
	if (f.Rate.N == 0) != (o.limits.Rate.N == 0) {
		o.rates++
	}
	orders := (f.Order == store.OrderNone) != (o.limits.Order == store.OrderNone)
	o.limits = f
	o.loosen(now)
	o.lookAgain(&o.rests)
	if orders && o.urgent { // keys wait in other classes
		for c := range classes {
			o.lookAgain(&o.turns[c])
		}
	}
}

// SetOverride sets the override of a key; the zero KeyOverride removes it.
func (o *Order) SetOverride(now int64, name string, override store.KeyOverride) {
	k := o.keys[name]
	if k != nil { // a rate that is removed and set again begins with its full burst
		o.convert(k, o.Limits(k.name), now)
	}
	if override.IsZero() {
		o.overrides.Delete(name)
	} else {
		o.overrides.Set(name, clone(override))
	}
	if k != nil {
		o.place(k, now)
	}
}

// Override returns the override of a key, or nil.
func (o *Order) Override(name string) *store.KeyOverride {
	override, ok := o.overrides.Get(name)
	if !ok {
		return nil
	}
	override = clone(override)
	return &override
}

// clone copies the fields, so that no caller shares them with the Order.
func clone(o store.KeyOverride) store.KeyOverride {
	return store.KeyOverride{Concurrency: clonePointer(o.Concurrency), Rate: clonePointer(o.Rate),
		Weight: clonePointer(o.Weight)}
}

func clonePointer[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

// Overrides returns the number of keys with an override.
func (o *Order) Overrides() int { return o.overrides.Len() }

// Limits returns the limits of a key, Normal.
func (o *Order) Limits(name string) store.KeyFlow {
	if name == "" {
		return store.KeyFlow{Weight: 1}
	}
	if o.overrides.Len() > 0 {
		if override, ok := o.overrides.Get(name); ok {
			return override.Of(o.limits)
		}
	}
	return o.limits
}

// convert has the starts of a key follow a change of its rate, or of the clock. A rate that was set or removed since
// begins with its full burst.
func (o *Order) convert(k *key, l store.KeyFlow, now int64) {
	switch {
	case l.Rate.N == 0 || k.rates != o.rates && !o.ownRate(k):
		k.starts = gcra.State{}
	case k.n != l.Rate.N && k.starts.Part > 0: // parts of another size
		k.starts = gcra.State{Micros: k.starts.Micros + 1}
	}
	k.starts.Start(l.Rate, now, 0)
	k.n, k.rates = l.Rate.N, o.rates
}

func (o *Order) ownRate(k *key) bool {
	override, _ := o.overrides.Get(k.name)
	return override.Rate != nil
}

// lookAgain has Wake look at all keys of a set.
func (o *Order) lookAgain(at **scores) {
	if (*at).len() > 0 {
		o.stale = append(o.stale, *at)
		*at = newScores()
	}
}
