package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/laterq/later/store"
)

// starts are the messages that started under a rate.
type starts []start

// start is n messages that started at a time of the engine's clock.
type start struct {
	at int64 // in microseconds
	n  int
}

func startOf(c store.Claim) start { return start{c.Now.UnixMicro(), len(c.Messages)} }

// exceed describes a span of time in which more messages started than the rate allows, or returns "".
func (s starts) exceed(r store.Rate) string {
	for i := range s {
		n := int64(0)
		for _, last := range s[i:] {
			n += int64(last.n)
			if t := last.at - s[i].at; (n-int64(max(1, r.Burst)))*r.Per.Microseconds() > int64(r.N)*t {
				return fmt.Sprintf("%d messages started in %d µs, and the rate is %v", n, t, r)
			}
		}
	}
	return ""
}

// room returns how many of k messages may start at a time.
func (s starts) room(r store.Rate, at int64, k int) int {
	n := 0
	for n < k && slices.Concat(s, starts{{at, n + 1}}).exceed(r) == "" {
		n++
	}
	return n
}

// randomRate draws a rate of some milliseconds a message, often not a whole number of microseconds.
func randomRate(rnd *rand.Rand) store.Rate {
	r := store.Rate{N: 1 + rnd.IntN(9), Burst: []int{0, 1, 2, 3, 7}[rnd.IntN(5)]}
	r.Per = time.Duration(r.N*1000+rnd.IntN(200_000)) * time.Microsecond
	return r
}

// randomStep draws how long a history waits next, in milliseconds: often not at all, or around an interval.
func randomStep(rnd *rand.Rand, r store.Rate) time.Duration {
	interval := int(store.Millis(r.Per / time.Duration(r.N)))
	ms := []int{0, 0, 1, interval, max(0, interval-1), rnd.IntN(3*interval + 1)}[rnd.IntN(6)]
	return time.Duration(ms) * time.Millisecond
}

// settleSome acks, nacks, releases or keeps each message, at random.
func (e *env) settleSome(rnd *rand.Rand, claimed []store.Claimed) {
	e.Helper()
	var s []store.Settlement
	for _, c := range claimed {
		switch rnd.IntN(4) {
		case 0:
			s = append(s, ackOf(c))
		case 1:
			s = append(s, nack(c, 0))
		case 2:
			s = append(s, store.Settlement{Receipt: c.Receipt, Action: store.Release})
		}
	}
	for _, r := range e.trySettle(s...) {
		e.ok(r.Err)
	}
}

// history claims at random times, and checks each claim against all earlier ones.
func (e *env) history(rnd *rand.Rand, r store.Rate, steps int) {
	e.Helper()
	var all starts
	for range steps {
		if d := randomStep(rnd, r); d > 0 {
			e.advance(d)
		}
		k := 1 + rnd.IntN(5)
		want := all.room(r, e.flow().Now.UnixMicro(), k)
		c := e.claimWith(k, held)
		if len(c.Messages) != want {
			e.Fatalf("rate %v, after %v: a claim of %d at %d µs returned %d messages, want %d", r, all, k,
				c.Now.UnixMicro(), len(c.Messages), want)
		}
		if len(c.Messages) > 0 {
			all = append(all, startOf(c))
		}
		e.equal("next start is now", e.flow().Next.Equal(c.Now), all.room(r, c.Now.UnixMicro(), 1) == 1)
		e.settleSome(rnd, c.Messages)
	}
}

// in checks when the rate allows the next start.
func (e *env) in(micros int64) {
	e.Helper()
	f := e.flow()
	e.equal("µs until the next start", f.Next.Sub(f.Now).Microseconds(), micros)
}

