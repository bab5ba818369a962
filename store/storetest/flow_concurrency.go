package storetest

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/laterq/later/store"
)

var concurrencyLimitRules = []rule{
	{"at most as many messages are leased at once as the concurrency says", func(e *env) {
		e.limit(concurrency(3))
		e.send(many(10)...)
		c := e.takes(3)
		e.counted(3)
		other, err := e.Peer.Claim(e.Context(), e.queue, store.ClaimRequest{Max: 5, Lease: held})
		e.ok(err)
		e.equal("claimed by the peer", len(other.Messages), 0)
		e.count(0, 7, 3, 0)
		e.ack(c[1])
		e.counted(2)
		e.equal("claimed", ids(e.takes(1)), []string{"m00003"})
		e.ack(c[0], c[2])
		e.takes(2)
		e.counted(3)
	}},
	{"concurrent claims never exceed the concurrency", func(e *env) {
		const n, most = 300, 3
		e.limit(concurrency(most))
		e.send(many(n)...)
		var inFlight, done atomic.Int64
		e.concurrently(func(_ int, s store.Store) error {
			for done.Load() < n {
				c, err := s.Claim(e.Context(), e.queue, store.ClaimRequest{Max: 2, Lease: held})
				if err != nil {
					return err
				}
				if now := inFlight.Add(int64(len(c.Messages))); now > most {
					return fmt.Errorf("%d messages are leased at once", now)
				}
				for _, m := range c.Messages {
					inFlight.Add(-1)
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
		e.count(0, 0, 0, 0)
	}},
	{"a message that is settled in any way frees its slot", func(e *env) {
		e.limit(concurrency(1))
		for name, s := range endings {
			e.send(message(name), message("next", delay(time.Millisecond)))
			s.Receipt = e.claimOne(name, held).Receipt
			e.advance(time.Millisecond)
			e.full()
			e.ok(e.trySettle(s)[0].Err)
			e.counted(0)
			if s.Action == store.Release {
				e.ack(e.claimOne(name, held))
			}
			e.ack(e.claimOne("next", held))
			e.tryCancel(name)
		}
		e.counted(0)
	}},
	{"the end of a lease frees the slots of its messages", func(e *env) {
		e.limit(concurrency(2))
		e.send(message("a", maxAttempts(1)), message("b"), message("c"))
		c := e.claimWith(5, short)
		e.equal("claimed", ids(c.Messages), []string{"a", "b"})
		e.advance(short - time.Millisecond)
		e.full()
		e.advance(time.Millisecond)
		again := e.claimWith(5, short)
		e.equal("died", again.Died, []string{"a"})
		e.equal("claimed", len(again.Messages), 2)
		e.counted(2)
		for _, m := range c.Messages {
			e.refused(m.Receipt)
		}
		e.counted(2)
	}},
	{"a lease that is extended keeps its slots", func(e *env) {
		e.limit(concurrency(1))
		e.send(message("a"), message("b"))
		a := e.claimOne("a", short)
		for range 3 {
			e.advance(short - time.Millisecond)
			e.ok(e.tryExtend(a.Receipt.Lease, short).Err)
			e.full()
		}
		e.advance(short)
		e.equal("claimed", len(e.takes(1)), 1)
		e.counted(1)
	}},
	{"a concurrency is raised and lowered while messages are leased", func(e *env) {
		e.limit(concurrency(4))
		e.send(many(20)...)
		c := e.takes(4)
		e.limit(concurrency(2))
		e.counted(4)
		e.full()
		e.ack(c[0], c[1])
		e.full()
		e.ack(c[2])
		c = append(c, e.takes(1)...)
		e.limit(concurrency(5))
		e.counted(2)
		e.takes(3)
		e.limit(rate(1, time.Hour, 100))
		e.equal("claimed without a concurrency", len(e.claim(10)), 10)
		e.counted(15)
		e.limit(store.Flow{Concurrency: 15, Rate: store.Rate{N: 1, Per: time.Hour, Burst: 100}})
		e.full()
		e.ack(c[3], c[4])
		e.takes(2)
	}},
	{"messages leased before the queue had its flow do not count", func(e *env) {
		e.send(many(10)...)
		plain := e.claim(2)
		e.limit(concurrency(1))
		e.counted(0)
		c := e.takes(1)
		e.counted(1)
		e.ack(plain[0])
		e.cancel(plain[1].ID, store.StateLeased)
		e.refused(plain[1].Receipt)
		e.is(e.tryExtend(plain[1].Receipt.Lease, held).Err, store.ErrLeaseLost)
		e.counted(1)
		e.full()
		e.limit(store.Flow{})
		e.limit(concurrency(1))
		e.counted(0) // the queue was plain meanwhile
		e.takes(1)
		e.ack(c...)
		e.counted(1)
		e.full()
	}},
	{"uncounted leases count against the concurrency", func(e *env) {
		e.limit(concurrency(2))
		e.send(many(5)...)
		c, err := e.Store.Claim(e.Context(), e.queue, store.ClaimRequest{Max: 3, Lease: short, Uncounted: true})
		e.ok(err)
		e.equal("claimed", len(c.Messages), 2)
		e.full()
		e.advance(short)
		e.equal("attempt", e.takes(2)[0].Attempt, 1)
		e.counted(2)
	}},
	{"a message and its successor have one slot", func(e *env) {
		e.limit(concurrency(1))
		e.send(message("m"))
		c := e.claimOne("m", held)
		e.equal("results", e.trySend(message("m", following)), wasFollowing)
		e.counted(1)
		e.full()
		e.ack(c)
		e.counted(0)
		c = e.claimOne("m", held)
		e.trySend(message("m", following))
		e.cancel("m", store.StateLeased)
		e.counted(1)
		e.is(e.tryExtend(c.Receipt.Lease, held).Err, store.ErrLeaseLost)
		e.counted(0)
	}},
	{"nothing starts on a paused queue, and its slots become free", func(e *env) {
		e.limit(concurrency(1))
		e.send(message("a"), message("b"))
		a := e.claimOne("a", held)
		e.ok(e.Store.SetPaused(e.Context(), e.queue, true))
		e.full()
		e.ack(a)
		e.full()
		e.counted(0)
		e.ok(e.Store.SetPaused(e.Context(), e.queue, false))
		e.claimOne("b", held)
	}},
	{"replayed messages obey the concurrency", func(e *env) {
		e.sendDead("a")
		e.sendDead("b")
		e.limit(concurrency(1))
		e.equal("replayed", e.replay(allDead, store.Due{}), 2)
		e.takes(1)
	}},
	{"other work of a claim goes on while the concurrency is reached", func(e *env) {
		e.limit(concurrency(1))
		e.sendDead("old")
		e.advance(time.Millisecond)
		e.sendDead("new")
		e.send(message("m"))
		e.claimOne("m", held)
		e.send(message("expires", expireAfter(time.Second)))
		e.advance(time.Second)
		e.retain(store.Retention{MaxCount: 1})
		c := e.claimWith(5, held)
		e.equal("dropped", c.Dropped, []string{"old"})
		e.equal("died", c.Died, []string{"expires"})
		e.equal("expired", c.Expired, []string{"expires"})
		e.equal("claimed", len(c.Messages), 0)
		e.live("expires", store.StateDead)
		e.counted(1)
	}},
	{"forwards hold no message, and go on while the concurrency is reached", func(e *env) {
		f := e.forwardsTo()
		e.limit(concurrency(1))
		e.send(many(5)...)
		e.claimOne("m00000", held)
		e.full()
		forwarded := e.forward(f, 3)
		e.equal("moved", forwarded.Count, 3)
		e.equal("more", forwarded.More, true)
		e.counted(1)
		e.full()
		f.count(0, 3, 0, 0)
		e.limit(store.Flow{})
		f.limit(concurrency(2))
		e.equal("moved to a queue that is limited", e.forward(f, 3).Count, 1)
		f.takes(2)
	}},
}

// learningRules are about messages that were taken away from their holders.
var learningRules = []rule{
	{"a cancelled message counts until its holder has learned of it from Extend", func(e *env) {
		e.limit(concurrency(1))
		e.send(message("a"), message("b"))
		a := e.claimOne("a", held)
		e.cancel("a", store.StateLeased)
		e.counted(1)
		e.full()
		e.send(message("a")) // another message
		e.full()
		r := e.tryExtend(a.Receipt.Lease, 0)
		e.is(r.Err, store.ErrLeaseLost)
		e.equal("lost", len(r.Lost), 1)
		e.counted(0)
		e.takes(1)
		e.refused(a.Receipt)
		e.counted(1)
		e.full()
	}},
	{"a cancelled message counts until its holder has learned of it from a refused Settle", func(e *env) {
		e.limit(concurrency(2))
		e.send(many(4)...)
		c := e.takes(2)
		e.cancel(c[0].ID, store.StateLeased)
		e.full()
		e.refused(c[0].Receipt)
		e.counted(1)
		e.takes(1)
		e.ok(e.tryExtend(c[0].Receipt.Lease, held).Err)
		e.refused(c[0].Receipt)
		e.counted(2)
		e.full()
		e.cancel(c[1].ID, store.StateLeased)
		e.refused(c[1].Receipt)
		e.counted(1)
		e.is(e.tryExtend(c[1].Receipt.Lease, held).Err, store.ErrLeaseLost)
		e.counted(1)
		e.takes(1)
	}},
	{"a cancelled message counts until its lease has ended", func(e *env) {
		e.limit(concurrency(2))
		e.send(many(4)...)
		c := e.claimWith(5, short).Messages
		e.equal("claimed", len(c), 2)
		e.cancel(c[0].ID, store.StateLeased)
		e.ack(c[1])
		e.counted(1)
		e.takes(1)
		e.advance(short)
		e.takes(1)
		e.counted(2)
	}},
	{"messages that are cancelled one by one are freed one by one", func(e *env) {
		e.limit(concurrency(5))
		e.send(many(10)...)
		c := e.takes(5)
		for i := range 4 {
			e.cancel(c[i].ID, store.StateLeased)
		}
		e.full()
		e.refused(c[3].Receipt)
		e.counted(4)
		e.ok(e.tryExtend(c[0].Receipt.Lease, held).Err)
		e.counted(1)
		e.ok(e.tryExtend(c[0].Receipt.Lease, held).Err)
		e.counted(1)
		e.ack(c[4])
		e.counted(0)
		e.is(e.tryExtend(c[0].Receipt.Lease, held).Err, store.ErrLeaseLost)
		e.takes(5)
	}},
	{"purged messages count until their holder has learned of it or their lease has ended", func(e *env) {
		e.limit(concurrency(3))
		e.send(many(3)...)
		extended, settled, ended := e.claim(1), e.claim(1), e.claimWith(1, short)
		e.purge(store.Selection{})
		e.count(0, 0, 0, 0)
		e.send(many(5)...)
		e.counted(3)
		e.full()
		e.is(e.tryExtend(extended[0].Receipt.Lease, held).Err, store.ErrLeaseLost)
		e.counted(2)
		e.takes(1)
		e.refused(settled[0].Receipt)
		e.counted(2)
		e.takes(1)
		e.advance(short)
		e.takes(1)
		for _, m := range []store.Claimed{extended[0], settled[0], ended.Messages[0]} {
			e.refused(m.Receipt)
			e.is(e.tryExtend(m.Receipt.Lease, held).Err, store.ErrLeaseLost)
		}
		e.counted(3)
	}},
	{"purged messages of a plain queue do not count", func(e *env) {
		e.send(many(3)...)
		c := e.claim(3)
		e.purge(store.Selection{})
		e.limit(concurrency(1))
		e.send(many(3)...)
		e.takes(1)
		e.is(e.tryExtend(c[0].Receipt.Lease, held).Err, store.ErrLeaseLost)
		e.counted(1)
	}},
	{"no message counts after its queue was deleted", func(e *env) {
		e.limit(concurrency(1))
		e.send(message("m"))
		c := e.claimOne("m", held)
		e.ok(e.Peer.Delete(e.Context(), e.queue))
		e.counted(0)
		e.limit(concurrency(1))
		e.send(message("m"), message("n"))
		e.takes(1)
		e.refused(c.Receipt)
		e.is(e.tryExtend(c.Receipt.Lease, held).Err, store.ErrLeaseLost)
		e.counted(1)
		e.full()
	}},
}
