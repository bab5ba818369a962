package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/laterq/later/store"
)

// fair is a flow with turns and without limits.
var fair = store.Flow{Fair: true}

// takeOne claims one message, and returns its key.
func (e *env) takeOne() string {
	e.Helper()
	for range 100 {
		if c := e.claimWith(1, held); len(c.Messages) == 1 {
			e.ack(c.Messages...)
			return c.Messages[0].Key
		}
	}
	e.Fatal("claims take nothing")
	return ""
}

// shares claims and acks n messages, up to max of them at once, and counts them by key.
func (e *env) shares(n, max int) map[string]int {
	e.Helper()
	counts, taken := map[string]int{}, 0
	for range 100 + n {
		if taken == n {
			return counts
		}
		c := e.claimWith(min(max, n-taken), held)
		var acks []store.Settlement
		for _, m := range c.Messages {
			counts[m.Key]++
			acks = append(acks, ackOf(m))
		}
		taken += len(acks)
		if len(acks) > 0 {
			e.trySettle(acks...)
		}
	}
	e.Fatalf("claims took %d of %d messages", taken, n)
	return nil
}

// hasShare checks that a key got its share to within 5 %, or one start.
func (e *env) hasShare(counts map[string]int, key string, want int) {
	e.Helper()
	if off := counts[key] - want; off*off > max(1, want*want/400) {
		e.Fatalf("key %q got %d starts, want %d: %v", key, counts[key], want, counts)
	}
}

