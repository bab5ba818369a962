package storetest

import (
	"fmt"
	"time"

	"github.com/laterq/later/store"
)

// then returns an ack of a message with follow-ups.
func then(c store.Claimed, follow ...store.FollowUp) store.Settlement {
	s := ackOf(c)
	s.Then = follow
	return s
}

// to returns a follow-up in the queue.
func (e *env) to(m store.Outgoing) store.FollowUp { return store.FollowUp{Queue: e.queue, Message: m} }

// linked returns an env with a queue that is linked to e's queue, and skips the rule if there is none.
func (e *env) linked() *env {
	e.Helper()
	f := e.other()
	if !store.Linked(e.Store, e.queue, f.queue) {
		e.Skip("this engine does not write follow-ups in another queue")
	}
	return f
}

var followUpRules = []rule{
	{"an ack writes its follow-ups in the same step", func(e *env) {
		e.whole()
		f := e.linked()
		e.send(message("m"))
		now := e.now() // a harness may give each queue a clock of its own
		headers := message("b", delay(time.Minute), maxAttempts(3))
		headers.Headers = map[string]string{"kind": "mail"}
		e.settle(then(e.claimOne("m", held), f.to(message("a")), f.to(headers)), store.StateNone)
		e.gone("m")
		f.count(1, 1, 0, 0)
		info := f.live("b", store.StateScheduled)
		f.at("due", info.Due, now.Add(time.Minute))
		e.equal("payload", string(info.Payload), "payload of b")
		e.equal("headers", info.Headers, headers.Headers)
		e.equal("max attempts", info.MaxAttempts, 3)
		claimed := f.claimOne("a", held)
		e.equal("payload that is claimed", string(claimed.Payload), "payload of a")
		f.ack(claimed)
		f.advance(time.Minute + time.Second)
		f.claimOne("b", held)
	}},
	{"follow-ups can be in several queues, and in the queue of the ack", func(e *env) {
		f, g := e.linked(), e.linked()
		e.send(message("m"))
		follow := []store.FollowUp{f.to(message("x")), g.to(message("x")), e.to(message("x")), f.to(message("y"))}
		e.settle(then(e.claimOne("m", held), follow...), store.StateNone)
		f.count(0, 2, 0, 0)
		g.count(0, 1, 0, 0)
		e.count(0, 1, 0, 0)
		e.claimOne("x", held)
	}},
	{"a refused ack writes no follow-ups", func(e *env) {
		e.whole()
		f := e.linked()
		e.send(message("m"), message("n"))
		c := e.claim(2)
		e.cancel("m", store.StateLeased)
		e.ack(c[1])
		for _, settled := range c {
			result := e.trySettle(then(settled, f.to(message("follow-up"))))[0]
			e.is(result.Err, store.ErrLeaseLost)
		}
		e.equal("exists", f.stats().Exists, false)
	}},
	{"each message of a settle has its own follow-ups", func(e *env) {
		e.whole()
		f := e.linked()
		e.send(many(6)...)
		c := e.claim(6)
		e.cancel("m00002", store.StateLeased)
		var settlements []store.Settlement
		for i, m := range c {
			s := then(m, f.to(message("follows "+m.ID)))
			if i == 4 {
				s = nack(m, time.Hour)
			}
			if i == 5 {
				s.Then = nil
			}
			settlements = append(settlements, s)
		}
		for i, result := range e.trySettle(settlements...) {
			if i == 2 {
				e.is(result.Err, store.ErrLeaseLost)
			} else {
				e.ok(result.Err)
			}
		}
		e.count(1, 0, 0, 0)
		e.equal("follow-ups", f.claimAll(), []string{"follows m00000", "follows m00001", "follows m00003"})
	}},
	{"a follow-up with an id that is live or within its dedup window is left out", func(e *env) {
		f := e.linked()
		f.send(message("live", delay(time.Hour)), message("acked", dedupWindow(time.Hour)))
		f.ack(f.claimOne("acked", held))
		e.send(message("m"))
		first, second := message("twice"), message("twice")
		second.Payload = []byte("second")
		follow := []store.FollowUp{
			f.to(message("live")), f.to(message("acked")), f.to(first), f.to(second), f.to(message("new")),
		}
		e.settle(then(e.claimOne("m", held), follow...), store.StateNone)
		e.gone("m")
		f.count(1, 2, 0, 0)
		f.gone("acked")
		e.equal("payload", string(f.live("twice", store.StateReady).Payload), "payload of twice")
		f.live("new", store.StateReady)
	}},
	{"an ack with follow-ups starts its dedup window", func(e *env) {
		f := e.linked()
		e.send(message("m", dedupWindow(time.Hour)))
		e.settle(then(e.claimOne("m", held), f.to(message("n"))), store.StateNone)
		e.equal("duplicate", e.trySend(message("m"))[0].Duplicate, true)
	}},
	{"as many follow-ups as a call allows are written", func(e *env) {
		f := e.linked()
		e.send(many(store.MaxBatch)...)
		c := e.claim(store.MaxBatch)
		var settlements []store.Settlement
		for i, m := range c {
			changes := []func(*store.Outgoing){}
			if i%2 == 0 {
				changes = append(changes, delay(time.Duration(i)*time.Hour))
			}
			settlements = append(settlements, then(m, f.to(message(fmt.Sprintf("f%03d", i), changes...))))
		}
		for _, result := range e.trySettle(settlements...) {
			e.ok(result.Err)
		}
		e.count(0, 0, 0, 0)
		f.count(store.MaxBatch/2-1, store.MaxBatch/2+1, 0, 0)
		e.equal("duplicates", f.trySend(message("f499"), message("f498"), message("f500")),
			[]store.SendResult{{Duplicate: true}, {Duplicate: true}, {}})
	}},
	{"one message has as many follow-ups as a call allows", func(e *env) {
		f := e.linked()
		e.send(message("m"))
		var follow []store.FollowUp
		for _, m := range many(store.MaxBatch) {
			follow = append(follow, f.to(m))
		}
		e.settle(then(e.claimOne("m", held), follow...), store.StateNone)
		f.count(0, store.MaxBatch, 0, 0)
		e.equal("in order", f.claimAll(), infoIDsOf(follow))
	}},
	{"follow-ups that cannot be written are refused, and the message stays held", func(e *env) {
		e.whole()
		f := e.other()
		e.send(message("m"), message("n"))
		c := e.claim(2)
		var refused []store.Settlement
		for _, action := range []store.Action{store.Nack, store.Snooze, store.Release, store.Bury} {
			refused = append(refused, store.Settlement{Receipt: c[0].Receipt, Action: action,
				Then: []store.FollowUp{f.to(message("x"))}})
		}
		windowed := then(c[0], e.to(message("m")))
		windowed.DedupWindow = time.Minute
		refused = append(refused, windowed)
		if !store.Linked(e.Store, e.queue, f.queue) {
			refused = append(refused, then(c[0], f.to(message("x"))))
		}
		results := e.trySettle(append(refused, then(c[1]))...)
		for _, result := range results[:len(refused)] {
			e.is(result.Err, store.ErrInvalid)
		}
		e.ok(results[len(refused)].Err)
		e.count(0, 0, 1, 0)
		e.equal("exists", f.stats().Exists, false)
		e.ack(c[0])
	}},
	{"a follow-up with the id of the message itself takes its place", func(e *env) {
		e.send(message("m", maxAttempts(3), group("g")), message("n"))
		c := e.claim(2)
		e.settle(nack(c[0], 0), store.StateReady)
		first := e.claimOne("m", held)
		next := message("m", delay(time.Hour), group("h"), payload("next"))
		now := e.now()
		e.settle(then(first, e.to(next), e.to(message("m", payload("too late"))), e.to(message("x"))), store.StateNone)
		e.settle(then(c[1], e.to(message("n", delay(30*day)))), store.StateNone)
		e.count(2, 1, 0, 0)
		info := e.live("m", store.StateScheduled)
		e.equal("payload", string(info.Payload), "next")
		e.equal("attempts", info.Attempts, 0)
		e.equal("failures", len(info.Failures), 0)
		e.at("due", info.Due, now.Add(time.Hour))
		e.inGroup("g")
		e.inGroup("h", "m")
		e.refused(first.Receipt)
		e.equal("results", e.trySettle(then(first, e.to(message("m", payload("again")))))[0].Err,
			error(store.ErrLeaseLost))
		e.ack(e.claimOne("x", held))
		e.advance(time.Hour)
		e.equal("payload", string(e.claimOne("m", held).Payload), "next")
		e.live("n", store.StateScheduled)
	}},
	{"a follow-up does not take the place of a successor", func(e *env) {
		e.send(message("m"))
		c := e.claimOne("m", held)
		follow := message("m", payload("successor"))
		follow.OnDuplicate.Mode = store.DuplicateFollow
		e.trySend(follow)
		e.settle(then(c, e.to(message("m", payload("follow-up"), delay(time.Hour))), e.to(message("x"))),
			store.StateNone)
		e.count(0, 2, 0, 0)
		e.equal("payload", string(e.live("m", store.StateReady).Payload), "successor")
	}},
	{"a cancelled message is not replaced by its follow-up", func(e *env) {
		e.send(message("m"))
		c := e.claimOne("m", held)
		e.cancel("m", store.StateLeased)
		e.is(e.trySettle(then(c, e.to(message("m"))))[0].Err, store.ErrLeaseLost)
		e.send(message("m"))
		e.is(e.trySettle(then(c, e.to(message("m", payload("old holder's")))))[0].Err, store.ErrLeaseLost)
		e.equal("payload", string(e.claimOne("m", held).Payload), "payload of m")
	}},
	{"a follow-up wakes a waiter", func(e *env) {
		f := e.linked()
		consumer := f.consumer(f.timeoutContext())
		f.asleep(1)
		e.send(message("m"))
		e.settle(then(e.claimOne("m", held), f.to(message("n"))), store.StateNone)
		f.soonReceived("n", consumer)
	}},
}

func infoIDsOf(follow []store.FollowUp) []string {
	var ids []string
	for _, f := range follow {
		ids = append(ids, f.Message.ID)
	}
	return ids
}
