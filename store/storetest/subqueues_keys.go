package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/laterq/later/store"
)

// subFlow returns two sub-queues with a flow.
func (e *env) subFlow(f store.Flow) (a, b *env) {
	e.Helper()
	a, b = e.sub("g1", "a"), e.sub("g1", "b")
	a.limit(f)
	b.limit(f)
	return a, b
}

// handsOver moves keys to another sub-queue. It returns the keys that stay.
func (e *env) handsOver(to *env, keys ...string) (busy []string) {
	e.Helper()
	d, err := e.subQueues().Depart(e.Context(), e.queue, store.Departure{To: to.queue, Keys: keys})
	e.ok(err)
	if d.Parcel != nil {
		e.ok(e.subQueues().Arrive(e.Context(), d.Parcel))
		e.ok(e.subQueues().Empty(e.Context(), e.queue, d.Parcel.Number))
	}
	return d.Busy
}

// expects has a sub-queue expect keys from another one.
func (e *env) expects(from *env, keys ...string) {
	e.Helper()
	_, err := e.subQueues().Expect(e.Context(), e.queue, store.Expected{From: from.queue,
		Number: from.departs(e).Number, Keys: keys})
	e.ok(err)
}

// scanAll returns all parts of a scan as one.
func (e *env) scanAll() (all store.Scanned) {
	e.Helper()
	for cursor := ""; ; {
		part, err := e.subQueues().Scan(e.Context(), e.queue, cursor)
		e.ok(err)
		if len(part.Keys) > 0 && len(part.IDs) > 0 && cursor == "" && part.Next != "" {
			e.Fatalf("the first part has keys, and ids follow: %+v", part)
		}
		all.IDs, all.Keys = append(all.IDs, part.IDs...), append(all.Keys, part.Keys...)
		if cursor = part.Next; cursor == "" {
			slices.Sort(all.Keys)
			all.Keys = slices.Compact(all.Keys)
			return all
		}
	}
}

// movesAll moves all messages with a key, and then the key.
func (e *env) movesAll(to *env, key string) {
	e.Helper()
	ids, _ := e.scan()
	e.moves(to, ids...)
	if busy := e.handsOver(to, key); busy != nil {
		e.Fatalf("%v stay", busy)
	}
}

