package storetest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laterq/later/store"
)

// sendKeys sends n messages of each key.
func (e *env) sendKeys(n int, keys ...string) {
	e.Helper()
	for _, key := range keys {
		e.send(keyed(key, n)...)
	}
}

var keyConcurrencyRules = []rule{
	{"at most as many messages of each key are leased at once as the concurrency of keys says", func(e *env) {
		e.limit(keyConcurrency(2))
		e.sendKeys(5, "a", "b")
		e.send(many(4)...)
		c := e.takesOf(map[string][]string{"a": keyedIDs("a", 0, 2), "b": keyedIDs("b", 0, 2), "": keyedIDs("m", 0, 4)})
		e.counted(8)
		e.keyCounted("a", 2)
		other, err := e.Peer.Claim(e.Context(), e.queue, store.ClaimRequest{Max: 5, Lease: held})
		e.ok(err)
		e.equal("claimed by the peer", len(other.Messages), 0)
		for _, m := range c {
			if m.ID == "a00001" {
				e.ack(m)
			}
		}
		e.keyCounted("a", 1)
		e.equal("counts", e.flow().Keys.Waiting, int64(2))
		e.takesKey("a", "a00002")
		e.keyCounted("a", 2)
		e.count(0, 5, 8, 0)
	}},
	{"limits of keys do not touch messages without a key", func(e *env) {
		e.limit(store.Flow{Key: store.KeyFlow{Concurrency: 1, Rate: store.Rate{N: 1, Per: time.Hour}}})
		e.send(many(20)...)
		e.sendKeys(2, "k")
		e.takesOf(map[string][]string{"": keyedIDs("m", 0, 20), "k": {"k00000"}})
	}},
	{"concurrent claims never exceed the concurrency of keys", func(e *env) {
		const n, most = 100, 2
		e.limit(store.Flow{Concurrency: 5, Key: store.KeyFlow{Concurrency: most}})
		e.sendKeys(n, "a", "b", "c")
		var mu sync.Mutex
		inFlight := map[string]int{}
		var done atomic.Int64
		e.concurrently(func(_ int, s store.Store) error {
			for done.Load() < 3*n {
				c, err := s.Claim(e.Context(), e.queue, store.ClaimRequest{Max: 3, Lease: held})
				if err != nil {
					return err
				}
				for _, m := range c.Messages {
					mu.Lock()
					inFlight[m.Key]++
					exceeded := inFlight[m.Key] > most
					mu.Unlock()
					if exceeded {
						return fmt.Errorf("%d messages of %q are leased at once", most+1, m.Key)
					}
				}
				for _, m := range c.Messages {
					mu.Lock()
					inFlight[m.Key]--
					mu.Unlock()
					acked, err := s.Settle(e.Context(), e.queue, []store.Settlement{ackOf(m)})
					if err != nil || acked[0].Err != nil {
						return fmt.Errorf("ack: %+v, %w", acked, err)
					}
					done.Add(1)
				}
			}
			return nil
		})
		e.counted(0)
		e.keyCounted("a", 0)
		e.count(0, 0, 0, 0)
	}},
	{"a message that is settled in any way frees the slot of its key", func(e *env) {
		e.limit(keyConcurrency(1))
		for name, s := range endings {
			e.send(message(name, withKey("k")), message("next", withKey("k"), delay(time.Millisecond)))
			s.Receipt = e.claimOne(name, held).Receipt
			e.advance(time.Millisecond)
			e.full()
			e.ok(e.trySettle(s)[0].Err)
			e.keyCounted("k", 0)
			if s.Action == store.Release {
				e.ack(e.claimOne(name, held))
			}
			e.ack(e.claimOne("next", held))
			e.tryCancel(name)
		}
		e.counted(0)
	}},
	{"the end of a lease frees the slots of its keys", func(e *env) {
		e.limit(keyConcurrency(1))
		e.send(message("a", withKey("a"), maxAttempts(1)), message("b", withKey("b")), message("c", withKey("a")),
			message("d", withKey("b")))
		c := e.claimWith(5, short)
		e.equal("claimed", perKey(c.Messages), map[string][]string{"a": {"a"}, "b": {"b"}})
		e.advance(short - time.Millisecond)
		e.full()
		e.advance(time.Millisecond)
		again := e.claimWith(5, short)
		e.equal("died", again.Died, []string{"a"})
		e.equal("claimed", perKey(again.Messages), map[string][]string{"a": {"c"}, "b": {"d"}})
		for _, m := range c.Messages {
			e.refused(m.Receipt)
			e.keyCounted(m.Key, 1)
		}
		e.full()
	}},
	{"a lease that is extended keeps the slots of its keys", func(e *env) {
		e.limit(keyConcurrency(1))
		e.sendKeys(2, "k")
		c := e.claimOne("k00000", short)
		for range 3 {
			e.advance(short - time.Millisecond)
			e.ok(e.tryExtend(c.Receipt.Lease, short).Err)
			e.full()
		}
		e.advance(short)
		e.takesKey("k", "k00001")
	}},
	{"a concurrency of keys is raised and lowered while messages are leased", func(e *env) {
		e.limit(keyConcurrency(4))
		e.sendKeys(20, "k")
		c := e.takesKey("k", keyedIDs("k", 0, 4)...)
		e.limit(keyConcurrency(2))
		e.full()
		e.keyCounted("k", 4)
		e.ack(c[0], c[1])
		e.full()
		e.ack(c[2])
		c = append(c, e.takesKey("k", "k00004")...)
		e.limit(keyConcurrency(5))
		e.keyCounted("k", 2)
		e.takesKey("k", keyedIDs("k", 5, 8)...)
		e.limit(store.Flow{Fair: true})
		e.equal("claimed without a concurrency", len(e.claim(4)), 4)
		e.keyCounted("k", 9)
		e.limit(keyConcurrency(9))
		e.full()
		e.ack(c[3], c[4])
		e.takesKey("k", "k00012", "k00013")
	}},
	{"an override is obeyed, and only by its key", func(e *env) {
		e.limit(keyConcurrency(2))
		e.sendKeys(20, "a", "b")
		c := e.takesOf(map[string][]string{"a": keyedIDs("a", 0, 2), "b": keyedIDs("b", 0, 2)})
		none, one, four := 0, 1, 4
		e.override("a", store.KeyOverride{Concurrency: &four})
		c = append(c, e.takesKey("a", "a00002", "a00003")...)
		e.override("a", store.KeyOverride{Concurrency: &one})
		e.full()
		for _, m := range c {
			if m.Key == "a" && m.ID != "a00003" {
				e.ack(m)
				e.full()
			}
		}
		e.override("a", store.KeyOverride{})
		e.takesKey("a", "a00004")
		e.override("a", store.KeyOverride{Concurrency: &none})
		e.equal("claimed without a concurrency", perKey(e.claim(3)), map[string][]string{"a": keyedIDs("a", 5, 8)})
		e.limit(keyConcurrency(3))
		e.equal("claimed", perKey(e.claim(store.MaxBatch)),
			map[string][]string{"a": keyedIDs("a", 8, 20), "b": {"b00002"}})
	}},
	{"a waiting key obeys an override that it had before it waited", func(e *env) {
		e.limit(keyConcurrency(1))
		three := 3
		e.override("a", store.KeyOverride{Concurrency: &three})
		e.sendKeys(5, "a", "b")
		e.takesOf(map[string][]string{"a": keyedIDs("a", 0, 3), "b": {"b00000"}})
	}},
	{"messages leased before the queue was fair do not count for their keys", func(e *env) {
		e.limit(concurrency(10))
		e.sendKeys(9, "k")
		before := e.claim(2)
		e.limit(store.Flow{Concurrency: 10, Key: store.KeyFlow{Concurrency: 1}})
		e.counted(2)
		e.keyCounted("k", 0)
		e.takesKey("k", "k00002")
		e.ack(before[0])
		e.cancel(before[1].ID, store.StateLeased)
		e.refused(before[1].Receipt)
		e.counted(1)
		e.keyCounted("k", 1)
		e.full()
		e.limit(concurrency(10))
		e.limit(store.Flow{Concurrency: 10, Key: store.KeyFlow{Concurrency: 1}}) // it was not fair in between
		e.counted(1)
		e.keyCounted("k", 0)
		e.takesKey("k", "k00003")
		e.limit(store.Flow{})
		plain := e.claim(1)
		e.limit(keyConcurrency(1))
		c := e.takesKey("k", "k00005")
		e.ack(plain...)
		e.full()
		e.ack(c...)
		e.takesKey("k", "k00006")
	}},
	{"uncounted leases count against the concurrency of keys", func(e *env) {
		e.limit(keyConcurrency(1))
		e.sendKeys(3, "k")
		c, err := e.Store.Claim(e.Context(), e.queue, store.ClaimRequest{Max: 3, Lease: short, Uncounted: true})
		e.ok(err)
		e.equal("claimed", ids(c.Messages), []string{"k00000"})
		e.full()
		e.advance(short)
		e.equal("attempt", e.takesKey("k", "k00000")[0].Attempt, 1)
	}},
	{"a successor with another key inherits no slot, and the key of the claim counts", func(e *env) {
		e.limit(keyConcurrency(1))
		e.send(message("m", withKey("old")), message("n", withKey("old"), delay(time.Millisecond)))
		c := e.claimOne("m", held)
		e.advance(time.Millisecond)
		e.trySend(message("m", withKey("new"), following))
		e.keyCounted("old", 1)
		e.keyCounted("new", 0)
		e.full()
		e.send(message("o", withKey("new")))
		o := e.claimOne("o", held)
		e.ack(c)
		e.keyCounted("old", 0)
		e.takesKey("old", "n") // m waits for the key of o
		e.ack(o)
		m := e.takesKey("new", "m")[0]
		e.trySend(message("m", withKey("third"), following))
		e.cancel("m", store.StateLeased)
		e.keyCounted("new", 1)
		e.is(e.tryExtend(m.Receipt.Lease, held).Err, store.ErrLeaseLost)
		e.keyCounted("new", 0)
		e.keyCounted("third", 0)
	}},
	{"the concurrency of the queue and that of keys hold at once", func(e *env) {
		e.limit(store.Flow{Concurrency: 3, Key: store.KeyFlow{Concurrency: 2}})
		e.sendKeys(5, "a", "b")
		c := e.takes(3)
		e.ack(c...)
		e.takes(3)
		e.limit(keyConcurrency(2))
		e.takes(1)
	}},
	{"nothing starts on a paused queue, and slots of keys become free", func(e *env) {
		e.limit(keyConcurrency(1))
		e.sendKeys(2, "k")
		c := e.claimOne("k00000", held)
		e.sendKeys(2, "l")
		e.ok(e.Store.SetPaused(e.Context(), e.queue, true))
		e.full()
		e.ack(c)
		e.full()
		e.keyCounted("k", 0)
		e.equal("keys that wait", e.key("l").Waiting, int64(0)) // nothing is sorted
		e.ok(e.Store.SetPaused(e.Context(), e.queue, false))
		e.takesOf(map[string][]string{"k": {"k00001"}, "l": {"l00000"}})
	}},
	{"forwards take no slot of a key, and leave out keys that are full", func(e *env) {
		f := e.forwardsTo()
		e.limit(keyConcurrency(1))
		e.sendKeys(3, "a")
		c := e.claimOne("a00000", held)
		e.sendKeys(3, "b")
		forwarded := e.forward(f, 10)
		e.equal("moved", forwarded.IDs, keyedIDs("b", 0, 3))
		e.equal("more", forwarded.More, false)
		e.keyCounted("b", 0)
		e.counted(1)
		e.ack(c)
		forwarded = e.forward(f, 1)
		e.equal("moved", forwarded.IDs, []string{"a00001"})
		e.equal("more", forwarded.More, true)
		e.equal("moved", e.forward(f, 10).IDs, []string{"a00002"})
		e.keyCounted("a", 0)
		e.count(0, 0, 0, 0)
		f.limit(keyConcurrency(1))
		f.takesOf(map[string][]string{"a": {"a00001"}, "b": {"b00000"}})
	}},
}

