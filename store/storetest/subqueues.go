package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/laterq/later/store"
)

// subQueues returns the engine's methods for sub-queues, or skips the rule.
func (e *env) subQueues() store.SubQueues {
	e.Helper()
	s, ok := e.Store.(store.SubQueues)
	if !ok {
		e.Skip("queues of this engine have no sub-queues")
	}
	return s
}

// sub returns an env of a sub-queue, which it creates.
func (e *env) sub(generation, salt string) *env {
	e.Helper()
	s := e.subQueues()
	sub := *e
	sub.queue = store.SubQueue(e.queue, generation, salt)
	if e.Advance != nil {
		e.Advance(e.T, sub.queue, time.Millisecond)
	}
	e.ok(s.Create(e.Context(), sub.queue, store.Settings{}))
	return &sub
}

// isMoved fails unless an error is a *store.Moved with a sign.
func (e *env) isMoved(what string, err error, name, sign string) {
	e.Helper()
	moved, ok := errors.AsType[*store.Moved](err)
	if !ok || !errors.Is(err, store.ErrUnavailable) {
		e.Fatalf("%s: error is %v, want that the queue has moved", what, err)
	}
	e.equal(what+": name and sign", [2]string{moved.Name, moved.Sign}, [2]string{name, sign})
}

// refusesAll fails unless all calls with the name of the queue say that it has moved.
func (e *env) refusesAll(sign string) {
	e.Helper()
	ctx, s, sub := e.Context(), e.Store, e.subQueues()
	receipt := store.Receipt{Lease: "a", ID: "x", Epoch: 1}
	due := store.Due{Delay: time.Second}
	errOf := func(_ any, err error) error { return err }
	for name, call := range map[string]func() error{
		"send":     func() error { return errOf(s.Send(ctx, e.queue, []store.Outgoing{message("x")})) },
		"send far": func() error { return errOf(s.Send(ctx, e.queue, many(9, delay(50*time.Hour)))) },
		"collapse": func() error { return errOf(s.Send(ctx, e.queue, []store.Outgoing{message("x", replacing)})) },
		"claim": func() error {
			return errOf(s.Claim(ctx, e.queue, store.ClaimRequest{Max: 1, Lease: held}))
		},
		"settle": func() error {
			return errOf(s.Settle(ctx, e.queue, []store.Settlement{{Receipt: receipt, Action: store.Ack}}))
		},
		"nack": func() error {
			return errOf(s.Settle(ctx, e.queue, []store.Settlement{{Receipt: receipt, Action: store.Nack}}))
		},
		"ack with a follow-up": func() error {
			return errOf(s.Settle(ctx, e.queue, []store.Settlement{{Receipt: receipt, Action: store.Ack,
				Then: []store.FollowUp{{Queue: e.queue, Message: message("y")}}}}))
		},
		"extend":     func() error { return errOf(s.Extend(ctx, e.queue, []store.Extension{{Lease: "a", For: held}})) },
		"wait":       func() error { return s.Wait(e.timeoutContext(), e.queue) },
		"cancel":     func() error { return errOf(s.Cancel(ctx, e.queue, store.CancelRequest{IDs: []string{"x"}})) },
		"reschedule": func() error { return errOf(s.Reschedule(ctx, e.queue, []string{"x"}, due)) },
		"get":        func() error { return errOf(s.Get(ctx, e.queue, []string{"x"})) },
		"list": func() error {
			return errOf(s.List(ctx, e.queue, store.ListRequest{State: store.StateReady, Limit: 1}))
		},
		"list leased": func() error {
			return errOf(s.List(ctx, e.queue, store.ListRequest{State: store.StateLeased, Limit: 1}))
		},
		"list a group": func() error { return errOf(s.List(ctx, e.queue, store.ListRequest{Group: "g", Limit: 1})) },
		"restore": func() error {
			return errOf(s.Restore(ctx, e.queue, []store.Info{{Message: message("x").Message}}))
		},
		"remove": func() error {
			return errOf(s.Remove(ctx, e.queue, []store.Info{{Message: message("x").Message}}))
		},
		"replay": func() error {
			return errOf(s.Replay(ctx, e.queue, store.Selection{State: store.StateDead}, due))
		},
		"purge":         func() error { return errOf(s.Purge(ctx, e.queue, store.Selection{})) },
		"stats":         func() error { return errOf(s.Stats(ctx, e.queue)) },
		"histogram":     func() error { return errOf(s.Histogram(ctx, e.queue, []time.Time{time.Now(), time.Now()})) },
		"pause":         func() error { return s.SetPaused(ctx, e.queue, true) },
		"retention":     func() error { return s.SetDeadRetention(ctx, e.queue, store.Retention{MaxCount: 1}, nil) },
		"flow":          func() error { return s.SetFlow(ctx, e.queue, store.Flow{Concurrency: 1}, nil) },
		"flow of a key": func() error { return s.SetKeyFlow(ctx, e.queue, "k", store.KeyOverride{}) },
		"resume":        func() error { return s.ResumeKey(ctx, e.queue, "k") },
		"keys":          func() error { return errOf(s.Keys(ctx, e.queue, store.KeysRequest{Limit: 1})) },
		"properties":    func() error { return errOf(s.Properties(ctx, e.queue)) },
		"set properties": func() error {
			return s.SetProperties(ctx, e.queue, map[string]string{"a": "b"}, nil)
		},
		"delete":   func() error { return s.Delete(ctx, e.queue) },
		"activity": func() error { return errOf(s.Activity(ctx, e.queue)) },
		"scan":     func() error { return errOf(sub.Scan(ctx, e.queue, "")) },
		"depart":   func() error { return errOf(sub.Depart(ctx, e.queue, store.Departure{To: "y", IDs: []string{"x"}})) },
		"outbox":   func() error { return errOf(sub.Outbox(ctx, e.queue)) },
		"empty":    func() error { return sub.Empty(ctx, e.queue, 1) },
		"expect":   func() error { return errOf(sub.Expect(ctx, e.queue, store.Expected{Last: 1})) },
	} {
		e.isMoved(name, call(), e.queue, sign)
	}
	f, ok := s.(store.Forwarder)
	if !ok {
		return
	}
	to := store.Target{Kind: store.TargetQueue, Name: "storetest-other"}
	here, err := f.ForwardsTo(e.queue, to)
	e.ok(err)
	if here { // otherwise workers claim, send and ack
		_, err := f.Forward(ctx, e.queue, store.ForwardRequest{To: to, Max: 1})
		e.isMoved("forward", err, e.queue, sign)
	}
}

