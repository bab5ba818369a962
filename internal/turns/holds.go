package turns

import "github.com/laterq/later/store"

// hold is the hold of a message on its key, from its return from a lease until it starts again. While a message is
// leased, it is the concurrency of 1 that keeps other messages of the key waiting.
type hold struct {
	id    string
	dead  bool  // the key is halted
	ready bool  // the message is sorted, and the next of its key
	place int64 // of the message, if it is ready
	class class // the same
}

// Keep has a message that came back from a lease hold the key that it had there. If another message holds the key, that
// one still does. Keys without an order, and messages without a key, have no holds.
func (o *Order) Keep(now int64, name, id string) {
	if o.limits.Order != store.OrderNone {
		o.hold(now, name, hold{id: id})
	}
}

// Halt says that a message that held a key has died of its last attempt. It holds the key still if the order is
// OrderHalt.
func (o *Order) Halt(now int64, name, id string) {
	if o.limits.Order == store.OrderHalt {
		o.hold(now, name, hold{id: id, dead: true})
	}
}

// Regain gives a message the hold that it had in another Order, or in this one before a restart.
func (o *Order) Regain(now int64, name, id string, dead bool) {
	if dead {
		o.Halt(now, name, id)
	} else {
		o.Keep(now, name, id)
	}
}

func (o *Order) hold(now int64, name string, h hold) {
	if name == "" {
		return
	}
	o.Drop(now, h.id)
	k := o.key(name)
	if k.hold == nil {
		k.hold = &h
		if o.holders[h.id] = k; h.dead {
			o.halted.Insert(k.name)
		}
	}
	o.place(k, now)
}

// Drop ends the hold of a message, if it has one, because the message is gone or has another key. It returns the key
// that the message has halted, or "".
func (o *Order) Drop(now int64, id string) (resumed string) {
	k := o.holders[id]
	if k == nil {
		return ""
	}
	if k.hold.dead {
		resumed = k.name
	}
	if k.hold.ready {
		o.Remove(now, Message{Key: k.name, Place: k.hold.place, ID: id})
	}
	o.unhold(k)
	o.place(k, now)
	return resumed
}

// Resume lets a halted key go on, and reports whether it was halted.
func (o *Order) Resume(now int64, name string) bool {
	k := o.keys[name]
	if k == nil || k.hold == nil || !k.hold.dead {
		return false
	}
	o.unhold(k)
	o.place(k, now)
	return true
}

// Revive says that a dead message is replayed. If it halted its key, it now holds it as one that has come back.
func (o *Order) Revive(now int64, id string) {
	if k := o.holders[id]; k != nil && k.hold.dead {
		k.hold.dead = false
		o.halted.Delete(k.name)
		o.place(k, now)
	}
}

// Halted returns the number of halted keys.
func (o *Order) Halted() int { return o.halted.Len() }

// Holds returns the key that a message holds, or "", and reports whether it is dead and thus halts the key.
func (o *Order) Holds(id string) (name string, halts bool) {
	if k := o.holders[id]; k != nil {
		return k.name, k.hold.dead
	}
	return "", false
}

// unhold ends the hold of the message that holds a key, and is not sorted. The caller places the key.
func (o *Order) unhold(k *key) {
	delete(o.holders, k.hold.id)
	o.halted.Delete(k.name)
	k.hold = nil
}

// loosen ends the holds that the order of keys has no longer. Messages that are ready return to their lanes.
func (o *Order) loosen(now int64) {
	for _, k := range o.holders {
		h := *k.hold
		if o.limits.Order == store.OrderHalt || o.limits.Order == store.OrderContinue && !h.dead {
			continue
		}
		if o.unhold(k); h.ready {
			k.makeLine(h.class).add(entry{h.place, h.id})
		}
		o.place(k, now)
	}
}
