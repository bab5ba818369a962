package storetest

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/laterq/later/store"
)

// replacing has a message replace a live one, with its own due time.
func replacing(m *store.Outgoing) { m.OnDuplicate = store.OnDuplicate{Mode: store.DuplicateReplace} }

// keepingDue replaces a live message and keeps its due time.
func keepingDue(m *store.Outgoing) {
	m.OnDuplicate = store.OnDuplicate{Mode: store.DuplicateReplace, KeepDue: true}
}

// debounced has a message replace a live one and wait after it.
func debounced(wait, most time.Duration) func(*store.Outgoing) {
	return func(m *store.Outgoing) {
		m.Due = store.Due{Delay: wait}
		m.OnDuplicate = store.OnDuplicate{Mode: store.DuplicateDebounce, MaxWait: most}
	}
}

// unchanged has a message replace only one that is as it is known.
func unchanged(known *store.Info) func(*store.Outgoing) {
	return func(m *store.Outgoing) { m.OnDuplicate.Unchanged = known }
}

func payload(text string) func(*store.Outgoing) {
	return func(m *store.Outgoing) { m.Payload = []byte(text) }
}

// modes are the ways to change a live message. None changes the due time of one that is due an hour from now.
var modes = map[string]func(*store.Outgoing){
	"replace":  func(m *store.Outgoing) { replacing(m); m.Due = store.Due{Delay: time.Hour} },
	"keep due": keepingDue,
	"debounce": debounced(time.Hour, 2*time.Hour),
	"follow":   followingKeepingDue,
}

var (
	wasSent     = []store.SendResult{{}}
	wasReplaced = []store.SendResult{{Replaced: true}}
)

