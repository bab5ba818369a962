package storetest

import (
	"fmt"
	"time"

	"github.com/laterq/later/store"
)

// returns are the ways in which a message comes back from its lease, which is short. The message holds its key then.
var returns = map[string]func(e *env, c store.Claimed){
	"nack":     func(e *env, c store.Claimed) { e.settle(nack(c, time.Minute), store.StateScheduled) },
	"nack now": func(e *env, c store.Claimed) { e.settle(nack(c, 0), store.StateReady) },
	"snooze": func(e *env, c store.Claimed) {
		e.settle(store.Settlement{Receipt: c.Receipt, Action: store.Snooze, Delay: time.Minute}, store.StateScheduled)
	},
	"give back": func(e *env, c store.Claimed) {
		e.settle(store.Settlement{Receipt: c.Receipt, Action: store.GiveBack, Delay: time.Minute, Within: -1,
			Reason: "no"}, store.StateScheduled)
	},
	"release": func(e *env, c store.Claimed) {
		e.settle(store.Settlement{Receipt: c.Receipt, Action: store.Release}, store.StateReady)
	},
	"end of the lease": func(e *env, _ store.Claimed) { e.advance(short) },
}

// comesBack sends messages of the key k, of which the first is claimed and comes back. Then a message that is due
// before all others is sent.
func (e *env) comesBack(back func(e *env, c store.Claimed)) {
	e.Helper()
	e.send(message("b", withKey("k")), message("a", withKey("k")))
	back(e, e.claimOne("b", short))
	e.send(message("early", withKey("k"), at(e.now().Add(-time.Hour))), message("l", withKey("l")))
}

var holdRules = []rule{
	{"a message that comes back from its lease is the next of its key", func(e *env) {
		for name, back := range returns {
			e.Log(name)
			for _, flow := range []store.Flow{continuing, halting} {
				f := e.other()
				f.limit(flow)
				f.comesBack(back)
				if f.liveAnyhow("b").State == store.StateScheduled {
					f.ack(f.takesKey("l", "l")...)
					f.holder("k", "b", false)
					f.keyCounts(1, 1, 0)
					f.advance(time.Minute - time.Millisecond)
					f.full()
					f.advance(2 * time.Millisecond)
					f.takesKey("k", "b")
				} else {
					f.takesOf(map[string][]string{"k": {"b"}, "l": {"l"}})
				}
				f.holder("k", "", false)
				f.keyCounted("k", 1)
			}
		}
	}},
	{"after a message that came back, its key goes on in order", func(e *env) {
		e.limit(halting)
		e.comesBack(returns["nack now"])
		c := e.takesOf(map[string][]string{"k": {"b"}, "l": {"l"}})
		for i := range 3 { // it holds its key each time
			for _, m := range c {
				if m.Key == "k" {
					e.settle(nack(m, time.Duration(i)), []store.State{store.StateReady, store.StateScheduled,
						store.StateScheduled}[i])
				} else if i == 0 {
					e.ack(m)
				}
			}
			e.holder("k", "b", false)
			e.advance(2 * time.Millisecond)
			c = e.takesKey("k", "b")
		}
		e.ack(c...)
		e.inOrder("k", "early", "a")
		e.keyCounts(0, 0, 0)
	}},
	{"a message of an uncounted lease that ends holds its key", func(e *env) {
		e.limit(continuing)
		e.send(message("b", withKey("k")), message("a", withKey("k")))
		c, err := e.Store.Claim(e.Context(), e.queue, store.ClaimRequest{Max: 3, Lease: short, Uncounted: true})
		e.ok(err)
		e.equal("claimed", ids(c.Messages), []string{"b"})
		e.send(message("early", withKey("k"), at(e.now().Add(-time.Hour))))
		e.advance(short)
		e.equal("attempt", e.takesKey("k", "b")[0].Attempt, 1)
	}},
	{"a message that holds its key stays the next one when it is rescheduled", func(e *env) {
		e.limit(continuing)
		e.comesBack(returns["nack"])
		e.ack(e.takesKey("l", "l")...)
		e.ok(e.tryReschedule("b", store.Due{Delay: time.Hour}))
		e.advance(time.Minute + time.Millisecond)
		e.full()
		e.ok(e.tryReschedule("b", store.Due{}))
		e.sort()
		e.equal("waiting", e.key("k").Waiting, int64(3)) // it is ready
		e.holder("k", "b", false)
		e.keyCounts(1, 0, 0)
		e.ok(e.tryReschedule("b", store.Due{Delay: time.Second}))
		e.full()
		e.equal("waiting", e.key("k").Waiting, int64(2))
		e.advance(2 * time.Second)
		e.inOrder("k", "b", "early", "a")
	}},
	{"a message that holds its key stays the next one when it is replaced and keeps its key", func(e *env) {
		for _, replaces := range []func(*store.Outgoing){keepingDue, replacing, debounced(time.Minute, time.Hour),
			func(m *store.Outgoing) { replacing(m); m.Due.Delay = time.Minute }} {
			f := e.other()
			f.limit(continuing)
			f.comesBack(returns["nack"])
			f.ack(f.takesKey("l", "l")...)
			m := message("b", replaces, withKey("k"), payload("new"))
			f.equal("results", f.trySend(m), wasReplaced)
			if m.OnDuplicate.KeepDue || m.Due.Delay > 0 {
				f.full()
			}
			f.holder("k", "b", false)
			f.advance(time.Minute + time.Millisecond)
			b := f.takesKey("k", "b")[0]
			f.equal("payload and attempt", fmt.Sprintf("%s %d", b.Payload, b.Attempt), "new 2")
			f.ack(b)
			f.inOrder("k", "early", "a")
		}
	}},
	{"a ready message that holds its key is the next one when it is replaced", func(e *env) {
		e.limit(continuing)
		e.comesBack(returns["nack now"])
		e.sort()
		e.equal("results", e.trySend(message("b", keepingDue, withKey("k"), payload("2"))), wasReplaced)
		e.equal("results", e.trySend(message("b", replacing, withKey("k"), payload("3"))), wasReplaced)
		e.ack(e.takesOf(map[string][]string{"k": {"b"}, "l": {"l"}})...)
		e.inOrder("k", "early", "a")
	}},
}