var rateRules = []rule{
	{"a burst starts at once, and then a message at each interval", func(e *env) {
		e.limit(rate(10, time.Second, 3))
		e.send(many(10)...)
		e.in(0)
		e.takes(3)
		for range 2 {
			e.in(100_000)
			e.advance(99 * time.Millisecond)
			e.in(1000)
			e.full()
			e.advance(time.Millisecond)
			e.in(0)
			e.takes(1)
		}
		e.advance(200 * time.Millisecond)
		e.takes(2)
		e.advance(time.Hour)
		e.takes(3) // no more than the burst gathers
	}},
	{"intervals are exact to fractions of a microsecond", func(e *env) {
		e.limit(rate(7, time.Second, 7)) // 142857 1/7 µs
		e.send(many(20)...)
		for range 6 {
			e.claim(1)
			e.in(0)
		}
		e.claim(1)
		e.in(142_858)
		e.advance(142 * time.Millisecond)
		e.in(858)
		e.full()
		e.advance(time.Millisecond)
		e.takes(1)
		e.in(285_715 - 143_000)
		e.advance(857 * time.Millisecond)
		e.in(0)
		e.takes(6) // in a second exactly 7
		e.in(142_858)
	}},
	{"the slowest and the fastest rates are exact", func(e *env) {
		e.send(many(2000)...)
		e.limit(rate(1, store.MaxPeriod, 0))
		e.takes(1)
		e.in(store.MaxPeriod.Microseconds())
		e.limit(store.Flow{})
		e.limit(rate(store.MaxRate, store.MaxPeriod, store.MaxRate))
		e.equal("claimed", len(e.claim(500)), 500)
		e.in(0)
		e.limit(store.Flow{})
		e.limit(rate(store.MaxRate, time.Second, 400))
		e.takes(400)
		e.in(1)
		e.advance(time.Millisecond)
		e.takes(400)
	}},
	{"in no span of time more messages start than the rate allows, and as many as it does", func(e *env) {
		for seed := range uint64(12) {
			rnd := rand.New(rand.NewPCG(seed, 0))
			f := e.other()
			f.send(many(60)...)
			r := randomRate(rnd)
			f.limit(store.Flow{Rate: r})
			f.history(rnd, r, 25)
		}
	}},
	{"a rate that is changed holds from its change", func(e *env) {
		for seed := range uint64(6) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			f := e.other()
			f.send(many(200)...)
			for range 6 {
				r := randomRate(rnd)
				f.limit(store.Flow{Rate: r})
				state := f.flow()
				interval := r.Per.Microseconds()/int64(r.N) + 1
				if wait := state.Next.Sub(state.Now).Microseconds(); wait > interval {
					e.Fatalf("the next message waits %d µs, and the rate is changed to %v", wait, r)
				}
				var all starts
				for range 8 {
					if d := randomStep(rnd, r); d > 0 {
						f.advance(d)
					}
					c := f.claimWith(1+rnd.IntN(5), held)
					if all = append(all, startOf(c)); all.exceed(r) != "" {
						e.Fatal(all.exceed(r))
					}
					f.settleSome(rnd, c.Messages)
				}
			}
		}
	}},
	{"concurrent claims never exceed the rate", func(e *env) {
		const n = 60
		r := store.Rate{N: 20, Per: time.Second, Burst: 5}
		e.limit(store.Flow{Rate: r})
		e.send(many(n)...)
		for range 4 {
			var mu sync.Mutex
			var all starts
			e.concurrently(func(_ int, s store.Store) error {
				for range 3 {
					c, err := s.Claim(e.Context(), e.queue, store.ClaimRequest{Max: 2, Lease: held})
					if err != nil {
						return err
					}
					mu.Lock()
					all = append(all, startOf(c))
					mu.Unlock()
				}
				return nil
			})
			slices.SortFunc(all, func(a, b start) int { return int(a.at - b.at) })
			if all.exceed(r) != "" {
				e.Fatal(all.exceed(r))
			}
			if e.Advance != nil {
				e.pass(time.Second)
			}
		}
	}},
	{"no start is given back", func(e *env) {
		e.limit(rate(1, time.Second, 2))
		e.send(message("m", maxAttempts(5)))
		for _, s := range []store.Settlement{{Action: store.Release}, {Action: store.Nack, Reason: "no"}} {
			s.Receipt = e.claimOne("m", held).Receipt
			e.settle(s, store.StateReady)
		}
		e.full()
		e.advance(time.Second)
		s := store.Settlement{Action: store.Snooze, Receipt: e.claimOne("m", held).Receipt}
		e.settle(s, store.StateReady)
		e.full()
		e.advance(time.Second)
		e.claimOne("m", short)
		e.cancel("m", store.StateLeased)
		e.send(message("n"))
		e.full()
	}},
	{"a rate is changed while its next start is far ahead", func(e *env) {
		e.send(many(50)...)
		e.limit(rate(1, time.Hour, 1))
		e.takes(1)
		e.in(time.Hour.Microseconds())
		e.limit(rate(10, time.Second, 1))
		e.in(100_000)
		e.limit(rate(1, 200*time.Millisecond, 1)) // the last start is used up under a lower rate, too
		e.in(200_000)
		e.limit(rate(1, time.Hour, 1))
		e.in(time.Hour.Microseconds())
		e.limit(rate(10, time.Second, 1))
		e.advance(100 * time.Millisecond)
		e.takes(1)
		e.limit(rate(1, time.Hour, 1))
		e.in(time.Hour.Microseconds())
		e.limit(rate(1, time.Hour, 3)) // two more may start
		e.takes(2)
		e.in(time.Hour.Microseconds())
		e.limit(store.Flow{Concurrency: 100, Rate: store.Rate{N: 1, Per: time.Hour, Burst: 3}})
		e.in(time.Hour.Microseconds())
		e.limit(concurrency(100))
		e.equal("next", e.flow().Next.IsZero(), true)
		e.equal("claimed without a rate", len(e.claim(5)), 5)
		e.limit(rate(1, time.Hour, 4))
		e.takes(4) // a new rate
	}},
	{"a rate that is set again is as it was", func(e *env) {
		e.send(many(50)...)
		e.limit(rate(7, time.Second, 3))
		e.takes(3)
		e.advance(100 * time.Millisecond)
		for range 3 {
			e.in(42_858)
			e.limit(rate(7, time.Second, 3))
		}
		e.advance(43 * time.Millisecond)
		e.takes(1)
		e.in(285_715 - 143_000)
	}},
	{"a concurrency and a rate hold at once", func(e *env) {
		e.limit(store.Flow{Concurrency: 2, Rate: store.Rate{N: 1, Per: time.Second, Burst: 3}})
		e.send(many(10)...)
		c := e.takes(2)
		e.in(0)
		e.ack(c...)
		c = e.takes(1)
		e.advance(time.Second)
		e.takes(1)
		e.advance(time.Second)
		e.full()
		e.ack(c...)
		e.takes(1)
	}},
	{"messages that die unclaimed or do not fit into a claim have not started", func(e *env) {
		e.limit(rate(1, time.Hour, 10))
		e.send(message("expires", expireAfter(time.Second)))
		e.advance(time.Second)
		e.equal("died", e.claimWith(1, held).Died, []string{"expires"})
		for i := range 10 {
			m := message(fmt.Sprintf("m%d", i))
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
		e.in(time.Hour.Microseconds())
	}},
	{"nothing starts on a paused queue, and nothing is counted", func(e *env) {
		e.limit(rate(1, time.Hour, 1))
		e.send(many(3)...)
		e.ok(e.Store.SetPaused(e.Context(), e.queue, true))
		e.full()
		e.in(0)
		e.ok(e.Store.SetPaused(e.Context(), e.queue, false))
		e.takes(1)
	}},
	{"a rate begins again when its queue was deleted", func(e *env) {
		e.limit(rate(1, time.Hour, 1))
		e.send(many(3)...)
		e.takes(1)
		e.ok(e.Peer.Delete(e.Context(), e.queue))
		e.limit(rate(1, time.Hour, 1))
		e.send(many(3)...)
		e.takes(1)
	}},
	{"forwards obey the rate", func(e *env) {
		f := e.forwardsTo()
		e.limit(rate(10, time.Second, 3))
		e.send(many(10)...)
		forwarded := e.forward(f, 5)
		e.equal("moved", forwarded.Count, 3)
		e.equal("more", forwarded.More, false)
		e.full()
		e.equal("moved", e.forward(f, 5).Count, 0)
		e.advance(200 * time.Millisecond)
		e.equal("claimed", len(e.claim(1)), 1)
		e.equal("moved", e.forward(f, 5).Count, 1)
		e.in(100_000)
		f.count(0, 4, 0, 0)
		e.count(0, 5, 1, 0)
	}},
}