var collapseRules = []rule{
	{"a new message is sent in every mode, at the engine's clock", func(e *env) {
		for name, mode := range modes {
			now := e.now()
			m := message(name, mode)
			m.SentAt = time.UnixMilli(1)
			e.ok(m.Check())
			e.equal("results", e.trySend(m), wasSent)
			e.at("sent", e.get(name).SentAt, now)
			want := now.Add(m.Due.Delay)
			e.at("due", e.get(name).Due, want)
		}
		e.count(2, 2, 0, 0)
	}},
	{"a scheduled message is replaced whole", func(e *env) {
		for name, mode := range modes {
			e.send(message(name, delay(time.Hour), expireAfter(time.Minute), dedupWindow(time.Hour), maxAttempts(3)))
			m := message(name, mode, payload("new"), maxAttempts(5))
			m.Headers, m.Timeout = map[string]string{"k": "v"}, time.Second
			due, sent := e.get(name).Due, e.get(name).SentAt
			e.equal("results", e.trySend(m), wasReplaced)
			got := e.live(name, store.StateScheduled)
			e.at("due", got.Due, due)
			want := m.Message
			want.SentAt = got.SentAt
			if !sent.IsZero() {
				want.SentAt = sent
			}
			e.equal("message", describe(&store.Info{Message: got.Message}), describe(&store.Info{Message: want}))
		}
		e.count(4, 0, 0, 0)
	}},
	{"a ready message is replaced, and may be scheduled again", func(e *env) {
		e.send(message("kept"), message("moved"))
		e.equal("results", e.trySend(message("kept", keepingDue, payload("1")),
			message("moved", replacing, delay(time.Hour), payload("2"))),
			[]store.SendResult{{Replaced: true}, {Replaced: true}})
		e.count(1, 1, 0, 0)
		c := e.claimOne("kept", held)
		e.equal("payload", string(c.Payload), "1")
		e.ack(c)
		e.equal("payload", string(e.live("moved", store.StateScheduled).Payload), "2")
	}},
	{"a dead message does not change, nor a leased one unless the mode is follow, and the result says why",
		func(e *env) {
			e.sendDead("dead")
			e.send(message("leased"))
			c := e.claimOne("leased", held)
			for name, mode := range modes {
				for id, want := range map[string]error{"leased": store.ErrLeased, "dead": store.ErrDead} {
					if id == "leased" && name == "follow" {
						continue
					}
					before := describe(e.get(id))
					r := e.trySend(message(id, mode, payload("new")))[0]
					e.is(r.Err, want)
					e.equal("added", r.Added(), false)
					e.equal("result", [2]bool{r.Duplicate, r.Replaced}, [2]bool{})
					e.equal("message", describe(e.get(id)), before)
				}
			}
			e.count(0, 0, 1, 1)
			e.ack(c)
		}},
	{"an id within its dedup window is a duplicate in every mode", func(e *env) {
		for name, mode := range modes {
			e.send(message(name, dedupWindow(time.Hour)))
			e.ack(e.claimOne(name, held))
			e.equal("results", e.trySend(message(name, mode)), []store.SendResult{{Duplicate: true}})
			e.gone(name)
		}
		e.count(0, 0, 0, 0)
	}},
	{"a replace keeps attempts, failures and whether the message was delivered", func(e *env) {
		for name, mode := range modes {
			e.send(message(name))
			e.settle(nack(e.claimOne(name, held), time.Hour), store.StateScheduled)
			before := e.get(name)
			e.equal("results", e.trySend(message(name, mode, payload("new"))), wasReplaced)
			want := *before
			want.Payload = []byte("new")
			got := e.get(name)
			want.SentAt, want.Due = got.SentAt, got.Due
			e.equal("message", describe(got), describe(&want))
		}
	}},
	{"a cancelled message is sent anew, without what became of the first", func(e *env) {
		e.send(message("m", delay(time.Hour)))
		e.cancel("m", store.StateScheduled)
		e.equal("results", e.trySend(message("m", replacing)), wasSent)
		c := e.claimOne("m", held)
		e.cancel("m", store.StateLeased)
		e.equal("results", e.trySend(message("m", replacing, payload("2"))), wasSent)
		e.refused(c.Receipt)
		e.equal("payload", string(e.claimOne("m", held).Payload), "2")
	}},
	{"the expiry of the sent message applies", func(e *env) {
		e.send(message("m", expireAfter(time.Minute)), message("n"))
		e.trySend(message("m", keepingDue), message("n", keepingDue, expireAfter(time.Minute)))
		e.advance(time.Minute)
		c := e.claimWith(10, held)
		e.equal("claimed", ids(c.Messages), []string{"m"})
		e.equal("expired", c.Expired, []string{"n"})
	}},
	{"a debounce waits after the last send, but not longer than allowed after the first", func(e *env) {
		begin := e.now()
		m := message("m", debounced(10*time.Second, 25*time.Second))
		e.equal("results", e.trySend(m), wasSent)
		for _, want := range []time.Duration{16, 22, 25, 25} {
			e.advance(6 * time.Second)
			e.equal("results", e.trySend(m), wasReplaced)
			e.at("due", e.get("m").Due, begin.Add(want*time.Second))
		}
		e.advance(3 * time.Second) // now it is overdue
		e.equal("results", e.trySend(m), wasReplaced)
		e.at("due", e.live("m", store.StateReady).Due, begin.Add(25*time.Second))
		e.ack(e.claimOne("m", held))
		e.equal("results", e.trySend(m), wasSent)
		e.at("due", e.get("m").Due, e.now().Add(10*time.Second))
	}},
	{"a debounce that is retried counts from its first send", func(e *env) {
		begin := e.now()
		m := message("m", debounced(time.Second, time.Minute))
		e.trySend(m)
		e.advance(time.Second)
		e.settle(nack(e.claimOne("m", held), time.Hour), store.StateScheduled)
		e.advance(58 * time.Second)
		e.equal("results", e.trySend(m), wasReplaced)
		e.at("due", e.get("m").Due, begin.Add(time.Minute))
	}},
	{"a debounce over a plain send counts from the time in its generated id", func(e *env) {
		id := store.NewID()
		first, _ := store.IDTime(id)
		e.send(message(id, delay(time.Hour)))
		e.advance(30 * time.Second)
		first = time.UnixMilli(min(first.UnixMilli(), e.now().UnixMilli())) // the engine's clock may be another one
		e.equal("results", e.trySend(message(id, debounced(time.Minute, time.Minute))), wasReplaced)
		e.at("due", e.get(id).Due, first.Add(time.Minute))
		e.at("sent", e.get(id).SentAt, first)
	}},
	{"a sender's clock that is ahead makes no debounce longer", func(e *env) {
		m := message("m", delay(time.Hour))
		m.SentAt = e.now().Add(24 * time.Hour)
		e.send(m)
		now := e.now()
		e.trySend(message("m", debounced(time.Minute, time.Minute)))
		e.at("due", e.get("m").Due, now.Add(time.Minute))
	}},
	{"messages with equal ids take effect in order", func(e *env) {
		e.equal("results", e.trySend(message("m", replacing, payload("1")), message("n", keepingDue),
			message("m", replacing, payload("2")), message("m", keepingDue, payload("3"))),
			[]store.SendResult{{}, {}, {Replaced: true}, {Replaced: true}})
		e.equal("payload", string(e.get("m").Payload), "3")
		e.count(0, 2, 0, 0)
	}},
	{"a message is replaced if it is unchanged", func(e *env) {
		e.send(message("soon"), message("later", delay(time.Hour)), message("far", delay(30*day)))
		e.settle(nack(e.claimOne("soon", held), 0), store.StateReady)
		for _, id := range []string{"soon", "later", "far"} {
			known := e.get(id)
			e.equal("results", e.trySend(message(id, keepingDue, payload("1"), unchanged(known))), wasReplaced)
			e.is(e.trySend(message(id, keepingDue, payload("2"), unchanged(known)))[0].Err, store.ErrConflict)
			known = e.get(id)
			e.equal("payload", string(known.Payload), "1")
			e.equal("results", e.trySend(message(id, replacing, delay(time.Minute), unchanged(known))), wasReplaced)
			e.is(e.trySend(message(id, keepingDue, unchanged(known)))[0].Err, store.ErrConflict)
			known = e.get(id)
			e.ok(e.tryReschedule(id, store.Due{Delay: 2 * time.Minute}))
			e.is(e.trySend(message(id, keepingDue, unchanged(known)))[0].Err, store.ErrConflict)
		}
		e.count(3, 0, 0, 0)
	}},
	{"a message that is gone, leased or dead is not replaced", func(e *env) {
		e.send(message("gone"), message("acked", dedupWindow(time.Hour)), message("leased"))
		known := map[string]*store.Info{}
		for _, id := range []string{"gone", "acked", "leased"} {
			known[id] = e.get(id)
		}
		e.cancel("gone", store.StateReady)
		e.ack(e.claimOne("acked", held))
		e.claimOne("leased", held)
		e.sendDead("dead")
		known["dead"] = e.get("dead")
		for id, want := range map[string]error{
			"gone": store.ErrNotFound, "acked": store.ErrNotFound, "leased": store.ErrLeased, "dead": store.ErrDead,
		} {
			e.is(e.trySend(message(id, replacing, unchanged(known[id])))[0].Err, want)
		}
		e.count(0, 0, 1, 1)
	}},
	{"of racing replaces of the same message one succeeds", func(e *env) {
		e.send(message("m"))
		known := e.get("m")
		var replaced atomic.Int64
		e.concurrently(func(worker int, s store.Store) error {
			m := message("m", keepingDue, payload(fmt.Sprint(worker)), unchanged(known))
			r, err := s.Send(e.Context(), e.queue, []store.Outgoing{m})
			if err == nil && r[0].Replaced {
				replaced.Add(1)
			}
			return err
		})
		e.equal("replaced", replaced.Load(), int64(1))
	}},
	{"many messages have their results in order", func(e *env) {
		msgs := many(300, replacing, delay(time.Minute))
		for i := range msgs {
			if i%3 == 0 {
				e.send(message(msgs[i].ID, delay(time.Hour)))
			}
		}
		for i, r := range e.trySend(msgs...) {
			e.equal("result of "+msgs[i].ID, r, store.SendResult{Replaced: i%3 == 0})
		}
		e.count(300, 0, 0, 0)
	}},
	{"a replaced message changes its group", func(e *env) {
		e.send(message("a", group("g")), message("b", group("g")), message("c"), message("d", group("g"), delay(3*day)))
		e.trySend(message("a", keepingDue, group("h")), message("b", keepingDue), message("c", keepingDue, group("g")),
			message("d", keepingDue, group("h")))
		e.inGroup("g", "c")
		e.inGroup("h", "a", "d")
		for _, id := range []string{"a", "b", "c"} {
			e.cancel(id, store.StateReady)
		}
		e.cancel("d", store.StateScheduled)
		e.noIndex("g", "a", "b", "c", "d")
		e.inGroup("h")
	}},
	{"messages days ahead are replaced", func(e *env) {
		all := e.spread(400)
		long := make([]byte, 100_000)
		for i := range all {
			m := &all[i]
			before := e.live(m.ID, store.StateScheduled)
			again := message(m.ID, keepingDue, payload(fmt.Sprint("again ", i)))
			switch i % 4 {
			case 1:
				again.OnDuplicate.KeepDue, again.Due.At = false, m.Due.At.Add(day)
			case 2:
				again.OnDuplicate.KeepDue, again.Due.Delay = false, time.Minute
			case 3:
				again.Payload = long
			}
			e.equal("results", e.trySend(again), wasReplaced)
			got := e.live(m.ID, store.StateScheduled)
			e.equal("payload", string(got.Payload), string(again.Payload))
			switch i % 4 {
			case 0, 3:
				e.at("due", got.Due, before.Due)
			case 1:
				e.at("due", got.Due, again.Due.At)
			}
		}
		e.count(400, 0, 0, 0)
		e.advance(time.Minute)
		e.equal("claimed after a minute", len(e.drain()), 100)
		e.advance(10 * day)
		e.equal("claimed at the end", len(e.drain()), 300)
		e.count(0, 0, 0, 0)
	}},
	{"a soon message that is moved days ahead and back is delivered once", func(e *env) {
		e.send(message("m", delay(time.Minute)))
		e.trySend(message("m", replacing, delay(3*day)))
		e.trySend(message("m", keepingDue, payload("2")))
		e.trySend(message("m", replacing, delay(time.Hour), payload("3")))
		e.advance(time.Hour)
		c := e.claimOne("m", held)
		e.equal("payload", string(c.Payload), "3")
		e.ack(c)
		e.count(0, 0, 0, 0)
	}},
	{"an earlier due time wakes a waiter", func(e *env) {
		e.send(message("m", delay(time.Hour)))
		e.ack(e.wakes("m", func() { e.trySend(message("m", replacing)) }))
	}},
	{"an unreadable message is replaced by a readable one", func(e *env) {
		e.restore(store.Info{Message: store.Message{ID: "m"}, State: store.StateReady, Due: e.now(),
			Raw: []byte{0xff, 1}})
		e.equal("results", e.trySend(message("m", keepingDue, payload("2"))), wasReplaced)
		e.equal("payload", string(e.claimOne("m", held).Payload), "2")
	}},
	{"a replace may be durable", func(e *env) {
		e.send(message("m"))
		m := message("m", keepingDue, payload("2"), durable(0, hangTimeout))
		results, err := e.Store.Send(e.Context(), e.queue, []store.Outgoing{m})
		if err != nil {
			e.is(err, store.ErrUnsupported)
			return
		}
		e.equal("results", results, wasReplaced)
		e.equal("payload", string(e.get("m").Payload), "2")
	}},
	{"racing replaces leave one message, or are refused while it is leased", func(e *env) {
		var added, acked atomic.Int64
		e.concurrently(func(worker int, s store.Store) error {
			for i := range 50 {
				if worker == 0 {
					c, err := s.Claim(e.Context(), e.queue, store.ClaimRequest{Max: 1, Lease: held})
					if err != nil || len(c.Messages) == 0 {
						if err != nil {
							return err
						}
						continue
					}
					r, err := s.Settle(e.Context(), e.queue, []store.Settlement{ackOf(c.Messages[0])})
					if err != nil || r[0].Err != nil {
						return fmt.Errorf("ack returned %v, %v", r, err)
					}
					acked.Add(1)
					continue
				}
				m := message("m", replacing, payload(fmt.Sprint(worker, i)))
				r, err := s.Send(e.Context(), e.queue, []store.Outgoing{m})
				switch {
				case err != nil:
					return err
				case r[0].Added():
					added.Add(1)
				case !r[0].Replaced && store.CodeOf(r[0].Err) != store.ErrLeased.Code:
					return fmt.Errorf("send returned %+v", r[0])
				}
			}
			return nil
		})
		left := int64(len(e.drain()))
		e.equal("acked and left", acked.Load()+left, added.Load())
	}},
}
