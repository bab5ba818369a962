package storetest

import (
	"fmt"
	"time"

	"github.com/laterq/later/store"
)

// urgencyCountRules are about counts, states and settings of a queue with urgencies.
var urgencyCountRules = []rule{
	{"a key counts once for each urgency that it may start, and once while it is full or rests", func(e *env) {
		e.limit(urgentKeys(store.KeyFlow{Concurrency: 1}))
		now := e.now()
		e.threeOf("k")
		e.send(message("l", withKey("l"), low), message("none", high))
		e.sort()
		e.equal("counts", e.flow().Keys, store.KeyCounts{Waiting: 5})
		e.equal("keys hold back", e.flow().KeysHoldBack(), false)
		s := e.key("k")
		e.equal("waiting", s.Waiting, int64(3))
		e.at("since", s.Since, now.Add(-time.Hour))
		for _, limit := range []int{1, 2, 5} {
			e.equal("keys", keyNames(e.states(store.KeysRequest{Limit: limit})), []string{"", "k", "l"})
		}
		c := e.takesOf(map[string][]string{"k": {"kH"}, "": {"none"}, "l": {"l"}})
		e.equal("counts", e.flow().Keys, store.KeyCounts{Waiting: 1, Full: 1})
		e.equal("keys hold back", e.flow().KeysHoldBack(), true)
		e.equal("keys", keyNames(e.states(store.KeysRequest{Limit: 5})), []string{"k"})
		e.equal("state", e.key("k").Waiting, int64(2))
		e.ack(c...)
		e.sort()
		e.equal("counts", e.flow().Keys, store.KeyCounts{Waiting: 2})
		e.limit(urgentKeys(store.KeyFlow{Rate: store.Rate{N: 1, Per: time.Hour}}))
		e.ack(e.takesKey("k", "kN")...)
		e.equal("counts", e.flow().Keys, store.KeyCounts{Waiting: 1, Resting: 1})
		e.equal("state", e.key("k").Waiting, int64(1))
	}},
	{"messages of all urgencies are counted and listed by due time", func(e *env) {
		e.limit(urgent)
		now := e.now()
		e.threeOf("k")
		e.send(message("later", high, delay(time.Minute)), message("last", low, delay(time.Hour)))
		for range 2 {
			e.count(2, 3, 0, 0)
			e.equal("ready", infoIDs(e.list(store.ListRequest{State: store.StateReady, Limit: 2})),
				[]string{"kL", "kN", "kH"})
			e.at("next due", e.stats().NextDue, now.Add(-time.Hour))
			e.equal("histogram", e.histogram([]time.Time{now.Add(-2 * time.Hour), now.Add(-time.Second),
				now.Add(2 * time.Minute), now.Add(2 * time.Hour)}), []int64{2, 2, 1})
			e.sort()
		}
		e.inThisOrder("kH", "kN", "kL")
		e.at("next due", e.stats().NextDue, now.Add(time.Minute))
		e.equal("counts", e.flow().Keys, store.KeyCounts{})
	}},
	{"a flow with urgencies changes no messages", func(e *env) {
		e.limit(urgent)
		e.threeOf("k")
		e.threeOf("")
		look := func() (text string) {
			for _, info := range e.list(store.ListRequest{State: store.StateReady, Limit: 4}) {
				text += describe(&info) + "\n"
			}
			return text
		}
		before := look()
		for _, f := range []store.Flow{urgent, fair, {}, urgentHalting, urgent, concurrency(2), urgent} {
			e.limit(f)
			e.equal("messages", look(), before)
			if f.Normal().Fair {
				e.sort()
			}
			e.equal("messages that are sorted", look(), before)
		}
	}},
	{"nothing starts on a paused queue, and then the most urgent message does", func(e *env) {
		e.limit(urgent)
		e.threeOf("k")
		e.sort()
		e.ok(e.Store.SetPaused(e.Context(), e.queue, true))
		e.send(message("h", high))
		e.full()
		e.ok(e.Store.SetPaused(e.Context(), e.queue, false))
		e.ack(e.claim(2)...)
		e.inThisOrder("kN", "kL")
		e.empty()
	}},
	{"a key is forgotten after its last message, whatever the urgency", func(e *env) {
		e.limit(urgentKeys(store.KeyFlow{Concurrency: 1, Rate: store.Rate{N: 1, Per: time.Millisecond}}))
		for _, u := range urgencies {
			e.send(message("m", withUrgency(u), withKey("k")))
			e.settle(nack(e.claimOne("m", held), time.Second), store.StateScheduled)
			e.advance(time.Second)
			e.settle(store.Settlement{Receipt: e.claimOne("m", held).Receipt, Action: store.Bury}, store.StateDead)
			e.equal("purged", e.purge(allDead), 1)
			e.advance(time.Second)
			e.empty()
		}
	}},
}

