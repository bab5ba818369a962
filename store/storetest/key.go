package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/laterq/later/store"
)

func withKey(key string) func(*store.Outgoing) {
	return func(m *store.Outgoing) { m.Key = key }
}

// hasKey checks the key of a live message.
func (e *env) hasKey(id, key string) {
	e.Helper()
	e.equal("key of "+id, e.get(id).Key, key)
}

var keyRules = []rule{
	{"a key is kept by Claim, Get, List and every settle that keeps the message", func(e *env) {
		longest := strings.Repeat("k", store.MaxKey-2) + "ÿ"
		for i, key := range []string{"k", longest, "a b:c{d}"} {
			id := fmt.Sprint(i)
			e.send(message(id, withKey(key), maxAttempts(4)))
			for _, s := range []store.Settlement{
				{Action: store.Release}, {Action: store.Snooze}, {Action: store.Nack, Reason: "no"},
				{Action: store.GiveBack, Within: -1}, {Action: store.Bury, Reason: "bad"},
			} {
				e.hasKey(id, key)
				e.equal("listed", e.list(store.ListRequest{State: store.StateReady, Limit: 10})[0].Key, key)
				c := e.claimOne(id, held)
				e.equal("key of a claimed message", c.Key, key)
				e.hasKey(id, key)
				s.Receipt = c.Receipt
				e.ok(e.trySettle(s)[0].Err)
			}
			e.equal("key of a dead message", e.live(id, store.StateDead).Key, key)
			bulk, err := e.Store.Replay(e.Context(), e.queue, store.Selection{State: store.StateDead}, store.Due{})
			e.ok(err)
			e.equal("replayed", bulk.Done, 1)
			e.hasKey(id, key)
			e.ok(e.tryReschedule(id, store.Due{Delay: 48 * time.Hour}))
			e.hasKey(id, key)
			e.ok(e.tryReschedule(id, store.Due{}))
			e.ack(e.claimOne(id, held))
			e.gone(id)
		}
	}},
	{"a key goes with a group and with every header", func(e *env) {
		m := message("m", withKey("k"), group("g"), maxAttempts(3), fullOfHeaders)
		e.send(m, message("n", withKey("k"), group("g")), message("o", withKey("g")))
		e.inGroup("g", "m", "n")
		for _, c := range e.claim(3) {
			e.equal("key", c.Key, map[string]string{"m": "k", "n": "k", "o": "g"}[c.ID])
			e.equal("number of headers", len(c.Headers), map[string]int{"m": store.MaxHeaders}[c.ID])
			e.ack(c)
		}
		e.noIndex("g", "m", "n", "o")
	}},
	{"a key survives failed attempts, the end of a lease, expiry and days ahead", func(e *env) {
		e.send(message("lost", withKey("k"), maxAttempts(1)), message("far", withKey("l"), delay(48*time.Hour)))
		e.claimOne("lost", 50*time.Millisecond)
		e.send(message("expired", withKey("m"), expireAfter(time.Second), delay(time.Second)))
		e.advance(time.Minute)
		e.equal("claimed", len(e.claim(1)), 0)
		e.equal("key of a dead message", e.live("lost", store.StateDead).Key, "k")
		e.equal("key of a dead message", e.live("expired", store.StateDead).Key, "m")
		e.advance(48 * time.Hour)
		e.equal("key of a claimed message", e.claimOne("far", held).Key, "l")
	}},
	{"a duplicate changes no key", func(e *env) {
		e.send(message("m", withKey("k")), message("n"))
		for _, r := range e.trySend(message("m", withKey("l")), message("n", withKey("l")), message("m")) {
			e.equal("duplicate", r.Duplicate, true)
		}
		e.hasKey("m", "k")
		e.hasKey("n", "")
	}},
	{"a message that replaces or follows another has its own key", func(e *env) {
		for name, mode := range modes {
			e.send(message(name, withKey("old"), delay(time.Hour)),
				message(name+" none", withKey("old"), delay(time.Hour)))
			e.equal("results", e.trySend(message(name, mode, withKey("new"))), wasReplaced)
			e.equal("results", e.trySend(message(name+" none", mode)), wasReplaced)
			e.hasKey(name, "new")
			e.hasKey(name+" none", "")
		}
		for name, ending := range endings {
			c := e.followed("m", withKey(name))
			e.hasKey("m", name)
			ending.Receipt = c.Receipt
			e.ok(e.trySettle(ending)[0].Err)
			e.hasKey("m", name)
			e.cancel("m", e.get("m").State)
		}
	}},
	{"follow-ups have keys", func(e *env) {
		f := e.linked()
		e.send(message("m", withKey("k")))
		c := e.claimOne("m", held)
		e.settle(then(c, f.to(message("a", withKey("a"))), e.to(message("m", withKey("l"), group("g"))),
			f.to(message("b", delay(48*time.Hour), withKey("b")))), store.StateNone)
		e.hasKey("m", "l")
		f.hasKey("a", "a")
		f.hasKey("b", "b")
	}},
	{"forwarded messages keep their keys", func(e *env) {
		f := e.forwardsTo()
		m := message("m", withKey("k"), group("g"), fullOfHeaders)
		e.send(m, message("n", withKey("l")))
		was := e.live("m", store.StateReady)
		e.equal("moved", e.forward(f, 10).Count, 2)
		e.equal("message", describe(f.live("m", store.StateReady)), describe(was))
		f.hasKey("n", "l")
		f.inGroup("g", "m")
	}},
	{"restored messages keep their keys, and removed ones are compared with them", func(e *env) {
		f := e.other()
		e.sendDead("d", withKey("d"))
		e.send(message("c", withKey("c"), group("g")))
		e.claimOne("c", held)
		e.send(message("b", withKey("b")), message("a", withKey("a"), delay(48*time.Hour)))
		infos, err := e.Store.Get(e.Context(), e.queue, []string{"a", "b", "c", "d"})
		e.ok(err)
		for _, want := range []bool{false, true} {
			var all []store.Info
			for _, info := range infos {
				all = append(all, *info)
			}
			results, err := f.Store.Restore(e.Context(), f.queue, all)
			e.ok(err)
			for i, r := range results {
				e.equal("duplicate", r.Duplicate, want)
				f.hasKey(infos[i].ID, infos[i].ID)
			}
		}
		other := *f.get("b")
		other.Key = "other"
		e.equal("removed", f.remove(other, *f.get("a")), []bool{false, true})
	}},
	{"a key that is too long or has a slash, a control character or bad UTF-8 is refused", func(e *env) {
		for _, key := range []string{strings.Repeat("k", store.MaxKey+1), "a/b", "a\x00", "\xff", ".", ".."} {
			m := message("m", withKey(key))
			err := m.Check()
			e.is(err, store.ErrInvalid)
			e.equal("field", store.FieldOf(err), "key")
			info := store.Info{Message: m.Message, State: store.StateReady, Due: e.now()}
			e.is(info.Check(), store.ErrInvalid)
		}
	}},
}
