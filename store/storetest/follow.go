package storetest

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/laterq/later/store"
)

// following has a message follow a leased one, or replace another live one.
func following(m *store.Outgoing) { m.OnDuplicate = store.OnDuplicate{Mode: store.DuplicateFollow} }

// followingKeepingDue is following, and the due time of a message or successor that is replaced stays.
func followingKeepingDue(m *store.Outgoing) {
	m.OnDuplicate = store.OnDuplicate{Mode: store.DuplicateFollow, KeepDue: true}
}

var (
	wasFollowing     = []store.SendResult{{Follows: true}}
	replacedFollower = []store.SendResult{{Follows: true, Replaced: true}}
)

// endings are the ways to end a hold, and whether the message has a state then.
var endings = map[string]store.Settlement{
	"ack":        {Action: store.Ack, DedupWindow: time.Hour, Grouped: true},
	"nack":       {Action: store.Nack, Delay: time.Minute, Reason: "no"},
	"snooze":     {Action: store.Snooze, Delay: time.Minute, ResetAttempts: true},
	"release":    {Action: store.Release},
	"bury":       {Action: store.Bury, Reason: "no"},
	"given back": {Action: store.GiveBack, Delay: time.Minute, Within: -1, Reason: "no"},
}

// followed sends and claims a message that has failed once and dies of another failure, and sends its successor.
func (e *env) followed(id string, changes ...func(*store.Outgoing)) store.Claimed {
	e.Helper()
	e.send(message(id, maxAttempts(2), dedupWindow(time.Hour), group("g"), payload("old")))
	e.settle(nack(e.claimOne(id, held), 0), store.StateReady)
	c := e.claimOne(id, held)
	changes = append([]func(*store.Outgoing){following, payload("new")}, changes...)
	e.equal("results", e.trySend(message(id, changes...)), wasFollowing)
	return c
}

// fresh checks that a successor is like a message that was just sent, and returns its Info.
func (e *env) fresh(id string, want store.State) *store.Info {
	e.Helper()
	info := e.live(id, want)
	e.equal("payload", string(info.Payload), "new")
	e.equal("history", fmt.Sprintf("%d %d %q %v", info.Attempts, len(info.Failures), info.LastError, info.Delivered),
		`0 0 "" false`)
	e.equal("follows", info.Follows, want == store.StateLeased)
	return info
}

