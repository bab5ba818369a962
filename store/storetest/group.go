package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/laterq/later/store"
)

func group(name string) func(*store.Outgoing) {
	return func(m *store.Outgoing) { m.Group = name }
}

// inGroup checks which messages a listing of a group returns, in pages of one and of all.
func (e *env) inGroup(name string, want ...string) {
	e.Helper()
	for _, limit := range []int{1, store.MaxBatch} {
		listed := e.list(store.ListRequest{Group: name, Limit: limit})
		e.equal(fmt.Sprintf("messages of group %q", name), infoIDs(listed), want)
		for i := range listed {
			e.equal("group", listed[i].Group, name)
		}
	}
}

// noIndex checks that nothing is left of a group, even if the ids of its messages are used again.
func (e *env) noIndex(name string, ids ...string) {
	e.Helper()
	e.inGroup(name)
	for _, id := range ids {
		e.send(message(id, delay(time.Hour)))
	}
	e.inGroup(name)
}

var groupRules = []rule{
	{"the messages of a group are listed by id, in every state", func(e *env) {
		e.sendDead("d", group("g"))
		e.send(message("c", group("g")))
		e.claimOne("c", held)
		e.send(message("b", group("g")), message("a", group("g"), delay(time.Hour)), message("e", group("h")),
			message("f"))
		e.inGroup("g", "a", "b", "c", "d")
		e.inGroup("h", "e")
		states := []store.State{store.StateScheduled, store.StateReady, store.StateLeased, store.StateDead}
		for i, info := range e.list(store.ListRequest{Group: "g", Limit: 10}) {
			e.equal("listed", describe(&info), describe(e.live(info.ID, states[i])))
		}
	}},
	{"a group is kept by Get, Claim and every settle that keeps the message", func(e *env) {
		e.send(message("m", group("g"), maxAttempts(3)))
		for _, s := range []store.Settlement{
			{Action: store.Release}, {Action: store.Snooze}, {Action: store.Nack, Reason: "no"},
			{Action: store.Bury, Reason: "bad"},
		} {
			e.equal("group", e.live("m", store.StateReady).Group, "g")
			c := e.claimOne("m", held)
			e.equal("group of a claimed message", c.Group, "g")
			e.inGroup("g", "m")
			s.Receipt = c.Receipt
			e.ok(e.trySettle(s)[0].Err)
			e.inGroup("g", "m")
		}
		e.equal("group", e.live("m", store.StateDead).Group, "g")
		bulk, err := e.Store.Replay(e.Context(), e.queue, store.Selection{State: store.StateDead}, store.Due{})
		e.ok(err)
		e.equal("replayed", bulk.Done, 1)
		e.inGroup("g", "m")
		e.ok(e.tryReschedule("m", store.Due{Delay: time.Hour}))
		e.inGroup("g", "m")
		e.ok(e.tryReschedule("m", store.Due{}))
		c := e.claimOne("m", held)
		e.equal("group of a claimed message", c.Group, "g")
		e.ack(c)
		e.noIndex("g", "m")
	}},
	{"acks remove messages from their groups, whole claims, parts of them and single ones", func(e *env) {
		e.send(many(6, group("g"))...)
		e.send(message("x"), message("y", dedupWindow(time.Hour)), message("z", group("h"), dedupWindow(time.Hour)))
		c := e.claim(6)
		e.ack(c[4])
		e.inGroup("g", "m00000", "m00001", "m00002", "m00003", "m00005")
		for _, r := range e.trySettle(ackOf(c[0]), ackOf(c[1])) {
			e.ok(r.Err)
		}
		e.inGroup("g", "m00002", "m00003", "m00005")
		for _, r := range e.trySettle(ackOf(c[5]), ackOf(c[3]), ackOf(c[2])) {
			e.ok(r.Err)
		}
		rest := e.claim(3)
		e.equal("claimed", len(rest), 3)
		for _, r := range e.trySettle(ackOf(rest[0]), ackOf(rest[1]), ackOf(rest[2])) {
			e.ok(r.Err)
		}
		e.inGroup("h")
		e.equal("duplicate", e.trySend(message("z", group("h")))[0].Duplicate, true)
		e.inGroup("h")
		e.noIndex("g", "m00000", "m00005")
	}},
	{"cancel, purge and remove take messages in every state out of their groups", func(e *env) {
		fill := func() {
			e.sendDead("d", group("g"))
			e.send(message("c", group("g")))
			e.claimOne("c", held)
			e.send(message("b", group("g")), message("a", group("g"), delay(48*time.Hour)))
		}
		fill()
		for _, id := range []string{"a", "b", "c", "d"} {
			e.ok(e.tryCancel(id).Err)
		}
		e.inGroup("g")
		fill()
		e.equal("purged", e.purge(store.Selection{State: store.StateScheduled}), 1)
		e.inGroup("g", "b", "c", "d")
		e.equal("purged", e.purge(store.Selection{State: store.StateReady}), 1)
		e.inGroup("g", "c", "d")
		e.equal("purged", e.purge(store.Selection{State: store.StateDead, IDs: []string{"d"}}), 1)
		e.inGroup("g", "c")
		e.equal("purged", e.purge(store.Selection{State: store.StateNone}), 1)
		e.inGroup("g")
		fill()
		e.equal("purged", e.purge(store.Selection{State: store.StateNone}), 4)
		e.inGroup("g")
		fill()
		infos := e.list(store.ListRequest{Group: "g", Limit: 10})
		removed, err := e.Store.Remove(e.Context(), e.queue, infos)
		e.ok(err)
		e.equal("removed", removed, []bool{true, true, false, true})
		e.inGroup("g", "c")
		e.ok(e.tryCancel("c").Err)
		e.noIndex("g", "a", "b", "c", "d")
	}},
	{"messages that die or are dropped stay in their groups while they are live", func(e *env) {
		e.advance(time.Millisecond)
		e.send(message("lost", group("g"), maxAttempts(1)))
		e.claimOne("lost", short)
		e.send(message("expired", group("g"), expireAfter(time.Second)))
		e.advance(time.Hour)
		e.equal("claimed", len(e.claimAll()), 0)
		e.count(0, 0, 0, 2)
		e.inGroup("g", "expired", "lost")
		e.ok(e.tryCancel("expired").Err)
		e.advance(time.Millisecond)
		e.sendDead("later", group("g"))
		e.retain(store.Retention{MaxCount: 1})
		e.equal("dropped", e.dropped(), []string{"lost"})
		e.inGroup("g", "later")
		e.retain(store.Retention{MaxAge: time.Minute})
		e.advance(time.Hour)
		e.equal("dropped", e.dropped(), []string{"later"})
		e.noIndex("g", "lost", "later")
	}},
	{"a duplicate changes no group", func(e *env) {
		e.send(message("m", group("g")))
		results := e.trySend(message("m", group("h")), message("n", group("h")), message("n", group("g")), message("m"))
		e.equal("duplicates", results, []store.SendResult{{Duplicate: true}, {}, {Duplicate: true}, {Duplicate: true}})
		e.inGroup("g", "m")
		e.inGroup("h", "n")
	}},
	{"an id that is sent again is in its new group only", func(e *env) {
		e.send(message("m", group("g")))
		e.ok(e.tryCancel("m").Err)
		e.send(message("m", group("h")))
		e.inGroup("g")
		e.inGroup("h", "m")
		e.ack(e.claimOne("m", held))
		e.send(message("m"))
		e.inGroup("h")
	}},
	{"groups whose names begin alike, and the same group in another queue, are apart", func(e *env) {
		f := e.other()
		long := strings.Repeat("g", store.MaxGroup)
		names := []string{"a", "ab", "b", "größe", "Größe", " ", "a:b", "*", "%", long, long[1:]}
		for i, name := range names {
			e.send(message(fmt.Sprint("m", i), group(name)))
			f.send(message(fmt.Sprint("m", i), group(name)), message(fmt.Sprint("n", i), group(name)))
		}
		for i, name := range names {
			e.inGroup(name, fmt.Sprint("m", i))
			f.inGroup(name, fmt.Sprint("m", i), fmt.Sprint("n", i))
		}
		e.cancel("m0", store.StateReady)
		e.inGroup("a")
		e.inGroup("ab", "m1")
		f.inGroup("a", "m0", "n0")
		e.ok(e.Store.Delete(e.Context(), f.queue))
		f.inGroup("a")
		e.inGroup("ab", "m1")
	}},
	{"messages of a group are found by ids of any text, in order of bytes", func(e *env) {
		want := []string{"B", "a", "a b", "ab", "b", "z", "ä", "日本"}
		for _, i := range []int{3, 7, 0, 5, 2, 6, 1, 4} {
			e.send(message(want[i], group("g")))
		}
		e.inGroup("g", want...)
	}},
	{"a group of 1200 messages is listed in pages, while some of them go", func(e *env) {
		const n = 1200
		e.send(many(n, group("g"))...)
		e.send(many(10, delay(time.Hour), func(m *store.Outgoing) { m.ID = "x" + m.ID })...)
		listed := infoIDs(e.list(store.ListRequest{Group: "g", Limit: store.MaxBatch}))
		e.equal("number listed", len(listed), n)
		e.equal("in order", slices.IsSorted(listed), true)
		seen := 0
		req := store.ListRequest{Group: "g", Limit: store.MaxBatch}
		for {
			page, err := e.Store.List(e.Context(), e.queue, req)
			e.ok(err)
			seen += len(page.Messages)
			results, err := e.Store.Cancel(e.Context(), e.queue, store.CancelRequest{IDs: infoIDs(page.Messages)})
			e.ok(err)
			for _, r := range results {
				e.ok(r.Err)
			}
			if req.Cursor = page.Next; req.Cursor == "" {
				break
			}
		}
		e.equal("number listed", seen, n)
		e.inGroup("g")
		e.count(10, 0, 0, 0)
	}},
	{"a page of a group is bounded in bytes", func(e *env) {
		const n, length = 12, store.MaxPayload / 2
		for i := range n {
			m := message(fmt.Sprintf("m%02d", i), group("g"))
			m.Payload = make([]byte, length)
			e.send(m)
		}
		seen := 0
		for cursor := ""; ; {
			req := store.ListRequest{Group: "g", Limit: store.MaxBatch, Cursor: cursor}
			page, err := e.Store.List(e.Context(), e.queue, req)
			e.ok(err)
			if size := len(page.Messages) * length; size > store.MaxBatchBytes+length {
				e.Errorf("a page has %d bytes", size)
			}
			seen += len(page.Messages)
			if cursor = page.Next; cursor == "" {
				break
			}
		}
		e.equal("number listed", seen, n)
	}},
	{"messages sent days ahead are in their groups", func(e *env) {
		e.send(many(20, delay(48*time.Hour), group("g"))...)
		e.equal("number listed", len(e.list(store.ListRequest{Group: "g", Limit: 7})), 20)
		e.ok(e.tryReschedule("m00003", store.Due{}))
		c := e.claimOne("m00003", held)
		e.equal("group", c.Group, "g")
		e.ack(c)
		e.ok(e.tryCancel("m00004").Err)
		e.advance(48*time.Hour + time.Second)
		e.equal("number listed", len(e.list(store.ListRequest{Group: "g", Limit: 7})), 18)
		claimed := e.claim(100)
		e.equal("claimed", len(claimed), 18)
		e.ack(claimed...)
		e.inGroup("g")
	}},
	{"follow-ups are in their groups, and their ack leaves its own", func(e *env) {
		f := e.linked()
		e.send(message("m", group("g")))
		c := e.claimOne("m", held)
		e.settle(then(c, f.to(message("a", group("g"))), f.to(message("b")),
			e.to(message("c", group("h"), delay(time.Hour))),
			f.to(message("d", group("g"), delay(48*time.Hour)))), store.StateNone)
		e.inGroup("g")
		e.inGroup("h", "c")
		f.inGroup("g", "a", "d")
	}},
	{"forwarded messages keep their groups", func(e *env) {
		f := e.forwardsTo()
		e.send(message("a", group("g")), message("b"), message("c", group("h")))
		f.send(message("c", delay(time.Hour)))
		e.equal("moved", e.forward(f, 10).Count, 3)
		e.inGroup("g")
		e.inGroup("h")
		f.inGroup("g", "a")
		f.inGroup("h") // the live message has no group
	}},
	{"restored messages keep their groups", func(e *env) {
		f := e.other()
		e.sendDead("d", group("g"))
		e.send(message("c", group("g")))
		e.claimOne("c", held)
		e.send(message("b", group("g")), message("a", group("g"), delay(48*time.Hour)))
		infos := e.list(store.ListRequest{Group: "g", Limit: 10})
		for _, want := range []bool{false, true} {
			results, err := f.Store.Restore(e.Context(), f.queue, infos)
			e.ok(err)
			for _, r := range results {
				e.equal("duplicate", r.Duplicate, want)
			}
			f.inGroup("g", "a", "b", "c", "d")
		}
	}},
	{"a listing of a group with a state, a time or an unknown cursor is refused", func(e *env) {
		e.send(message("m", group("g")))
		for _, req := range []store.ListRequest{
			{Group: "g", State: store.StateReady}, {Group: "g", From: e.now()}, {Group: "g", To: e.now()},
			{Group: "g", Cursor: "not a cursor"}, {Group: "a\x00b"}, {Group: strings.Repeat("g", store.MaxGroup+1)},
		} {
			req.Limit = 10
			_, err := e.Store.List(e.Context(), e.queue, req)
			e.is(err, store.ErrInvalid)
		}
		e.inGroup("unknown")
	}},
	{"an ack of another process removes a message from its group", func(e *env) {
		e.send(message("m", group("g")), message("n", group("g")))
		for _, c := range e.claim(2) {
			c.Receipt.Claim, c.Receipt.Index = nil, 0
			e.ack(c)
		}
		e.noIndex("g", "m", "n")
	}},
}
