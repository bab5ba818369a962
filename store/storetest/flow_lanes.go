package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/laterq/later/store"
)

// sorted sends three messages of a full key, that a claim sorts. It returns the leased one of the key.
func (e *env) sorted() store.Claimed {
	e.Helper()
	e.limit(keyConcurrency(1))
	e.send(message("held", withKey("k"), at(e.now().Add(-time.Hour))))
	c := e.claimOne("held", held)
	now := e.now()
	for i, id := range []string{"a", "b", "c"} {
		e.send(message(id, withKey("k"), at(now.Add(time.Duration(i-3)*time.Second))))
	}
	e.sort()
	e.equal("waiting", e.key("k").Waiting, int64(3))
	return c
}

// inTurn acks a message and claims the next one of the key k, until the ids have come and none is left.
func (e *env) inTurn(c store.Claimed, want ...string) {
	e.Helper()
	for _, id := range want {
		e.full()
		e.ack(c)
		c = e.takesKey("k", id)[0]
	}
	e.ack(c)
	e.full()
	e.count(0, 0, 0, 0)
	e.equal("keys", e.flow().Keys, store.KeyCounts{})
}

// laneRules are about messages that are changed while they wait for their key.
var laneRules = []rule{
	{"a sorted message that is cancelled, purged or removed does not start", func(e *env) {
		c := e.sorted()
		e.cancel("b", store.StateReady)
		e.inTurn(c, "a", "c")
		c = e.sorted()
		e.equal("removed", e.remove(*e.get("a")), []bool{true})
		e.inTurn(c, "b", "c")
		c = e.sorted()
		e.equal("purged", e.purge(store.Selection{State: store.StateReady}), 3)
		e.full()
		e.send(message("d", withKey("k")))
		e.inTurn(c, "d")
	}},
	{"more is left while messages are left to sort, although a limit of the queue lets none start", func(e *env) {
		e.limit(store.Flow{Concurrency: 1, Fair: true})
		e.send(message("held", withKey("k"), at(e.now().Add(-time.Hour))))
		c := e.claimOne("held", held)
		for msgs := range slices.Chunk(keyed("k", 3*store.MaxBatch), store.MaxBatch) {
			e.send(msgs...)
		}
		for unsorted := true; unsorted; {
			got := e.claimWith(1, held)
			unsorted = got.Unsorted
			e.equal("claimed", len(got.Messages), 0)
			e.equal("more", got.More, unsorted)
		}
		e.equal("waiting", e.key("k").Waiting, int64(3*store.MaxBatch))
		e.ack(c)
		e.takes(1)
	}},
	{"a message that is changed before it is sorted starts as it is then", func(e *env) {
		e.limit(keyConcurrency(1))
		e.sendKeys(6, "k")
		e.cancel("k00000", store.StateReady)
		e.ok(e.tryReschedule("k00001", store.Due{Delay: time.Second}))
		e.equal("results", e.trySend(message("k00002", replacing, withKey("l"))), wasReplaced)
		e.equal("removed", e.remove(*e.get("k00003")), []bool{true})
		c := e.takesOf(map[string][]string{"k": {"k00004"}, "l": {"k00002"}})
		e.equal("purged", e.purge(store.Selection{State: store.StateScheduled}), 1)
		e.send(message("m", withKey("k"), delay(time.Second)))
		e.cancel("m", store.StateScheduled)
		e.advance(time.Second)
		e.full()
		e.ack(c...)
		e.takesKey("k", "k00005")
	}},
	{"a sorted message that is cancelled and sent again is a new one", func(e *env) {
		c := e.sorted()
		e.cancel("a", store.StateReady)
		e.send(message("a", withKey("k")))
		e.inTurn(c, "b", "c", "a")
		c = e.sorted()
		due := e.get("b").Due
		e.cancel("b", store.StateReady)
		e.send(message("b", withKey("l"), at(due)))
		e.ack(e.takesKey("l", "b")...)
		e.inTurn(c, "a", "c")
	}},
	{"a sorted message that is rescheduled waits by its new due time", func(e *env) {
		c := e.sorted()
		e.ok(e.tryReschedule("a", store.Due{Delay: -time.Second}))
		e.inTurn(c, "b", "c", "a")
		c = e.sorted()
		e.ok(e.tryReschedule("c", store.Due{At: e.now().Add(-time.Minute)}))
		e.inTurn(c, "c", "a", "b")
		c = e.sorted()
		e.ok(e.tryReschedule("a", store.Due{Delay: time.Second}))
		e.full()
		e.count(1, 2, 1, 0)
		e.advance(time.Second)
		e.inTurn(c, "b", "c", "a")
		c = e.sorted()
		due := e.get("a").Due
		e.ok(e.tryReschedule("a", store.Due{Delay: time.Hour}))
		e.ok(e.tryReschedule("a", store.Due{At: due}))
		e.inTurn(c, "a", "b", "c")
	}},
	{"a message that comes back is sorted by its new due time", func(e *env) {
		for name, want := range map[string][]string{"nack": {"a", "b", "c", "held"}, "snooze": {"a", "b", "c", "held"},
			"given back": {"a", "b", "c", "held"}, "release": {"held", "a", "b", "c"}} {
			c, s := e.sorted(), endings[name]
			s.Receipt, s.Delay = c.Receipt, 0
			e.ok(e.trySettle(s)[0].Err)
			c = e.takesKey("k", want[0])[0]
			e.inTurn(c, want[1:]...)
		}
		e.limit(keyConcurrency(1))
		e.send(message("a", withKey("k")), message("b", withKey("k"), delay(time.Millisecond)))
		e.claimOne("a", short)
		e.advance(short)
		e.inTurn(e.takesKey("k", "b")[0], "a") // a is due when its lease has ended
	}},
	{"a replayed message is sorted", func(e *env) {
		c := e.sorted()
		e.settle(store.Settlement{Receipt: c.Receipt, Action: store.Bury, Reason: "no"}, store.StateDead)
		c = e.takesKey("k", "a")[0]
		e.equal("replayed", e.replay(deadByID("held"), store.Due{At: e.now().Add(-time.Minute)}), 1)
		e.inTurn(c, "held", "b", "c")
	}},
	{"a sorted message that is replaced waits for its new key, by its new due time", func(e *env) {
		c := e.sorted()
		due := e.get("a").Due
		for _, same := range []bool{true, false} {
			change := at(due)
			if !same {
				change = delay(0)
			}
			e.equal("results", e.trySend(message("a", replacing, withKey("l"), change)), wasReplaced)
			e.ack(e.takesKey("l", "a")...)
			e.send(message("a", withKey("k"), at(due)))
			e.full()
		}
		e.equal("results", e.trySend(message("b", replacing, withKey("k"))), wasReplaced) // due now
		e.equal("results", e.trySend(message("c", replacing)), wasReplaced)
		e.ack(e.takesKey("", "c")...)
		e.inTurn(c, "a", "b")
	}},
	{"a message that was sorted by its former key uses up no claim", func(e *env) {
		e.limit(fair)
		now := e.now()
		due := at(now.Add(-time.Hour))
		e.send(message("a", withKey("k"), due), message("b", withKey("k")), message("c", withKey("l")))
		e.sort()
		e.equal("results", e.trySend(message("a", replacing, withKey("l"), due)), wasReplaced)
		for range 3 {
			e.equal("claimed", len(e.claim(1)), 1)
		}
		e.full()
	}},
	{"sorted messages are listed, counted and grouped as ready messages with their due times", func(e *env) {
		c := e.sorted()
		e.send(keyed("k", 4, group("g"), at(e.now().Add(-4*time.Second)))...)
		e.sort()
		now := e.now()
		e.count(0, 7, 1, 0)
		ready := e.list(store.ListRequest{State: store.StateReady, Limit: 3})
		e.equal("listed", infoIDs(ready), append(keyedIDs("k", 0, 4), "a", "b", "c"))
		e.equal("listed by due time", infoIDs(e.list(store.ListRequest{State: store.StateReady, Limit: 2,
			From: now.Add(-3 * time.Second), To: now.Add(-time.Second)})), []string{"a", "b"})
		e.equal("scheduled", len(e.list(store.ListRequest{State: store.StateScheduled, Limit: 3})), 0)
		e.inGroup("g", keyedIDs("k", 0, 4)...)
		e.at("due", e.live("b", store.StateReady).Due, now.Add(-2*time.Second))
		e.at("next due", e.stats().NextDue, now.Add(-4*time.Second))
		e.equal("histogram", e.histogram([]time.Time{now.Add(-4 * time.Second), now.Add(-2 * time.Second), now,
			now.Add(time.Hour)}), []int64{5, 2, 0})
		e.ack(c)
	}},
	{"a queue that is fair no longer claims sorted messages in order of due time, then id", func(e *env) {
		for _, plain := range []store.Flow{{}, concurrency(1500)} {
			f := e.other()
			f.limit(fair)
			now := f.now()
			var msgs []store.Outgoing
			for i := range 1100 {
				msgs = append(msgs, message(fmt.Sprint("m", i), withKey(fmt.Sprint("k", i%3)),
					at(now.Add(-time.Duration(i)*time.Millisecond))))
			}
			f.send(msgs...)
			f.sort()
			f.limit(plain)
			f.equal("flow", f.flow().Flow, plain)
			f.count(0, 1100, 0, 0)
			f.equal("claimed", f.claimAll()[:3], []string{"m1099", "m1098", "m1097"})
			f.count(0, 0, 1100, 0)
		}
	}},
	{"a queue that is fair again sorts its messages again", func(e *env) {
		c := e.sorted()
		e.limit(concurrency(1))
		e.full()
		e.limit(keyConcurrency(1))
		e.equal("claimed", ids(e.claim(1)), []string{"a"}) // the leased message does not count any more
		e.full()
		e.sort()
		e.equal("waiting", e.key("k").Waiting, int64(2))
		e.ack(c)
		e.full()
		e.count(0, 2, 1, 0)
	}},
	{"sorted messages are restored elsewhere as ready ones", func(e *env) {
		e.sorted()
		f := e.other()
		f.limit(keyConcurrency(1))
		f.restore(e.list(store.ListRequest{State: store.StateReady, Limit: 5})...)
		f.inTurn(f.takesKey("k", "a")[0], "b", "c")
	}},
	{"a purge of a queue removes its sorted messages", func(e *env) {
		e.sorted()
		e.purge(store.Selection{})
		e.count(0, 0, 0, 0)
		e.full()
		e.sort()
		e.equal("keys", e.flow().Keys, store.KeyCounts{})
		e.equal("keys", len(e.states(store.KeysRequest{Limit: 5})), 0)
	}},
	{"a delete of a queue removes its sorted messages", func(e *env) {
		c := e.sorted()
		e.ok(e.Peer.Delete(e.Context(), e.queue))
		e.equal("exists", e.stats().Exists, false)
		e.limit(keyConcurrency(1))
		e.equal("keys", len(e.states(store.KeysRequest{Limit: 5})), 0)
		e.send(message("c", withKey("k")))
		e.takesKey("k", "c")
		e.refused(c.Receipt)
	}},
	{"follow-ups are sorted", func(e *env) {
		e.linked()
		c := e.sorted()
		e.settle(then(c, e.to(message("held", withKey("k"))), e.to(message("n", withKey("l")))), store.StateNone)
		got := e.takesOf(map[string][]string{"k": {"a"}, "l": {"n"}})
		for _, m := range got {
			if m.Key == "l" {
				e.ack(m)
			}
		}
		for _, m := range got {
			if m.Key == "k" {
				e.inTurn(m, "b", "c", "held")
			}
		}
	}},
}