var subQueueKeyRules = []rule{
	{"a sub-queue is created with a flow, and its rate is used up", func(e *env) {
		sub := *e
		sub.queue = store.SubQueue(e.queue, "g1", "a")
		e.subQueues()
		flow := store.Flow{Concurrency: 5, Rate: store.Rate{N: 6, Per: time.Minute, Burst: 3}, Urgency: true,
			Key: store.KeyFlow{Order: store.OrderHalt, Rate: store.Rate{N: 1, Per: time.Hour, Burst: 2}, Weight: 2}}
		if e.Advance != nil {
			e.Advance(e.T, sub.queue, time.Millisecond)
		}
		e.ok(e.subQueues().Create(e.Context(), sub.queue, store.Settings{Flow: flow}))
		state := sub.flow()
		e.equal("flow", state.Flow, flow.Normal())
		e.at("next start", state.Next, state.Now.Add(10*time.Second))
		sub.send(keyed("k", 4)...)
		sub.send(keyed("l", 4)...)
		sub.full()
		sub.advance(10 * time.Second)
		e.equal("started", len(sub.claim(9)), 1)
	}},
	{"messages of a key move with their places and the hold", func(e *env) {
		for _, flow := range []store.Flow{continuing, halting, {Urgency: true, Key: halting.Key}} {
			a, b := e.other().subFlow(flow)
			a.send(message("c", withKey("k")))
			a.send(message("b", withKey("k")), message("a", withKey("k")), message("other", withKey("l")))
			a.settle(nack(a.claimOne("c", held), 0), store.StateReady)
			b.send(message("z", withKey("k"), delay(time.Minute)))
			b.send(message("y", withKey("m")))
			a.movesAll(b, "k")
			b.holder("k", "c", false)
			a.keyCounts(0, 0, 0)
			b.ack(b.takesOf(map[string][]string{"k": {"c"}, "l": {"other"}, "m": {"y"}})...)
			b.inOrder("k", "b", "a")
		}
	}},
	{"a key that halts moves with the dead message", func(e *env) {
		a, b := e.subFlow(halting)
		a.send(message("x", withKey("k")), message("y", withKey("k")))
		a.settle(store.Settlement{Receipt: a.claimOne("x", held).Receipt, Action: store.Bury, Reason: "no"},
			store.StateDead)
		a.movesAll(b, "k")
		b.holder("k", "x", true)
		b.full()
		b.keyCounts(1, 1, 1)
		_, err := e.Store.Replay(e.Context(), b.queue, store.Selection{State: store.StateDead}, store.Due{})
		e.ok(err)
		b.ack(b.takesKey("k", "x")...)
		b.inOrder("k", "y")
		a.resumes("k", store.ErrNotFound)
		e.equal("known", a.scanAll().Keys, []string(nil))
	}},
	{"the rate and the limits of a key move", func(e *env) {
		flow := keyRate(1, time.Minute, 2)
		a, b := e.subFlow(flow)
		three := 3
		a.override("o", store.KeyOverride{Weight: &three})
		a.send(keyed("k", 2)...)
		a.ack(a.claim(9)...)
		e.equal("known", a.scanAll().Keys, []string{"k", "o"})
		at := a.key("k").Next
		e.equal("stay", a.handsOver(b, "k", "o", "unknown"), []string(nil))
		e.equal("left", a.scanAll().Keys, []string(nil))
		e.equal("known", b.scanAll().Keys, []string{"k", "o"})
		e.at("next start", b.key("k").Next, at)
		e.equal("weight", *b.key("o").Override.Weight, three)
		if o := a.key("o").Override; o != nil {
			e.Fatalf("the limits stay: %+v", o)
		}
		b.send(message("new", withKey("k")), message("free", withKey("l")))
		b.ack(b.takesOf(map[string][]string{"l": {"free"}})...)
		b.advance(time.Minute)
		b.takesOf(map[string][]string{"k": {"new"}})

		// The later of two next starts stays.
		a.send(message("again", withKey("k")))
		a.ack(a.claim(9)...)
		at = b.key("k").Next
		a.handsOver(b, "k")
		e.at("next start", b.key("k").Next, at)
	}},
	{"a key stays while one of its messages is leased, holds it or is sorted", func(e *env) {
		a, b := e.subFlow(continuing)
		a.send(message("k0", withKey("k")), message("l0", withKey("l")))
		claimed := a.takesOf(map[string][]string{"k": {"k0"}, "l": {"l0"}})
		d := a.departs(b, "k0", "l0")
		slices.Sort(d.Leased)
		slices.Sort(d.Busy)
		e.equal("leased", d.Leased, []string{"k0", "l0"})
		e.equal("their keys", d.Busy, []string{"k", "l"})
		e.equal("known", a.scanAll().Keys, []string{"k", "l"})
		e.equal("leased", a.handsOver(b, "k", "free"), []string{"k"})
		a.cancel("l0", store.StateLeased)
		e.equal("cancelled, and counts", a.handsOver(b, "l"), []string{"l"})
		for _, c := range claimed {
			if c.Key == "k" {
				a.settle(nack(c, time.Minute), store.StateScheduled)
			} else {
				e.is(a.trySettle(ackOf(c))[0].Err, store.ErrLeaseLost)
			}
		}
		e.equal("held", a.handsOver(b, "k", "l"), []string{"k"})
		a.moves(b, "k0")
		e.equal("free", a.handsOver(b, "k"), []string(nil))
		b.holder("k", "k0", false)
		a.send(message("k1", withKey("k"), delay(time.Hour)), message("k2", withKey("k")))
		e.equal("sorted or not", a.handsOver(b, "k") == nil || a.scanAll().Keys == nil, true)
	}},
	{"the keys of holders are known, also without the ids", func(e *env) {
		a, _ := e.subFlow(halting)
		a.send(message("x", withKey("k")), message("y", withKey("l")), message("z", withKey("m"), delay(time.Minute)))
		a.settle(nack(a.claimOne("x", held), time.Hour), store.StateScheduled)
		a.settle(store.Settlement{Receipt: a.claimOne("y", held).Receipt, Action: store.Bury, Reason: "no"},
			store.StateDead)
		e.equal("known", a.scanAll().Keys, []string(nil))
		var holds []string
		for cursor := store.ScanKeys; cursor != ""; {
			part, err := e.subQueues().Scan(e.Context(), a.queue, cursor)
			e.ok(err)
			e.equal("ids", len(part.IDs)+len(part.Once), 0)
			holds, cursor = append(holds, part.Holds...), part.Next
		}
		slices.Sort(holds)
		e.equal("held", slices.Compact(holds), []string{"k", "l"})
	}},
	{"a claim claims nothing from its end on", func(e *env) {
		a, _ := e.subFlow(halting)
		a.send(message("x", withKey("k")), message("y"))
		now := a.flow().Now
		claim := func(until time.Time) []store.Claimed {
			c, err := e.Store.Claim(e.Context(), a.queue, store.ClaimRequest{Max: 9, Lease: time.Minute, Until: until})
			e.ok(err)
			e.equal("limited", c.Limited, true)
			return c.Messages
		}
		e.equal("claimed", len(claim(time.UnixMilli(1))), 0)
		e.equal("claimed", len(claim(now.Truncate(time.Millisecond))), 0)
		a.count(0, 2, 0, 0)
		e.equal("claimed", len(claim(now.Add(time.Minute))), 2)
	}},
	{"an expected key starts nothing until it arrives", func(e *env) {
		for name, flow := range map[string]store.Flow{"order": halting, "fair": {Fair: true},
			"rate": keyRate(10, time.Second, 5), "urgency": {Urgency: true}} {
			e.Log(name)
			a, b := e.other().subFlow(flow)
			b.send(message("b", withKey("k")))
			b.expects(a, "k", "idle")
			b.expects(a, "k")
			b.full()
			b.send(message("c", withKey("k")), message("idle", withKey("idle")), message("free", withKey("l")),
				message("none"))
			b.ack(b.takesOf(map[string][]string{"l": {"free"}, "": {"none"}})...)
			b.full()
			e.equal("full", b.flow().Keys.Full, int64(2))
			a.send(message("first", withKey("k"), at(b.now().Add(-time.Minute))))
			a.moves(b, "first")
			b.full()
			consumers := b.line(1)
			e.equal("stays", a.handsOver(b, "k"), []string(nil))
			first := consumers.next(b)
			e.equal("first", first.ID, "first")
			b.ack(first)
			if flow.Key.Order != store.OrderNone {
				b.inOrder("k", "b", "c")
			} else {
				b.ack(b.takesOf(map[string][]string{"k": {"b", "c"}})...)
			}
			b.full()
			_, err := e.subQueues().Expect(e.Context(), b.queue, store.Expected{From: a.queue, Number: 99, None: true})
			e.ok(err)
			b.takesOf(map[string][]string{"idle": {"idle"}})
		}
	}},
	{"a key that arrives without a state is expected no longer", func(e *env) {
		a, b := e.subFlow(store.Flow{Fair: true})
		b.send(message("x", withKey("k")), message("y", withKey("l")))
		b.expects(a, "k", "l")
		a.handsOver(b, "k")
		_, err := e.subQueues().Expect(e.Context(), b.queue, store.Expected{From: a.queue, Number: 99, None: true,
			Keys: []string{"l", "m"}})
		e.ok(err)
		b.send(message("z", withKey("m")))
		b.takesOf(map[string][]string{"k": {"x"}, "m": {"z"}})
		b.override("l", store.KeyOverride{Weight: new(2)})
		b.full()
		b.override("l", store.KeyOverride{})
		b.full()
		e.equal("overrides", b.overrides(), "")
	}},
	{"what is expected after it has arrived is refused", func(e *env) {
		a, b := e.subFlow(halting)
		number := a.departs(b).Number
		a.handsOver(b, "k")
		_, err := e.subQueues().Expect(e.Context(), b.queue, store.Expected{From: a.queue, Number: number,
			Keys: []string{"k"}})
		e.is(err, store.ErrConflict)
		b.send(message("x", withKey("k")))
		b.takesKey("k", "x")
	}},
	{"places and fences go on behind those of another sub-queue", func(e *env) {
		a, b := e.subFlow(continuing)
		last := func(f *env, raise int64) int64 {
			last, err := e.subQueues().Expect(e.Context(), f.queue, store.Expected{Last: raise})
			e.ok(err)
			return last
		}
		e.equal("none", last(a, 0), int64(0))
		a.send(message("a", withKey("k")))
		place := last(a, 0)
		if now := a.now().UnixMicro(); place == 0 || place > now {
			e.Fatalf("the last place is %d at %d", place, now)
		}
		fence := a.claimOne("a", held).Fence
		if got := last(a, 0); got < fence || got < place {
			e.Fatalf("the last place or fence is %d, and %d and %d were given", got, place, fence)
		}
		future := b.now().Add(time.Second).UnixMicro()
		e.equal("raised", last(b, future), future)
		e.equal("not lowered", last(b, 1), future)
		b.send(message("b", withKey("k")))
		if due := b.get("b").Due.UnixMicro(); due < future/1000*1000 {
			e.Fatalf("the message is due at %d, want behind %d", due, future)
		}
		if fence := b.claimOne("b", held).Fence; fence <= future {
			e.Fatalf("the fence is %d, want behind %d", fence, future)
		}
	}},
	{"a message keeps its place where the clock is behind it", func(e *env) {
		a, b := e.subFlow(continuing)
		last, err := e.subQueues().Expect(e.Context(), a.queue, store.Expected{Last: a.now().Add(time.Hour).UnixMicro()})
		e.ok(err)
		a.send(message("z", withKey("k")), message("y", withKey("k")), message("x", withKey("k")))
		_, err = e.subQueues().Expect(e.Context(), b.queue, store.Expected{Last: last + 10})
		e.ok(err)
		a.movesAll(b, "k")
		b.send(message("a", withKey("k")))
		b.inOrder("k", "z", "y", "x", "a")
	}},
	{"many keys are known in parts", func(e *env) {
		a, b := e.subFlow(keyRate(1, time.Hour, 1))
		var want []string
		for i := range 1200 {
			want = append(want, fmt.Sprintf("k%04d", i))
		}
		for part := range slices.Chunk(want, 400) {
			var msgs []store.Outgoing
			for _, key := range part {
				msgs = append(msgs, message("m-"+key, withKey(key)))
			}
			a.send(msgs...)
			a.ack(a.claimMany(len(part), held)...)
		}
		e.equal("known", a.scanAll().Keys, want)
		for part := range slices.Chunk(want, store.MaxDeparture) {
			a.handsOver(b, part...)
		}
		e.equal("left", a.scanAll().Keys, []string(nil))
		e.equal("known", b.scanAll().Keys, want)
	}},
}