var followRules = []rule{
	{"a leased message gets a successor, of which the store tells", func(e *env) {
		e.send(message("m", payload("old"), maxAttempts(3)))
		c := e.claimWith(1, held)
		e.advance(time.Second)
		now := e.now()
		e.equal("results", e.trySend(message("m", following, payload("new"), delay(time.Minute))), wasFollowing)
		info := e.live("m", store.StateLeased)
		e.equal("follows", info.Follows, true)
		e.equal("payload", string(info.Payload), "new")
		e.at("due", info.Due, now.Add(time.Minute))
		e.at("sent", info.SentAt, now)
		e.at("deadline", info.LeaseDeadline, c.Deadline)
		e.count(0, 0, 1, 0)
		listed := e.list(store.ListRequest{State: store.StateLeased, From: now.Add(time.Second), Limit: 10})
		e.equal("listed", fmt.Sprint(infoIDs(listed), len(listed) == 1 && describe(&listed[0]) == describe(info)),
			"[m] true")
		e.equal("claimed", len(e.claim(1)), 0)
		e.is(e.tryReschedule("m", store.Due{}), store.ErrLeased)
		e.equal("a plain send", e.trySend(message("m")), []store.SendResult{{Duplicate: true}})
		e.is(e.trySend(message("m", replacing))[0].Err, store.ErrLeased)
		e.is(e.trySend(message("m", debounced(time.Second, time.Minute)))[0].Err, store.ErrLeased)
		e.equal("message", describe(e.get("m")), describe(info))
	}},
	{"a successor is live when the hold ends, in whatever way, as if it had just been sent", func(e *env) {
		for name, s := range endings {
			c := e.followed(name, group("g"))
			s.Receipt = c.Receipt
			want := store.StateReady
			if s.Action == store.Ack {
				want = store.StateNone
			}
			e.settle(s, want)
			e.fresh(name, store.StateReady)
			e.inGroup("g", name)
			e.refused(c.Receipt)
			e.count(0, 1, 0, 0)
			again := e.claimOne(name, held)
			e.equal("payload", string(again.Payload), "new")
			e.equal("attempt", again.Attempt, 1)
			e.settle(nack(again, 0), store.StateReady) // its own attempts count
			e.equal("attempts", e.get(name).Attempts, 1)
			e.ack(e.claimOne(name, held))
			e.gone(name)
			e.equal("sent again", e.trySend(message(name)), wasSent) // no dedup window has started
			e.cancel(name, store.StateReady)
		}
		e.count(0, 0, 0, 0)
	}},
	{"a successor that is due later is scheduled until then", func(e *env) {
		for name, s := range endings {
			c := e.followed(name, delay(3*day))
			due := e.get(name).Due
			s.Receipt = c.Receipt
			want := store.StateScheduled
			if s.Action == store.Ack {
				want = store.StateNone
			}
			e.settle(s, want)
			e.at("due", e.fresh(name, store.StateScheduled).Due, due)
			e.inGroup("g")
		}
		e.count(int64(len(endings)), 0, 0, 0)
		e.advance(3*day + time.Second)
		e.equal("claimed", len(e.drain()), len(endings))
	}},
	{"the end of a lease makes the successors of its messages live, and kills none", func(e *env) {
		for _, uncounted := range []bool{false, true} {
			e.send(message("a", maxAttempts(1)), message("b", maxAttempts(1), payload("old")), message("c"))
			c, err := e.Store.Claim(e.Context(), e.queue,
				store.ClaimRequest{Max: 3, Lease: short, Uncounted: uncounted})
			e.ok(err)
			e.trySend(message("b", following, payload("new")),
				message("c", following, payload("new"), delay(time.Hour)))
			e.advance(short)
			e.refused(c.Messages[1].Receipt)
			e.fresh("c", store.StateLeased) // until a claim
			again := e.claimWith(3, held)
			if uncounted {
				e.equal("claimed", ids(again.Messages), []string{"a", "b"})
				e.equal("died", len(again.Died), 0)
			} else {
				e.equal("claimed", ids(again.Messages), []string{"b"})
				e.equal("died", again.Died, []string{"a"})
			}
			b := again.Messages[len(again.Messages)-1]
			e.equal("payload and attempt", fmt.Sprintf("%s %d", b.Payload, b.Attempt), "new 1")
			e.fresh("c", store.StateScheduled)
			e.ack(again.Messages...)
			e.purge(store.Selection{})
		}
	}},
	{"a further send replaces the successor, with a due time of its own or that of the successor", func(e *env) {
		c := e.followed("m", delay(time.Hour))
		before := e.get("m")
		e.advance(time.Second)
		e.equal("results", e.trySend(message("m", followingKeepingDue, payload("2"), delay(time.Minute), group("h"))),
			replacedFollower)
		info := e.live("m", store.StateLeased)
		e.equal("payload", string(info.Payload), "2")
		e.at("due", info.Due, before.Due)
		e.at("sent", info.SentAt, before.SentAt)
		e.inGroup("g")
		e.inGroup("h", "m")
		e.equal("results", e.trySend(message("m", following, payload("new"))), replacedFollower)
		e.ack(c)
		e.fresh("m", store.StateReady)
		e.inGroup("h")
	}},
	{"a successor can be held and followed in turn", func(e *env) {
		e.send(message("m", payload("0")))
		for i := range 5 {
			c := e.claimOne("m", held)
			e.equal("payload", string(c.Payload), fmt.Sprint(i))
			e.equal("results", e.trySend(message("m", following, payload(fmt.Sprint(i+1)))), wasFollowing)
			e.ack(c)
			e.refused(c.Receipt)
		}
		e.ack(e.claimOne("m", held))
		e.count(0, 0, 0, 0)
	}},
	{"messages of a claim are settled together, whichever of them have successors", func(e *env) {
		e.send(many(40, group("g"), dedupWindow(time.Hour))...)
		claimed := e.claim(40)
		for i := 0; i < 40; i += 7 {
			e.equal("results", e.trySend(message(claimed[i].ID, following, group("g"))), wasFollowing)
		}
		var acks []store.Settlement
		for _, c := range claimed[:30] {
			acks = append(acks, ackOf(c))
		}
		for _, r := range e.trySettle(acks...) {
			e.ok(r.Err)
		}
		e.inGroup("g", append([]string{claimed[0].ID, claimed[7].ID, claimed[14].ID, claimed[21].ID, claimed[28].ID},
			ids(claimed[30:])...)...)
		for _, c := range claimed[:30] {
			e.refused(c.Receipt)
		}
		e.ack(claimed[30:]...)
		e.equal("claimed", len(e.drain()), 6)
		for i, r := range e.trySend(many(40)...) {
			e.equal("duplicate", r.Duplicate, i%7 != 0)
		}
	}},
	{"an ack with follow-ups makes the successor live too", func(e *env) {
		c := e.followed("m")
		e.settle(then(c, e.to(message("f"))), store.StateNone)
		e.fresh("m", store.StateReady)
		e.count(0, 2, 0, 0)
	}},
	{"an extend keeps the lease of a message with a successor, and reports nothing lost", func(e *env) {
		c := e.followed("m")
		r := e.tryExtend(c.Receipt.Lease, 2*held)
		e.ok(r.Err)
		e.equal("lost", len(r.Lost), 0)
		e.at("deadline", e.get("m").LeaseDeadline, r.Deadline)
		e.ack(c)
		e.fresh("m", store.StateReady)
	}},
	{"a cancel removes both the held message and its successor", func(e *env) {
		e.send(message("other"))
		other := e.claimOne("other", held)
		for _, keep := range []bool{false, true} {
			c := e.followed("m", dedupWindow(time.Minute))
			result := e.cancelAll(store.CancelRequest{IDs: []string{"m"}, KeepIDs: keep})[0]
			e.ok(result.Err)
			e.equal("state", result.State, store.StateLeased)
			e.gone("m")
			e.inGroup("g")
			r := e.tryExtend(c.Receipt.Lease, held)
			e.is(r.Err, store.ErrLeaseLost)
			e.equal("lost", keys(r.Lost), keys([]store.Receipt{c.Receipt}))
			e.refused(c.Receipt)
			e.equal("sent again", e.trySend(message("m")), []store.SendResult{{Duplicate: keep}})
			if !keep {
				e.ack(e.claimOne("m", held))
			}
		}
		e.ack(other)
		e.count(0, 0, 0, 0)
	}},
	{"a message that was cancelled while it was leased and sent again can be followed", func(e *env) {
		e.send(message("m"), message("n"))
		first := e.claim(2)
		e.cancel("m", store.StateLeased)
		e.send(message("m"))
		second := e.claimOne("m", held)
		e.equal("results", e.trySend(message("m", following, payload("new"))), wasFollowing)
		e.refused(first[0].Receipt)
		e.ack(first[1])
		e.equal("follows", e.get("m").Follows, true)
		e.ack(second)
		e.fresh("m", store.StateReady)
		e.refused(second.Receipt)
		e.ack(e.claimOne("m", held))
		e.count(0, 0, 0, 0)
	}},
	{"purging everything removes successors", func(e *env) {
		c := e.followed("m")
		e.equal("purged", e.purge(store.Selection{}), 1)
		e.count(0, 0, 0, 0)
		e.refused(c.Receipt)
		e.equal("sent again", e.trySend(message("m", following, payload("new"))), wasSent)
		e.fresh("m", store.StateReady)
	}},
	{"a message with a successor is exported as the successor, and not removed", func(e *env) {
		c := e.followed("m", delay(time.Minute))
		all := e.listAll()
		e.equal("removed", e.remove(all...), []bool{false})
		f := e.other()
		f.restore(all...)
		f.at("due", f.fresh("m", store.StateScheduled).Due, all[0].Due)
		e.ack(c)
		e.fresh("m", store.StateScheduled)
	}},
	{"the expiry of a successor applies", func(e *env) {
		e.send(message("m"))
		c := e.claimOne("m", held)
		e.trySend(message("m", following, expireAfter(time.Second)))
		e.advance(time.Second)
		e.settle(nack(c, 0), store.StateReady)
		e.equal("expired", e.claimWith(1, held).Expired, []string{"m"})
	}},
	{"the end of a hold wakes a waiter for the successor", func(e *env) {
		for name, s := range endings {
			c := e.followed(name)
			s.Receipt = c.Receipt
			e.ack(e.wakes(name, func() { e.ok(e.trySettle(s)[0].Err) }))
		}
	}},
	{"equal ids within a send take effect in order", func(e *env) {
		e.send(message("m"), message("n"))
		c := e.claimOne("m", held)
		e.equal("results", e.trySend(message("m", following, payload("1")), message("n", following),
			message("m", followingKeepingDue, payload("new")), message("m", replacing)),
			[]store.SendResult{{Follows: true}, {Replaced: true}, {Follows: true, Replaced: true},
				{Err: store.ErrLeased}})
		e.ack(c)
		e.fresh("m", store.StateReady)
	}},
	{"1,000 racing sends that follow cause one more run, of the last of them, and a cancel removes both", func(e *env) {
		const n = 1000
		e.send(message("m"))
		c := e.claimOne("m", held)
		var added atomic.Int64
		e.concurrently(func(worker int, s store.Store) error {
			for i := range n / workers {
				m := message("m", following, payload(fmt.Sprint(worker, i)))
				r, err := s.Send(e.Context(), e.queue, []store.Outgoing{m})
				switch {
				case err != nil:
					return err
				case !r[0].Follows:
					return fmt.Errorf("send returned %+v", r[0])
				case r[0].Added():
					added.Add(1)
				}
			}
			return nil
		})
		e.equal("successors that were added", added.Load(), int64(1))
		last := string(e.get("m").Payload)
		e.ack(c)
		again := e.claimOne("m", held)
		e.equal("payload", string(again.Payload), last)
		e.equal("results", e.trySend(message("m", following)), wasFollowing)
		e.cancel("m", store.StateLeased)
		e.refused(again.Receipt)
		e.count(0, 0, 0, 0)
	}},
	{"racing sends and workers lose no last send", func(e *env) {
		var runs, added atomic.Int64
		run := func(s store.Store) error {
			c, err := s.Claim(e.Context(), e.queue, store.ClaimRequest{Max: 1, Lease: held})
			if err != nil || len(c.Messages) == 0 {
				return err
			}
			r, err := s.Settle(e.Context(), e.queue, []store.Settlement{ackOf(c.Messages[0])})
			if err != nil || r[0].Err != nil {
				return fmt.Errorf("ack returned %v, %v", r, err)
			}
			runs.Add(1)
			return nil
		}
		e.concurrently(func(worker int, s store.Store) error {
			for i := range 50 {
				if worker == 0 {
					if err := run(s); err != nil {
						return err
					}
					continue
				}
				m := message("m", following, payload(fmt.Sprint(worker, i)))
				r, err := s.Send(e.Context(), e.queue, []store.Outgoing{m})
				if err != nil || r[0].Err != nil {
					return fmt.Errorf("send returned %v, %v", r, err)
				}
				if r[0].Added() {
					added.Add(1)
				}
			}
			return nil
		})
		e.equal("runs and left", runs.Load()+int64(len(e.drain())), added.Load())
		e.count(0, 0, 0, 0)
	}},
}
