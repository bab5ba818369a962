package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/laterq/later/store"
)

var (
	urgentContinuing = urgentKeys(store.KeyFlow{Order: store.OrderContinue})
	urgentHalting    = urgentKeys(store.KeyFlow{Order: store.OrderHalt})
)

// ordered sends messages of the key k, in a queue with an order, with the urgencies of the first letters of their ids.
// It also sends normal messages of the key l, and a claim sorts all of them.
func (e *env) ordered(ids ...string) {
	e.Helper()
	for _, id := range ids {
		e.send(message(id, withKey("k"), withUrgency(urgencyOfLetter(id))))
	}
	for _, id := range []string{"l1", "l2"} {
		e.send(message(id, withKey("l")))
	}
	e.sort()
	e.keyCounts(2, 0, 0)
}

// urgencyOfLetter returns the urgency of an id that begins with H, N or L.
func urgencyOfLetter(id string) store.Urgency {
	for u, letter := range letters {
		if id[:1] == letter {
			return u
		}
	}
	panic("no urgency: " + id)
}

// urgencyOrderRules are about keys with an order, which take turns with the urgency of their next message.
var urgencyOrderRules = []rule{
	{"messages of an ordered key start in their order, whatever their urgency", func(e *env) {
		e.limit(urgentContinuing)
		e.threeOf("k")
		e.inOrder("k", "kL", "kN", "kH")
		var want []string
		for i := range 30 {
			id := fmt.Sprint([]string{"L", "N", "H"}[i*i%3], 99-i)
			e.send(message(id, withKey("k"), withUrgency(urgencyOfLetter(id))))
			want = append(want, id)
		}
		e.inOrder("k", want...)
		e.empty()
	}},
	{"an ordered key takes its turn with the urgency of its next message", func(e *env) {
		for sent, want := range map[string]string{"L1 H1 N1": "l1 l2 L1 H1 N1", "H1 L1": "H1 l1 l2 L1",
			"L1 L2 H1": "l1 l2 L1 L2 H1", "H2 H1 L1 N1": "H2 H1 l1 l2 L1 N1"} {
			f := e.other()
			f.limit(urgentContinuing)
			f.ordered(strings.Fields(sent)...)
			f.inThisOrder(strings.Fields(want)...)
			f.empty()
		}
	}},
	{"an ordered key counts once, and takes one turn, whatever the urgencies of its messages", func(e *env) {
		e.limit(urgentContinuing)
		e.ordered("H1", "L1", "N1", "H2")
		e.equal("waiting", e.key("k").Waiting, int64(4))
		e.equal("claimed", ids(e.claim(10)), []string{"H1", "l1"})
		e.full()
		e.keyCounts(2, 2, 0)
	}},
	{"an ordered key follows an earlier message that arrives", func(e *env) {
		earlier := at(e.now().Add(-time.Hour))
		for _, sort := range []bool{false, true} {
			for _, c := range [][2]string{{"L1", "H0 l1 l2 L1"}, {"H1", "l1 l2 L0 H1"}} {
				f := e.other()
				f.limit(urgentContinuing)
				f.ordered(c[0])
				id := map[string]string{"L1": "H0", "H1": "L0"}[c[0]]
				f.send(message(id, withKey("k"), withUrgency(urgencyOfLetter(id)), earlier))
				if sort {
					f.sort()
					f.keyCounts(2, 0, 0)
				}
				f.inThisOrder(strings.Fields(c[1])...)
				f.empty()
			}
		}
	}},
	{"an ordered key follows when its next message is removed", func(e *env) {
		for _, remove := range removals {
			for sent, want := range map[string]string{"L1 H1": "H1 l1 l2", "H1 L1": "l1 l2 L1",
				"H1 H2 L1": "H2 l1 l2 L1"} {
				f := e.other()
				f.limit(urgentContinuing)
				f.ordered(strings.Fields(sent)...)
				remove(f, sent[:2])
				f.inThisOrder(strings.Fields(want)...)
				f.keyCounts(0, 0, 0)
			}
		}
	}},
	{"an ordered key follows when its next message is rescheduled", func(e *env) {
		e.limit(urgentContinuing)
		e.ordered("L1", "H1")
		e.ok(e.tryReschedule("L1", store.Due{Delay: time.Second}))
		e.inThisOrder("H1", "l1", "l2")
		e.advance(2 * time.Second)
		e.inThisOrder("L1")
		e.ordered("H1", "L1")
		e.ok(e.tryReschedule("L1", store.Due{At: e.now().Add(-time.Hour)}))
		e.inThisOrder("l1", "l2", "L1", "H1")
		e.empty()
	}},
	{"an ordered key follows when its next message is replaced by one of another urgency", func(e *env) {
		for _, c := range []struct {
			sent, id string
			u        store.Urgency
			want     string
		}{
			{"L1 H1", "L1", store.UrgencyHigh, "L1 H1 l1 l2"}, {"H1 L1", "H1", store.UrgencyLow, "l1 l2 H1 L1"},
			{"H1 H2", "H2", store.UrgencyLow, "H1 l1 l2 H2"}, {"L1 L2", "L2", store.UrgencyHigh, "l1 l2 L1 L2"},
		} {
			for _, edit := range []bool{false, true} {
				f := e.other()
				f.limit(urgentContinuing)
				f.ordered(strings.Fields(c.sent)...)
				m := message(c.id, keepingDue, withKey("k"), withUrgency(c.u))
				if edit {
					m.OnDuplicate.Unchanged = f.get(c.id)
				}
				f.equal("results", f.trySend(m), wasReplaced)
				f.inThisOrder(strings.Fields(c.want)...)
				f.empty()
			}
		}
	}},
	{"an ordered key goes on when its next message expires", func(e *env) {
		for _, u := range urgencies {
			f := e.other()
			f.limit(urgentContinuing)
			f.send(message("expires", withKey("k"), withUrgency(u), expireAfter(time.Second)))
			f.ordered("H1", "L1")
			f.advance(time.Second)
			var got []string
			for range 10 {
				c := f.claim(1)
				got = append(got, ids(c)...)
				f.ack(c...)
			}
			f.live("expires", store.StateDead)
			f.equal("claimed", len(got), 4)
			f.full()
			f.keyCounts(0, 0, 0)
		}
	}},
	{"an ordered key that rests goes on with its next message", func(e *env) {
		e.limit(urgentKeys(store.KeyFlow{Order: store.OrderContinue, Rate: store.Rate{N: 1, Per: time.Second}}))
		e.ordered("H1", "L1", "N1")
		e.inThisOrder("H1", "l1")
		e.send(message("H0", withKey("k"), high, at(e.now().Add(-time.Hour))))
		e.full()
		e.advance(time.Second)
		e.inThisOrder("H0", "l2")
		e.advance(time.Second)
		e.inThisOrder("L1")
		e.advance(time.Second)
		e.inThisOrder("N1")
		e.advance(time.Minute)
		e.empty()
	}},
}

