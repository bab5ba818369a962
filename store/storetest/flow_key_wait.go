package storetest

import (
	"time"

	"github.com/laterq/later/store"
)

// wakesForKey is wakesBehind with a key that is full.
func (e *env) wakesForKey(want string, act func(f *env, held store.Claimed)) {
	e.Helper()
	e.wakesBehind(keyConcurrency(1), want, act, withKey("k"))
}

var keyWaitRules = append(limitWaitRules(" of a key", keyConcurrency, keyRate, withKey("k")), []rule{
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
}...)
