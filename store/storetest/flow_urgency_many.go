package storetest

import (
	"fmt"
	"time"

	"github.com/laterq/later/store"
)

// manyUrgencyRules are about more keys and messages than engines look at in a claim.
var manyUrgencyRules = []rule{
	{"many keys of each urgency start by their urgency", func(e *env) {
		for _, limit := range []store.KeyFlow{{}, {Concurrency: 1}, {Order: store.OrderContinue}} {
			s := e.other().starting()
			s.limit(urgentKeys(limit))
			for u, n := range map[store.Urgency]int{"high": 330, "": 270, "low": 90} {
				var keys []string
				for i := range n {
					keys = append(keys, fmt.Sprint("key ", u, i))
				}
				s.sendsOf(n, u, string(u), keys...)
			}
			s.takesAll(100, 7, 1, 30)
			s.hasEvery(store.UrgencyNormal, store.NormalEvery)
			s.hasEvery(store.UrgencyLow, store.LowEvery)
		}
	}},
	{"many full keys of one urgency do not hold up messages of another", func(e *env) {
		const n = 300
		for _, u := range urgencies {
			f := e.other()
			f.limit(urgentKeys(store.KeyFlow{Concurrency: 1}))
			var msgs []store.Outgoing
			for i := range n {
				msgs = append(msgs, keyed(fmt.Sprintf("k%03d", i), 2, withUrgency(u))...)
			}
			f.send(msgs...)
			f.claimMany(n, held)
			for _, other := range urgencies {
				f.send(message("one "+string(other), withUrgency(other)))
				f.takesKey("", "one "+string(other))
			}
			f.keyCounts(n, n, 0)
		}
	}},
	{"many expired messages of one urgency do not hold up messages of another", func(e *env) {
		for _, limit := range []store.Flow{urgent, urgentContinuing} {
			for _, u := range urgencies {
				f := e.other()
				f.limit(limit)
				f.send(keyed("k", 700, withUrgency(u), expireAfter(time.Second))...)
				f.sort()
				f.advance(time.Second)
				for _, other := range urgencies {
					f.send(message("one "+string(other), withUrgency(other)))
				}
				died, started := 0, 0
				for range 100 {
					c := f.claimWith(5, held)
					if len(c.Died) > store.MaxBatch {
						f.Fatalf("%d messages died in one claim", len(c.Died))
					}
					died, started = died+len(c.Died), started+len(c.Messages)
					if !c.More {
						break
					}
				}
				f.equal("died and started", [2]int{died, started}, [2]int{700, 3})
				f.count(0, 0, 3, 700)
			}
		}
	}},
	{"nothing starts by urgency while a claim leaves ready messages of ordered keys unsorted", func(e *env) {
		e.limit(urgentContinuing)
		now := e.now()
		e.send(keyed("l", 3*store.MaxBatch, low, at(now.Add(-time.Hour)))...)
		e.send(message("first", withKey("k"), at(now.Add(-time.Minute))), message("second", withKey("k"), high),
			message("high", high))
		for {
			c := e.claimWith(10, held)
			if c.Unsorted {
				e.equal("claimed while messages are unsorted", ids(c.Messages), []string(nil))
				continue
			}
			e.equal("claimed", ids(c.Messages), []string{"high", "first", "l00000"})
			break
		}
		e.full()
	}},
}
