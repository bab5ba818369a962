package storetest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/laterq/later/store"
)

// sharesOf claims and acks n messages, up to max of them at once, and counts them by key and urgency, such as "k high".
func (e *env) sharesOf(n, max int) map[string]int {
	e.Helper()
	counts, taken := map[string]int{}, 0
	for range 100 + n {
		if taken == n {
			return counts
		}
		c := e.claimWith(min(max, n-taken), held)
		for _, m := range c.Messages {
			counts[fmt.Sprint(m.Key, " ", m.Urgency)]++
		}
		taken += len(c.Messages)
		e.ack(c.Messages...)
	}
	e.Fatalf("claims took %d of %d messages", taken, n)
	return nil
}

// sendUrgent sends n messages of each of the keys with an urgency, with ids of their own.
func (e *env) sendUrgent(n int, u store.Urgency, keys ...string) {
	e.Helper()
	for _, key := range keys {
		msgs := keyed(key, n, withUrgency(u))
		for i := range msgs {
			msgs[i].ID += " " + string(u)
		}
		e.send(msgs...)
	}
}

// urgencyShareRules are about the keys within an urgency.
var urgencyShareRules = []rule{
	{"keys share the starts of an urgency by weight, whatever starts of the others they have", func(e *env) {
		e.limit(store.Flow{Urgency: true, Key: store.KeyFlow{Weight: 2}})
		one, seven := 1, 7
		e.override("one", store.KeyOverride{Weight: &one})
		e.override("seven", store.KeyOverride{Weight: &seven})
		e.sendUrgent(300, store.UrgencyHigh, "one", "two", "seven")
		e.sendUrgent(100, store.UrgencyNormal, "one", "two", "seven", "alone")
		e.sendUrgent(50, store.UrgencyLow, "seven", "one")
		e.sort()
		counts := e.sharesOf(320, 5) // 40 normal ones and 5 low ones
		for key, want := range map[string]int{"one high": 28, "two high": 55, "seven high": 192, "one ": 3, "two ": 7,
			"alone ": 7, "seven ": 23, "seven low": 4, "one low": 1} {
			e.hasShare(counts, key, want)
		}
		e.override("one", store.KeyOverride{Weight: &seven})
		counts = e.sharesOf(64, 1)
		e.hasShare(counts, "one high", 24)
		e.hasShare(counts, "seven high", 24)
		e.hasShare(counts, "two high", 7)
	}},
	{"messages without a key take turns as one key in each urgency", func(e *env) {
		for _, u := range urgencies {
			f := e.other()
			f.limit(urgent)
			f.sendUrgent(60, u, "", "a", "b")
			f.sort()
			counts := f.sharesOf(90, 7)
			for _, key := range []string{"", "a", "b"} {
				f.hasShare(counts, fmt.Sprint(key, " ", u), 30)
			}
		}
	}},
	{"a key has no credit for the time in which it had no messages of an urgency", func(e *env) {
		e.limit(urgent)
		e.sendUrgent(200, store.UrgencyHigh, "a")
		e.sendUrgent(1, store.UrgencyHigh, "b")
		e.sendUrgent(100, store.UrgencyLow, "b")
		e.sort()
		e.sharesOf(100, 10)
		e.sendUrgent(60, store.UrgencyHigh, "c")
		e.send(keyed("b", 60, high)...)
		e.sort()
		counts := e.sharesOf(90, 3)
		for _, key := range []string{"a high", "b high", "c high"} {
			e.hasShare(counts, key, 30)
		}
	}},
	{"a new key of an urgency starts after at most one message of each key that waits with it", func(e *env) {
		e.limit(urgent)
		e.sendUrgent(100, store.UrgencyHigh, "b", "c", "d")
		e.sendUrgent(100, store.UrgencyNormal, "new", "b")
		e.sort()
		e.sharesOf(100, 1)
		e.send(message("new one", withKey("new"), high))
		before := map[string]int{}
		for {
			m := e.claimWith(1, held).Messages[0]
			if e.ack(m); m.ID == "new one" {
				break
			}
			if before[m.Key+string(m.Urgency)]++; before[m.Key+string(m.Urgency)] > 1 {
				e.Fatalf("before a message of a key that is new in its urgency start %v", before)
			}
		}
	}},
}

// urgencyHistoryRules are about random histories.
var urgencyHistoryRules = []rule{
	{"messages start by their urgency in random histories", func(e *env) {
		for seed := range uint64(6) {
			rnd := rand.New(rand.NewPCG(seed, 32))
			s := e.other().starting()
			s.randomHistory(rnd, [][]string{{""}, {"k"}, {"", "k", "l"}}[seed%3], 60)
		}
	}},
	{"keys with an order start by the urgencies of their next messages in random histories", func(e *env) {
		for seed := range uint64(6) {
			rnd := rand.New(rand.NewPCG(seed, 33))
			s := e.other().starting()
			s.limit(urgentKeys(store.KeyFlow{Order: store.OrderContinue}))
			s.randomHistory(rnd, [][]string{{"", "k", "l"}, {"a", "b", "c", "d", "e", "f", "g", "h"}, {"k"}}[seed%3], 0)
		}
	}},
}

// randomHistory sends, cancels and claims messages with keys, and then claims all. Some expire after up to so many
// milliseconds.
func (s *starting) randomHistory(rnd *rand.Rand, keys []string, expiry int) {
	s.Helper()
	for i := range 40 {
		s.randomSends(rnd, i, keys, expiry)
		if rnd.IntN(3) == 0 {
			s.cancelsOne(rnd)
		}
		if rnd.IntN(4) == 0 {
			s.advance(time.Duration(1+rnd.IntN(40)) * time.Millisecond)
		}
		for range rnd.IntN(6) {
			s.takesSome(1 + rnd.IntN(1+rnd.IntN(30)))
		}
	}
	s.drains(1+rnd.IntN(20), 1+rnd.IntN(20))
	s.purge(store.Selection{State: store.StateDead})
	s.empty()
}

// randomSends sends random messages, high ones more often than low ones.
func (s *starting) randomSends(rnd *rand.Rand, i int, keys []string, expiry int) {
	s.Helper()
	for j := range rnd.IntN(20) {
		u := urgencies[min(rnd.IntN(3), rnd.IntN(3))]
		m := message(fmt.Sprint(i, "-", j), withUrgency(u), withKey(keys[rnd.IntN(len(keys))]))
		if expiry > 0 && rnd.IntN(5) == 0 {
			m.ExpireAfter = time.Duration(1+rnd.IntN(expiry)) * time.Millisecond
		}
		s.sends(m)
	}
}

// cancelsOne cancels a message that waits.
func (s *starting) cancelsOne(rnd *rand.Rand) {
	s.Helper()
	if len(s.live) == 0 {
		return
	}
	waiting := s.list(store.ListRequest{State: store.StateReady, Limit: 50})
	id := waiting[rnd.IntN(len(waiting))].ID
	s.cancel(id, store.StateReady)
	delete(s.live, id)
}
