package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/laterq/later/store"
)

// bulk calls step, a Replay or Purge, until no more is left. It returns the number of messages.
func (e *env) bulk(step func(store.Selection) (store.Bulk, error), sel store.Selection) int {
	e.Helper()
	done := 0
	for {
		b, err := step(sel)
		e.ok(err)
		done += b.Done
		if !b.More {
			return done
		}
		if b.Before.IsZero() {
			e.Fatalf("More is set, but Before is zero")
		}
		sel.Before = b.Before
	}
}

func (e *env) replay(sel store.Selection, due store.Due) int {
	e.Helper()
	return e.bulk(func(sel store.Selection) (store.Bulk, error) {
		return e.Peer.Replay(e.Context(), e.queue, sel, due)
	}, sel)
}

func (e *env) purge(sel store.Selection) int {
	e.Helper()
	return e.bulk(func(sel store.Selection) (store.Bulk, error) {
		return e.Peer.Purge(e.Context(), e.queue, sel)
	}, sel)
}

var allDead = store.Selection{State: store.StateDead}

func deadByID(ids ...string) store.Selection {
	return store.Selection{IDs: ids, State: store.StateDead}
}

// sendManyDead sends n messages and lets them die of lease expiry.
func (e *env) sendManyDead(n int) {
	e.Helper()
	e.send(many(n, maxAttempts(1))...)
	for left := n; left > 0; {
		left -= len(e.claimWith(store.MaxBatch, short).Messages)
	}
	e.advance(short)
	e.equal("claimed", len(e.claimAll()), 0)
	e.count(0, 0, 0, int64(n))
}

// inEveryState sends one message in each state, with the state as its id. It returns the leased one.
func (e *env) inEveryState() store.Claimed {
	e.Helper()
	e.sendDead("dead")
	e.send(message("leased"))
	c := e.claimOne("leased", held)
	e.send(message("ready"), message("scheduled", delay(time.Hour)))
	e.count(1, 1, 1, 1)
	return c
}

// refusesPurge checks that a Purge returns ErrInvalid and that the messages of inEveryState stay.
func (e *env) refusesPurge(sel store.Selection) {
	e.Helper()
	b, err := e.Store.Purge(e.Context(), e.queue, sel)
	e.is(err, store.ErrInvalid)
	e.equal("result", b, store.Bulk{})
	e.count(1, 1, 1, 1)
}

