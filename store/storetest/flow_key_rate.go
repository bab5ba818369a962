package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/laterq/later/store"
)

func keyRate(n int, per time.Duration, burst int) store.Flow {
	return store.Flow{Key: store.KeyFlow{Rate: store.Rate{N: n, Per: per, Burst: burst}}}
}

// keyIn checks when the rate of a key allows its next start.
func (e *env) keyIn(name string, micros int64) {
	e.Helper()
	s := e.key(name)
	e.equal("µs until the next start of "+name, s.Next.Sub(s.Now).Microseconds(), micros)
}

// keyHistory claims at random times from a queue with messages of some keys, and checks each claim against all earlier
// ones: no key starts more than its rate allows, and as many start as the rates allow.
func (e *env) keyHistory(rnd *rand.Rand, rates map[string]store.Rate, steps int) {
	e.Helper()
	all := map[string]starts{}
	for range steps {
		for _, r := range rates {
			if d := randomStep(rnd, r); d > 0 {
				e.advance(d)
			}
			break // any one
		}
		k, now, want := 1+rnd.IntN(6), e.flow().Now.UnixMicro(), 0
		for key, r := range rates {
			want += all[key].room(r, now, k-want)
		}
		c := e.claimWith(k, held)
		if len(c.Messages) != want {
			e.Fatalf("rates %v, after %v: a claim of %d at %d µs returned %d messages, want %d", rates, all, k,
				c.Now.UnixMicro(), len(c.Messages), want)
		}
		for key, ids := range perKey(c.Messages) {
			all[key] = append(all[key], start{c.Now.UnixMicro(), len(ids)})
			if text := all[key].exceed(rates[key]); text != "" {
				e.Fatalf("key %q: %s", key, text)
			}
		}
		for key, r := range rates {
			s := e.key(key)
			e.equal("next start is now", !s.Resting(), all[key].room(r, c.Now.UnixMicro(), 1) == 1)
		}
		e.settleSome(rnd, c.Messages)
	}
}