var urgencyForwardRules = []rule{
	{"forwards take messages by their urgency, and count as starts", func(e *env) {
		f := e.forwardsTo()
		s := e.starting()
		s.sendsOf(120, store.UrgencyHigh, "high", "", "k")
		s.sendsOf(30, store.UrgencyNormal, "normal", "", "k")
		s.sendsOf(4, store.UrgencyLow, "low", "k")
		for i := 0; len(s.live) > 0; i++ {
			if i%3 == 2 {
				s.takesSome(4)
				continue
			}
			forwarded := e.forward(f, 1+i%7)
			for _, id := range forwarded.IDs {
				waits, may := s.waits(forwarded.Now, false, nil)
				u := s.live[id].urgency
				if wrong := s.passed.start(u, waits, may); wrong != "" {
					s.Fatalf("%s of urgency %q is forwarded %s, after %s", id, u, wrong, s.order)
				}
				delete(s.live, id)
				s.order += letters[u]
			}
		}
		s.equal("urgencies of the first starts", s.order[:8], "HHHHHHHN")
		s.hasEvery(store.UrgencyNormal, store.NormalEvery)
		s.hasEvery(store.UrgencyLow, store.LowEvery)
		s.empty()
	}},
	{"forwards of keys with an order take their next messages by urgency", func(e *env) {
		f := e.forwardsTo()
		e.limit(urgentContinuing)
		e.ordered("L1", "H1", "N1")
		var moved []string
		for len(moved) < 5 {
			forwarded := e.forward(f, 2)
			if moved = append(moved, forwarded.IDs...); forwarded.Count == 0 && !forwarded.More {
				break
			}
		}
		e.equal("moved", moved, []string{"l1", "l2", "L1", "H1", "N1"})
		e.empty()
	}},
}

var urgencyWaitRules = []rule{
	{"wait ends for a message of each urgency", func(e *env) {
		e.limit(urgent)
		for _, u := range urgencies {
			for _, key := range []string{"", "k"} {
				e.ack(e.wakes("now", func() { e.send(message("now", withUrgency(u), withKey(key))) }))
				e.ack(e.wakes("soon", func() {
					e.send(message("soon", withUrgency(u), withKey(key), delay(soon)))
					e.asleep(1)
					e.pass(soon)
				}))
			}
		}
		e.empty()
	}},
	{"wait ends for an urgent message that falls due before others", func(e *env) {
		e.limit(urgent)
		e.send(message("low", low, delay(time.Hour)), message("normal", withKey("k"), delay(time.Hour)))
		e.wakes("high", func() {
			e.send(message("high", high, withKey("k"), delay(soon)))
			e.asleep(1)
			e.pass(soon)
		})
	}},
	{"wait ends when a key of each urgency is free, and not for an urgent message of a full one", func(e *env) {
		limit := urgentKeys(store.KeyFlow{Concurrency: 1})
		for _, u := range urgencies {
			e.wakesBehind(limit, "b", func(f *env, a store.Claimed) { f.ack(a) }, withKey("k"), withUrgency(u))
			e.wakesBehind(limit, "high", func(f *env, a store.Claimed) {
				f.send(message("high", withKey("k"), high))
				f.asleep(1)
				f.ack(a)
			}, withKey("k"), low)
		}
		e.limit(limit)
		e.send(keyed("k", 3, low)...)
		c := e.claimOne("k00000", held)
		e.wakes("other", func() {
			e.send(message("more", withKey("k"), high))
			e.asleep(1)
			e.send(message("other", withKey("l"), low))
		})
		e.wakes("more", func() { e.ack(c) })
	}},
	{"wait ends at the time at which the rate of a key allows a start of each urgency", func(e *env) {
		for _, u := range urgencies {
			f := e.other()
			f.limit(urgentKeys(store.KeyFlow{Rate: store.Rate{N: 1, Per: time.Second}}))
			f.send(keyed("k", 2, withUrgency(u))...)
			f.takesKey("k", "k00000")
			f.wakes("k00001", func() {
				f.advance(time.Second - time.Millisecond)
				f.full()
				f.asleep(1)
				f.advance(time.Millisecond)
			})
		}
	}},
	{"wait ends when the first message of a full or held key is removed and another one may start", func(e *env) {
		for _, remove := range removals {
			e.wakesBehind(urgentContinuing, "b", func(f *env, a store.Claimed) {
				f.settle(nack(a, time.Hour), store.StateScheduled)
				f.asleep(1)
				remove(f, "a")
			}, withKey("k"), low)
		}
	}},
	{"wait ends for the next message of an ordered key, whatever its urgency", func(e *env) {
		for _, us := range [][2]store.Urgency{{"high", "low"}, {"low", "high"}, {"", "low"}, {"low", ""}} {
			f := e.other()
			f.limit(urgentContinuing)
			f.send(message("a", withKey("k"), withUrgency(us[0])))
			a := f.claimOne("a", held)
			f.send(message("b", withKey("k"), withUrgency(us[1])))
			f.full()
			f.ack(f.wakes("b", func() { f.ack(a) }))
			f.empty()
		}
	}},
	{"no wake-up is lost and nothing left behind while many consumers share urgencies and keys", func(e *env) {
		for _, limit := range []store.KeyFlow{{Concurrency: 2}, {Order: store.OrderHalt}} {
			const n = 20
			f := e.other()
			f.limit(store.Flow{Urgency: true, Concurrency: 5, Key: limit})
			for i := range n {
				for j, key := range []string{"", "a", "b"} {
					f.send(message(fmt.Sprint(key, i), withKey(key), withUrgency(urgencies[(i+j)%3])))
				}
			}
			f.consumeAll(3*n, func(c store.Claimed, s store.Store) error {
				settled, err := s.Settle(f.Context(), f.queue, []store.Settlement{ackOf(c)})
				if err == nil {
					err = settled[0].Err
				}
				return err
			})
			f.empty()
		}
	}},
}