var deadRules = []rule{
	{"a replayed message is live again with no failed attempts", func(e *env) {
		e.send(message("m", maxAttempts(1)))
		c := e.claimOne("m", held)
		e.settle(store.Settlement{Receipt: c.Receipt, Action: store.Nack, Reason: "no"}, store.StateDead)
		e.equal("replayed", e.replay(deadByID("m"), store.Due{}), 1)
		info := e.live("m", store.StateReady)
		e.equal("attempts", info.Attempts, 0)
		e.equal("last error", info.LastError, "")
		e.equal("reason", info.DeadReason, store.DeadReason(""))
		e.equal("died at is zero", info.DiedAt.IsZero(), true)
		e.refused(c.Receipt)
		again := e.claimOne("m", held)
		e.equal("attempt", again.Attempt, 1)
		e.equal("payload", string(again.Payload), "payload of m")
		e.settle(store.Settlement{Receipt: again.Receipt, Action: store.Nack, Reason: "no"}, store.StateDead)
	}},
	{"replay sets a new due time", func(e *env) {
		e.sendDead("a")
		e.sendDead("b")
		now := e.now()
		e.equal("replayed", e.replay(deadByID("a"), store.Due{Delay: time.Minute}), 1)
		e.equal("replayed", e.replay(allDead, store.Due{At: now.Add(time.Hour)}), 1)
		e.at("due", e.live("a", store.StateScheduled).Due, now.Add(time.Minute))
		e.equal("due", ms(e.live("b", store.StateScheduled).Due), ms(now.Add(time.Hour)))
		e.advance(time.Minute - time.Millisecond)
		e.equal("claimed early", len(e.claim(2)), 0)
		e.advance(time.Millisecond)
		e.claimOne("a", held)
	}},
	{"replay by id ignores ids that are unknown or not dead", func(e *env) {
		e.sendDead("dead")
		e.sendDead("other")
		e.send(message("leased"))
		e.claimOne("leased", held)
		e.send(message("ready"), message("scheduled", delay(time.Hour)))
		sel := deadByID("ready", "unknown", "dead", "leased", "scheduled")
		e.equal("replayed", e.replay(sel, store.Due{Delay: time.Minute}), 1)
		e.live("dead", store.StateScheduled)
		e.count(2, 1, 1, 1)
	}},
	{"replay of more than MaxBatch dead messages takes bounded steps", func(e *env) {
		const n = 2*store.MaxBatch + 200
		e.sendManyDead(n)
		b, err := e.Store.Replay(e.Context(), e.queue, allDead, store.Due{})
		e.ok(err)
		if b.Done > store.MaxBatch || b.Done == 0 || !b.More {
			e.Fatalf("one Replay of %d messages replayed %d, More is %v", n, b.Done, b.More)
		}
		e.equal("replayed", b.Done+e.replay(store.Selection{State: store.StateDead, Before: b.Before}, store.Due{}), n)
		e.equal("claimed", len(e.claimAll()), n)
	}},
	{"replay of all ends although messages keep dying", func(e *env) {
		const n = store.MaxBatch + 100
		e.sendManyDead(n)
		sel, done := allDead, 0
		for {
			b, err := e.Store.Replay(e.Context(), e.queue, sel, store.Due{})
			e.ok(err)
			if done += b.Done; done > n {
				e.Fatalf("%d messages were replayed, want %d", done, n)
			}
			e.advance(time.Millisecond)
			for _, c := range e.claim(store.MaxBatch) {
				e.settle(store.Settlement{Receipt: c.Receipt, Action: store.Bury, Reason: "again"}, store.StateDead)
			}
			if !b.More {
				break
			}
			sel.Before = b.Before
		}
		e.equal("replayed", done, n)
	}},
	{"replay of a state other than dead is refused", func(e *env) {
		e.inEveryState()
		for _, state := range []store.State{
			store.StateNone, store.StateScheduled, store.StateReady, store.StateLeased, "unknown",
		} {
			for _, ids := range [][]string{nil, {"ready", "dead"}} {
				b, err := e.Store.Replay(e.Context(), e.queue, store.Selection{IDs: ids, State: state}, store.Due{})
				e.is(err, store.ErrInvalid)
				e.equal("result", b, store.Bulk{})
			}
		}
		e.count(1, 1, 1, 1)
	}},
	{"replay on an unknown queue does nothing", func(e *env) {
		e.equal("replayed", e.replay(allDead, store.Due{}), 0)
		e.equal("replayed", e.replay(deadByID("m"), store.Due{}), 0)
		e.equal("exists", e.stats().Exists, false)
	}},
	{"a replayed message no longer expires, however it died", func(e *env) {
		now := e.now()
		e.sendDead("delivered", expireAt(now.Add(time.Second)))
		e.send(message("absolute", expireAt(now.Add(time.Second))), message("relative", expireAfter(time.Second)))
		e.advance(time.Second)
		e.equal("died", slices.Sorted(slices.Values(e.claimWith(2, held).Died)), []string{"absolute", "relative"})
		e.equal("replayed", e.replay(allDead, store.Due{Delay: time.Minute}), 3)
		e.advance(time.Hour)
		e.equal("claimed", e.claimAll(), []string{"absolute", "delivered", "relative"})
	}},
}

