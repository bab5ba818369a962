package storetest

import (
	"math"
	"slices"
	"time"

	"github.com/laterq/later/store"
)

// modelKeys is the limits of keys of the model's queue.
type modelKeys struct {
	number    int                          // counts how often the queue became Fair
	overrides map[string]store.KeyOverride // by key
	next      map[string]int64             // by key: as modelFlow.next
	holds     map[string]modelHold         // by key: the message that holds it and is not leased
}

func newModelKeys() modelKeys {
	return modelKeys{overrides: map[string]store.KeyOverride{}, next: map[string]int64{}, holds: map[string]modelHold{}}
}

// keyFlow returns the limits of a key.
func (m *model) keyFlow(name string) modelFlow {
	if name == "" {
		return modelFlow{}
	}
	o := m.keys.overrides[name]
	f := o.Of(m.flow.Key)
	return modelFlow{Flow: store.Flow{Concurrency: f.Concurrency, Rate: f.Rate, Key: f}, next: m.keys.next[name]}
}

// keyCounted returns how many messages count for a key.
func (m *model) keyCounted(name string) (n int) {
	for id, l := range m.leases {
		if !m.flow.Fair || l.keyed != m.keys.number {
			continue
		}
		for _, x := range m.messages {
			if x.receipt.Lease == id && l.keys[key(x.receipt)] == name {
				n++
			}
		}
		for _, lost := range []map[string]bool{l.cancelled, l.purged} {
			for receipt, learned := range lost {
				if !learned && l.keys[receipt] == name {
					n++
				}
			}
		}
	}
	return n
}

// keyLimit returns how many messages of a key may start now.
func (m *model) keyLimit(name string, forwards bool) int {
	f, n := m.keyFlow(name), math.MaxInt
	if f.Concurrency > 0 {
		n = max(0, f.Concurrency-m.keyCounted(name))
		if forwards && n > 0 {
			n = math.MaxInt
		}
	}
	return f.room(m.now, n)
}

// keyStart counts n messages of a key that start.
func (m *model) keyStart(name string, n int) {
	if f := m.keyFlow(name); f.Rate.N > 0 && n > 0 {
		m.keys.next[name] = max(f.next, m.now*1000) + int64(n)*f.interval()
	}
}

// lanes returns messages by key and urgency, in their order, if the queue is Fair, and otherwise in one lane. Messages
// that wait for another one of their key are left out.
func (m *model) lanes(all []*modelMessage) map[modelLane][]*modelMessage {
	if m.flow.Fair { // messages keep their places when the order is removed
		all = m.inOrder(all)
	}
	lanes := map[modelLane][]*modelMessage{}
	for _, x := range all {
		lane := m.laneOf(x)
		lanes[lane] = append(lanes[lane], x)
	}
	return lanes
}

// setFair follows a change of the flow, which was Fair or not.
func (m *model) setFair(was bool) {
	if m.flow.Fair == was {
		return
	}
	n := m.keys.number
	if m.keys = newModelKeys(); m.flow.Fair {
		n++
	}
	m.keys.number = n
}

// keyState returns the state of a key, without the counts of messages.
func (m *model) keyState(name string) store.KeyState {
	f := m.keyFlow(name)
	hold := m.keys.holds[name]
	s := store.KeyState{Key: name, KeyFlow: f.Key, Leased: m.keyCounted(name), Holder: hold.id, Halted: hold.dead,
		Now: time.UnixMilli(m.now)}
	if o, ok := m.keys.overrides[name]; ok {
		s.Override = &o
	}
	if f.Rate.N > 0 {
		s.Next = time.UnixMicro(max(f.earliest(), m.now*1000))
	}
	return s
}

// ready returns the number of ready messages of a key.
func (m *model) ready(name string) (n int64) {
	for _, x := range m.in(store.StateReady) {
		if x.Key == name {
			n++
		}
	}
	return n
}

// keyMoments returns the times when the rates of keys allow a start.
func (m *model) keyMoments() (all []int64) {
	for name := range m.keys.next {
		if f := m.keyFlow(name); f.Rate.N > 0 {
			all = append(all, (f.earliest()+999)/1000)
		}
	}
	slices.Sort(all)
	return all
}