// liveAnyhow returns a message that must be live.
func (e *env) liveAnyhow(id string) *store.Info {
	e.Helper()
	info := e.get(id)
	if info == nil {
		e.Fatalf("message %q is gone", id)
	}
	return info
}

// removals remove a message that holds its key and is not leased.
var removals = map[string]func(e *env, id string){
	"cancel": func(e *env, id string) { e.ok(e.tryCancel(id).Err) },
	"remove": func(e *env, id string) { e.equal("removed", e.remove(*e.get(id)), []bool{true}) },
	"replacement": func(e *env, id string) {
		e.equal("results", e.trySend(message(id, replacing, withKey("other"), delay(time.Hour))), wasReplaced)
	},
	"replacement without a key": func(e *env, id string) {
		e.equal("results", e.trySend(message(id, keepingDue)), wasReplaced)
		e.ok(e.tryReschedule(id, store.Due{Delay: time.Hour}))
	},
}

// looseHoldRules are about keys that are held no more, or never were.
var looseHoldRules = []rule{
	{"a key goes on when the message that holds it is removed or has another key", func(e *env) {
		for name, remove := range removals {
			for _, back := range []string{"nack", "nack now"} {
				for _, sort := range []bool{false, true} {
					e.Log(name, back, sort)
					f := e.other()
					f.limit(halting)
					f.comesBack(returns[back])
					if sort {
						f.sort()
					}
					remove(f, "b")
					f.holder("k", "", false)
					f.ack(f.takesOf(map[string][]string{"k": {"early"}, "l": {"l"}})...)
					f.inOrder("k", "a")
					f.keyCounts(0, 0, 0)
				}
			}
		}
	}},
	{"a purge of the message that holds a key lets the key go on", func(e *env) {
		e.limit(halting)
		e.comesBack(returns["nack"])
		e.equal("purged", e.purge(store.Selection{State: store.StateScheduled}), 1)
		e.ack(e.takesOf(map[string][]string{"k": {"early"}, "l": {"l"}})...)
		c := e.takesKey("k", "a")[0]
		e.settle(nack(c, 0), store.StateReady)
		e.equal("purged", e.purge(store.Selection{State: store.StateReady}), 1)
		e.send(message("c", withKey("k")))
		e.settle(nack(e.takesKey("k", "c")[0], time.Minute), store.StateScheduled)
		e.equal("purged", e.purge(store.Selection{}), 1)
		e.holder("k", "", false)
		e.send(message("d", withKey("k")))
		e.inOrder("k", "d")
	}},
	{"a message that is sent again after its removal holds no key", func(e *env) {
		e.limit(continuing)
		e.comesBack(returns["nack"])
		e.cancel("b", store.StateScheduled)
		e.send(message("b", withKey("k"), delay(time.Minute)))
		e.ack(e.takesOf(map[string][]string{"k": {"early"}, "l": {"l"}})...)
		e.inOrder("k", "a")
		e.advance(time.Minute + time.Millisecond)
		e.inOrder("k", "b")
	}},
	{"a message with its former key again holds it no more", func(e *env) {
		e.limit(continuing)
		e.comesBack(returns["nack"])
		e.equal("results", e.trySend(message("b", keepingDue, withKey("l"))), wasReplaced)
		e.equal("results", e.trySend(message("b", keepingDue, withKey("k"))), wasReplaced)
		e.ack(e.takesOf(map[string][]string{"k": {"early"}, "l": {"l"}})...)
		e.inOrder("k", "a")
	}},
	{"a leased message that is cancelled or purged keeps its key until its holder has learned of it", func(e *env) {
		e.limit(halting)
		for _, purged := range []bool{false, true} {
			e.send(message("b", withKey("k")), message("a", withKey("k"), delay(time.Millisecond)))
			c := e.claimOne("b", held)
			e.advance(2 * time.Millisecond)
			if purged {
				e.purge(store.Selection{})
				e.send(message("a", withKey("k")))
			} else {
				e.cancel("b", store.StateLeased)
			}
			e.full()
			e.holder("k", "", false)
			e.refused(c.Receipt)
			e.holder("k", "", false)
			e.inOrder("k", "a")
		}
		e.send(message("b", withKey("k")), message("a", withKey("k")))
		e.claimOne("b", short)
		e.cancel("b", store.StateLeased)
		e.full()
		e.advance(short)
		e.inOrder("k", "a")
	}},
	{"a successor inherits no hold", func(e *env) {
		for name, s := range endings {
			for _, key := range []string{"k", "other"} {
				e.Log(name, key)
				f := e.other()
				f.limit(halting)
				f.send(message("b", withKey("k")), message("a", withKey("k"), delay(time.Millisecond)))
				c := f.claimOne("b", held)
				f.advance(2 * time.Millisecond)
				f.equal("results", f.trySend(message("b", following, withKey(key), delay(time.Second))), wasFollowing)
				s.Receipt, s.Grouped = c.Receipt, false
				f.ok(f.trySettle(s)[0].Err)
				f.holder("k", "", false)
				f.inOrder("k", "a")
				f.advance(2 * time.Second)
				f.inOrder(key, "b")
			}
		}
		e.limit(halting)
		e.send(message("b", withKey("k"), maxAttempts(1)), message("a", withKey("k")))
		e.claimOne("b", short)
		e.equal("results", e.trySend(message("b", following, withKey("k"), delay(time.Hour))), wasFollowing)
		e.advance(short)
		e.inOrder("k", "a")
	}},
	{"the holder of a key dies when it has expired, and the key goes on", func(e *env) {
		e.limit(halting)
		e.send(message("b", withKey("k"), expireAfter(time.Second)), message("a", withKey("k")))
		e.settle(store.Settlement{Receipt: e.claimOne("b", held).Receipt, Action: store.Release}, store.StateReady)
		e.holder("k", "b", false)
		e.advance(2 * time.Second)
		c := e.claimWith(5, held)
		e.equal("expired", fmt.Sprint(c.Died, c.Expired), "[b] [b]")
		for more := c.More; more; more = c.More {
			next := e.claimWith(5, held)
			c.Messages, c.More = append(c.Messages, next.Messages...), next.More
		}
		e.equal("claimed", ids(c.Messages), []string{"a"})
		e.holder("k", "", false)
		e.keyCounts(0, 0, 0)
		e.ack(c.Messages...)
		e.inOrder("k")
	}},
}
