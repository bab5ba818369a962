package storetest

import (
	"time"

	"github.com/laterq/later/store"
)

// wakesForKey lets the limit of a key of another queue, with a leased message, hold back a consumer. It checks that
// act, on that queue, lets the consumer receive a message.
func (e *env) wakesForKey(want string, act func(f *env, held store.Claimed)) {
	e.Helper()
	f := e.other()
	f.limit(keyConcurrency(1))
	f.send(message("a", withKey("k")), message("b", withKey("k"), delay(time.Millisecond)))
	a := f.claimOne("a", time.Hour)
	f.pass(time.Millisecond)
	f.wakes(want, func() { act(f, a) })
}

var keyWaitRules = []rule{
	{"wait ends when another process settles a message of the key in any way", func(e *env) {
		for name, s := range endings {
			want := "b"
			if name == "release" {
				want = "a"
			}
			e.wakesForKey(want, func(f *env, a store.Claimed) {
				s.Receipt = a.Receipt
				f.ok(f.trySettle(s)[0].Err)
			})
		}
	}},
	{"wait ends when the holder of a cancelled or purged message of the key learns of it", func(e *env) {
		extend := func(f *env, a store.Claimed) {
			r, err := f.Peer.Extend(f.Context(), f.queue, []store.Extension{{Lease: a.Receipt.Lease, For: held}})
			f.ok(err)
			f.is(r[0].Err, store.ErrLeaseLost)
		}
		settle := func(f *env, a store.Claimed) { f.is(f.trySettle(ackOf(a))[0].Err, store.ErrLeaseLost) }
		for _, learn := range []func(f *env, a store.Claimed){extend, settle} {
			e.wakesForKey("b", func(f *env, a store.Claimed) {
				f.cancel("a", store.StateLeased)
				learn(f, a)
			})
			e.wakesForKey("c", func(f *env, a store.Claimed) {
				f.purge(store.Selection{})
				f.send(message("c", withKey("k")))
				learn(f, a)
			})
		}
	}},
	{"wait ends at the time at which the rate of a key allows a start", func(e *env) {
		e.limit(keyRate(3, time.Second, 1)) // 333333 1/3 µs
		e.sendKeys(5, "k")
		e.takesKey("k", "k00000")
		e.wakes("k00001", func() {
			e.advance(333 * time.Millisecond)
			e.full()
			e.asleep(1)
			e.advance(time.Millisecond)
		})
		e.wakes("k00002", func() { e.advance(time.Second) })
	}},
	{"wait ends for the key that rests least", func(e *env) {
		e.limit(keyRate(1, time.Hour, 1))
		fast := store.Rate{N: 10, Per: time.Second}
		e.override("b", store.KeyOverride{Rate: &fast})
		e.sendKeys(5, "a", "b", "c")
		e.takesOf(map[string][]string{"a": {"a00000"}, "b": {"b00000"}, "c": {"c00000"}})
		e.wakes("b00001", func() { e.advance(100 * time.Millisecond) })
	}},
	{"wait ends when a lease ends, while a key is full", func(e *env) {
		e.limit(keyConcurrency(2))
		e.sendKeys(4, "k")
		e.claimOne("k00000", time.Hour)
		e.claimOne("k00001", short)
		e.wakes("k00002", func() { e.advance(short) })
	}},
	{"wait ends when the limit of keys or of the key is raised or removed", func(e *env) {
		two, none := 2, 0
		for _, raise := range []func(f *env){
			func(f *env) { f.limit(keyConcurrency(2)) }, func(f *env) { f.limit(fair) },
			func(f *env) { f.limit(concurrency(5)) }, func(f *env) { f.limit(store.Flow{}) },
			func(f *env) { f.override("k", store.KeyOverride{Concurrency: &two}) },
			func(f *env) { f.override("k", store.KeyOverride{Concurrency: &none}) },
		} {
			e.wakesForKey("b", func(f *env, _ store.Claimed) { raise(f) })
		}
		e.limit(keyRate(1, time.Hour, 1))
		e.sendKeys(5, "k")
		e.takesKey("k", "k00000")
		e.wakes("k00001", func() { e.limit(keyRate(1, time.Hour, 2)) })
		fast := store.Rate{N: 10, Per: time.Second}
		e.wakes("k00002", func() {
			e.override("k", store.KeyOverride{Rate: &fast})
			e.advance(100 * time.Millisecond)
		})
	}},
	{"wait ends for a message of another key, and not for one of a full key", func(e *env) {
		e.limit(keyConcurrency(1))
		e.sendKeys(1, "k")
		e.claimOne("k00000", held)
		e.wakes("l", func() {
			e.send(message("more", withKey("k")), message("later", withKey("k"), delay(time.Millisecond)))
			e.pass(time.Millisecond)
			e.asleep(1)
			e.send(message("l", withKey("l")))
		})
		e.wakes("m", func() {
			e.send(message("m", delay(soon)))
			e.pass(soon)
		})
	}},
	{"wait ends when a sorted message moves to a key that is free", func(e *env) {
		e.wakesForKey("b", func(f *env, _ store.Claimed) {
			f.equal("results", f.trySend(message("b", replacing, withKey("l"))), wasReplaced)
		})
	}},
	{"one slot of a key wakes one waiter", func(e *env) {
		const n = 8
		e.limit(keyConcurrency(1))
		e.sendKeys(n+1, "k")
		c := e.claimOne("k00000", held)
		e.sort()
		l := e.line(n)
		for left := n - 1; left >= 0; left-- {
			e.ack(c)
			c = l.next(e)
			e.asleep(left)
		}
		if claims := l.claims.Load(); e.Asleep != nil && claims > 3*n {
			e.Fatalf("%d waiters claimed %d times for %d messages", n, claims, n)
		}
	}},
	{"a concurrency of keys that is raised wakes a waiter for each slot", func(e *env) {
		e.limit(keyConcurrency(1))
		e.sendKeys(4, "a", "b")
		e.takesOf(map[string][]string{"a": {"a00000"}, "b": {"b00000"}})
		l := e.line(6)
		e.limit(keyConcurrency(3))
		for range 4 {
			l.next(e)
		}
		e.asleep(2)
		e.counted(6)
	}},
	{"no wake-up is lost while many consumers share keys", func(e *env) {
		const n = 60
		e.limit(store.Flow{Concurrency: 5, Key: store.KeyFlow{Concurrency: 2}})
		e.sendKeys(n, "a", "b", "c")
		e.send(many(n)...)
		e.consumeAll(4*n, func(c store.Claimed, s store.Store) error {
			settled, err := s.Settle(e.Context(), e.queue, []store.Settlement{ackOf(c)})
			if err == nil {
				err = settled[0].Err
			}
			return err
		})
		e.counted(0)
		e.count(0, 0, 0, 0)
	}},
}