var fairRules = []rule{
	{"messages of a key are claimed in order of due time, then id", func(e *env) {
		e.limit(fair)
		now := e.now()
		due := at(now.Add(-time.Second))
		for _, key := range []string{"k", ""} {
			for _, id := range []string{"c", "b", "a", "B"} {
				e.send(message(key+id, due, withKey(key)))
			}
			e.send(message(key+"z", at(now.Add(-time.Minute)), withKey(key)), message(key+"new", withKey(key)))
		}
		want := map[string][]string{"k": {"kz", "kB", "ka", "kb", "kc", "knew"}, "": {"z", "B", "a", "b", "c", "new"}}
		all := map[string][]string{}
		for range 6 {
			for key, ids := range perKey(e.claim(2)) {
				all[key] = append(all[key], ids...)
			}
		}
		e.equal("claimed", all, want)
	}},
	{"keys that wait share starts evenly, and messages without a key are one of them", func(e *env) {
		for _, atOnce := range []int{1, 7, 60} {
			f := e.other()
			f.limit(fair)
			f.sendKeys(100, "a", "b", "c")
			f.send(many(100)...)
			f.sort()
			counts := f.shares(240, atOnce)
			for _, key := range []string{"a", "b", "c", ""} {
				f.hasShare(counts, key, 60)
			}
		}
	}},
	{"keys share starts by weight", func(e *env) {
		e.limit(store.Flow{Key: store.KeyFlow{Weight: 2}})
		one, seven := 1, 7
		e.override("one", store.KeyOverride{Weight: &one})
		e.override("seven", store.KeyOverride{Weight: &seven})
		e.sendKeys(300, "one", "two", "seven")
		e.send(many(300)...)
		e.sort()
		counts := e.shares(220, 5)
		e.hasShare(counts, "one", 20)
		e.hasShare(counts, "two", 40)
		e.hasShare(counts, "seven", 140)
		e.hasShare(counts, "", 20) // a weight of 1
		e.override("one", store.KeyOverride{Weight: &seven})
		counts = e.shares(180, 1)
		e.hasShare(counts, "one", 74)
		e.hasShare(counts, "seven", 74)
		e.limit(store.Flow{Key: store.KeyFlow{Weight: 14}})
		counts = e.shares(145, 9)
		e.hasShare(counts, "two", 70)
		e.hasShare(counts, "one", 35)
		e.hasShare(counts, "", 5)
	}},
	{"a key has no credit for the time in which it was idle", func(e *env) {
		e.limit(fair)
		e.sendKeys(300, "a")
		e.sendKeys(1, "b")
		e.sort()
		e.shares(151, 10)
		e.sendKeys(100, "b")
		e.sort()
		counts := e.shares(100, 3)
		e.hasShare(counts, "a", 50)
		e.hasShare(counts, "b", 50)
	}},
	{"a key that sends one message at a time gets no more than its share", func(e *env) {
		e.limit(fair)
		e.sendKeys(100, "a", "b")
		e.sort()
		counts := map[string]int{}
		for range 90 {
			if e.get("c") == nil {
				e.send(message("c", withKey("c")))
			}
			counts[e.takeOne()]++
		}
		e.hasShare(counts, "c", 30)
	}},
	{"a new key starts after at most one message of each key that waits", func(e *env) {
		e.limit(fair)
		e.sendKeys(100, "b", "c", "d")
		e.sort()
		e.shares(100, 1)
		for i, key := range []string{"a", "z", "bb"} {
			e.shares(10+i, 1)
			e.send(message("new", withKey(key)))
			before := map[string]int{}
			for next := e.takeOne(); next != key; next = e.takeOne() {
				if before[next]++; before[next] > 1 {
					e.Fatalf("before a message of the new key %q start %v", key, before)
				}
			}
		}
	}},
	{"a stream of new keys starves no other", func(e *env) {
		e.limit(fair)
		e.sendKeys(100, "old")
		e.sort()
		counts, last := map[string]int{}, "new"
		for i := range 100 { // a new key waits all the time
			if last != "old" {
				e.send(message("one", withKey(fmt.Sprintf("new%03d", i))))
			}
			last = e.takeOne()
			counts[last]++
		}
		e.hasShare(counts, "old", 50)
		clear(counts)
		for i := range 100 { // new keys come as fast as messages start, so ever more of them wait
			e.send(message(fmt.Sprint("one of many ", i), withKey(fmt.Sprintf("more%03d", i))))
			counts[e.takeOne()]++
		}
		if n := counts["old"]; n < 10 { // about 1, 2, 3 … 13 starts of new keys come between
			e.Fatalf("the old key gets %d of 100 starts", n)
		}
	}},
	{"a key that was full or had to rest does not catch up", func(e *env) {
		e.limit(keyConcurrency(1))
		e.override("a", store.KeyOverride{Concurrency: new(int)})
		e.sendKeys(200, "a", "b")
		c := e.claim(2)
		e.shares(60, 10) // of a, while b is full
		e.ack(c...)
		e.override("b", store.KeyOverride{Concurrency: new(int)})
		counts := e.shares(100, 4)
		e.hasShare(counts, "a", 50)
		e.hasShare(counts, "b", 50)
	}},
	{"messages that die at the head of a key use up no turn", func(e *env) {
		e.limit(fair)
		e.send(keyed("a", 50, expireAfter(time.Second))...)
		e.sort()
		e.advance(time.Second)
		e.send(many(50, withKey("a"))...)
		e.sendKeys(100, "b")
		e.sort()
		counts := e.shares(80, 5)
		e.hasShare(counts, "a", 40)
		e.hasShare(counts, "b", 40)
		e.count(0, 70, 0, 50)
	}},
	{"a message that expires while its key waits dies when it is next", func(e *env) {
		e.limit(keyConcurrency(1))
		e.send(message("a", withKey("k")), message("b", withKey("k"), expireAfter(time.Second)),
			message("c", withKey("k"), delay(time.Millisecond)))
		a := e.claimOne("a", held)
		e.advance(2 * time.Second)
		e.full()
		e.ack(a)
		c := e.claimWith(5, held)
		e.equal("died", fmt.Sprint(c.Died, c.Expired), "[b] [b]")
		e.equal("claimed", ids(c.Messages), []string{"c"})
		e.live("b", store.StateDead)
		e.keyCounted("k", 1)
	}},
	{"an unreadable message dies and holds nothing up", func(e *env) {
		e.limit(keyConcurrency(1))
		e.restore(store.Info{Message: store.Message{ID: "raw"}, State: store.StateReady, Due: e.now().Add(-time.Hour),
			Raw: []byte{0xff, 1}})
		e.sendKeys(2, "k")
		e.send(message("m"))
		c := e.claimWith(5, held)
		e.equal("died", fmt.Sprint(c.Died, c.Expired), "[raw] []")
		e.equal("claimed", perKey(c.Messages), map[string][]string{"": {"m"}, "k": {"k00000"}})
		e.full()
	}},
	{"a bounded number of messages dies in a claim", func(e *env) {
		e.limit(fair)
		e.send(keyed("a", 700, expireAfter(time.Second))...)
		e.send(keyed("b", 700, expireAfter(time.Second))...)
		e.sort()
		e.advance(time.Second)
		e.sendKeys(1, "c")
		died, claimed := 0, 0
		for more := true; more; {
			c := e.claimWith(5, held)
			if len(c.Died) > store.MaxBatch {
				e.Fatalf("%d messages died in one claim", len(c.Died))
			}
			died, claimed, more = died+len(c.Died), claimed+len(c.Messages), c.More
		}
		e.equal("died and claimed", [2]int{died, claimed}, [2]int{1400, 1})
	}},
	{"a claim that only sorts takes nothing, however many messages are ready", func(e *env) {
		const n = 700
		e.limit(fair)
		e.sendKeys(n, "a", "b")
		e.send(keyed("later", 3, delay(time.Hour))...)
		e.sort()
		e.count(3, 2*n, 0, 0)
		e.equal("waiting", [3]int64{e.key("a").Waiting, e.key("b").Waiting, e.key("later").Waiting}, [3]int64{n, n, 0})
		e.equal("counts", e.flow().Keys, store.KeyCounts{Waiting: 2})
	}},
	{"claims sort and take everything, while some messages are unsorted", func(e *env) {
		const n = 60
		e.limit(fair)
		var want []string
		for i := range 20 {
			key := fmt.Sprint("key ", i)
			e.sendKeys(n, key)
			want = append(want, keyedIDs(key, 0, n)...)
		}
		got := e.claimAll()
		slices.Sort(got)
		slices.Sort(want)
		e.equal("claimed", got, want)
		e.equal("keys", e.flow().Keys, store.KeyCounts{})
		e.equal("keys", len(e.states(store.KeysRequest{Limit: 100})), 0)
	}},
	{"a full key with many messages does not keep those of another from being sorted", func(e *env) {
		e.limit(keyConcurrency(1))
		e.send(keyed("a", 1200, at(e.now().Add(-time.Hour)))...)
		e.sendKeys(1, "b")
		e.takesOf(map[string][]string{"a": {"a00000"}, "b": {"b00000"}})
	}},
	{"messages are sorted while the limits of the queue hold all back", func(e *env) {
		e.limit(store.Flow{Concurrency: 1, Fair: true})
		e.sendKeys(1, "a")
		c := e.claimOne("a00000", held)
		e.sendKeys(700, "b")
		e.sort()
		e.equal("waiting", e.key("b").Waiting, int64(700))
		e.full()
		e.ack(c)
		e.takesKey("b", "b00000")
	}},
}