// signed fails unless there is a sign at the queue's name.
func (e *env) signed(want string) {
	e.Helper()
	got, err := e.Peer.(store.SubQueues).Sign(e.Context(), e.queue)
	e.ok(err)
	e.equal("sign", got, want)
}

// moves moves messages to another sub-queue, and returns the parcel.
func (e *env) moves(to *env, ids ...string) *store.Parcel {
	e.Helper()
	d := e.departs(to, ids...)
	if d.Parcel == nil || d.Before {
		e.Fatalf("the parcel is %v, before %v", d.Parcel, d.Before)
	}
	e.ok(e.subQueues().Arrive(e.Context(), d.Parcel))
	e.ok(e.subQueues().Empty(e.Context(), e.queue, d.Parcel.Number))
	return d.Parcel
}

func (e *env) departs(to *env, ids ...string) store.Departed {
	e.Helper()
	d, err := e.subQueues().Depart(e.Context(), e.queue, store.Departure{To: to.queue, IDs: ids})
	e.ok(err)
	return d
}

// scan returns all that can depart, in order.
func (e *env) scan() (ids []string, once []store.OnceID) {
	e.Helper()
	for cursor := ""; ; {
		part, err := e.subQueues().Scan(e.Context(), e.queue, cursor)
		e.ok(err)
		ids, once = append(ids, part.IDs...), append(once, part.Once...)
		if cursor = part.Next; cursor == "" {
			slices.Sort(ids)
			slices.SortFunc(once, func(a, b store.OnceID) int { return strings.Compare(a.Key, b.Key) })
			return slices.Compact(ids), slices.Compact(once)
		}
	}
}

