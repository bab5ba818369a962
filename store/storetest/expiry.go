package storetest

import (
	"slices"
	"time"

	"github.com/laterq/later/store"
)

var expiryRules = []rule{
	{"a message not delivered by its expiry is dead as expired", func(e *env) {
		now := e.now()
		e.send(
			message("relative", delay(time.Minute), expireAfter(time.Second)),
			message("absolute", delay(time.Minute), expireAt(now.Add(time.Minute+time.Second))),
			message("none", delay(time.Minute)),
		)
		e.advance(time.Minute + time.Second)
		c := e.claimWith(10, held)
		e.equal("claimed", ids(c.Messages), []string{"none"})
		e.equal("died", slices.Sorted(slices.Values(c.Died)), []string{"absolute", "relative"})
		e.equal("expired", slices.Sorted(slices.Values(c.Expired)), []string{"absolute", "relative"})
		for _, id := range c.Died {
			info := e.live(id, store.StateDead)
			e.equal("reason", info.DeadReason, store.DeadExpired)
			e.equal("last error", info.LastError, store.ExpiredText)
			e.equal("attempts", info.Attempts, 0)
			e.equal("due", ms(info.Due), ms(now.Add(time.Minute)))
			e.at("died at", info.DiedAt, c.Now)
		}
	}},
	{"a message is delivered in the millisecond before its expiry", func(e *env) {
		e.send(message("m", delay(time.Minute), expireAfter(time.Second)))
		e.advance(time.Minute + time.Second - time.Millisecond)
		e.claimOne("m", held)
	}},
	{"a message expires only in a claim", func(e *env) {
		e.send(message("m", expireAfter(time.Second)))
		e.advance(time.Hour)
		e.live("m", store.StateReady)
		e.count(0, 1, 0, 0)
		e.ok(e.tryReschedule("m", store.Due{}))
		e.claimOne("m", held)
	}},
	{"a relative expiry moves with the due time, an absolute one does not", func(e *env) {
		e.send(message("relative", expireAfter(time.Second)), message("absolute", expireAt(e.now().Add(time.Second))))
		for _, id := range []string{"relative", "absolute"} {
			e.ok(e.tryReschedule(id, store.Due{Delay: time.Hour}))
		}
		e.advance(time.Hour)
		c := e.claimWith(10, held)
		e.equal("claimed", ids(c.Messages), []string{"relative"})
		e.equal("died", c.Died, []string{"absolute"})
	}},
	{"a message that was delivered once no longer expires", func(e *env) {
		for _, s := range []store.Settlement{
			{Action: store.Nack, Reason: "no", Delay: time.Minute}, {Action: store.Snooze, Delay: time.Minute}, {},
		} {
			f := e.other()
			f.send(message("m", expireAfter(time.Millisecond)))
			c := f.claimOne("m", short)
			if s.Receipt = c.Receipt; s.Action != 0 {
				f.settle(s, store.StateScheduled)
			}
			f.advance(time.Hour)
			f.claimOne("m", held)
		}
	}},
	{"a message that was only released can still expire", func(e *env) {
		e.send(message("m", expireAfter(time.Second)))
		c := e.claimOne("m", held)
		e.settle(store.Settlement{Receipt: c.Receipt, Action: store.Release}, store.StateReady)
		e.advance(time.Second)
		e.equal("died", e.claimWith(1, held).Died, []string{"m"})
	}},
	{"a leased message does not expire", func(e *env) {
		e.send(message("m", expireAfter(time.Second)))
		c := e.claimOne("m", time.Hour)
		e.advance(time.Minute)
		e.equal("died", len(e.claimWith(1, held).Died), 0)
		e.ack(c)
	}},
	{"many expired messages become dead over several claims and hide no others", func(e *env) {
		const n = 2*store.MaxBatch + 200
		e.send(many(n, expireAfter(time.Second))...)
		e.advance(time.Second)
		e.send(message("live"))
		died, claimed := 0, []string(nil)
		for {
			c := e.claimWith(store.MaxBatch, held)
			if len(c.Died) > store.MaxBatch+store.MaxBatch/2 {
				e.Fatalf("%d messages died in one claim", len(c.Died))
			}
			died += len(c.Died)
			claimed = append(claimed, ids(c.Messages)...)
			if !c.More {
				break
			}
			if len(c.Died)+len(c.Messages) == 0 {
				e.Fatalf("a claim did nothing, but More is set")
			}
		}
		e.equal("died", died, n)
		e.equal("claimed", claimed, []string{"live"})
	}},
	{"nothing expires while the queue is paused", func(e *env) {
		e.send(message("m", expireAfter(time.Second)))
		e.ok(e.Store.SetPaused(e.Context(), e.queue, true))
		e.advance(time.Hour)
		e.equal("died", len(e.claimWith(1, held).Died), 0)
		e.live("m", store.StateReady)
	}},
}
