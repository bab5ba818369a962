package storetest

import (
	"strings"
	"time"

	"github.com/laterq/later/store"
)

var settleRules = []rule{
	{"an ack removes the message", func(e *env) {
		e.send(message("m"))
		e.ack(e.claimOne("m", held))
		e.gone("m")
		e.count(0, 0, 0, 0)
		e.advance(2 * held)
		e.equal("claimed", len(e.claim(1)), 0)
	}},
	{"an action that is none of the six is refused, and the others are executed", func(e *env) {
		e.send(message("a"), message("b"), message("c"))
		c := e.claim(3)
		var settlements []store.Settlement
		for i, action := range []store.Action{0, store.Ack, store.GiveBack + 1} {
			settlements = append(settlements, store.Settlement{Receipt: c[i].Receipt, Action: action, Reason: "no"})
		}
		results, err := e.Store.Settle(e.Context(), e.queue, settlements)
		e.ok(err)
		e.is(results[0].Err, store.ErrInvalid)
		e.is(results[2].Err, store.ErrInvalid)
		e.equal("the ack", results[1].Err, nil)
		e.live("a", store.StateLeased)
		e.gone("b")
		e.live("c", store.StateLeased)
	}},
	{"a nack delivers again after its delay, never early", func(e *env) {
		e.send(message("m"))
		c := e.claimOne("m", held)
		now := e.now()
		e.settle(nack(c, time.Minute), store.StateScheduled)
		info := e.live("m", store.StateScheduled)
		e.at("due", info.Due, now.Add(time.Minute))
		e.equal("last error", info.LastError, "no")
		e.equal("lease deadline is zero", info.LeaseDeadline.IsZero(), true)
		e.advance(time.Minute - time.Millisecond)
		e.equal("claimed early", len(e.claim(1)), 0)
		e.advance(time.Millisecond)
		e.equal("attempt", e.claimOne("m", held).Attempt, 2)
	}},
	{"a nack with no delay or one below zero makes the message ready at once", func(e *env) {
		e.send(message("m"))
		for _, delay := range []time.Duration{0, -time.Hour} {
			c := e.claimOne("m", held)
			now := e.now()
			e.settle(store.Settlement{Receipt: c.Receipt, Action: store.Nack, Delay: delay, Reason: "no"},
				store.StateReady)
			e.at("due", e.live("m", store.StateReady).Due, now)
		}
	}},
	{"the delays of nack and snooze are rounded up", func(e *env) {
		e.send(message("m"))
		for _, action := range []store.Action{store.Nack, store.Snooze} {
			c := e.claimOne("m", held)
			now := e.now()
			settlement := nack(c, time.Nanosecond)
			settlement.Action = action
			e.settle(settlement, store.StateScheduled)
			e.at("due", e.get("m").Due, now.Add(time.Millisecond))
			e.advance(time.Millisecond)
		}
	}},
	{"a message is dead with its reason after its last failed attempt", func(e *env) {
		e.send(message("m", maxAttempts(2)))
		first := e.claimOne("m", held)
		e.settle(store.Settlement{Receipt: first.Receipt, Action: store.Nack, Reason: "first"}, store.StateReady)
		second := e.claimOne("m", held)
		last := nack(second, time.Hour)
		last.Reason = "second"
		e.settle(last, store.StateDead)
		info := e.live("m", store.StateDead)
		e.equal("reason", info.DeadReason, store.DeadFailed)
		e.equal("last error", info.LastError, "second")
		e.equal("attempts", info.Attempts, 2)
		e.equal("last due time", ms(info.Due), ms(second.Due))
		e.at("died at", info.DiedAt, second.Due)
		e.equal("payload", string(info.Payload), "payload of m")
		e.advance(24 * time.Hour)
		e.equal("claimed", len(e.claim(1)), 0)
	}},
	{"a message has 20 attempts unless its sender set another number", func(e *env) {
		e.send(message("m"))
		for range store.DefaultMaxAttempts - 1 {
			c := e.claimOne("m", held)
			e.settle(store.Settlement{Receipt: c.Receipt, Action: store.Nack, Reason: "no"}, store.StateReady)
		}
		c := e.claimOne("m", held)
		e.settle(store.Settlement{Receipt: c.Receipt, Action: store.Nack, Reason: "no"}, store.StateDead)
	}},
	{"a snooze delivers again after its delay and is not an attempt", func(e *env) {
		e.send(message("m", maxAttempts(1)))
		for range 3 {
			c := e.claimOne("m", held)
			e.equal("attempt", c.Attempt, 1)
			now := e.now()
			e.settle(store.Settlement{Receipt: c.Receipt, Action: store.Snooze, Delay: time.Minute},
				store.StateScheduled)
			e.at("due", e.live("m", store.StateScheduled).Due, now.Add(time.Minute))
			e.advance(time.Minute - time.Millisecond)
			e.equal("claimed early", len(e.claim(1)), 0)
			e.advance(time.Millisecond)
		}
		e.equal("attempts", e.get("m").Attempts, 0)
	}},
	{"a release makes the message ready at once with its old due time and is not an attempt", func(e *env) {
		now := e.now()
		e.send(message("old", at(now.Add(-time.Hour)), maxAttempts(1)), message("new"))
		for range 3 {
			c := e.claimOne("old", held)
			e.equal("attempt", c.Attempt, 1)
			e.settle(store.Settlement{Receipt: c.Receipt, Action: store.Release}, store.StateReady)
			info := e.live("old", store.StateReady)
			e.equal("due", ms(info.Due), ms(now.Add(-time.Hour)))
			e.equal("attempts", info.Attempts, 0)
		}
	}},
	{"a bury makes the message dead with its reason and counts as an attempt", func(e *env) {
		e.send(message("m"))
		c := e.claimOne("m", held)
		now := e.now()
		e.settle(store.Settlement{Receipt: c.Receipt, Action: store.Bury, Reason: "hopeless"}, store.StateDead)
		info := e.live("m", store.StateDead)
		e.equal("reason", info.DeadReason, store.DeadBuried)
		e.equal("last error", info.LastError, "hopeless")
		e.equal("attempts", info.Attempts, 1)
		e.at("died at", info.DiedAt, now)
		e.count(0, 0, 0, 1)
	}},
	{"a reason of the maximum length is kept whole", func(e *env) {
		reason := strings.Repeat("é", store.MaxReason/2)
		e.send(message("m"))
		c := e.claimOne("m", held)
		e.settle(store.Settlement{Receipt: c.Receipt, Action: store.Nack, Reason: reason}, store.StateReady)
		e.equal("last error", e.get("m").LastError, reason)
	}},
	{"a settled message is refused under its old receipt", func(e *env) {
		e.send(message("a"), message("m"))
		for _, s := range []store.Settlement{
			{Action: store.Release}, {Action: store.Snooze},
			{Action: store.Nack, Reason: "no"}, {Action: store.Bury, Reason: "no"},
		} {
			claimed := e.claim(2)
			e.equal("claimed", ids(claimed), []string{"a", "m"})
			s.Receipt = claimed[1].Receipt
			after := store.StateReady
			if s.Action == store.Bury {
				after = store.StateDead
			}
			e.settle(s, after)
			e.refused(s.Receipt)
			e.settle(store.Settlement{Receipt: claimed[0].Receipt, Action: store.Release}, store.StateReady)
			e.refused(s.Receipt)
		}
	}},
	{"an ack of an acked message changes nothing", func(e *env) {
		e.send(message("m"), message("n"))
		c := e.claim(2)
		e.ack(c[0])
		e.refused(c[0].Receipt)
		e.send(message(c[0].ID))
		e.refused(c[0].Receipt)
		e.ack(c[1])
		e.refused(c[0].Receipt)
		e.live(c[0].ID, store.StateReady)
	}},
	{"a receipt that is wrong in any part is refused", func(e *env) {
		e.send(message("m"), message("other"))
		c := e.claimOne("m", held)
		for _, wrong := range []store.Receipt{
			{Lease: c.Receipt.Lease + "x", ID: "m", Epoch: c.Receipt.Epoch},
			{Lease: "", ID: "m", Epoch: c.Receipt.Epoch},
			{Lease: c.Receipt.Lease, ID: "other", Epoch: c.Receipt.Epoch},
			{Lease: c.Receipt.Lease, ID: "unknown", Epoch: c.Receipt.Epoch},
			{Lease: c.Receipt.Lease, ID: "m", Epoch: c.Receipt.Epoch + 1},
		} {
			e.refused(wrong)
		}
		e.ack(c)
	}},
	{"a receipt settles and extends without its private data, in any process", func(e *env) {
		all := []store.Action{store.Ack, store.Nack, store.Snooze, store.Release, store.Bury, store.GiveBack}
		e.send(many(2 * len(all))...)
		claimed := e.claim(2 * len(all))
		for i := range claimed {
			r := &claimed[i].Receipt
			e.ok(r.Check())
			r.Claim = nil
			if i >= len(all) {
				r.Index = 0
			}
			extended, err := e.Peer.Extend(e.Context(), e.queue, []store.Extension{{Lease: r.Lease, For: held}})
			e.ok(err)
			e.ok(extended[0].Err)
			result := e.trySettle(store.Settlement{Receipt: *r, Action: all[i%len(all)], Delay: time.Hour,
				Reason: "no"})[0]
			e.ok(result.Err)
			e.refused(*r)
		}
		e.count(4, 2, 0, 4)
		extended, err := e.Peer.Extend(e.Context(), e.queue,
			[]store.Extension{{Lease: claimed[0].Receipt.Lease, For: held}})
		e.ok(err)
		e.is(extended[0].Err, store.ErrLeaseLost)
	}},
	{"settle returns each result separately, in the order of the settlements", func(e *env) {
		e.send(many(6)...)
		c := e.claim(6)
		e.ack(c[2])
		results := e.trySettle(
			store.Settlement{Receipt: c[5].Receipt, Action: store.Bury, Reason: "no"},
			store.Settlement{Receipt: c[2].Receipt, Action: store.Ack},
			store.Settlement{Receipt: c[0].Receipt, Action: store.Ack},
			store.Settlement{Receipt: c[4].Receipt, Action: store.Snooze, Delay: time.Hour},
			store.Settlement{Receipt: store.Receipt{Lease: "none", ID: "none"}, Action: store.Nack, Reason: "no"},
			store.Settlement{Receipt: c[1].Receipt, Action: store.Nack, Reason: "no"},
		)
		want := []store.State{
			store.StateDead, store.StateNone, store.StateNone, store.StateScheduled, store.StateNone, store.StateReady,
		}
		for i, r := range results {
			e.equal("state", r.State, want[i])
			if i == 1 || i == 4 {
				e.is(r.Err, store.ErrLeaseLost)
			} else {
				e.ok(r.Err)
			}
		}
		e.count(1, 1, 1, 1)
	}},
	{"a message is settled once in one batch", func(e *env) {
		e.send(message("m"))
		c := e.claimOne("m", held)
		again := store.Settlement{Receipt: c.Receipt, Action: store.Nack, Reason: "no"}
		settled := 0
		for _, r := range e.trySettle(again, again) {
			if r.Err == nil {
				settled++
			} else {
				e.is(r.Err, store.ErrLeaseLost)
			}
		}
		e.equal("settled", settled, 1)
		e.equal("attempts", e.live("m", store.StateReady).Attempts, 1)
	}},
	{"messages of several leases are settled in one call", func(e *env) {
		e.send(many(3)...)
		var s []store.Settlement
		for range 3 {
			s = append(s, store.Settlement{Receipt: e.claim(1)[0].Receipt, Action: store.Ack})
		}
		for _, r := range e.trySettle(s...) {
			e.ok(r.Err)
		}
		e.count(0, 0, 0, 0)
	}},
	{"the rest of a lease stays held when one message is settled", func(e *env) {
		e.send(many(3)...)
		c := e.claim(3)
		e.ack(c[1])
		e.count(0, 0, 2, 0)
		e.ok(e.tryExtend(c[0].Receipt.Lease, held).Err)
		e.ack(c[0], c[2])
	}},
}