var subQueueRules = []rule{
	{"a renamed queue keeps everything, and a sign is left", func(e *env) {
		s := e.subQueues()
		to := *e
		to.queue = store.SubQueue(e.queue, "g1", "")
		if e.Advance != nil {
			e.Advance(e.T, to.queue, time.Millisecond)
		}
		e.send(message("held", maxAttempts(3)), message("acked", dedupWindow(time.Hour)))
		e.ack(e.claimOne("acked", held))
		claimed := e.claimOne("held", held)
		due := e.sendsOnce(message("once", once("k", "1"), delay(time.Hour)))
		e.send(message("far", delay(48*time.Hour), group("g")), message("ready"))
		e.sendDead("dead")
		e.ok(e.Store.SetProperties(e.Context(), e.queue, map[string]string{"a": "b"}, nil))
		e.ok(e.Store.SetPaused(e.Context(), e.queue, true))
		before := e.stats()
		e.ok(s.Rename(e.Context(), e.queue, to.queue, "sign", ""))
		e.signed("sign")
		e.refusesAll("sign")
		after := to.stats()
		before.Now, after.Now = time.Time{}, time.Time{}
		e.equal("stats", after, before)
		to.settle(nack(claimed, time.Second), store.StateScheduled)
		to.repeats(message("twice", once("k", "1")), "once", due)
		e.equal("duplicate", to.trySend(message("acked"))[0].Duplicate, true)
		e.equal("group", infoIDs(to.list(store.ListRequest{Group: "g", Limit: 10})), []string{"far"})
		p, err := e.Store.Properties(e.Context(), to.queue)
		e.ok(err)
		e.equal("properties", p, map[string]string{"a": "b"})
		e.ok(s.Rename(e.Context(), e.queue, to.queue, "again", ""))
		e.signed("sign")

		// It gets its name back only from someone who knows the sign.
		e.is(s.Rename(e.Context(), to.queue, e.queue, "gone", "other"), store.ErrConflict)
		e.ok(s.Rename(e.Context(), to.queue, e.queue, "gone", "sign"))
		e.signed("")
		to.signed("gone")
		e.live("far", store.StateScheduled)
	}},
	{"a sub-queue that does not exist is not created", func(e *env) {
		missing := *e
		e.subQueues()
		missing.queue = store.SubQueue(e.queue, "g1", "a")
		missing.refusesAll("")
		missing.refusesAll("")
	}},
	{"a sub-queue is created once, with its settings", func(e *env) {
		s := e.subQueues()
		sub := *e
		sub.queue = store.SubQueue(e.queue, "g1", "a")
		settings := store.Settings{Paused: true, DeadRetention: store.Retention{MaxCount: 7, MaxAge: time.Hour}}
		e.ok(s.Create(e.Context(), sub.queue, settings))
		e.ok(s.Create(e.Context(), sub.queue, store.Settings{}))
		stats := sub.stats()
		e.equal("settings", store.Settings{Paused: stats.Paused, DeadRetention: stats.DeadRetention}, settings)
		e.equal("exists", stats.Exists, true)
		sub.send(message("x"))
		e.ok(s.Create(e.Context(), sub.queue, store.Settings{}))
		sub.live("x", store.StateReady)
		e.ok(s.Retire(e.Context(), sub.queue, "over"))
		e.ok(s.Create(e.Context(), sub.queue, store.Settings{}))
		sub.refusesAll("over")
	}},
	{"a queue is not renamed to one that exists", func(e *env) {
		a, b := e.sub("g1", "a"), e.sub("g2", "a")
		a.send(message("x"))
		e.is(e.subQueues().Rename(e.Context(), a.queue, b.queue, "s", ""), store.ErrConflict)
		a.live("x", store.StateReady)
		b.gone("x")
	}},
	{"a sign is replaced by someone who knows it", func(e *env) {
		s := e.subQueues()
		e.is(s.SetSign(e.Context(), e.queue, "b", ""), store.ErrConflict)
		e.is(s.SetSign(e.Context(), e.queue, "b", "a"), store.ErrConflict)
		e.signed("")
		e.ok(s.Retire(e.Context(), e.queue, "a"))
		e.is(s.SetSign(e.Context(), e.queue, "c", "b"), store.ErrConflict)
		long := strings.Repeat("directory ", 1000)
		e.ok(s.SetSign(e.Context(), e.queue, long, "a"))
		e.ok(s.SetSign(e.Context(), e.queue, long, long))
		e.signed(long)
		e.is(s.SetSign(e.Context(), e.queue, "", "a"), store.ErrConflict)
		e.ok(s.SetSign(e.Context(), e.queue, "", long))
		e.signed("")
		e.send(message("x"))
		e.is(s.SetSign(e.Context(), e.queue, "b", ""), store.ErrConflict)
		e.live("x", store.StateReady)
	}},
	{"a listing has queues with a sign and no sub-queues", func(e *env) {
		e.send(message("x"))
		sub := e.sub("g1", "a")
		e.ok(e.subQueues().Rename(e.Context(), e.queue, store.SubQueue(e.queue, "g1", ""), "s", ""))
		var names []string
		for cursor := ""; ; {
			page, next, err := e.Store.Queues(e.Context(), cursor)
			e.ok(err)
			if names, cursor = append(names, page...), next; cursor == "" {
				break
			}
		}
		e.equal("listed", [2]bool{slices.Contains(names, e.queue), slices.Contains(names, sub.queue)},
			[2]bool{true, false})
	}},
	{"waiters learn that their queue was renamed or retired", func(e *env) {
		a, b := e.sub("g1", "a"), e.sub("g1", "b")
		var waits []chan error
		for _, sub := range []*env{a, b} {
			wait := make(chan error, 1)
			waits = append(waits, wait)
			go func() { wait <- e.Store.Wait(e.timeoutContext(), sub.queue) }()
			sub.asleep(1)
		}
		e.ok(e.Peer.(store.SubQueues).Rename(e.Context(), a.queue, store.SubQueue(e.queue, "g2", "a"), "s", ""))
		e.ok(e.Peer.(store.SubQueues).Retire(e.Context(), b.queue, "s"))
		for i, wait := range waits {
			if err := <-wait; err != nil { // it may return nil first, for no reason
				e.isMoved("wait", err, []*env{a, b}[i].queue, "s")
			}
		}
	}},
	{"follow-ups and forwards to a sign or a missing sub-queue are refused as a whole", func(e *env) {
		s := e.subQueues()
		missing := store.SubQueue(e.queue, "g1", "a")
		signed := e.other()
		e.ok(s.Retire(e.Context(), signed.queue, "s"))
		for _, to := range []string{signed.queue, missing} {
			e.send(message("x"))
			if store.Linked(e.Store, e.queue, to) {
				claimed := e.claimOne("x", held)
				ack := ackOf(claimed)
				ack.Then = []store.FollowUp{{Queue: e.queue, Message: message("here")},
					{Queue: to, Message: message("there")}}
				_, err := e.Store.Settle(e.Context(), e.queue, []store.Settlement{ack})
				if _, ok := errors.AsType[*store.Moved](err); !ok {
					e.Fatalf("the ack has the error %v", err)
				}
				e.live("x", store.StateLeased)
				e.gone("here")
				e.settle(store.Settlement{Receipt: claimed.Receipt, Action: store.Release}, store.StateReady)
			}
			target := store.Target{Kind: store.TargetQueue, Name: to}
			if f, ok := e.Store.(store.Forwarder); ok && to == signed.queue {
				if here, err := f.ForwardsTo(e.queue, target); err == nil && here {
					_, err := f.Forward(e.Context(), e.queue, store.ForwardRequest{To: target, Max: 1})
					if _, ok := errors.AsType[*store.Moved](err); !ok {
						e.Fatalf("the forward has the error %v", err)
					}
				}
			}
			e.live("x", store.StateReady)
			e.cancel("x", store.StateReady)
		}
	}},
	{"messages move as they are", func(e *env) {
		a, b := e.sub("g1", "a"), e.sub("g1", "b")
		now := a.now()
		a.send(message("ready", maxAttempts(5), func(m *store.Outgoing) { m.Headers = map[string]string{"a": "b"} }),
			message("soon", at(now.Add(time.Minute)), expireAfter(time.Hour), dedupWindow(time.Hour)),
			message("far", at(now.Add(50*time.Hour)), group("g")),
			message("failed", maxAttempts(3)), message("raw"))
		a.cancel("raw", store.StateReady)
		for _, c := range a.claim(2) {
			a.settle(nack(c, time.Hour), store.StateScheduled)
		}
		a.sendDead("dead", group("g"))
		_, err := e.Store.Restore(e.Context(), a.queue, []store.Info{{Message: store.Message{ID: "raw"},
			State: store.StateDead, DeadReason: store.DeadUnreadable, DiedAt: now, Due: now, Raw: []byte("\x80\x01?"),
			LastError: store.UnreadableText}, {Message: store.Message{ID: "no bytes"}, State: store.StateDead,
			DeadReason: store.DeadUnreadable, DiedAt: now, Due: now, Raw: []byte{}, LastError: store.UnreadableText}})
		e.ok(err)
		all := []string{"dead", "failed", "far", "no bytes", "raw", "ready", "soon"}
		var before []string
		for _, id := range all {
			before = append(before, describe(a.get(id)))
		}
		was := a.stats()
		ids, _ := a.scan()
		e.equal("scanned", ids, all)
		p := a.moves(b, append(all, "unknown")...)
		e.equal("parcel", [3]any{p.From, p.To, p.Number}, [3]any{a.queue, b.queue, int64(1)})
		for i, id := range all {
			a.gone(id)
			e.equal("moved", describe(b.get(id)), before[i])
		}
		a.count(0, 0, 0, 0)
		stats := b.stats()
		was.Now, stats.Now = time.Time{}, time.Time{}
		e.equal("stats", stats, was)
		e.equal("group", infoIDs(b.list(store.ListRequest{Group: "g", Limit: 9})), []string{"dead", "far"})
		e.equal("group left", a.list(store.ListRequest{Group: "g", Limit: 9}), []store.Info{})
		ids, _ = a.scan()
		e.equal("left", ids, []string(nil))

		// And back.
		b.moves(a, all...)
		for i, id := range all {
			e.equal("moved back", describe(a.get(id)), before[i])
		}
		e.ok(a.tryReschedule("far", store.Due{Delay: time.Minute}))
		a.cancel("dead", store.StateDead)
	}},
	{"dedup windows and remembered sends move", func(e *env) {
		a, b := e.sub("g1", "a"), e.sub("g1", "b")
		a.send(message("acked", dedupWindow(time.Hour)))
		a.ack(a.claimOne("acked", held))
		due := a.sendsOnce(message("o1", once("k1", "1"), delay(time.Hour)))
		a.sendsOnce(message("o2", once("k2", "1")))
		claimed := a.claimOne("o2", held)
		gone := a.sendsOnce(message("o3", once("k3", "1"), delay(time.Hour)))
		a.cancel("o3", store.StateScheduled)
		ids, sends := a.scan()
		e.equal("scanned", ids, []string{"acked", "o1", "o2"})
		keys := map[string]string{}
		for _, o := range sends {
			keys[o.ID] = o.Key
		}
		e.equal("remembered", len(sends), 3)
		d, err := e.subQueues().Depart(e.Context(), a.queue, store.Departure{To: b.queue, IDs: ids,
			Once: []string{keys["o1"], keys["o2"], keys["o3"], "0123456789abcdef"}})
		e.ok(err)
		e.equal("leased", d.Leased, []string{"o2"})
		e.equal("kept", d.Kept, []string{keys["o2"]})
		e.ok(e.subQueues().Arrive(e.Context(), d.Parcel))
		e.ok(e.subQueues().Empty(e.Context(), a.queue, d.Parcel.Number))
		e.equal("duplicate", b.trySend(message("acked"))[0].Duplicate, true)
		b.repeats(message("again", once("k1", "1")), "o1", due)
		b.repeats(message("again", once("k3", "1")), "o3", gone)
		a.send(message("acked"), message("o3"))
		part, err := e.subQueues().Scan(e.Context(), a.queue, "")
		e.ok(err)
		e.equal("leases", part.Leases, 1)
		ids, sends = a.scan()
		e.equal("left", ids, []string{"acked", "o2", "o3"})
		e.equal("left", sends, []store.OnceID{{Key: keys["o2"], ID: "o2"}})
		a.ack(claimed)
		e.equal("conflict", errors.Is(b.trySend(message("again", once("k1", "2")))[0].Err, store.ErrConflict), true)
	}},
	{"a leased message stays, with its successor", func(e *env) {
		a, b := e.sub("g1", "a"), e.sub("g1", "b")
		a.send(message("x"), message("y"))
		claimed := a.claimOne("x", held)
		e.equal("follows", a.trySend(message("x", following))[0].Follows, true)
		d := a.departs(b, "x", "y")
		e.equal("leased", d.Leased, []string{"x"})
		a.count(0, 0, 1, 0)
		b.count(0, 0, 0, 0)
		a.settle(ackOf(claimed), store.StateNone)
		a.live("x", store.StateReady)
		d = a.departs(b, "x")
		e.equal("before", [2]any{d.Before, d.Parcel.Number}, [2]any{true, int64(1)})
		a.live("x", store.StateReady)
	}},
	{"what is on its way is nowhere, and arrives once", func(e *env) {
		a, b := e.sub("g1", "a"), e.sub("g1", "b")
		s, peer := e.subQueues(), e.Peer.(store.SubQueues)
		a.send(message("x"), message("y"), message("z"))
		p, err := s.Outbox(e.Context(), a.queue)
		e.ok(err)
		if p != nil {
			e.Fatalf("the outbox has %v", p)
		}
		a.departs(b, "x", "y")
		for _, sub := range []*env{a, b} {
			sub.gone("x")
			e.equal("cancel", sub.tryCancel("x").Err, error(store.ErrNotFound))
		}
		a.count(0, 1, 0, 0)
		e.equal("another one waits", a.departs(b, "z").Before, true)
		p, err = peer.Outbox(e.Context(), a.queue)
		e.ok(err)
		e.equal("parcel", [3]any{p.From, p.To, p.Number}, [3]any{a.queue, b.queue, int64(1)})
		e.ok(peer.Arrive(e.Context(), p))
		e.equal("claimed", b.claimAll(), []string{"x", "y"})
		e.ok(e.Store.Delete(e.Context(), e.other().queue))
		for _, id := range []string{"x", "y"} {
			b.cancel(id, store.StateLeased)
		}
		e.ok(s.Arrive(e.Context(), p))
		b.count(0, 0, 0, 0)
		e.ok(s.Empty(e.Context(), a.queue, p.Number-1))
		e.equal("still there", a.departs(b, "z").Before, true)
		e.ok(s.Empty(e.Context(), a.queue, p.Number))
		e.equal("number", a.moves(b, "z").Number, int64(2))
		e.ok(s.Arrive(e.Context(), p))
		e.ok(s.Empty(e.Context(), a.queue, 2))
		b.live("z", store.StateReady)
		b.count(0, 1, 0, 0)
	}},
	{"nothing departs if there is nothing", func(e *env) {
		a, b := e.sub("g1", "a"), e.sub("g1", "b")
		d := a.departs(b, "x")
		if d.Parcel != nil || d.Before || d.More || d.Leased != nil {
			e.Fatalf("departed: %+v", d)
		}
	}},
	{"parcels are bounded, and have at least one message", func(e *env) {
		a, b := e.sub("g1", "a"), e.sub("g1", "b")
		var names []string
		for i := range 5 {
			names = append(names, fmt.Sprintf("m%d", i))
			a.send(message(names[i], func(m *store.Outgoing) { m.Payload = make([]byte, store.MaxDepartureBytes/3+i) }))
		}
		a.send(message("huge", func(m *store.Outgoing) { m.Payload = make([]byte, store.MaxDepartureBytes+1) }))
		for left := append([]string{"huge"}, names...); len(left) > 0; left, _ = a.scan() {
			d := a.departs(b, left...)
			ids, _ := a.scan()
			e.equal("more", d.More, len(ids) > 0)
			if len(ids) == len(left) {
				e.Fatalf("nothing has departed of %v", left)
			}
			e.ok(e.subQueues().Arrive(e.Context(), d.Parcel))
			e.ok(e.subQueues().Empty(e.Context(), a.queue, d.Parcel.Number))
		}
		b.count(0, 6, 0, 0)
	}},
	{"messages that arrive wake a waiter", func(e *env) {
		a, b := e.sub("g1", "a"), e.sub("g1", "b")
		a.send(message("x"))
		d := a.departs(b, "x")
		wait := make(chan error, 1)
		go func() { wait <- e.Store.Wait(e.timeoutContext(), b.queue) }()
		b.asleep(1)
		e.ok(e.Peer.(store.SubQueues).Arrive(e.Context(), d.Parcel))
		e.ok(<-wait)
	}},
	{"a send of known ids adds no message", func(e *env) {
		known := func(changes ...func(*store.Outgoing)) store.SendResult {
			id := "x"
			if len(changes) > 2 {
				id, changes = "y", changes[:2]
			}
			results, err := e.subQueues().SendKnown(e.Context(), e.queue, []store.Outgoing{message(id, changes...)})
			e.ok(err)
			return results[0]
		}
		plain := func(*store.Outgoing) {}
		e.is(known().Err, store.ErrNotFound)
		e.is(known(replacing).Err, store.ErrNotFound)
		e.is(known(following).Err, store.ErrNotFound)
		e.is(known(once("k", "1")).Err, store.ErrNotFound)
		e.gone("x")
		due := e.sendsOnce(message("x", once("k", "1"), delay(time.Hour)))
		r := known(once("k", "1"), plain, plain)
		e.equal("known", [2]any{r.Duplicate, r.First.ID}, [2]any{true, "x"})
		e.at("due", r.First.Due, due)
		e.equal("duplicate", known().Duplicate, true)
		e.equal("duplicate", known(once("l", "1")).Duplicate, true)
		e.is(known(replacing).Err, store.ErrNotFound)
		e.is(known(replacing, once("m", "1")).Err, store.ErrNotFound)
		errs, err := e.Store.Reschedule(e.Context(), e.queue, []string{"x"}, store.Due{})
		e.ok(err)
		e.ok(errs[0])
		e.is(known(replacing).Err, store.ErrNotFound)
		e.claimOne("x", held)
		e.equal("duplicate", known().Duplicate, true)
		e.is(known(replacing).Err, store.ErrLeased)
		e.equal("follows", known(following).Follows, true)
		e.cancel("x", store.StateLeased)
		e.is(known().Err, store.ErrNotFound)
		e.send(message("x", dedupWindow(time.Hour)))
		e.ack(e.claimOne("x", held))
		e.equal("duplicate", known().Duplicate, true)
	}},
	{"activity and events of the first sub-queue are the queue's", func(e *env) {
		e.send(message("x"))
		sub := store.SubQueue(e.queue, "g1", "")
		w, err := e.Store.Watch(e.Context(), []string{e.queue})
		e.ok(err)
		e.Cleanup(func() { w.Close() })
		e.ok(e.subQueues().Rename(e.Context(), e.queue, sub, "s", ""))
		results, err := e.Peer.Report(e.Context(), []store.Report{{Queue: sub, Events: []byte("e"), Number: 1,
			Counts: map[store.EventKind]int64{"sent": 3}}})
		e.ok(err)
		e.ok(results[0].Err)
		got, err := w.Next(e.timeoutContext())
		e.ok(err)
		e.equal("events", [2]string{got.Queue, string(got.Events)}, [2]string{e.queue, "e"})
		a, err := e.Store.Activity(e.Context(), sub)
		e.ok(err)
		e.equal("counts", a.Minute.Counts, map[store.EventKind]int64{"sent": 3})
	}},
}
