package storetest

import (
	"strings"
	"time"

	"github.com/laterq/later/store"
)

// when returns a condition on a property.
func when(property, value string) *store.Condition {
	return &store.Condition{Property: property, Value: value}
}

// onlyIf makes a message conditional.
func onlyIf(c *store.Condition) func(*store.Outgoing) {
	return func(m *store.Outgoing) { m.If = c }
}

var conditionRules = []rule{
	{"a send whose condition is not met changes nothing, and does not create the queue", func(e *env) {
		for _, n := range []int{1, 3} {
			for _, result := range e.trySend(many(n, onlyIf(when("open", "1")))...) {
				e.is(result.Err, store.ErrConflict)
				e.equal("added", result.Added(), false)
			}
		}
		e.equal("exists", e.stats().Exists, false)
		e.equal("listed", e.listed(), false)
		e.setProperties(map[string]string{"open": "2"})
		e.is(e.trySend(message("m", onlyIf(when("open", "1"))))[0].Err, store.ErrConflict)
		e.is(e.trySend(message("m", onlyIf(when("open", ""))))[0].Err, store.ErrConflict)
		e.count(0, 0, 0, 0)
	}},
	{"a send whose condition is met sends", func(e *env) {
		e.equal("results", e.trySend(message("none", onlyIf(when("open", "")))), []store.SendResult{{}})
		e.setProperties(map[string]string{"open": "1"})
		msgs := []store.Outgoing{message("none"), message("a", group("g")), message("b", delay(time.Hour)),
			message("c", delay(30*day), group("g"))}
		for i := range msgs {
			msgs[i].If = when("open", "1")
		}
		e.equal("results", e.trySend(msgs...), []store.SendResult{{Duplicate: true}, {}, {}, {}})
		e.count(2, 2, 0, 0)
		e.inGroup("g", "a", "c")
		e.setProperties(map[string]string{"open": ""})
		e.is(e.trySend(message("d", onlyIf(when("open", "1"))))[0].Err, store.ErrConflict)
		e.equal("results", e.trySend(message("d", onlyIf(when("open", "")))), []store.SendResult{{}})
	}},
	{"a settlement whose condition is not met leaves the message held", func(e *env) {
		e.send(message("m", group("g"), dedupWindow(time.Hour)))
		c := e.claimOne("m", held)
		for _, condition := range []*store.Condition{when("version", "1"), when("version", "")} {
			for _, action := range []store.Action{store.Ack, store.Nack, store.Snooze, store.Release, store.Bury} {
				s := store.Settlement{Receipt: c.Receipt, Action: action, Reason: "no", If: condition}
				if action == store.Ack {
					s.DedupWindow, s.Grouped = time.Hour, true
				}
				e.is(e.trySettle(s)[0].Err, store.ErrConflict)
			}
			e.setProperties(map[string]string{"version": "2"})
		}
		e.count(0, 0, 1, 0)
		e.inGroup("g", "m")
		s := ackOf(c)
		s.If = when("version", "2")
		e.settle(s, store.StateNone)
		e.count(0, 0, 0, 0)
	}},
	{"each settlement has its own condition", func(e *env) {
		e.setProperties(map[string]string{"a": "1"})
		e.send(many(6)...)
		c := e.claim(6)
		var settlements []store.Settlement
		for i, action := range []store.Action{store.Ack, store.Bury, store.Ack, store.Bury, store.Ack, store.Bury} {
			s := store.Settlement{Receipt: c[i].Receipt, Action: action, Reason: "no"}
			switch i {
			case 0, 1:
				s.If = when("a", "1")
			case 2, 3:
				s.If = when("b", "1")
			}
			settlements = append(settlements, s)
		}
		for i, result := range e.trySettle(settlements...) {
			if i == 2 || i == 3 {
				e.is(result.Err, store.ErrConflict)
			} else {
				e.ok(result.Err)
			}
		}
		e.count(0, 0, 2, 2)
		e.is(e.trySettle(settlements[2])[0].Err, store.ErrConflict)
		e.setProperties(map[string]string{"b": "1"})
		e.settle(settlements[2], store.StateNone)
		e.settle(settlements[3], store.StateDead)
	}},
	{"a condition that is met does not settle a message that is not held", func(e *env) {
		e.send(message("m"))
		c := e.claimOne("m", held)
		e.ack(c)
		for _, action := range []store.Action{store.Ack, store.Bury} {
			s := store.Settlement{Receipt: c.Receipt, Action: action, Reason: "no", If: when("a", "")}
			e.is(e.trySettle(s)[0].Err, store.ErrLeaseLost)
			s.If = when("a", "1")
			e.is(e.trySettle(s)[0].Err, store.ErrConflict)
		}
	}},
	{"follow-ups are written only if the condition is met", func(e *env) {
		f := e.linked()
		e.setProperties(map[string]string{"version": "1"})
		f.setProperties(map[string]string{"version": "2"})
		e.send(message("m", group("g"), dedupWindow(time.Hour)), message("n"))
		c := e.claim(2)
		s, plain := then(c[0], f.to(message("x")), e.to(message("y"))), then(c[1], f.to(message("z")))
		s.Grouped, s.DedupWindow = true, time.Hour
		s.If = when("version", "2")
		results := e.trySettle(s, plain)
		e.is(results[0].Err, store.ErrConflict)
		e.ok(results[1].Err)
		e.count(0, 0, 1, 0)
		f.count(0, 1, 0, 0)
		s.If = when("version", "1")
		e.settle(s, store.StateNone)
		e.count(0, 1, 0, 0)
		f.count(0, 2, 0, 0)
		e.inGroup("g")
		e.equal("duplicate", e.trySend(message("m"))[0].Duplicate, true)
	}},
	{"follow-ups go to as many queues as a message may have, and not to more", func(e *env) {
		var follow []store.FollowUp
		var queues []*env
		for range store.MaxFollowUpQueues + 1 {
			f := e.linked()
			queues = append(queues, f)
			follow = append(follow, f.to(message("x")))
		}
		e.send(many(3)...)
		c := e.claim(3)
		e.is(e.trySettle(then(c[0], follow...))[0].Err, store.ErrTooLarge)
		for _, f := range queues {
			e.equal("exists", f.stats().Exists, false)
		}
		for _, result := range e.trySettle(then(c[0], follow[1:]...), then(c[1], follow[0]),
			then(c[2], follow[:2]...)) {
			e.ok(result.Err)
		}
		for _, f := range queues {
			f.count(0, 1, 0, 0)
		}
	}},
	{"follow-ups of one message have as many bytes as they may have, and not more", func(e *env) {
		large := func(id string, size int) store.FollowUp {
			return e.to(message(id, payload(strings.Repeat("x", size))))
		}
		a, b := large("a", store.MaxPayload), large("b", store.MaxFollowUpBytes-store.MaxPayload)
		e.send(message("m"))
		c := e.claimOne("m", held)
		e.is(e.trySettle(then(c, a, b, large("c", 1)))[0].Err, store.ErrTooLarge)
		e.count(0, 0, 1, 0)
		e.settle(then(c, a, b), store.StateNone)
		e.count(0, 2, 0, 0)
	}},
}
