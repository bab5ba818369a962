package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/laterq/later/store"
)

var fenceRules = []rule{
	{"the fence of a key grows with each of its claims", func(e *env) {
		e.limit(halting)
		last := map[string]int64{}
		grows := func(c []store.Claimed) {
			e.Helper()
			for _, m := range c {
				if m.Fence <= last[m.Key] || m.Fence >= 1<<53 {
					e.Fatalf("fence of key %q is %d after %d", m.Key, m.Fence, last[m.Key])
				}
				last[m.Key] = m.Fence
			}
		}
		for range 3 {
			e.sendKeys(3, "k", "l")
			c := e.takesOf(map[string][]string{"k": {"k00000"}, "l": {"l00000"}})
			grows(c)
			for _, m := range c {
				if m.Key == "k" {
					e.settle(nack(m, 0), store.StateReady)
				} else {
					e.settle(store.Settlement{Receipt: m.Receipt, Action: store.Bury, Reason: "no"}, store.StateDead)
				}
			}
			c = e.takesKey("k", "k00000")
			grows(c)
			e.ack(c...)
			e.resumes("l", nil)
			c = e.takesOf(map[string][]string{"k": {"k00001"}, "l": {"l00001"}})
			grows(c)
			e.purge(store.Selection{})
			for _, m := range c {
				e.refused(m.Receipt)
			}
		}
		e.setBack(time.Hour)
		e.send(message("m", withKey("k")))
		grows(e.takesKey("k", "m"))
	}},
	{"messages with a key have the fence of their claim, and others have none", func(e *env) {
		e.limit(continuing)
		e.sendKeys(1, "k", "l", "n")
		e.send(many(2)...)
		fences := map[int64]int{}
		for _, m := range e.claim(10) {
			fences[m.Fence]++
			if (m.Fence > 0) != (m.Key != "") {
				e.Fatalf("fence of %q with key %q is %d", m.ID, m.Key, m.Fence)
			}
		}
		e.equal("messages without a fence", fences[0], 2)
		e.equal("fences", len(fences), 2)
		for _, f := range []store.Flow{{}, concurrency(20), fair} {
			f2 := e.other()
			f2.limit(f)
			f2.sendKeys(1, "k")
			f2.equal("fence without an order", f2.claimOne("k00000", held).Fence, int64(0))
		}
	}},
}

