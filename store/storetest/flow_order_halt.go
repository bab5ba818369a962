package storetest

import (
	"fmt"
	"time"

	"github.com/laterq/later/store"
)

// deaths are the ways in which a leased message dies of its only attempt. The lease is short.
var deaths = map[string]func(e *env, c store.Claimed){
	"last nack": func(e *env, c store.Claimed) { e.settle(nack(c, 0), store.StateDead) },
	"bury": func(e *env, c store.Claimed) {
		e.settle(store.Settlement{Receipt: c.Receipt, Action: store.Bury, Reason: "no"}, store.StateDead)
	},
	"give back": func(e *env, c store.Claimed) {
		e.settle(store.Settlement{Receipt: c.Receipt, Action: store.GiveBack, Within: 0, Reason: "no"},
			store.StateDead)
	},
	"end of the lease": func(e *env, c store.Claimed) {
		e.advance(short)
		e.equal("died", e.claimWith(1, held).Died, []string{c.ID})
	},
}

// dies sends messages of the key k, and lets the first one die.
func (e *env) dies(flow store.Flow, death func(e *env, c store.Claimed)) {
	e.Helper()
	e.limit(flow)
	e.send(message("b", withKey("k"), maxAttempts(1)))
	death(e, e.claimOne("b", short))
	e.live("b", store.StateDead)
	e.send(message("a", withKey("k")), message("early", withKey("k"), at(e.now().Add(-time.Hour))),
		message("l", withKey("l")))
}

// halted lets the message b halt the key k. The messages early and a of the key are sorted.
func (e *env) halted() {
	e.Helper()
	e.dies(halting, deaths["bury"])
	e.ack(e.takesKey("l", "l")...)
	e.holder("k", "b", true)
	e.keyCounts(1, 1, 1)
}

// haltedKeys lists the halted keys.
func (e *env) haltedKeys(limit int) (names []string) {
	e.Helper()
	for _, s := range e.states(store.KeysRequest{Halted: true, Limit: limit}) {
		if !s.Halted || s.Holder == "" {
			e.Fatalf("a key that is not halted is listed: %+v", s)
		}
		names = append(names, s.Key)
	}
	return names
}

var haltRules = []rule{
	{"a death lets its key go on if the order continues", func(e *env) {
		for name, death := range deaths {
			e.Log(name)
			f := e.other()
			f.dies(continuing, death)
			f.holder("k", "", false)
			f.ack(f.takesOf(map[string][]string{"k": {"early"}, "l": {"l"}})...)
			f.inOrder("k", "a")
			f.resumes("k", store.ErrNotFound)
			f.keyCounts(0, 0, 0)
			f.equal("replayed", f.replay(deadByID("b"), store.Due{}), 1)
			f.send(message("early", withKey("k"), at(f.now().Add(-time.Hour))))
			f.inOrder("k", "early", "b") // it holds nothing
		}
	}},
	{"a death halts its key, and no other, if the order halts", func(e *env) {
		for name, death := range deaths {
			e.Log(name)
			f := e.other()
			f.dies(halting, death)
			f.holder("k", "b", true)
			f.equal("halted keys", f.haltedKeys(1), []string{"k"})
			f.ack(f.takesKey("l", "l")...)
			f.keyCounts(1, 1, 1)
			f.advance(time.Hour)
			f.full()
			f.holder("k", "b", true)
			f.keyCounted("k", 0)
		}
	}},
	{"a death after earlier attempts halts its key", func(e *env) {
		e.limit(halting)
		e.send(message("b", withKey("k"), maxAttempts(3)), message("a", withKey("k")))
		e.settle(nack(e.takesKey("k", "b")[0], 0), store.StateReady)
		e.settle(nack(e.takesKey("k", "b")[0], 0), store.StateReady)
		e.settle(nack(e.takesKey("k", "b")[0], 0), store.StateDead)
		e.full()
		e.holder("k", "b", true)
	}},
	{"a message that expires or cannot be read halts no key", func(e *env) {
		e.limit(halting)
		e.restore(store.Info{Message: store.Message{ID: "raw"}, State: store.StateReady, Due: e.now().Add(-time.Hour),
			Raw: []byte{0xff, 1}})
		e.send(message("b", withKey("k"), expireAfter(time.Second)))
		e.advance(2 * time.Second)
		e.send(message("a", withKey("k")))
		c := e.claimWith(5, held)
		e.equal("died", len(c.Died), 2)
		e.equal("claimed", ids(c.Messages), []string{"a"})
		e.holder("k", "", false)
		e.keyCounts(0, 0, 0)
		e.equal("halted keys", e.haltedKeys(1), []string(nil))
	}},
	{"the retention drops no message that halts a key, nor counts it", func(e *env) {
		e.limit(halting)
		for _, id := range []string{"k1", "m1", "l1", "m2", "m3"} {
			key := map[byte]string{'k': "k", 'l': "l"}[id[0]]
			e.sendDead(id, withKey(key))
			e.advance(time.Millisecond)
		}
		e.retain(store.Retention{MaxCount: 2})
		e.equal("dropped", e.dropped(), []string{"m1"})
		e.count(0, 0, 0, 4)
		e.retain(store.Retention{MaxAge: time.Millisecond})
		e.advance(time.Second)
		e.equal("dropped", e.dropped(), []string{"m2", "m3"})
		e.equal("dropped", e.dropped(), []string(nil))
		e.count(0, 0, 0, 2)
		e.keyCounts(0, 0, 2)
		e.resumes("l", nil)
		e.equal("dropped", e.dropped(), []string{"l1"})
		e.limit(continuing)
		e.equal("dropped", e.dropped(), []string{"k1"})
		e.equal("dropped in all", e.stats().Dropped, int64(5))
	}},
	{"a claim that a retention makes drop many messages leaves those that halt keys", func(e *env) {
		e.limit(halting)
		for i := range 3 {
			e.sendDead(fmt.Sprint("halts", i), withKey(fmt.Sprint("k", i)))
		}
		e.send(many(700, maxAttempts(1))...)
		e.claimMany(700, short)
		e.advance(short)
		e.claimAll()
		e.count(0, 0, 0, 703)
		e.retain(store.Retention{MaxCount: 10})
		e.claimAll()
		e.count(0, 0, 0, 13)
		e.equal("halted keys", e.haltedKeys(2), []string{"k0", "k1", "k2"})
	}},
}

