package storetest

import (
	"time"

	"github.com/laterq/later/store"
)

// waitingInOrder sends messages of the key k behind a leased one, with ids in reverse order.
func (e *env) waitingInOrder() store.Claimed {
	e.Helper()
	e.limit(continuing)
	e.send(message("held", withKey("k")))
	c := e.claimOne("held", held)
	for _, id := range []string{"c", "b", "a"} {
		e.send(message(id, withKey("k")))
	}
	return c
}

// changedPlaceRules are about messages that change while they wait for their key.
var changedPlaceRules = []rule{
	{"a waiting message that is cancelled or removed leaves the others in order", func(e *env) {
		c := e.waitingInOrder()
		e.cancel("b", store.StateReady)
		e.ack(c)
		e.inOrder("k", "c", "a")
		c = e.waitingInOrder()
		e.equal("removed", e.remove(*e.get("c")), []bool{true})
		e.ack(c)
		e.inOrder("k", "b", "a")
		c = e.waitingInOrder()
		e.cancel("c", store.StateReady)
		e.send(message("c", withKey("k")))
		e.ack(c)
		e.inOrder("k", "b", "a", "c")
	}},
	{"a waiting message that is replaced or edited and keeps its due time keeps its place", func(e *env) {
		for _, sort := range []bool{true, false} {
			c := e.waitingInOrder()
			if sort {
				e.sort()
			}
			e.equal("results", e.trySend(message("b", keepingDue, withKey("k"), payload("2"))), wasReplaced)
			e.equal("results", e.trySend(message("b", keepingDue, withKey("k"), payload("3"), unchanged(e.get("b")))),
				wasReplaced)
			e.equal("results", e.trySend(message("a", keepingDue, withKey("k"))), wasReplaced)
			e.ack(c)
			e.ack(e.takesKey("k", "c")...)
			b := e.takesKey("k", "b")[0]
			e.equal("payload", string(b.Payload), "3")
			e.ack(b)
			e.inOrder("k", "a")
		}
	}},
	{"messages keep the order of their sends when the order is removed", func(e *env) {
		e.limit(continuing)
		e.send(message("c", withKey("k")), message("b", withKey("k")), message("a", withKey("k")))
		e.limit(store.Flow{Key: store.KeyFlow{Concurrency: 1}})
		e.inOrder("k", "c", "b", "a")
	}},
	{"a waiting message that is replaced while the order is removed keeps its place", func(e *env) {
		c := e.waitingInOrder()
		e.limit(fair)
		e.equal("results", e.trySend(message("b", keepingDue, withKey("k"), payload("2"))), wasReplaced)
		e.equal("results", e.trySend(message("a", keepingDue, withKey("k"))), wasReplaced)
		e.limit(continuing)
		e.ack(c)
		e.inOrder("k", "c", "b", "a")
	}},
	{"a waiting message that is replaced without a delay goes to the end", func(e *env) {
		c := e.waitingInOrder()
		e.equal("results", e.trySend(message("b", replacing, withKey("k"))), wasReplaced)
		e.send(message("0", withKey("k")))
		e.equal("results", e.trySend(message("c", replacing, withKey("k"))), wasReplaced)
		e.ack(c)
		e.inOrder("k", "a", "b", "0", "c")
	}},
	{"a waiting message that is replaced with another due time goes where that is", func(e *env) {
		c := e.waitingInOrder()
		now := e.now()
		e.equal("results", e.trySend(message("b", replacing, withKey("k"), at(now.Add(-time.Hour)))), wasReplaced)
		e.equal("results", e.trySend(message("c", replacing, withKey("k"), delay(time.Second))), wasReplaced)
		e.ack(c)
		e.inOrder("k", "b", "a")
		e.advance(2 * time.Second)
		e.inOrder("k", "c")
	}},
	{"a waiting message that is rescheduled goes where its new due time is", func(e *env) {
		c := e.waitingInOrder()
		e.ok(e.tryReschedule("a", store.Due{At: e.now().Add(-time.Hour)}))
		e.ok(e.tryReschedule("c", store.Due{Delay: time.Second}))
		e.ack(c)
		e.inOrder("k", "a", "b")
		e.advance(2 * time.Second)
		e.inOrder("k", "c")
		c = e.waitingInOrder()
		e.advance(2 * time.Millisecond)
		e.ok(e.tryReschedule("c", store.Due{}))
		e.ack(c)
		e.inOrder("k", "b", "a", "c")
	}},
	{"a waiting message that is replaced with another key waits for that", func(e *env) {
		c := e.waitingInOrder()
		now := e.now()
		e.send(message("l1", withKey("l"), at(now.Add(-time.Hour))))
		l := e.claimOne("l1", held)
		e.send(message("l2", withKey("l")))
		e.equal("results", e.trySend(message("b", replacing, withKey("l"))), wasReplaced)
		e.equal("results", e.trySend(message("c", replacing, withKey("l"), at(now.Add(-time.Minute)))), wasReplaced)
		e.ack(c)
		e.inOrder("k", "a")
		e.ack(l)
		e.inOrder("l", "c", "l2", "b")
	}},
	{"restored and replayed messages wait by their due times", func(e *env) {
		c := e.waitingInOrder()
		e.settle(store.Settlement{Receipt: c.Receipt, Action: store.Bury, Reason: "no"}, store.StateDead)
		c = e.takesKey("k", "c")[0]
		e.equal("replayed", e.replay(deadByID("held"), store.Due{At: e.now().Add(-time.Minute)}), 1)
		e.restore(store.Info{Message: message("z", withKey("k")).Message, State: store.StateReady,
			Due: e.now().Add(-time.Hour)})
		e.ack(c)
		e.inOrder("k", "z", "held", "b", "a")
	}},
	{"a purge of ready messages removes the messages that wait", func(e *env) {
		c := e.waitingInOrder()
		e.equal("purged", e.purge(store.Selection{State: store.StateReady}), 3)
		e.send(message("d", withKey("k")))
		e.ack(c)
		e.inOrder("k", "d")
		e.count(0, 0, 0, 0)
	}},
}
