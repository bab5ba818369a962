package storetest

import (
	"pgregory.net/rapid"

	"github.com/laterq/later/store"
)

var someOrders = []store.Order{store.OrderNone, store.OrderContinue, store.OrderHalt, store.OrderHalt}

// ResumeKey lets a halted key go on. Check reads the holder.
func (m *machine) ResumeKey(r *rapid.T) {
	name := rapid.SampledFrom([]string{"k", "l"}).Draw(r, "key")
	err := m.store(r).ResumeKey(m.ctx, m.queue, name)
	if !m.model.keys.holds[name].dead {
		m.sameError(r, "resume of a key that is not halted", err, store.ErrNotFound)
		return
	}
	m.ok(r, err)
	delete(m.model.keys.holds, name)
}

// forgetPlaces gives messages in a queue that is not Fair their due times as places. Engines may do the same.
func (m *machine) forgetPlaces(r *rapid.T) {
	for _, x := range m.model.messages {
		if m.model.flow.Fair || x.place == x.due*1000 {
			continue
		}
		x.setDue(x.due)
		if x.receipt.Lease == "" && x.reason == "" {
			errs, err := m.h.Store.Reschedule(m.ctx, m.queue, []string{x.ID}, store.Due{At: store.Time(x.due)})
			m.ok(r, err)
			m.ok(r, errs[0])
		}
	}
}

// checkFences checks that the messages of a claim that have a key have one fence in a queue with an order, above all
// earlier ones.
func (m *machine) checkFences(r *rapid.T, c store.Claim) {
	last := m.fence
	for _, x := range c.Messages {
		switch {
		case !m.model.ordered() || x.Key == "":
			m.same(r, "fence of "+x.ID, x.Fence, 0)
		case x.Fence <= last || m.fence > last && x.Fence != m.fence:
			r.Fatalf("fence of %s is %d, after %d of earlier claims", x.ID, x.Fence, last)
		default:
			m.fence = x.Fence
		}
	}
}