var purgeRules = []rule{
	{"purge removes the messages of one state", func(e *env) {
		e.sendDead("dead")
		e.send(message("leased"))
		c := e.claimOne("leased", held)
		hour := delay(time.Hour)
		e.send(message("r1"), message("r2"), message("s1", hour), message("s2", hour), message("s3", hour))
		e.equal("purged", e.purge(store.Selection{State: store.StateScheduled}), 3)
		e.count(0, 2, 1, 1)
		e.equal("purged", e.purge(store.Selection{State: store.StateReady}), 2)
		e.count(0, 0, 1, 1)
		e.equal("purged", e.purge(allDead), 1)
		e.count(0, 0, 1, 0)
		for _, id := range []string{"dead", "r1", "r2", "s1", "s2", "s3"} {
			e.gone(id)
		}
		e.ack(c)
	}},
	{"purge by id removes only dead messages", func(e *env) {
		e.sendDead("d1")
		e.sendDead("d2")
		e.sendDead("d3")
		e.send(message("leased"))
		e.claimOne("leased", held)
		e.send(message("ready"), message("scheduled", delay(time.Hour)))
		sel := deadByID("ready", "d1", "unknown", "leased", "d3", "scheduled")
		e.equal("purged", e.purge(sel), 2)
		e.count(1, 1, 1, 1)
		e.live("d2", store.StateDead)
	}},
	{"purge of everything takes leased messages from their holders", func(e *env) {
		e.sendDead("dead")
		e.send(many(4)...)
		c := e.claim(2)
		e.send(message("scheduled", delay(time.Hour)))
		e.equal("purged", e.purge(store.Selection{}), 6)
		e.count(0, 0, 0, 0)
		e.equal("next due is zero", e.stats().NextDue.IsZero(), true)
		for _, one := range c {
			e.is(e.trySettle(nack(one, 0))[0].Err, store.ErrLeaseLost)
		}
		e.is(e.tryExtend(c[0].Receipt.Lease, held).Err, store.ErrLeaseLost)
		e.send(many(4)...)
		e.refused(c[0].Receipt)
		e.advance(time.Hour)
		e.equal("claimed", len(e.claim(10)), 4)
		e.refused(c[0].Receipt)
		for _, one := range many(4) {
			e.equal("attempts", e.live(one.ID, store.StateLeased).Attempts, 0)
		}
	}},
	{"purge of everything keeps the queue, its pause and its dedup windows", func(e *env) {
		e.send(message("m", dedupWindow(time.Hour)))
		e.ack(e.claimOne("m", held))
		e.ok(e.Store.SetPaused(e.Context(), e.queue, true))
		e.send(message("n"))
		e.equal("purged", e.purge(store.Selection{}), 1)
		s := e.stats()
		e.equal("exists, paused", []bool{s.Exists, s.Paused}, []bool{true, true})
		e.equal("results", e.trySend(message("m")), []store.SendResult{{Duplicate: true}})
	}},
	{"purge of more than MaxBatch messages takes bounded steps in each state", func(e *env) {
		const n = 2*store.MaxBatch + 200
		for _, state := range []store.State{store.StateScheduled, store.StateReady, store.StateDead} {
			switch state {
			case store.StateScheduled:
				e.send(many(n, delay(time.Hour))...)
			case store.StateReady:
				e.send(many(n)...)
			case store.StateDead:
				e.sendManyDead(n)
			}
			b, err := e.Store.Purge(e.Context(), e.queue, store.Selection{State: state})
			e.ok(err)
			if b.Done > store.MaxBatch || b.Done == 0 || !b.More {
				e.Fatalf("one Purge of %d %s messages purged %d, More is %v", n, state, b.Done, b.More)
			}
			e.equal("purged", b.Done+e.purge(store.Selection{State: state, Before: b.Before}), n)
			e.count(0, 0, 0, 0)
		}
	}},
	{"purge of everything empties a large queue", func(e *env) {
		e.sendDead("dead")
		e.send(many(1200)...)
		e.claim(store.MaxBatch)
		e.equal("purged", e.purge(store.Selection{}), 1201)
		e.count(0, 0, 0, 0)
		e.equal("claimed", len(e.claim(1)), 0)
	}},
	{"purge of ready messages ends although messages fall due", func(e *env) {
		const n = store.MaxBatch + 100
		e.send(many(n)...)
		e.send(message("later", delay(time.Millisecond)))
		b, err := e.Store.Purge(e.Context(), e.queue, store.Selection{State: store.StateReady})
		e.ok(err)
		e.advance(time.Millisecond)
		e.equal("purged", b.Done+e.purge(store.Selection{State: store.StateReady, Before: b.Before}), n)
		e.claimOne("later", held)
	}},
	{"purge of only leased messages or an unknown state is refused", func(e *env) {
		c := e.inEveryState()
		for _, state := range []store.State{store.StateLeased, "unknown"} {
			for _, ids := range [][]string{nil, {"leased", "dead"}} {
				e.refusesPurge(store.Selection{IDs: ids, State: state})
			}
		}
		e.ack(c)
	}},
	{"purge by id in a state other than dead is refused", func(e *env) {
		e.inEveryState()
		for _, state := range []store.State{store.StateNone, store.StateScheduled, store.StateReady} {
			e.refusesPurge(store.Selection{IDs: []string{"ready", "dead"}, State: state})
		}
	}},
	{"purge on an unknown queue does nothing", func(e *env) {
		for _, state := range []store.State{store.StateNone, store.StateScheduled, store.StateReady, store.StateDead} {
			e.equal("purged", e.purge(store.Selection{State: state}), 0)
		}
		e.equal("exists", e.stats().Exists, false)
	}},
	{"a purged id may be sent again", func(e *env) {
		e.sendDead("a")
		e.send(message("b"), message("c", delay(time.Hour)))
		e.equal("purged", e.purge(store.Selection{}), 3)
		e.send(message("a"), message("b"), message("c"))
		c := e.claim(3)
		slices.SortFunc(c, func(x, y store.Claimed) int { return slices.Compare([]byte(x.ID), []byte(y.ID)) })
		e.equal("claimed", ids(c), []string{"a", "b", "c"})
		for _, one := range c {
			e.equal(fmt.Sprintf("attempt of %s", one.ID), one.Attempt, 1)
		}
	}},
}