var keyRateRules = []rule{
	{"a burst of each key starts at once, and then a message at each interval", func(e *env) {
		e.limit(keyRate(10, time.Second, 2))
		e.sendKeys(6, "a", "b")
		e.send(many(1)...)
		e.keyIn("a", 0)
		e.takesOf(map[string][]string{"a": keyedIDs("a", 0, 2), "b": keyedIDs("b", 0, 2), "": {"m00000"}})
		for i := range 2 {
			e.keyIn("a", 100_000)
			e.advance(99 * time.Millisecond)
			e.full()
			e.keyIn("b", 1000)
			e.equal("counts", e.flow().Keys, store.KeyCounts{Waiting: 2, Resting: 2})
			e.advance(time.Millisecond)
			e.keyIn("a", 0)
			e.takesOf(map[string][]string{"a": keyedIDs("a", 2+i, 3+i), "b": keyedIDs("b", 2+i, 3+i)})
		}
		e.advance(10 * time.Second) // no more than the burst gathers
		e.takesOf(map[string][]string{"a": keyedIDs("a", 4, 6), "b": keyedIDs("b", 4, 6)})
	}},
	{"intervals of a key are exact to fractions of a microsecond", func(e *env) {
		e.limit(keyRate(7, time.Second, 7)) // 142857 1/7 µs
		e.sendKeys(20, "k")
		e.takesKey("k", keyedIDs("k", 0, 7)...)
		e.keyIn("k", 142_858)
		e.advance(142 * time.Millisecond)
		e.keyIn("k", 858)
		e.full()
		e.advance(time.Millisecond)
		e.takesKey("k", "k00007")
		e.keyIn("k", 285_715-143_000)
		e.advance(857 * time.Millisecond)
		e.takesKey("k", keyedIDs("k", 8, 14)...) // in a second exactly 7
		e.keyIn("k", 142_858)
	}},
	{"in no span of time more messages of a key start than its rate allows, and as many as it does", func(e *env) {
		for seed := range uint64(10) {
			rnd := rand.New(rand.NewPCG(seed, 2))
			f := e.other()
			r, own := randomRate(rnd), randomRate(rnd)
			f.limit(store.Flow{Key: store.KeyFlow{Rate: r}})
			f.override("own", store.KeyOverride{Rate: &own})
			f.sendKeys(100, "a", "b", "own")
			f.keyHistory(rnd, map[string]store.Rate{"a": r, "b": r, "own": own}, 20)
		}
	}},
	{"concurrent claims never exceed the rate of a key", func(e *env) {
		r := store.Rate{N: 20, Per: time.Second, Burst: 3}
		e.limit(store.Flow{Key: store.KeyFlow{Rate: r}})
		e.sendKeys(40, "a", "b")
		all := map[string]starts{}
		for range 4 {
			var mu sync.Mutex
			e.concurrently(func(_ int, s store.Store) error {
				for range 3 {
					c, err := s.Claim(e.Context(), e.queue, store.ClaimRequest{Max: 2, Lease: held})
					if err != nil {
						return err
					}
					mu.Lock()
					for key, ids := range perKey(c.Messages) {
						all[key] = append(all[key], start{c.Now.UnixMicro(), len(ids)})
					}
					mu.Unlock()
				}
				return nil
			})
			for key, s := range all {
				slices.SortFunc(s, func(a, b start) int { return int(a.at - b.at) })
				if text := s.exceed(r); text != "" {
					e.Fatalf("key %q: %s", key, text)
				}
			}
			if e.Advance != nil {
				e.pass(time.Second)
			}
		}
	}},
	{"no start of a key is given back", func(e *env) {
		e.limit(keyRate(1, time.Second, 2))
		e.send(message("m", withKey("k"), maxAttempts(5)))
		for _, s := range []store.Settlement{{Action: store.Release}, {Action: store.Nack, Reason: "no"}} {
			s.Receipt = e.claimOne("m", held).Receipt
			e.settle(s, store.StateReady)
		}
		e.full()
		e.advance(time.Second)
		e.claimOne("m", short)
		e.cancel("m", store.StateLeased)
		e.send(message("n", withKey("k")))
		e.full()
		e.keyIn("k", 1_000_000)
	}},
	{"a rate of keys is changed while their next start is far ahead", func(e *env) {
		e.sendKeys(50, "k")
		e.limit(keyRate(1, time.Hour, 1))
		e.takesKey("k", "k00000")
		e.keyIn("k", time.Hour.Microseconds())
		e.limit(keyRate(10, time.Second, 1))
		e.full()
		e.keyIn("k", 100_000)
		e.limit(keyRate(1, time.Hour, 1)) // as early as before
		e.full()
		e.keyIn("k", 100_000)
		e.advance(100 * time.Millisecond)
		e.takesKey("k", "k00001")
		e.limit(keyRate(1, time.Hour, 3)) // two more may start
		e.takesKey("k", "k00002", "k00003")
		e.keyIn("k", time.Hour.Microseconds())
		e.limit(store.Flow{Fair: true})
		e.equal("next", e.key("k").Next.IsZero(), true)
		e.equal("claimed without a rate", len(e.claim(5)), 5)
		e.limit(keyRate(1, time.Hour, 4))
		e.takesKey("k", keyedIDs("k", 9, 13)...) // a new rate
	}},
	{"a new rate of keys begins with its full burst", func(e *env) {
		e.sendKeys(50, "k")
		e.limit(keyRate(1, time.Hour, 2))
		e.takesKey("k", "k00000", "k00001")
		e.limit(fair)
		e.limit(keyRate(1, time.Hour, 3))
		e.takesKey("k", keyedIDs("k", 2, 5)...)
		rate := store.Rate{N: 1, Per: time.Minute, Burst: 2}
		e.override("k", store.KeyOverride{Rate: &store.Rate{}})
		e.override("k", store.KeyOverride{Rate: &rate})
		e.takesKey("k", "k00005", "k00006")
		e.limit(fair)
		e.full() // the rate of the override is as it was
		e.keyIn("k", time.Minute.Microseconds())
	}},
	{"an override changes the rate of its key", func(e *env) {
		e.sendKeys(50, "k", "l")
		e.limit(keyRate(1, time.Hour, 1))
		e.takesOf(map[string][]string{"k": {"k00000"}, "l": {"l00000"}})
		fast, slow := store.Rate{N: 10, Per: time.Second}, store.Rate{N: 1, Per: time.Hour, Burst: 3}
		e.override("k", store.KeyOverride{Rate: &fast})
		e.keyIn("k", 100_000)
		e.keyIn("l", time.Hour.Microseconds())
		e.advance(100 * time.Millisecond)
		e.takesKey("k", "k00001")
		e.override("k", store.KeyOverride{Rate: &slow})
		e.takesKey("k", "k00002", "k00003")
		e.override("k", store.KeyOverride{Rate: &store.Rate{}})
		e.equal("claimed without a rate", perKey(e.claim(4)), map[string][]string{"k": keyedIDs("k", 4, 8)})
		e.override("k", store.KeyOverride{})
		e.takesKey("k", "k00008") // a new rate
		e.keyIn("k", time.Hour.Microseconds())
	}},
	{"the rate of the queue and that of keys hold at once", func(e *env) {
		f := keyRate(1, time.Second, 2)
		f.Rate = store.Rate{N: 1, Per: time.Second, Burst: 3}
		e.limit(f)
		e.sendKeys(10, "a", "b")
		e.takes(3)
		e.in(1_000_000)
		e.advance(time.Second)
		e.takes(1)
		e.advance(time.Hour)
		e.takes(3)
	}},
	{"messages that die unclaimed or do not fit into a claim have not started for their key", func(e *env) {
		e.limit(keyRate(1, time.Hour, 10))
		e.send(message("expires", withKey("k"), expireAfter(time.Second)))
		e.sort()
		e.advance(time.Second)
		c := e.claimWith(1, held)
		e.equal("died", fmt.Sprint(c.Died, c.Expired), "[expires] [expires]")
		for i := range 10 {
			m := message(fmt.Sprintf("m%d", i), withKey("k"))
			m.Payload = make([]byte, store.MaxPayload)
			e.send(m)
		}
		n := 0
		for more := true; more; {
			c := e.claimWith(10, held)
			n += len(c.Messages)
			more = c.More
		}
		e.equal("claimed", n, 10)
		e.keyIn("k", time.Hour.Microseconds())
	}},
	{"forwards obey the rate of keys", func(e *env) {
		f := e.forwardsTo()
		e.limit(keyRate(10, time.Second, 2))
		e.sendKeys(5, "a", "b")
		forwarded := e.forward(f, 10)
		e.equal("moved", forwarded.Count, 4)
		e.equal("more", forwarded.More, false)
		e.full()
		e.advance(100 * time.Millisecond)
		e.equal("claimed", len(e.claim(1)), 1)
		e.equal("moved", e.forward(f, 10).Count, 1)
		f.count(0, 5, 0, 0)
	}},
	{"a rate of keys begins again when its queue was deleted or not fair in between", func(e *env) {
		for _, end := range []func(){
			func() { e.ok(e.Peer.Delete(e.Context(), e.queue)) },
			func() { e.purge(store.Selection{}); e.limit(store.Flow{}) },
			func() { e.purge(store.Selection{}); e.limit(concurrency(500)) },
		} {
			e.limit(keyRate(1, time.Hour, 1))
			e.sendKeys(3, "k")
			e.takesKey("k", "k00000")
			end()
		}
	}},
}