// urgencyHoldRules are about messages that hold their keys.
var urgencyHoldRules = []rule{
	{"a message that comes back to its key has the key take its turn with its urgency", func(e *env) {
		for name, back := range returns {
			for _, c := range [][3]string{{"L1", "H1", "l1 l2 L1 H1"}, {"H1", "L1", "H1 l1 l2 L1"}} {
				e.Log(name, c)
				f := e.other()
				f.limit(urgentHalting)
				f.send(message(c[0], withKey("k"), withUrgency(urgencyOfLetter(c[0]))))
				back(f, f.claimOne(c[0], short))
				if f.liveAnyhow(c[0]).State == store.StateScheduled {
					f.advance(time.Minute + time.Millisecond)
				}
				f.ordered(c[1])
				f.send(message("early", withKey("k"), at(f.now().Add(-time.Hour))))
				f.holder("k", c[0], false)
				want := strings.Fields(c[2])
				i := 0
				for ; want[i] != c[0]; i++ {
					f.ack(f.starts(want[i]))
				}
				f.ack(f.starts(c[0]))
				f.cancel("early", store.StateReady)
				f.inThisOrder(want[i+1:]...)
				f.empty()
			}
		}
	}},
	{"a key waits for the message that holds it, also for one of lower urgency", func(e *env) {
		e.limit(urgentContinuing)
		e.send(message("L1", withKey("k"), low))
		c := e.claimOne("L1", held)
		e.send(message("H1", withKey("k"), high))
		e.full()
		e.settle(nack(c, time.Minute), store.StateScheduled)
		e.full()
		e.keyCounts(1, 1, 0)
		e.equal("results", e.trySend(message("L1", keepingDue, withKey("k"), high)), wasReplaced) // it keeps its hold
		e.holder("k", "L1", false)
		e.full()
		e.send(message("n"), message("h", high, delay(time.Minute+time.Millisecond)))
		e.inThisOrder("n")
		e.advance(time.Minute + 2*time.Millisecond)
		e.ack(e.takesOf(map[string][]string{"k": {"L1"}, "": {"h"}})...)
		e.inOrder("k", "H1")
		e.empty()
	}},
	{"a ready message that holds its key and gets another urgency has the key follow it", func(e *env) {
		for _, c := range []struct {
			was, is store.Urgency
			want    []string
		}{
			{store.UrgencyLow, store.UrgencyHigh, []string{"b", "l1", "l2", "L1"}},
			{store.UrgencyHigh, store.UrgencyLow, []string{"l1", "l2", "b", "L1"}},
		} {
			f := e.other()
			f.limit(urgentContinuing)
			f.send(message("b", withKey("k"), withUrgency(c.was)))
			f.settle(nack(f.claimOne("b", held), 0), store.StateReady)
			f.ordered("L1")
			f.equal("results", f.trySend(message("b", keepingDue, withKey("k"), withUrgency(c.is))), wasReplaced)
			f.holder("k", "b", false)
			f.inThisOrder(c.want...)
			f.empty()
		}
	}},
	{"a key goes on with the urgency of its next message when its holder is removed", func(e *env) {
		for _, remove := range removals {
			for _, c := range [][2]string{{"L0 H1", "H1 l1 l2"}, {"H0 L1", "l1 l2 L1"}} {
				for _, back := range []string{"nack", "nack now"} {
					f := e.other()
					f.limit(urgentHalting)
					id := c[0][:2]
					f.send(message(id, withKey("k"), withUrgency(urgencyOfLetter(id))))
					returns[back](f, f.claimOne(id, short))
					f.send(message(c[0][3:], withKey("k"), withUrgency(urgencyOfLetter(c[0][3:]))))
					f.send(message("l1", withKey("l")), message("l2", withKey("l")))
					f.sort()
					remove(f, id)
					f.holder("k", "", false)
					f.inThisOrder(strings.Fields(c[1])...)
					f.keyCounts(0, 0, 0)
				}
			}
		}
	}},
	{"a halted key starts no urgent message, and goes on with the urgency of the next one", func(e *env) {
		goOn := map[string]func(f *env){
			"replay": func(f *env) { f.equal("replayed", f.replay(allDead, store.Due{}), 1) },
			"resume": func(f *env) { f.resumes("k", nil) },
			"cancel": func(f *env) { f.cancel("dead", store.StateDead) },
			"purge":  func(f *env) { f.equal("purged", f.purge(allDead), 1) },
		}
		want := map[string]string{"replay": "l1 l2 dead H1 L1", "resume": "H1 l1 l2 L1", "cancel": "H1 l1 l2 L1",
			"purge": "H1 l1 l2 L1"}
		for name, act := range goOn {
			for _, death := range deaths {
				f := e.other()
				f.limit(urgentHalting)
				f.send(message("dead", withKey("k"), low, maxAttempts(1)))
				death(f, f.claimOne("dead", short))
				f.send(message("H1", withKey("k"), high), message("L1", withKey("k"), low))
				f.full()
				f.keyCounts(1, 1, 1)
				act(f)
				f.send(message("l1", withKey("l")), message("l2", withKey("l")))
				f.inThisOrder(strings.Fields(want[name])...)
				f.equal("counts", f.flow().Keys, store.KeyCounts{})
			}
		}
		e.limit(urgentHalting)
		e.send(message("dead", withKey("k"), high, maxAttempts(1)))
		deaths["bury"](e, e.claimOne("dead", short))
		e.send(message("L1", withKey("k"), low), message("l1", withKey("l")))
		e.equal("replayed", e.replay(allDead, store.Due{}), 1)
		e.inThisOrder("dead", "l1", "L1")
	}},
	{"a death of an urgent message lets its key go on with the next one if the order continues", func(e *env) {
		for _, death := range deaths {
			f := e.other()
			f.limit(urgentContinuing)
			f.send(message("dead", withKey("k"), high, maxAttempts(1)))
			death(f, f.claimOne("dead", short))
			f.ordered("L1")
			f.inThisOrder("l1", "l2", "L1")
			f.keyCounts(0, 0, 0)
		}
	}},
}