// keyLearningRules are about messages that were taken away from their holders.
var keyLearningRules = []rule{
	{"a cancelled message counts for its key until its holder has learned of it", func(e *env) {
		extend := func(c store.Claimed) { e.is(e.tryExtend(c.Receipt.Lease, held).Err, store.ErrLeaseLost) }
		settle := func(c store.Claimed) { e.refused(c.Receipt) }
		e.limit(keyConcurrency(1))
		for _, learn := range []func(store.Claimed){extend, settle} {
			e.send(message("a", withKey("k")), message("b", withKey("k"), delay(time.Millisecond)))
			a := e.claimOne("a", held)
			e.advance(time.Millisecond)
			e.cancel("a", store.StateLeased)
			e.keyCounted("k", 1)
			e.full()
			learn(a)
			e.keyCounted("k", 0)
			e.ack(e.takesKey("k", "b")...)
			e.refused(a.Receipt)
			e.keyCounted("k", 0)
			e.counted(0)
		}
	}},
	{"a cancelled message counts for its key until its lease has ended", func(e *env) {
		e.limit(keyConcurrency(1))
		e.sendKeys(2, "a", "b")
		c := e.claimWith(5, short).Messages
		e.equal("claimed", len(c), 2)
		for _, m := range c {
			if m.Key == "a" {
				e.cancel(m.ID, store.StateLeased)
			} else {
				e.ack(m)
			}
		}
		e.takesKey("b", "b00001")
		e.advance(short)
		e.takesKey("a", "a00001")
		e.keyCounted("a", 1)
	}},
	{"messages of a key that are cancelled one by one are freed one by one", func(e *env) {
		e.limit(keyConcurrency(3))
		e.sendKeys(6, "k")
		c := e.takesKey("k", keyedIDs("k", 0, 3)...)
		e.cancel(c[0].ID, store.StateLeased)
		e.cancel(c[1].ID, store.StateLeased)
		e.full()
		e.refused(c[1].Receipt)
		e.keyCounted("k", 2)
		e.ok(e.tryExtend(c[0].Receipt.Lease, held).Err)
		e.keyCounted("k", 1)
		e.ok(e.tryExtend(c[0].Receipt.Lease, held).Err)
		e.takesKey("k", "k00003", "k00004")
		e.keyCounted("k", 3)
	}},
	{"purged messages count for their keys until their holder has learned of it or their lease ends", func(e *env) {
		e.limit(keyConcurrency(3))
		e.sendKeys(3, "k")
		extended, settled, ended := e.claim(1), e.claim(1), e.claimWith(1, short)
		e.purge(store.Selection{})
		e.sendKeys(5, "k")
		e.keyCounted("k", 3)
		e.full()
		e.is(e.tryExtend(extended[0].Receipt.Lease, held).Err, store.ErrLeaseLost)
		e.takesKey("k", "k00000")
		e.refused(settled[0].Receipt)
		e.takesKey("k", "k00001")
		e.advance(short)
		e.takesKey("k", "k00002")
		for _, m := range []store.Claimed{extended[0], settled[0], ended.Messages[0]} {
			e.refused(m.Receipt)
		}
		e.keyCounted("k", 3)
	}},
	{"no message counts for its key after its queue was deleted", func(e *env) {
		e.limit(keyConcurrency(1))
		e.sendKeys(1, "k")
		c := e.claimOne("k00000", held)
		e.ok(e.Peer.Delete(e.Context(), e.queue))
		e.limit(keyConcurrency(1))
		e.keyCounted("k", 0)
		e.sendKeys(2, "k")
		e.takesKey("k", "k00000")
		e.refused(c.Receipt)
		e.is(e.tryExtend(c.Receipt.Lease, held).Err, store.ErrLeaseLost)
		e.keyCounted("k", 1)
		e.full()
	}},
}
