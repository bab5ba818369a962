package storetest

import (
	"pgregory.net/rapid"

	"github.com/laterq/later/store"
)

// Forward moves messages to another queue, and takes them out of there.
func (m *machine) Forward(r *rapid.T) {
	s := m.store(r)
	forwarder, ok := s.(store.Forwarder)
	if !ok {
		r.Skip("this engine does not move messages in one step")
	}
	to := store.Target{Kind: store.TargetQueue, Name: m.queue + " moved"}
	if direct, err := forwarder.ForwardsTo(m.queue, to); !direct || err != nil {
		r.Skip("this engine does not move messages to another queue in one step")
	}
	req := store.ForwardRequest{To: to, Max: rapid.IntRange(1, 5).Draw(r, "max"), IDs: true}
	f, err := forwarder.Forward(m.ctx, m.queue, req)
	m.ok(r, err)
	m.same(r, "now", f.Now.UnixMilli(), m.model.now)
	m.same(r, "number of ids", len(f.IDs), f.Count)
	if f.Count > req.Max {
		r.Fatalf("a forward of %d moved %d messages", req.Max, f.Count)
	}
	c := store.Claim{More: f.More, Died: f.Died, Expired: f.Expired, Dropped: f.Dropped}
	want := make([]*modelMessage, len(f.IDs))
	worked := m.takeInOrder(r, c, f.IDs, true, func(i int, x *modelMessage) {
		want[i] = x
		delete(m.model.messages, x.ID)
		m.model.loose(x.ID)
		if x.DedupWindow > 0 {
			m.model.dedup[x.ID] = m.model.now + store.Millis(x.DedupWindow)
		}
	})
	if f.More && !worked {
		r.Fatalf("a forward did nothing, but More is set")
	}
	if len(want) == 0 {
		return
	}
	infos, err := s.Get(m.ctx, to.Name, f.IDs)
	m.ok(r, err)
	for i, x := range want {
		if infos[i] == nil {
			r.Fatalf("message %s was moved, but is not there", x.ID)
		}
		infos[i].State = store.StateReady // the other queue has a clock of its own
		m.same(r, "moved", describe(infos[i]), describe(&store.Info{
			Message: x.Message, State: store.StateReady, Due: store.Time(x.due),
		}))
	}
	cancelled, err := s.Cancel(m.ctx, to.Name, store.CancelRequest{IDs: f.IDs})
	m.ok(r, err)
	for _, result := range cancelled {
		m.ok(r, result.Err)
	}
	m.ok(r, s.Delete(m.ctx, to.Name))
}