// heldKeyRules are about the states of keys.
var heldKeyRules = []rule{
	{"halted keys are listed in pages, whether or not they wait", func(e *env) {
		e.limit(halting)
		now := e.now()
		for _, key := range []string{"c", "a", "e", "b", "d"} {
			e.sendDead("dead of "+key, withKey(key))
		}
		e.sendDead("without a key")
		e.send(message("waits", withKey("c"), at(now.Add(-time.Minute))), message("other", withKey("x")))
		e.ack(e.takesKey("x", "other")...)
		e.resumes("b", nil)
		for _, limit := range []int{1, 2, 3, 500} {
			e.equal("halted keys", strings.Join(e.haltedKeys(limit), " "), "a c d e")
		}
		page, err := e.Store.Keys(e.Context(), e.queue, store.KeysRequest{Halted: true, After: "a", Limit: 2})
		e.ok(err)
		e.equal("page", keyNames(page), []string{"c", "d"})
		c := page[0]
		e.equal("state", fmt.Sprintf("%d %s %v %d %d", c.Waiting, c.Holder, c.Halted, c.Leased, ms(now)-ms(c.Since)),
			"1 dead of c true 0 60000")
		e.equal("state", fmt.Sprintf("%d %s %v", page[1].Waiting, page[1].Holder, page[1].Since.IsZero()),
			"0 dead of d true")
		e.keyCounts(1, 1, 4)
		e.equal("waiting keys", keyNames(e.states(store.KeysRequest{Limit: 5})), []string{"c"})
		e.limit(fair)
		e.equal("halted keys", len(e.states(store.KeysRequest{Halted: true, Limit: 5})), 0)
	}},
	{"a key counts as full while it waits for its holder", func(e *env) {
		e.limit(continuing)
		e.sendKeys(3, "k")
		e.settle(nack(e.claimOne("k00000", held), time.Second), store.StateScheduled)
		e.keyCounts(1, 1, 0)
		e.equal("waiting", e.key("k").Waiting, int64(2))
		e.advance(time.Second + time.Millisecond)
		e.sort()
		e.keyCounts(1, 0, 0)
		s := e.key("k")
		e.equal("state", fmt.Sprintf("%d %s %v %d", s.Waiting, s.Holder, s.Halted, s.Leased), "3 k00000 false 0")
		e.takesKey("k", "k00000")
		s = e.key("k")
		e.equal("state", fmt.Sprintf("%d %q %v %d", s.Waiting, s.Holder, s.Halted, s.Leased), `2 "" false 1`)
		e.keyCounts(1, 1, 0)
	}},
	{"a message that holds its key and is alone does not make it wait until it is due", func(e *env) {
		e.limit(continuing)
		e.sendKeys(1, "k")
		e.settle(nack(e.claimOne("k00000", held), time.Second), store.StateScheduled)
		e.keyCounts(0, 0, 0)
		e.holder("k", "k00000", false)
		e.advance(time.Second + time.Millisecond)
		e.sort()
		e.keyCounts(1, 0, 0)
		e.equal("since", e.key("k").Since.IsZero(), false)
		e.inOrder("k", "k00000")
		e.holder("k", "", false)
	}},
	{"nothing starts on a paused queue, and holds and halts last", func(e *env) {
		e.halted()
		e.send(message("m", withKey("m")), message("n", withKey("m")))
		c := e.takesKey("m", "m")[0]
		e.ok(e.Store.SetPaused(e.Context(), e.queue, true))
		e.settle(nack(c, 0), store.StateReady)
		e.full()
		e.resumes("k", nil)
		e.full()
		e.ok(e.Store.SetPaused(e.Context(), e.queue, false))
		e.ack(e.takesOf(map[string][]string{"k": {"early"}, "m": {"m"}})...)
		e.ack(e.takesOf(map[string][]string{"k": {"a"}, "m": {"n"}})...)
	}},
	{"no key is held or halted after its queue was deleted", func(e *env) {
		e.halted()
		e.send(message("m", withKey("m")))
		e.settle(nack(e.takesKey("m", "m")[0], time.Minute), store.StateScheduled)
		e.ok(e.Peer.Delete(e.Context(), e.queue))
		e.limit(halting)
		e.keyCounts(0, 0, 0)
		for _, key := range []string{"k", "m"} {
			e.holder(key, "", false)
			e.resumes(key, store.ErrNotFound)
		}
		e.send(message("b", withKey("k")), message("a", withKey("k")), message("n", withKey("m")))
		e.ack(e.takesOf(map[string][]string{"k": {"b"}, "m": {"n"}})...)
		e.inOrder("k", "a")
	}},
	{"many keys are held and halted at once", func(e *env) {
		const n = 60
		e.limit(halting)
		var msgs []store.Outgoing
		for i := range n {
			key := fmt.Sprintf("k%02d", i)
			msgs = append(msgs, keyed(key, 2)...)
		}
		e.send(msgs...)
		for _, c := range e.claimMany(n, held) {
			switch i := len(c.Key) + int(c.Key[2]-'0'); i % 2 {
			case 0:
				e.settle(nack(c, time.Second), store.StateScheduled)
			default:
				e.settle(store.Settlement{Receipt: c.Receipt, Action: store.Bury, Reason: "no"}, store.StateDead)
			}
		}
		e.full()
		e.keyCounts(n, n, n/2)
		e.advance(time.Second + time.Millisecond)
		for _, c := range e.claimMany(n/2, held) {
			e.equal("holder", strings.HasSuffix(c.ID, "00000"), true)
			e.ack(c)
		}
		e.limit(continuing)
		for _, c := range e.claimMany(n, held) {
			e.equal("next", strings.HasSuffix(c.ID, "00001"), true)
			e.ack(c)
		}
		e.keyCounts(0, 0, 0)
	}},
}

var orderForwardRules = []rule{
	{"messages that are sent in one moment keep their order, however many they are", func(e *env) {
		const n = 1300 // more than a millisecond has microseconds
		f := e.forwardsTo()
		e.limit(continuing)
		msgs := keyed("k", n)
		slices.Reverse(msgs)
		e.send(msgs...)
		for _, m := range msgs[:3] {
			e.ack(e.takesKey("k", m.ID)...)
		}
		want, moved := keyedIDs("k", 0, n-3), []string(nil)
		for forwarded := e.forward(f, store.MaxBatch); ; forwarded = e.forward(f, store.MaxBatch) {
			if moved = append(moved, forwarded.IDs...); len(forwarded.IDs) == 0 {
				break
			}
		}
		slices.Reverse(want)
		e.equal("moved in order", slices.Equal(moved, want), true)
		e.count(0, 0, 0, 0)
	}},
	{"forwards keep the order of keys in a queue with an order", func(e *env) {
		f := e.forwardsTo()
		e.limit(continuing)
		f.limit(continuing)
		e.send(message("c", withKey("k")), message("b", withKey("k")), message("l2", withKey("l")))
		e.send(message("a", withKey("k")), message("l1", withKey("l")), message("none"))
		for e.forward(f, 2).Count > 0 {
		}
		e.count(0, 0, 0, 0)
		e.send(message("0", withKey("k")))
		e.equal("moved", e.forward(f, 2).IDs, []string{"0"})
		f.takesInOrder("k", "c", "b", "a", "0")
		f.takesInOrder("l", "l2", "l1")
	}},
	{"a forward leaves out keys that wait for a message, and takes that one first", func(e *env) {
		f := e.forwardsTo()
		e.limit(halting)
		e.dies(halting, deaths["bury"])
		e.send(message("m", withKey("m")), message("n", withKey("m"), at(e.now().Add(-time.Hour))))
		c := e.takesOf(map[string][]string{"l": {"l"}, "m": {"n"}})
		for _, m := range c {
			if m.Key == "m" {
				e.settle(nack(m, time.Second), store.StateScheduled)
			}
		}
		e.equal("moved", e.forward(f, 10).IDs, []string(nil)) // l has a leased message, k is halted
		e.advance(time.Second + time.Millisecond)
		e.send(message("before", withKey("m"), at(e.now().Add(-time.Hour))))
		var moved []string
		for range 3 {
			moved = append(moved, e.forward(f, 10).IDs...)
		}
		e.equal("moved", moved, []string{"n", "before", "m"})
		e.holder("m", "", false)
		e.resumes("k", nil)
		moved = nil
		for range 3 {
			moved = append(moved, e.forward(f, 10).IDs...)
		}
		e.equal("moved", moved, []string{"early", "a"})
	}},
}