// turnsRule is about random histories: while two keys wait, their starts, each divided by the weight, never differ by
// more than one of each.
var turnsRule = rule{"while two keys wait, neither gets ahead of its share by more than a message", func(e *env) {
	for seed := range uint64(5) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		f := e.other()
		f.limit(fair)
		weights := map[string]int{"a": 1 + rnd.IntN(3), "b": 1 + rnd.IntN(3), "c": 1 + rnd.IntN(9)}
		for key, weight := range weights {
			f.override(key, store.KeyOverride{Weight: &weight})
		}
		s := shared{weights: weights, waiting: map[string]int{}, passes: map[string]float64{}, since: map[string]span{}}
		for i := range 60 {
			for key := range weights {
				if n := rnd.IntN(4) * rnd.IntN(4); n > 0 && s.waiting[key] < 20 {
					msgs := keyed(key, n)
					for j := range msgs {
						msgs[j].ID = fmt.Sprint(key, i, "-", j)
					}
					f.send(msgs...)
					s.waiting[key] += n
				}
			}
			f.sort()
			for range rnd.IntN(6) {
				c := f.claimWith(1+rnd.IntN(3), held)
				for key, ids := range perKey(c.Messages) {
					s.waiting[key] -= len(ids)
					s.passes[key] += float64(len(ids)) / float64(weights[key])
				}
				f.ack(c.Messages...)
				if text := s.check(); text != "" {
					e.Fatal(text)
				}
			}
		}
	}
}}

// shared are the starts of keys, and how many messages of each wait.
type shared struct {
	weights, waiting map[string]int
	passes           map[string]float64 // starts by weight
	since            map[string]span    // by two keys that wait: the differences of their passes since they both do
}

type span struct{ least, most float64 }

func (s *shared) check() string {
	for a := range s.weights {
		for b := range s.weights {
			ahead := s.passes[a] - s.passes[b]
			both, ok := s.since[a+b]
			switch {
			case a >= b:
				continue
			case s.waiting[a] == 0 || s.waiting[b] == 0:
				delete(s.since, a+b)
				continue
			case !ok:
				both = span{ahead, ahead}
			}
			both = span{min(both.least, ahead), max(both.most, ahead)}
			s.since[a+b] = both
			if one := 1/float64(s.weights[a]) + 1/float64(s.weights[b]); both.most-both.least > one+1e-9 {
				return fmt.Sprintf("keys %s and %s wait, of weights %v, and one is %v ahead: must be up to %v", a, b,
					s.weights, both.most-both.least, one)
			}
		}
	}
	return ""
}
