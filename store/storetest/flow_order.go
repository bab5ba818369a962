package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/laterq/later/store"
)

// orderRules are the rules of the order of keys.
var orderRules = slices.Concat(orderSettingRules, placeRules, changedPlaceRules, holdRules, looseHoldRules, haltRules,
	resumeRules, fenceRules, heldKeyRules, orderForwardRules, orderWaitRules,
	[]rule{manyRule})

func keyOrder(o store.Order) store.Flow { return store.Flow{Key: store.KeyFlow{Order: o}} }

var (
	continuing = keyOrder(store.OrderContinue)
	halting    = keyOrder(store.OrderHalt)
)

// inOrder claims and acks messages of a key, which start one at a time in this order. None is left then.
func (e *env) inOrder(key string, ids ...string) {
	e.Helper()
	for _, id := range ids {
		e.ack(e.takesKey(key, id)...)
	}
	e.full()
}

// setBack sets the engine's clock back.
func (e *env) setBack(d time.Duration) {
	e.Helper()
	if !e.Back {
		e.Skip("the clock of this engine cannot be set back")
	}
	e.advance(-d)
}

// resumes checks what ResumeKey returns for a key.
func (e *env) resumes(key string, want error) {
	e.Helper()
	e.is(e.Peer.ResumeKey(e.Context(), e.queue, key), want)
}

// holder checks which message holds a key and is not leased, and whether it halts the key.
func (e *env) holder(key, id string, halts bool) {
	e.Helper()
	s := e.key(key)
	e.equal("holder of "+key, fmt.Sprint(s.Holder, " ", s.Halted), fmt.Sprint(id, " ", halts))
}

// keyCounts checks the counts of keys.
func (e *env) keyCounts(waiting, full, halted int64) {
	e.Helper()
	e.equal("counts of keys", e.flow().Keys, store.KeyCounts{Waiting: waiting, Full: full, Halted: halted})
}

var orderSettingRules = []rule{
	{"an order is kept with the flow and implies a concurrency of 1 of each key", func(e *env) {
		for _, f := range []store.Flow{continuing, halting, {Concurrency: 5, Key: store.KeyFlow{Concurrency: 1,
			Rate: store.Rate{N: 100, Per: time.Second}, Weight: 3, Order: store.OrderHalt}}, fair} {
			e.limit(f)
			e.equal("flow", e.flow().Flow, f.Normal())
			e.equal("limits of a key", e.key("k").KeyFlow, f.Normal().Key)
			replaced := e.Store.SetFlow(e.Context(), e.queue, f, &store.Flow{Key: store.KeyFlow{Order: "continue",
				Weight: 7}})
			e.is(replaced, store.ErrConflict)
		}
		e.limit(continuing)
		e.is(e.Store.SetFlow(e.Context(), e.queue, fair, &halting), store.ErrConflict)
		e.ok(e.Store.SetFlow(e.Context(), e.queue, halting, &continuing))
		e.equal("order", e.flow().Key.Order, store.OrderHalt)
		e.ok(e.Peer.Delete(e.Context(), e.queue))
		e.limit(fair)
		e.equal("order after a delete", e.flow().Key.Order, store.OrderNone)
	}},
	{"an order that is not allowed is refused with its error", func(e *env) {
		for _, f := range []store.Flow{keyOrder("first"), keyOrder("Halt"),
			{Key: store.KeyFlow{Concurrency: 2, Order: store.OrderHalt}},
			{Key: store.KeyFlow{Concurrency: 5, Order: store.OrderContinue}}} {
			e.refusesFlow(e.queue, f)
		}
		e.equal("exists", e.stats().Exists, false)
	}},
	{"an override of the concurrency is refused in a queue with an order, and has no effect from before", func(e *env) {
		none, one, three, rate := 0, 1, 3, store.Rate{N: 1, Per: time.Hour, Burst: 9}
		e.limit(fair)
		e.override("before", store.KeyOverride{Concurrency: &three})
		e.limit(continuing)
		e.refusesOverride(e.queue, "k", store.KeyOverride{Concurrency: &three}, store.OneOfOrder(e.queue, 3))
		e.refusesOverride(e.queue, "k", store.KeyOverride{Concurrency: &none, Weight: &one},
			store.OneOfOrder(e.queue, 0))
		e.equal("overrides", e.overrides(), "before concurrency 3\n")
		e.override("k", store.KeyOverride{Concurrency: &one, Rate: &rate, Weight: &three})
		e.override("l", store.KeyOverride{Rate: &rate})
		e.equal("concurrency", e.key("before").Concurrency, 1)
		e.sendKeys(2, "before", "k", "l")
		e.takesOf(map[string][]string{"before": {"before00000"}, "k": {"k00000"}, "l": {"l00000"}})
		e.override("before", store.KeyOverride{})
		e.full()
	}},
	{"a key that is not halted is not resumed", func(e *env) {
		e.resumes("k", store.ErrNotFound)
		e.equal("exists", e.stats().Exists, false)
		for _, f := range []store.Flow{concurrency(3), fair, continuing, halting} {
			e.limit(f)
			e.resumes("k", store.ErrNotFound)
			e.sendDead("a")
			e.resumes("k", store.ErrNotFound)
			e.cancel("a", store.StateDead)
		}
		e.sendKeys(2, "k")
		c := e.claimOne("k00000", held)
		e.resumes("k", store.ErrNotFound)
		e.settle(nack(c, time.Hour), store.StateScheduled)
		e.resumes("k", store.ErrNotFound) // it waits for its holder
		e.full()
		for _, key := range []string{"", "a/b", "a\x00"} {
			e.resumes(key, store.ErrInvalid)
		}
		e.is(e.Store.ResumeKey(e.Context(), "topic:"+e.queue, "k"), store.ErrInvalid)
	}},
	{"a request for halted keys that is not allowed is refused", func(e *env) {
		e.limit(halting)
		for _, req := range []store.KeysRequest{{Limit: 1, Key: "k", Halted: true}, {Limit: 0, Halted: true},
			{Limit: 1, Overridden: true, Halted: true}} {
			_, err := e.Store.Keys(e.Context(), e.queue, req)
			e.is(err, store.ErrInvalid)
			e.equal("error", err.Error() == req.Check().Error(), true)
		}
	}},
}