// claimMany claims n messages.
func (e *env) claimMany(n int, lease time.Duration) (all []store.Claimed) {
	e.Helper()
	for range 1000 {
		if all = append(all, e.claimWith(min(store.MaxBatch, n-len(all)), lease).Messages...); len(all) == n {
			return all
		}
	}
	e.Fatalf("claims take %d of %d messages", len(all), n)
	return nil
}

// purges removes messages and returns the keys that it resumed.
func (e *env) purges(sel store.Selection) (resumed []string) {
	e.Helper()
	e.bulk(func(sel store.Selection) (store.Bulk, error) {
		b, err := e.Peer.Purge(e.Context(), e.queue, sel)
		resumed = append(resumed, b.Resumed...)
		return b, err
	}, sel)
	return resumed
}

// resumeRules are the ways in which a halted key goes on.
var resumeRules = []rule{
	{"a replayed message that halted its key is the next to start", func(e *env) {
		e.halted()
		e.equal("replayed", e.replay(allDead, store.Due{}), 1)
		e.holder("k", "b", false)
		e.equal("halted keys", e.haltedKeys(1), []string(nil))
		e.resumes("k", store.ErrNotFound)
		e.inOrder("k", "b", "early", "a")
		f := e.other()
		f.halted()
		f.equal("replayed", f.replay(deadByID("b"), store.Due{Delay: time.Second}), 1)
		f.full()
		f.keyCounts(1, 1, 0)
		f.advance(time.Second + time.Millisecond)
		b := f.takesKey("k", "b")[0]
		f.settle(store.Settlement{Receipt: b.Receipt, Action: store.Bury, Reason: "again"}, store.StateDead)
		f.full()
		f.holder("k", "b", true)
	}},
	{"a resumed key goes on, and its message stays dead", func(e *env) {
		e.halted()
		e.resumes("k", nil)
		e.holder("k", "", false)
		e.keyCounts(1, 0, 0)
		e.ack(e.takesKey("k", "early")...)
		e.resumes("k", store.ErrNotFound)
		e.live("b", store.StateDead)
		e.advance(2 * time.Millisecond)
		e.equal("replayed", e.replay(deadByID("b"), store.Due{}), 1)
		e.inOrder("k", "a", "b")
	}},
	{"a key is halted without other messages, and resumed", func(e *env) {
		e.limit(halting)
		e.sendDead("b", withKey("k"))
		e.keyCounts(0, 0, 1)
		e.holder("k", "b", true)
		e.send(message("a", withKey("k")))
		e.full()
		e.keyCounts(1, 1, 1)
		e.resumes("k", nil)
		e.inOrder("k", "a")
		e.sendDead("c", withKey("k"))
		e.resumes("k", nil)
		e.keyCounts(0, 0, 0)
		e.send(message("d", withKey("k")))
		e.inOrder("k", "d")
	}},
	{"a halted key goes on when the message that halted it is removed", func(e *env) {
		for name, remove := range map[string]func(f *env){
			"cancel": func(f *env) { f.cancel("b", store.StateDead) },
			"remove": func(f *env) { f.equal("removed", f.remove(*f.get("b")), []bool{true}) },
			"purge":  func(f *env) { f.equal("resumed", f.purges(allDead), []string{"k"}) },
			"purge by id": func(f *env) {
				f.equal("resumed", f.purges(deadByID("unknown", "b", "b")), []string{"k"})
			},
		} {
			e.Log(name)
			f := e.other()
			f.halted()
			remove(f)
			f.gone("b")
			f.holder("k", "", false)
			f.resumes("k", store.ErrNotFound)
			f.send(message("b", withKey("k")))
			f.inOrder("k", "early", "a", "b")
			f.keyCounts(0, 0, 0)
		}
	}},
	{"a purge reports the keys that it resumed, and no others", func(e *env) {
		e.halted()
		e.sendDead("c", withKey("l"))
		e.sendDead("no key")
		e.send(message("resumed", withKey("m")))
		c := e.takesKey("m", "resumed")[0]
		e.settle(store.Settlement{Receipt: c.Receipt, Action: store.Bury, Reason: "no"}, store.StateDead)
		e.resumes("m", nil)
		e.equal("resumed", e.purges(store.Selection{State: store.StateReady}), []string(nil))
		e.keyCounts(0, 0, 2)
		e.equal("resumed", e.purges(deadByID("no key", "resumed")), []string(nil))
		e.equal("resumed", e.purges(deadByID("c")), []string{"l"})
		e.equal("halted keys", e.haltedKeys(2), []string{"k"})
		e.send(message("d", withKey("k")))
		e.equal("resumed by a purge of all", e.purges(store.Selection{}), []string{"k"})
		e.send(message("e", withKey("k")))
		e.inOrder("k", "e")
	}},
	{"halted keys go on when the order halts no more", func(e *env) {
		for _, flow := range []store.Flow{continuing, fair, concurrency(5), {}} {
			f := e.other()
			f.halted()
			f.send(message("m", withKey("m"), maxAttempts(3)))
			f.settle(nack(f.takesKey("m", "m")[0], time.Minute), store.StateScheduled)
			f.send(message("n", withKey("m")))
			f.limit(flow)
			f.equal("counts", f.flow().Keys.Halted, int64(0))
			f.live("b", store.StateDead)
			if flow == continuing {
				f.holder("m", "m", false)
				f.inOrder("k", "early", "a")
				f.limit(halting)
				f.full()
				f.advance(time.Minute + time.Millisecond)
				f.inOrder("m", "m", "n")
				continue
			}
			f.equal("claimed", len(f.claimAll()), 3) // no key is held
			f.equal("replayed", f.replay(allDead, store.Due{}), 1)
			f.equal("claimed", f.claimAll(), []string{"b"})
		}
	}},
	{"a sorted message that holds its key is one of its key when the order is removed", func(e *env) {
		for _, flow := range []store.Flow{fair, {}} {
			f := e.other()
			f.limit(continuing)
			f.comesBack(returns["nack now"])
			f.sort()
			f.equal("waiting", f.key("k").Waiting, int64(3))
			f.limit(flow)
			if flow == fair {
				f.holder("k", "", false)
				f.equal("waiting", f.key("k").Waiting, int64(3))
			}
			f.equal("claimed", len(f.claimAll()), 4)
		}
	}},
	{"an order that is set again holds no key from before", func(e *env) {
		e.halted()
		e.send(message("m", withKey("m")), message("n", withKey("m"), delay(time.Millisecond)))
		e.settle(nack(e.claimOne("m", held), time.Minute), store.StateScheduled)
		e.limit(fair)
		e.limit(halting)
		e.advance(2 * time.Millisecond)
		e.ack(e.takesOf(map[string][]string{"k": {"early"}, "m": {"n"}})...)
		e.inOrder("k", "a")
	}},
	{"a message that was leased before the order was set holds its key if it counts", func(e *env) {
		e.limit(fair)
		e.send(message("b", withKey("k")), message("c", withKey("k")), message("a", withKey("k"), delay(1)))
		c := e.takesKeyOf(2)
		e.limit(halting)
		e.advance(2 * time.Millisecond)
		e.full()
		e.settle(nack(c[0], time.Minute), store.StateScheduled)
		e.holder("k", "b", false)
		e.settle(nack(c[1], time.Second), store.StateScheduled)
		e.holder("k", "b", false) // the first one does
		e.advance(2 * time.Second)
		e.full()
		e.advance(time.Minute)
		e.inOrder("k", "b", "a", "c")
	}},
	{"a message that was leased before the queue was fair holds no key", func(e *env) {
		for _, flow := range []store.Flow{{}, concurrency(5)} {
			f := e.other()
			f.limit(flow)
			f.send(message("b", withKey("k"), maxAttempts(1)), message("c", withKey("k")))
			c := f.claim(2)
			f.limit(halting)
			f.send(message("a", withKey("k")))
			f.settle(nack(c[0], 0), store.StateDead)
			f.settle(nack(c[1], time.Minute), store.StateScheduled)
			f.holder("k", "", false)
			f.inOrder("k", "a")
		}
	}},
}

// takesKeyOf claims n messages of a key.
func (e *env) takesKeyOf(n int) []store.Claimed {
	e.Helper()
	c := e.claim(n)
	e.equal("claimed", len(c), n)
	return c
}
