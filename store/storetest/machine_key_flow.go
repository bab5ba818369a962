package storetest

import (
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/laterq/later/store"
)

// someKeys are the keys of messages, most of them none.
var someKeys = []string{"", "", "k", "l"}

func drawKeyFlow(r *rapid.T, label string) store.KeyFlow {
	return store.KeyFlow{
		Concurrency: rapid.IntRange(0, 2).Draw(r, label+" concurrency"),
		Rate:        rapid.SampledFrom(someRates).Draw(r, label+" rate"),
		Weight:      rapid.IntRange(0, 2).Draw(r, label+" weight"),
	}
}

// SetKeyFlow sets the override of a key, or removes it. Check reads it.
func (m *machine) SetKeyFlow(r *rapid.T) {
	name := rapid.SampledFrom([]string{"k", "l"}).Draw(r, "key")
	f, o := drawKeyFlow(r, "override"), store.KeyOverride{}
	f.Weight++
	which := rapid.IntRange(0, 7).Draw(r, "fields")
	if which&1 > 0 {
		o.Concurrency = &f.Concurrency
	}
	if which&2 > 0 {
		o.Rate = &f.Rate
	}
	if which&4 > 0 {
		o.Weight = &f.Weight
	}
	err := m.store(r).SetKeyFlow(m.ctx, m.queue, name, o)
	switch {
	case !m.model.flow.Fair:
		m.sameError(r, "override in a queue that is not fair", err, store.ErrInvalid)
		return
	case m.model.ordered() && o.Concurrency != nil && *o.Concurrency != 1:
		m.sameError(r, "override of the concurrency in a queue with an order", err, store.ErrInvalid)
		return
	}
	m.ok(r, err)
	was := m.model.keyFlow(name).Rate
	if m.model.keys.overrides[name] = o; o.IsZero() {
		delete(m.model.keys.overrides, name)
	}
	if m.model.keyFlow(name).Rate != was {
		m.restKeys()
	}
}

// restKeys lets time pass until every key may start a burst. An engine may follow a change of the rate of a key when it
// looks at the key the next time, so the model does not know the next start until then.
func (m *machine) restKeys() {
	last := m.model.now * 1000
	for _, next := range m.model.keys.next {
		last = max(last, next)
	}
	if d := (last+999)/1000 - m.model.now; d > 0 {
		m.h.Advance(m.t, m.queue, time.Duration(d)*time.Millisecond)
		m.model.now += d
	}
	clear(m.model.keys.next)
}

// checkKeys compares the limits and states of all keys.
func (m *machine) checkKeys(r *rapid.T) {
	var overridden []string
	for _, name := range []string{"k", "l"} {
		page, err := m.h.Peer.Keys(m.ctx, m.queue, store.KeysRequest{Key: name, Limit: 1})
		m.ok(r, err)
		if !m.model.flow.Fair {
			m.same(r, "keys of a queue that is not fair", len(page), 0)
			continue
		}
		m.same(r, "number of keys", len(page), 1)
		want := m.model.keyState(name)
		m.same(r, "key "+name, keyLine(page[0]), keyLine(want))
		if want.Override != nil {
			overridden = append(overridden, name)
		}
	}
	page, err := m.h.Store.Keys(m.ctx, m.queue, store.KeysRequest{Overridden: true, Limit: 9})
	m.ok(r, err)
	m.same(r, "keys with an override", keyNames(page), overridden)
	page, err = m.h.Store.Keys(m.ctx, m.queue, store.KeysRequest{Halted: true, Limit: 9})
	m.ok(r, err)
	m.same(r, "halted keys", keyNames(page), m.model.haltedKeys())
}

func keyNames(page []store.KeyState) (names []string) {
	for _, s := range page {
		names = append(names, s.Key)
	}
	return names
}

func keyLine(s store.KeyState) string {
	next := "-"
	if !s.Next.IsZero() {
		next = fmt.Sprint(s.Next.Sub(s.Now).Microseconds())
	}
	own := ""
	if o := s.Override; o != nil {
		own = fmt.Sprint(" own=", o.Concurrency != nil, o.Rate != nil, o.Weight != nil)
	}
	return fmt.Sprintf("%q %+v leased=%d holder=%q halted=%v next=%s%s", s.Key, s.KeyFlow, s.Leased, s.Holder, s.Halted,
		next, own)
}

// checkSorted checks, after a claim that has sorted all ready messages, that they wait. An engine may also count
// messages that are gone, until their turn comes.
func (m *machine) checkSorted(r *rapid.T) {
	page, err := m.h.Peer.Keys(m.ctx, m.queue, store.KeysRequest{Limit: 9})
	m.ok(r, err)
	waiting := map[string]int64{}
	for _, s := range page {
		waiting[s.Key] = s.Waiting
	}
	keys := int64(0)
	for _, name := range slices.Compact(slices.Clone(someKeys)) {
		n := m.model.ready(name)
		if n > 0 {
			keys++
		}
		if waiting[name] < n {
			r.Fatalf("of key %q %d messages wait, and %d are ready", name, waiting[name], n)
		}
	}
	s, err := m.h.Store.Stats(m.ctx, m.queue)
	m.ok(r, err)
	if c := s.Flow.Keys; c.Waiting < keys || c.Full+c.Resting > c.Waiting {
		r.Fatalf("%d keys have ready messages, and the counts are %+v", keys, c)
	}
}