// placeRules are about the order of messages that wait.
var placeRules = []rule{
	{"messages of a key start one at a time in order of due time, then id", func(e *env) {
		e.limit(continuing)
		now := e.now()
		due := at(now.Add(-time.Second))
		e.send(message("c", withKey("k"), due), message("a", withKey("k"), due), message("z", withKey("k"),
			at(now.Add(-time.Minute))), message("b", withKey("k"), due))
		e.ack(e.takesKey("k", "z")...)
		e.send(message("y", withKey("k"), at(now.Add(-time.Hour)))) // behind sorted ones
		e.inOrder("k", "y", "a", "b", "c")
		e.count(0, 0, 0, 0)
	}},
	{"messages of a key that are sent without a delay start in the order of their sends", func(e *env) {
		e.limit(continuing)
		var want []string
		for i := range 20 {
			s, id := []store.Store{e.Store, e.Peer}[i%2], fmt.Sprint("m", 99-i)
			sent := []store.Outgoing{message(id, withKey("k")), message("z"+id, withKey("k"), delay(-time.Hour)),
				message("a"+id, withKey("k"))}
			_, err := s.Send(e.Context(), e.queue, sent)
			e.ok(err)
			want = append(want, id, "z"+id, "a"+id)
		}
		e.inOrder("k", want...)
		e.count(0, 0, 0, 0)
	}},
	{"messages of a key that are sent in different ways start in the order of their sends", func(e *env) {
		e.linked()
		e.limit(continuing)
		e.send(message("first"))
		c := e.claimOne("first", held)
		e.equal("results", e.trySend(message("z", replacing, withKey("k"))), wasSent)
		e.send(message("y", withKey("k")))
		e.settle(then(c, e.to(message("x", withKey("k"))), e.to(message("w", withKey("k")))), store.StateNone)
		e.equal("results", e.trySend(message("v", following, withKey("k"))), wasSent)
		once := message("u", withKey("k"))
		once.Once = store.NewOnce([]byte("once"), []byte("1"))
		e.equal("results", e.trySend(once)[0].Duplicate, false)
		once.ID = "a"
		e.equal("results", e.trySend(once)[0].Duplicate, true)
		e.send(message("t", withKey("k")))
		e.inOrder("k", "z", "y", "x", "w", "v", "u", "t")
	}},
	{"messages sent without a delay start in the order of their sends when the clock is set back", func(e *env) {
		e.limit(continuing)
		now := e.now()
		e.send(message("d", withKey("k")), message("c", withKey("k")), message("other", withKey("l")))
		e.ack(e.takesOf(map[string][]string{"k": {"d"}, "l": {"other"}})...)
		e.setBack(time.Hour)
		e.send(message("b", withKey("k")), message("a", withKey("k")))
		e.send(message("earlier", withKey("k"), at(now.Add(-time.Hour))))
		e.inOrder("k", "earlier", "c", "b", "a")
		e.send(message("n", withKey("k")), message("m", withKey("l"))) // behind the clock's time of the first sends
		e.ack(e.takesOf(map[string][]string{"k": {"n"}, "l": {"m"}})...)
		e.count(0, 0, 0, 0)
		e.advance(2 * time.Hour)
		e.send(message("z", withKey("k")), message("y", withKey("k")))
		e.inOrder("k", "z", "y")
	}},
	{"a released message starts again although the clock was set back behind its due time", func(e *env) {
		e.limit(continuing)
		e.send(message("b", withKey("k")), message("a", withKey("k")))
		e.setBack(time.Hour)
		b := e.claimOne("b", held)
		e.settle(store.Settlement{Receipt: b.Receipt, Action: store.Release}, store.StateReady)
		c, err := e.Store.Claim(e.Context(), e.queue, store.ClaimRequest{Max: 3, Lease: short, Uncounted: true})
		e.equal("claimed", ids(c.Messages), []string{"b"})
		e.equal("error", err, error(nil))
		e.advance(short)
		e.inOrder("k", "b", "a")
	}},
	{"a message that fell due before another one was sent starts first, whichever was sorted first", func(e *env) {
		e.limit(continuing)
		e.send(message("delayed", withKey("k"), delay(time.Second)), message("far", withKey("k"), delay(time.Hour)))
		e.send(message("a", withKey("k")))
		a := e.claimOne("a", held)
		e.advance(2 * time.Second)
		e.send(message("b", withKey("k")))
		e.ack(a)
		e.inOrder("k", "delayed", "b")
		e.advance(time.Hour)
		e.inOrder("k", "far")
	}},
	{"nothing starts while a claim leaves ready messages unsorted", func(e *env) {
		e.limit(continuing)
		now := e.now()
		e.send(keyed("l", 3*store.MaxBatch, at(now.Add(-time.Hour)))...)
		e.send(message("first", withKey("k"), at(now.Add(-time.Minute))))
		e.send(message("second", withKey("k")), message("without a key"))
		for {
			c := e.claimWith(10, held)
			if c.Unsorted {
				e.equal("claimed while messages are unsorted", ids(c.Messages), []string(nil))
				e.equal("more", c.More, true)
				continue
			}
			e.equal("claimed", perKey(c.Messages), map[string][]string{"k": {"first"}, "l": {"l00000"},
				"": {"without a key"}})
			break
		}
		e.full()
	}},
	{"messages without a key have no order", func(e *env) {
		e.limit(halting)
		e.send(message("c"), message("b"), message("d", maxAttempts(1)))
		e.send(message("a"))
		if e.Exact {
			e.equal("claimed in order of due time, then id", ids(e.claim(2)), []string{"a", "b"})
		} else {
			e.equal("claimed", len(e.claim(2)), 2)
		}
		for _, c := range e.claim(2) {
			e.equal("fence", c.Fence, int64(0))
			e.settle(nack(c, time.Hour), map[string]store.State{"c": store.StateScheduled, "d": store.StateDead}[c.ID])
		}
		e.full()
		e.send(message("e"))
		e.equal("claimed", ids(e.claim(2)), []string{"e"})
		e.keyCounts(0, 0, 0)
	}},
	{"limits of the queue and rates of keys hold for an order too", func(e *env) {
		limits := store.KeyFlow{Order: store.OrderContinue, Rate: store.Rate{N: 1, Per: time.Second, Burst: 2}}
		e.limit(store.Flow{Concurrency: 1, Key: limits})
		e.send(message("b", withKey("k")), message("a", withKey("k")))
		e.send(message("c", withKey("k")))
		e.ack(e.takesKey("k", "b")...)
		a := e.takesKey("k", "a")[0]
		e.settle(nack(a, 0), store.StateReady)
		e.full() // the rate holds back its second attempt
		e.advance(time.Second)
		e.ack(e.takesKey("k", "a")...)
		e.full()
		e.advance(time.Second)
		e.inOrder("k", "c")
	}},
}
