package storetest

import (
	"time"

	"github.com/laterq/later/store"
)

// restored returns the Info of a ready message that fell due some time ago.
func (e *env) restored(id string, ago time.Duration, changes ...func(*store.Outgoing)) store.Info {
	e.Helper()
	m := message(id, changes...).Message
	return store.Info{Message: m, State: store.StateReady, Due: e.now().Add(-ago)}
}

// restoresAll restores messages of all urgencies, the least urgent due first.
func (e *env) restoresAll(with ...func(*store.Outgoing)) {
	e.Helper()
	for i := range urgencies {
		u := urgencies[len(urgencies)-1-i]
		e.restore(e.restored(string("abc"[i]), time.Duration(3-i)*time.Minute, append(with, withUrgency(u))...))
	}
}

// acceptedUrgencyRules are about messages with an urgency in queues that have none.
var acceptedUrgencyRules = []rule{
	{"queues of Later's own take messages with an urgency, and start them by due time", func(e *env) {
		for _, prefix := range []string{"topic:", "topic-history:", "worker:"} {
			f := e.other()
			f.queue = prefix + f.queue
			f.pass(time.Millisecond)
			now := f.now()
			f.send(message("a", low, at(now.Add(-time.Minute))), message("b", at(now.Add(-time.Second))),
				message("c", high, withKey("k")))
			f.equal("results", f.trySend(message("a", keepingDue, high)), wasReplaced)
			c := f.claim(3)
			f.equal("claimed", ids(c), []string{"a", "b", "c"})
			f.equal("urgencies", [3]store.Urgency{c[0].Urgency, c[1].Urgency, c[2].Urgency},
				[3]store.Urgency{"high", "", "high"})
			f.ack(c...)
			f.ok(f.Peer.Delete(f.Context(), f.queue))
		}
	}},
	{"relayed messages keep their urgency in every queue, and count as normal without urgencies", func(e *env) {
		relayed := func(m *store.Outgoing) { m.Relayed = true }
		for _, flow := range []store.Flow{{}, concurrency(5), fair, halting, urgent} {
			f := e.other()
			f.limit(flow)
			f.send(message("a", relayed, low, withKey("k")))
			f.pass(time.Millisecond)
			f.send(message("b", relayed, high, withKey("l")))
			f.equal("results", f.trySend(message("a", relayed, keepingDue, low, withKey("k"))), wasReplaced)
			f.hasUrgency("a", store.UrgencyLow)
			f.hasUrgency("b", store.UrgencyHigh)
			if flow == urgent {
				f.inThisOrder("b", "a")
			} else {
				f.inThisOrder("a", "b")
			}
			f.count(0, 0, 0, 0)
		}
		f := e.other() // does not exist
		f.send(message("a", relayed, high))
		f.hasUrgency("a", store.UrgencyHigh)
	}},
	{"restored messages keep their urgency in every queue, and count as normal without urgencies", func(e *env) {
		for _, flow := range []store.Flow{{}, concurrency(5), fair, {Key: store.KeyFlow{Concurrency: 1}}, halting} {
			f := e.other()
			f.limit(flow)
			f.restoresAll(withKey("k"))
			f.hasUrgency("a", store.UrgencyLow)
			f.hasUrgency("c", store.UrgencyHigh)
			if flow.Normal().Fair {
				f.sort()
				f.equal("counts", f.flow().Keys, store.KeyCounts{Waiting: 1})
			}
			f.inThisOrder("a", "b", "c")
			f.count(0, 0, 0, 0)
		}
		other := e.restored("a", 0, low)
		e.restore(other)
		other.Urgency = store.UrgencyHigh
		e.equal("removed with another urgency", e.remove(other), []bool{false})
		e.equal("removed", e.remove(*e.get("a")), []bool{true})
	}},
	{"follow-ups keep their urgency in every queue, and count as normal without urgencies", func(e *env) {
		for _, flow := range []store.Flow{{}, fair, urgent} {
			e := e.other()
			f := e.linked()
			e.limit(flow)
			f.limit(fair)
			e.send(message("m"))
			now := e.now()
			e.settle(then(e.claimOne("m", held), f.to(message("a", low, at(now.Add(-time.Hour)))),
				f.to(message("c", high)), f.to(message("b", high, delay(48*time.Hour))),
				e.to(message("m", high, withKey("k")))), store.StateNone)
			e.equal("urgency", e.claimOne("m", held).Urgency, store.UrgencyHigh)
			f.hasUrgency("b", store.UrgencyHigh)
			f.hasUrgency("c", store.UrgencyHigh)
			f.inThisOrder("a", "c")
		}
	}},
	{"forwarded messages keep their urgency in every queue, and count as normal without urgencies", func(e *env) {
		for _, flow := range []store.Flow{{}, fair, urgent} {
			e := e.other()
			f := e.forwardsTo()
			e.limit(urgent)
			f.limit(flow)
			now := e.now()
			e.send(message("a", low, fullOfHeaders, group("g"), at(now.Add(-time.Hour))),
				message("b", high, withKey("k"), at(now.Add(-time.Second))), message("c"))
			was := e.live("a", store.StateReady)
			e.equal("moved", e.forward(f, 10).IDs, []string{"b", "c", "a"})
			e.empty()
			f.equal("message", describe(f.live("a", store.StateReady)), describe(was))
			f.inGroup("g", "a")
			f.hasUrgency("b", store.UrgencyHigh)
			if flow == (store.Flow{Urgency: true}) {
				f.inThisOrder("b", "c", "a")
			} else if flow == (store.Flow{}) {
				f.inThisOrder("a", "b", "c")
			}
		}
	}},
	{"messages count by their urgency when they are sorted after the flow has got urgencies", func(e *env) {
		for _, flow := range []store.Flow{{}, fair} {
			f := e.other()
			f.limit(flow)
			f.restoresAll()
			f.limit(urgent)
			f.inThisOrder("c", "b", "a")
		}
	}},
	{"messages of a queue without urgencies are replayed and rescheduled with theirs", func(e *env) {
		for _, flow := range []store.Flow{{}, fair} {
			f := e.other()
			f.limit(urgent)
			f.sendDead("dead", high, withKey("k"))
			f.send(message("later", low, withKey("k"), delay(72*time.Hour)))
			c := f.claimWith(1, held)
			f.equal("claimed", len(c.Messages), 0)
			f.limit(flow)
			f.equal("replayed", f.replay(deadByID("dead"), store.Due{}), 1)
			f.hasUrgency("dead", store.UrgencyHigh)
			f.ok(f.tryReschedule("later", store.Due{At: f.now().Add(-time.Hour)}))
			f.hasUrgency("later", store.UrgencyLow)
			m := f.starts("later")
			f.equal("urgency", m.Urgency, store.UrgencyLow)
			f.settle(nack(m, 0), store.StateReady)
			f.limit(urgent)
			f.inThisOrder("dead", "later")
		}
	}},
}
