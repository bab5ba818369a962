package storetest

import (
	"cmp"
	"slices"
	"strings"

	"github.com/laterq/later/store"
)

// modelHold is the hold of a message that has come back from its lease, or that is dead and halts its key.
type modelHold struct {
	id   string
	dead bool
}

func (m *model) ordered() bool { return m.flow.Key.Order != store.OrderNone }

// arrive sets the due time of a message that is sent. Without a delay, it has a place behind earlier arrivals.
func (m *model) arrive(x *modelMessage, due store.Due) {
	x.setDue(m.dueAt(due))
	if m.ordered() && x.Key != "" && due.At.IsZero() && due.Delay <= 0 {
		m.arrival = max(m.now*1000, m.arrival+1)
		x.place = m.arrival
		if !x.sorted { // an engine may sort it at once
			x.modelSorted = modelSorted{urgency: m.flow.UrgencyOf(&x.Message), sorted: true, again: true}
		}
	}
}

// setDue sets the due time of a message, which is its place in microseconds.
func (x *modelMessage) setDue(due int64) {
	x.unsort(due == x.due)
	x.due, x.place = due, due*1000
}

// inOrder sorts messages by their places, and leaves out messages of a key that waits for another message, unless that
// one is among them. It comes first then.
func (m *model) inOrder(all []*modelMessage) (some []*modelMessage) {
	for _, x := range all {
		hold, held := m.keys.holds[x.Key]
		if !held || slices.ContainsFunc(all, func(y *modelMessage) bool { return y.ID == hold.id }) {
			some = append(some, x)
		}
	}
	slices.SortFunc(some, func(a, b *modelMessage) int {
		if _, holds := m.held(a.ID); holds {
			return -1
		}
		if _, holds := m.held(b.ID); holds {
			return 1
		}
		return cmp.Or(cmp.Compare(a.place, b.place), strings.Compare(a.ID, b.ID))
	})
	return some
}

// held returns the key that a message holds.
func (m *model) held(id string) (name string, ok bool) {
	for name, hold := range m.keys.holds {
		if hold.id == id {
			return name, true
		}
	}
	return "", false
}

// hold has a message that has left a lease hold the key that it had there.
func (m *model) hold(x *modelMessage, l *modelLease, name string) {
	if !m.ordered() || name == "" || l.keyed != m.keys.number {
		return
	}
	dead := x.reason != ""
	if _, held := m.keys.holds[name]; held || dead && m.flow.Key.Order != store.OrderHalt {
		return
	}
	m.keys.holds[name] = modelHold{x.ID, dead}
}

// loose ends the hold of a message that starts, is removed or has another key. It returns the key that it halted.
func (m *model) loose(id string) (resumed string) {
	name, ok := m.held(id)
	if !ok {
		return ""
	}
	if m.keys.holds[name].dead {
		resumed = name
	}
	delete(m.keys.holds, name)
	return resumed
}

// setOrder follows a change of the flow.
func (m *model) setOrder() {
	for name, hold := range m.keys.holds {
		if !m.ordered() || hold.dead && m.flow.Key.Order != store.OrderHalt {
			delete(m.keys.holds, name)
		}
	}
}

// haltedKeys returns the halted keys in order.
func (m *model) haltedKeys() (names []string) {
	for name, hold := range m.keys.holds {
		if hold.dead {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// halts reports whether a message halts its key.
func (m *model) halts(x *modelMessage) bool {
	name, ok := m.held(x.ID)
	return ok && m.keys.holds[name].dead
}
