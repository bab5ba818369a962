package storetest

import (
	"slices"
	"strings"
	"time"

	"github.com/laterq/later/store"
)

// urgentKeys returns a flow with urgencies and limits of keys.
func urgentKeys(f store.KeyFlow) store.Flow { return store.Flow{Urgency: true, Key: f} }

// threeOf sends a high, a normal and a low message of a key. The less urgent ones fall due first. Their ids begin with
// the key.
func (e *env) threeOf(key string) {
	e.Helper()
	now := e.now()
	e.send(message(key+"H", withKey(key), high, at(now.Add(-time.Second))), message(key+"N", withKey(key),
		at(now.Add(-time.Minute))), message(key+"L", withKey(key), low, at(now.Add(-time.Hour))))
}

// urgencyLimitRules are about limits of the queue and of keys, which hold for all urgencies together.
var urgencyLimitRules = []rule{
	{"of a key with one slot no message starts while one is leased, and then the most urgent one", func(e *env) {
		e.limit(urgentKeys(store.KeyFlow{Concurrency: 1}))
		e.threeOf("k")
		e.threeOf("l")
		c := e.takesOf(map[string][]string{"k": {"kH"}, "l": {"lH"}})
		e.keyCounts(2, 2, 0)
		e.send(message("k2", withKey("k"), high))
		e.full()
		e.equal("waiting", e.key("k").Waiting, int64(3))
		e.ack(c...)
		c = e.takesOf(map[string][]string{"k": {"k2"}, "l": {"lN"}})
		e.ack(c...)
		c = e.takesOf(map[string][]string{"k": {"kN"}, "l": {"lL"}})
		e.ack(c...)
		e.ack(e.takesKey("k", "kL")...)
		e.empty()
	}},
	{"the concurrency of a key counts its messages of all urgencies", func(e *env) {
		e.limit(urgentKeys(store.KeyFlow{Concurrency: 2}))
		e.threeOf("k")
		c := e.takesKey("k", "kH", "kN")
		e.keyCounted("k", 2)
		e.settle(nack(c[1], 0), store.StateReady)
		n := e.takesKey("k", "kN")
		three := 3
		e.override("k", store.KeyOverride{Concurrency: &three})
		e.ack(e.takesKey("k", "kL")...)
		e.ack(c[0], n[0])
		e.empty()
	}},
	{"messages without a key have no limits of keys in any urgency", func(e *env) {
		e.limit(urgentKeys(store.KeyFlow{Concurrency: 1, Rate: store.Rate{N: 1, Per: time.Hour}}))
		e.threeOf("")
		e.equal("claimed", ids(e.claim(5)), []string{"H", "N", "L"})
	}},
	{"the rate of a key counts its messages of all urgencies", func(e *env) {
		e.limit(urgentKeys(store.KeyFlow{Rate: store.Rate{N: 1, Per: time.Second, Burst: 2}}))
		e.threeOf("k")
		e.send(message("k2", withKey("k"), low), message("other"))
		e.ack(e.takesOf(map[string][]string{"k": {"kH", "kN"}, "": {"other"}})...)
		e.equal("counts", e.flow().Keys, store.KeyCounts{Waiting: 1, Resting: 1})
		e.advance(time.Second - time.Millisecond)
		e.full()
		e.advance(time.Millisecond)
		e.ack(e.takesKey("k", "kL")...)
		e.send(message("k3", withKey("k"), high))
		e.full()
		e.advance(time.Second)
		e.ack(e.takesKey("k", "k3")...)
		e.advance(time.Second)
		e.ack(e.takesKey("k", "k2")...)
		e.advance(time.Minute)
		e.empty()
	}},
	{"the concurrency of the queue counts messages of all urgencies, the most urgent ones first", func(e *env) {
		e.limit(store.Flow{Urgency: true, Concurrency: 2})
		e.threeOf("")
		e.threeOf("k")
		c := e.takes(2)
		e.equal("urgencies", [2]store.Urgency{c[0].Urgency, c[1].Urgency}, [2]store.Urgency{"high", "high"})
		e.counted(2)
		e.ack(c[0])
		n := e.takes(1)
		e.equal("urgency", n[0].Urgency, store.UrgencyNormal)
		e.send(message("h", high))
		e.ack(c[1])
		e.ack(n[0])
		c = e.takes(2)
		e.equal("urgencies", [2]store.Urgency{c[0].Urgency, c[1].Urgency}, [2]store.Urgency{"high", ""})
		e.ack(c...)
		c = e.takes(2)
		e.equal("urgencies", [2]store.Urgency{c[0].Urgency, c[1].Urgency}, [2]store.Urgency{"low", "low"})
		e.ack(c...)
		e.empty()
	}},
	{"the rate of the queue counts messages of all urgencies", func(e *env) {
		e.limit(store.Flow{Urgency: true, Rate: store.Rate{N: 1, Per: time.Second}})
		e.threeOf("k")
		for _, id := range []string{"kH", "kN", "kL"} {
			e.ack(e.takesKey("k", id)...)
			e.advance(time.Second)
		}
		e.empty()
	}},
	{"an urgency is not passed over while the limits of its keys let none of its messages start", func(e *env) {
		for _, limit := range []store.KeyFlow{{Concurrency: 1}, {Rate: store.Rate{N: 1, Per: time.Second}}} {
			s := e.other().starting()
			s.limit(urgentKeys(limit))
			s.send(message("first", withKey("k")))
			c := s.claimOne("first", held)
			s.send(message("normal", withKey("k")))
			s.sendsOf(40, store.UrgencyHigh, "high", "")
			s.takesSome(20)
			s.ack(c)
			if limit.Concurrency == 0 {
				s.advance(time.Second)
			}
			s.live["normal"] = waitingOne{urgency: store.UrgencyNormal}
			s.takesSome(7)
			s.takesSome(1)
			s.equal("urgencies", s.order, strings.Repeat("H", 27)+"N")
			s.takesAll(10)
		}
	}},
	{"an urgency with one key, which is full, leaves its starts to the others", func(e *env) {
		e.limit(urgentKeys(store.KeyFlow{Concurrency: 1}))
		e.send(keyed("k", 3, high)...)
		c := e.claimOne("k00000", held)
		e.send(message("n"), message("l", low, withKey("l")))
		e.equal("claimed", ids(e.claim(5)), []string{"n", "l"})
		e.ack(c)
		e.claimOne("k00001", held)
		e.full()
	}},
	{"a key goes on when one of its messages is removed while it is full or rests", func(e *env) {
		for _, limit := range []store.KeyFlow{{Concurrency: 1}, {Rate: store.Rate{N: 1, Per: time.Second}},
			{Order: store.OrderContinue}} {
			for name, remove := range removals {
				for i, removed := range []string{"kH", "kN", "kL"} {
					e.Log(limit, name, removed)
					f := e.other()
					f.limit(urgentKeys(limit))
					f.send(message("held", withKey("k"), at(f.now().Add(-2*time.Hour))))
					c := f.claimOne("held", held)
					f.threeOf("k")
					f.sort()
					remove(f, removed)
					f.full()
					f.ack(c)
					left := slices.Delete([]string{"kH", "kN", "kL"}, i, i+1)
					if limit.Order != store.OrderNone {
						slices.Reverse(left)
					}
					for _, id := range left {
						f.advance(time.Second)
						f.ack(f.takesKey("k", id)...)
					}
					f.advance(time.Minute)
					f.full()
					f.keyCounts(0, 0, 0)
				}
			}
		}
	}},
}
