package storetest

import (
	"time"

	"github.com/laterq/later/store"
)

var idRules = []rule{
	{"cancel removes a message in any state and returns the state", func(e *env) {
		e.sendDead("dead")
		e.send(message("leased"))
		e.claimOne("leased", held)
		e.send(message("scheduled", delay(time.Hour)), message("ready"))
		for _, state := range []store.State{store.StateScheduled, store.StateReady, store.StateLeased,
			store.StateDead} {
			e.cancel(string(state), state)
			e.gone(string(state))
			r := e.tryCancel(string(state))
			e.is(r.Err, store.ErrNotFound)
			e.equal("state", r.State, store.StateNone)
		}
		e.count(0, 0, 0, 0)
		e.advance(2 * held)
		e.equal("claimed", len(e.claim(10)), 0)
	}},
	{"cancel returns results in the order of the ids", func(e *env) {
		e.send(message("a"), message("b", delay(time.Hour)))
		results, err := e.Store.Cancel(e.Context(), e.queue, store.CancelRequest{IDs: []string{"b", "unknown", "a"}})
		e.ok(err)
		e.equal("number of results", len(results), 3)
		e.equal("state", results[0].State, store.StateScheduled)
		e.is(results[1].Err, store.ErrNotFound)
		e.equal("state", results[2].State, store.StateReady)
	}},
	{"cancel of a leased message stops its redelivery", func(e *env) {
		e.send(message("m"))
		c := e.claimOne("m", short)
		e.cancel("m", store.StateLeased)
		e.refused(c.Receipt)
		e.advance(time.Hour)
		e.equal("claimed", len(e.claim(1)), 0)
		e.gone("m")
		e.count(0, 0, 0, 0)
	}},
	{"cancel leaves the other messages of the lease held", func(e *env) {
		e.send(many(3)...)
		c := e.claim(3)
		e.cancel(c[1].ID, store.StateLeased)
		e.refused(c[1].Receipt)
		e.ack(c[0], c[2])
	}},
	{"an id sent again after cancel is safe from the old receipt", func(e *env) {
		e.send(message("m"), message("n"))
		old := e.claim(2)
		e.cancel("m", store.StateLeased)
		e.send(message("m"))
		c := e.claimOne("m", held)
		r := e.tryExtend(c.Receipt.Lease, held)
		e.ok(r.Err)
		e.equal("lost by the new holder", len(r.Lost), 0)
		r = e.tryExtend(old[0].Receipt.Lease, short)
		e.ok(r.Err)
		e.equal("lost by the old holder", keys(r.Lost), []string{key(old[0].Receipt)})
		e.refused(old[0].Receipt)
		e.advance(short)
		e.equal("claimed when the old lease expired", e.claimAll(), []string{"n"})
		e.ack(c)
	}},
	{"an id sent again after cancel is never settled under the old receipt", func(e *env) {
		e.send(message("m"))
		old := e.claimOne("m", held)
		e.cancel("m", store.StateLeased)
		e.refused(old.Receipt)
		e.send(message("m"))
		e.refused(old.Receipt)
		c := e.claimOne("m", held)
		e.refused(old.Receipt)
		e.settle(store.Settlement{Receipt: c.Receipt, Action: store.Nack, Reason: "no"}, store.StateReady)
		e.refused(old.Receipt)
		c = e.claimOne("m", held)
		e.refused(old.Receipt)
		e.cancel("m", store.StateLeased)
		e.send(message("m"))
		last := e.claimOne("m", held)
		e.refused(old.Receipt)
		e.refused(c.Receipt)
		e.ack(last)
	}},
	{"an old receipt of an id stays refused after a later lease of the id expired", func(e *env) {
		for _, died := range []bool{false, true} {
			e := e.other()
			e.send(message("m"))
			old := e.claimOne("m", held)
			e.cancel("m", store.StateLeased)
			if died {
				e.send(message("m", maxAttempts(1)))
			} else {
				e.send(message("m"))
			}
			e.claimOne("m", short)
			e.advance(short)
			if died {
				e.equal("died", e.claimWith(1, held).Died, []string{"m"})
				e.cancel("m", store.StateDead)
			} else {
				e.ack(e.claimOne("m", held))
			}
			e.send(message("m"))
			c := e.claimOne("m", held)
			e.refused(old.Receipt)
			e.ack(c)
		}
	}},
	{"an id sent again after cancel is shown under its own lease", func(e *env) {
		e.send(message("m"), message("n"))
		old := e.claimWith(2, short)
		e.cancel("m", store.StateLeased)
		e.advance(time.Millisecond)
		e.send(message("m"))
		c := e.claimWith(1, held)
		for range 2 {
			info := e.live("m", store.StateLeased)
			e.equal("due", ms(info.Due), ms(c.Messages[0].Due))
			e.equal("deadline", ms(info.LeaseDeadline), ms(c.Deadline))
			e.equal("deadline of the other", ms(e.live("n", store.StateLeased).LeaseDeadline), ms(old.Deadline))
			for _, listed := range e.list(store.ListRequest{State: store.StateLeased, Limit: 10}) {
				e.equal("listed", describe(&listed), describe(e.live(listed.ID, store.StateLeased)))
			}
			e.settle(store.Settlement{Receipt: c.Messages[0].Receipt, Action: store.Release}, store.StateReady)
			c = e.claimWith(1, held+time.Second)
		}
	}},
	{"reschedule moves scheduled and ready messages in both directions", func(e *env) {
		now := e.now()
		e.send(message("scheduled", delay(time.Hour)), message("ready"))
		e.ok(e.tryReschedule("scheduled", store.Due{At: now.Add(-time.Minute)}))
		e.ok(e.tryReschedule("ready", store.Due{Delay: time.Minute + time.Nanosecond}))
		e.equal("due", ms(e.live("scheduled", store.StateReady).Due), ms(now.Add(-time.Minute)))
		e.at("due", e.live("ready", store.StateScheduled).Due, now.Add(time.Minute+time.Millisecond))
		e.claimOne("scheduled", time.Hour)
		e.advance(time.Minute)
		e.equal("claimed early", len(e.claim(1)), 0)
		e.advance(time.Millisecond)
		e.claimOne("ready", held)
	}},
	{"reschedule without a delay makes a message ready now", func(e *env) {
		e.send(message("m", delay(time.Hour)))
		now := e.now()
		e.ok(e.tryReschedule("m", store.Due{}))
		e.at("due", e.claimOne("m", held).Due, now)
	}},
	{"reschedule keeps the attempts", func(e *env) {
		e.send(message("m"))
		c := e.claimOne("m", held)
		e.settle(nack(c, time.Hour), store.StateScheduled)
		e.ok(e.tryReschedule("m", store.Due{}))
		e.equal("last error", e.get("m").LastError, "no")
		e.equal("attempt", e.claimOne("m", held).Attempt, 2)
	}},
	{"reschedule refuses leased, dead and unknown messages", func(e *env) {
		e.sendDead("dead")
		e.send(message("leased"))
		c := e.claimOne("leased", held)
		e.send(message("ready"))
		ids := []string{"leased", "ready", "dead", "unknown"}
		errs, err := e.Store.Reschedule(e.Context(), e.queue, ids, store.Due{Delay: time.Hour})
		e.ok(err)
		e.equal("number of results", len(errs), 4)
		e.is(errs[0], store.ErrLeased)
		e.ok(errs[1])
		e.is(errs[2], store.ErrDead)
		e.is(errs[3], store.ErrNotFound)
		e.count(1, 0, 1, 1)
		e.ack(c)
	}},
	{"get returns what is known in each state", func(e *env) {
		now := e.now()
		e.sendDead("dead")
		e.send(message("leased"))
		c := e.claimOne("leased", held)
		e.send(message("scheduled", delay(time.Hour)), message("ready"))
		infos, err := e.Store.Get(e.Context(), e.queue, []string{"ready", "unknown", "dead", "leased", "scheduled"})
		e.ok(err)
		e.equal("number of results", len(infos), 5)
		if infos[1] != nil {
			e.Fatalf("Get of an unknown id returned %s", describe(infos[1]))
		}
		for i, state := range map[int]store.State{
			0: store.StateReady, 2: store.StateDead, 3: store.StateLeased, 4: store.StateScheduled,
		} {
			e.equal("id", infos[i].ID, string(state))
			e.equal("state", infos[i].State, state)
			e.equal("payload", string(infos[i].Payload), "payload of "+string(state))
			e.equal("deadline is zero", infos[i].LeaseDeadline.IsZero(), state != store.StateLeased)
			e.equal("died at is zero", infos[i].DiedAt.IsZero(), state != store.StateDead)
			e.equal("no reason", infos[i].DeadReason == "", state != store.StateDead)
		}
		e.at("due", infos[0].Due, now)
		e.at("due", infos[4].Due, now.Add(time.Hour))
		e.equal("due", ms(infos[3].Due), ms(c.Due))
	}},
	{"a message changes from scheduled to ready by the clock alone", func(e *env) {
		e.send(message("m", delay(time.Minute)))
		e.advance(time.Minute - time.Millisecond)
		e.live("m", store.StateScheduled)
		e.advance(time.Millisecond)
		e.live("m", store.StateReady)
	}},
}