// takesInOrder claims and acks messages of all keys, and checks the order of those of one key.
func (e *env) takesInOrder(key string, want ...string) {
	e.Helper()
	var got []string
	for range 20 {
		c := e.claimWith(5, held)
		got = append(got, perKey(c.Messages)[key]...)
		for _, m := range c.Messages {
			if m.Key == key {
				e.ack(m)
			} else {
				e.settle(store.Settlement{Receipt: m.Receipt, Action: store.Release}, store.StateReady)
			}
		}
	}
	e.equal("order of "+key, got, want)
}

var orderWaitRules = []rule{
	{"wait ends for a message that is sent after the clock was set back", func(e *env) {
		e.limit(continuing)
		e.send(message("a", withKey("k")))
		e.inOrder("k", "a")
		e.setBack(time.Hour)
		waited := make(chan error, 1)
		go func() { waited <- e.Store.Wait(e.within(wakeTimeout), e.queue) }()
		e.asleep(1)
		e.send(message("b", withKey("k")))
		e.ok(<-waited)
		e.inOrder("k", "b")
	}},
	{"wait ends when the message that holds a key is acked", func(e *env) {
		e.wakesBehind(continuing, "b", func(f *env, a store.Claimed) { f.ack(a) }, withKey("k"))
	}},
	{"wait ends for the message that came back, when it is due, and for no other of its key", func(e *env) {
		e.wakesBehind(continuing, "a", func(f *env, a store.Claimed) {
			f.settle(nack(a, 10*time.Millisecond), store.StateScheduled)
			f.asleep(1)
			f.send(message("c", withKey("k")))
			f.asleep(1)
			f.pass(20 * time.Millisecond)
		}, withKey("k"))
		for _, s := range []store.Settlement{endings["release"], {Action: store.Nack, Reason: "no"}} {
			e.wakesBehind(continuing, "a", func(f *env, a store.Claimed) {
				s.Receipt = a.Receipt
				f.ok(f.trySettle(s)[0].Err)
			}, withKey("k"))
		}
		e.wakesBehind(continuing, "a", func(f *env, a store.Claimed) {
			f.settle(nack(a, time.Hour), store.StateScheduled)
			f.ok(f.tryReschedule("a", store.Due{}))
		}, withKey("k"))
	}},
	{"wait ends when the message that holds a key is removed, or dies if the order continues", func(e *env) {
		for _, flow := range []store.Flow{continuing, halting} {
			for _, remove := range removals {
				e.wakesBehind(flow, "b", func(f *env, a store.Claimed) {
					f.settle(nack(a, time.Hour), store.StateScheduled)
					remove(f, "a")
				}, withKey("k"))
			}
		}
		e.wakesBehind(continuing, "b", func(f *env, a store.Claimed) { deaths["bury"](f, a) }, withKey("k"))
	}},
	{"wait ends when a halted key goes on", func(e *env) {
		for _, goOn := range []func(f *env){
			func(f *env) { f.resumes("k", nil) },
			func(f *env) { f.cancel("a", store.StateDead) },
			func(f *env) { f.equal("purged", f.purge(allDead), 1) },
			func(f *env) { f.limit(continuing) },
			func(f *env) { f.limit(fair) },
			func(f *env) { f.limit(store.Flow{}) },
		} {
			e.wakesBehind(halting, "b", func(f *env, a store.Claimed) {
				deaths["bury"](f, a)
				f.asleep(1)
				goOn(f)
			}, withKey("k"))
		}
		e.wakesBehind(halting, "a", func(f *env, a store.Claimed) {
			deaths["bury"](f, a)
			f.asleep(1)
			f.equal("replayed", f.replay(allDead, store.Due{}), 1)
		}, withKey("k"))
	}},
}
