package storetest

import (
	"time"

	"pgregory.net/rapid"

	"github.com/laterq/later/store"
)

// someRates have intervals of a few milliseconds, as delays and leases have.
var someRates = []store.Rate{
	{}, {N: 1, Per: 20 * time.Millisecond}, {N: 2, Per: 30 * time.Millisecond, Burst: 2},
	{N: 1, Per: 50 * time.Millisecond, Burst: 3}, {N: 3, Per: 30 * time.Millisecond, Burst: 1},
}

func drawFlow(r *rapid.T, label string) store.Flow {
	if rapid.IntRange(0, 3).Draw(r, label+" is zero if 0") == 0 {
		return store.Flow{}
	}
	f := store.Flow{
		Concurrency: rapid.IntRange(0, 3).Draw(r, label+" concurrency"),
		Rate:        rapid.SampledFrom(someRates).Draw(r, label+" rate"),
	}
	if f.Fair = rapid.IntRange(0, 2).Draw(r, label+" is not fair if 0") > 0; f.Fair {
		f.Key = drawKeyFlow(r, label+" of keys")
		f.Urgency = rapid.IntRange(0, 3).Draw(r, label+" has no urgencies if 0") > 0
		f.Key.Order = rapid.SampledFrom(someOrders).Draw(r, label+" order of keys")
		if f.Key.Order != store.OrderNone {
			f.Key.Concurrency = min(1, f.Key.Concurrency)
		}
		if f.Urgency && rapid.Bool().Draw(r, label+" has no limits") { // so that many messages start in a row
			f = store.Flow{Urgency: true, Key: store.KeyFlow{Order: f.Key.Order}}
		}
	}
	return f
}

// SetFlow limits the queue. Check reads the flow.
func (m *machine) SetFlow(r *rapid.T) {
	if m.h.Sharded {
		r.Skip("queues with several shards have no flow")
	}
	flow := drawFlow(r, "flow")
	var former *store.Flow
	switch rapid.IntRange(0, 3).Draw(r, "former") {
	case 0:
		f := drawFlow(r, "former")
		former = &f
	case 1:
		former = &m.model.flow.Flow
	}
	err := m.store(r).SetFlow(m.ctx, m.queue, flow, former)
	if former != nil && m.model.flow.Flow != former.Normal() {
		m.conflicts(r, err)
		return
	}
	m.ok(r, err)
	was := m.model.flow.Key.Rate
	m.model.setFlow(flow)
	m.forgetPlaces(r)
	if m.model.flow.Key.Rate != was {
		m.restKeys()
	}
}
