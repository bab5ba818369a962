package storetest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/store"
)

var sendRules = []rule{
	{"a message is delivered as it was sent", func(e *env) {
		full := store.Outgoing{Message: fullMessage()}
		absolute := store.Outgoing{Message: store.Message{ID: "absolute", ExpireAt: e.now().Add(time.Hour)}}
		e.send(full, absolute)
		sent := map[string]store.Message{full.ID: full.Message, absolute.ID: absolute.Message}
		for _, c := range e.claim(10) {
			want := store.Info{Message: sent[c.ID]}
			e.equal("claimed", describe(&store.Info{Message: c.Message}), describe(&want))
			info := *e.live(c.ID, store.StateLeased)
			e.equal("got", describe(&store.Info{Message: info.Message}), describe(&want))
			delete(sent, c.ID)
		}
		e.equal("left", len(sent), 0)
	}},
	{"a message at every limit is delivered whole", func(e *env) {
		m := store.Outgoing{Message: largestMessage()}
		e.ok(m.Check())
		e.send(m)
		c := e.claimOne(m.ID, store.MaxLease)
		e.equal("claimed", describe(&store.Info{Message: c.Message}), describe(&store.Info{Message: m.Message}))
		e.ack(c)
	}},
	{"an id may contain every character that CheckID allows", func(e *env) {
		names := []string{" ", ":", "a:b", "*", "{x}", "\"quoted\"", "back\\slash", "日本", "-1", "1e5", "nil", "0"}
		for _, id := range names {
			e.ok(store.CheckID(id))
			e.send(message(id))
			c := e.claimOne(id, held)
			e.ack(c)
			e.gone(id)
		}
	}},
	{"a queue may have every name that CheckQueue allows", func(e *env) {
		for _, name := range []string{" ", "a:b", "*", "日本", "quo\"te", "%41",
			strings.Repeat("q", store.MaxQueueName)} {
			e.queue = name
			e.ok(store.CheckQueue(name))
			e.ok(e.Store.Delete(e.Context(), name))
			e.send(message("m"))
			e.claimOne("m", held)
			e.ok(e.Store.Delete(e.Context(), name))
		}
	}},
	{"what is named . or .. already can be settled, cancelled, listed and removed", func(e *env) {
		for _, name := range []string{".", ".."} {
			e.is(store.CheckNewQueue(name), store.ErrInvalid)
			e.is((&store.Outgoing{Message: store.Message{ID: name}}).Check(), store.ErrInvalid)
			e.ok(store.CheckQueue(name))
			e.ok(store.CheckID(name))
			for _, queue := range []string{newQueueName(), name, reserved.Topic + name} {
				e.queue = queue
				m := message(name, at(e.now().Add(-time.Hour)))
				m.Group = name
				if _, err := e.Store.Send(e.Context(), e.queue, []store.Outgoing{m, message("other")}); err != nil {
					e.is(err, store.ErrInvalid) // the engine is a server, which checks new names
					continue
				}
				e.inGroup(name, name)
				e.settle(store.Settlement{Receipt: e.claimOne(name, held).Receipt, Action: store.Release},
					store.StateReady)
				e.equal("removed", e.remove(*e.live(name, store.StateReady)), []bool{true})
				e.send(m)
				e.ack(e.claimOne(name, held))
				e.send(m)
				e.cancel(name, store.StateReady)
				e.ok(e.Store.SetProperties(e.Context(), e.queue, map[string]string{"p": ""}, nil))
				e.ok(e.Store.SetPaused(e.Context(), e.queue, false))
				e.ok(e.Store.Delete(e.Context(), e.queue))
				e.equal("exists", e.listed(), false)
			}
		}
	}},
	{"a delay is never early", func(e *env) {
		now := e.now()
		e.send(message("m", delay(time.Minute)))
		e.at("due", e.live("m", store.StateScheduled).Due, now.Add(time.Minute))
		e.advance(time.Minute - time.Millisecond)
		e.equal("claimed a millisecond early", len(e.claim(1)), 0)
		e.advance(time.Millisecond)
		e.at("due", e.claimOne("m", held).Due, now.Add(time.Minute))
	}},
	{"a delay is rounded up to a millisecond", func(e *env) {
		now := e.now()
		e.send(message("m", delay(time.Second+time.Nanosecond)))
		e.at("due", e.live("m", store.StateScheduled).Due, now.Add(time.Second+time.Millisecond))
	}},
	{"an absolute due time is kept, rounded up to a millisecond", func(e *env) {
		due := e.now().Add(time.Hour)
		e.send(message("whole", at(due)), message("part", at(due.Add(time.Nanosecond))))
		e.equal("due", ms(e.get("whole").Due), ms(due))
		e.equal("due", ms(e.get("part").Due), ms(due)+1)
	}},
	{"a due time in the past precedes later ones", func(e *env) {
		now := e.now()
		e.send(message("a"), message("b", at(now.Add(-time.Hour))), message("c", at(now.Add(-time.Minute))))
		e.equal("claimed", ids(e.claim(3)), []string{"b", "c", "a"})
	}},
	{"a delay below zero means at once", func(e *env) {
		now := e.now()
		e.send(message("m", delay(-time.Hour)))
		e.at("due", e.claimOne("m", held).Due, now)
	}},
	{"a live id changes nothing in any state", func(e *env) {
		e.sendDead("dead")
		e.send(message("leased"))
		e.claimOne("leased", held)
		e.send(message("scheduled", delay(time.Hour)), message("ready"))
		for _, id := range []string{"scheduled", "ready", "leased", "dead"} {
			before := describe(e.get(id))
			again := message(id, delay(time.Minute), maxAttempts(3))
			again.Payload = []byte("another payload")
			e.equal("results", e.trySend(again), []store.SendResult{{Duplicate: true}})
			e.equal("message", describe(e.get(id)), before)
		}
		e.count(1, 1, 1, 1)
	}},
	{"the first of two equal ids in one batch wins", func(e *env) {
		second := message("a")
		second.Payload = []byte("second")
		e.equal("results", e.trySend(message("a"), second, message("b")), []store.SendResult{{}, {Duplicate: true}, {}})
		e.equal("payload", string(e.claimOne("a", held).Payload), "payload of a")
	}},
	{"send returns results in the order of the messages", func(e *env) {
		e.send(message("b"), message("d"))
		e.equal("results", e.trySend(message("d"), message("a"), message("b"), message("c")),
			[]store.SendResult{{Duplicate: true}, {}, {Duplicate: true}, {}})
		e.count(0, 4, 0, 0)
	}},
	{"an id is free again after its ack", func(e *env) {
		e.send(message("m"))
		e.ack(e.claimOne("m", held))
		e.send(message("m"))
		e.ack(e.claimOne("m", held))
	}},
	{"an acked id is refused within its dedup window", func(e *env) {
		e.send(message("m", dedupWindow(time.Minute)))
		e.ack(e.claimOne("m", held))
		e.gone("m")
		e.equal("results", e.trySend(message("m"), message("n")), []store.SendResult{{Duplicate: true}, {}})
		e.is(e.tryCancel("m").Err, store.ErrNotFound)
		e.advance(time.Minute - time.Millisecond)
		e.equal("results", e.trySend(message("m")), []store.SendResult{{Duplicate: true}})
		e.advance(time.Millisecond)
		e.send(message("m"))
	}},
	{"an id may have a dedup window again", func(e *env) {
		for range 3 {
			e.send(message("m", dedupWindow(time.Minute)))
			e.ack(e.claimOne("m", held))
			e.equal("results", e.trySend(message("m")), []store.SendResult{{Duplicate: true}})
			e.advance(time.Minute)
		}
		e.send(message("m"))
	}},
	{"many dedup windows end in time", func(e *env) {
		const n = 3 * store.MaxBatch
		e.send(many(n, dedupWindow(time.Minute))...)
		for range n / store.MaxBatch {
			var s []store.Settlement
			for _, c := range e.claim(store.MaxBatch) {
				s = append(s, store.Settlement{Receipt: c.Receipt, Action: store.Ack, DedupWindow: c.DedupWindow})
			}
			for _, r := range e.trySettle(s...) {
				e.ok(r.Err)
			}
		}
		e.count(0, 0, 0, 0)
		e.advance(time.Minute)
		msgs := many(n)
		e.send(msgs[n-1])
		e.send(msgs[:n-1]...)
	}},
	{"a cancelled id is refused within its dedup window if it is kept", func(e *env) {
		const n = 150
		e.sendDead("dead", dedupWindow(time.Minute))
		e.send(message("leased", dedupWindow(time.Minute)), message("windowless"))
		e.claimOne("leased", held)
		far := many(n, dedupWindow(time.Minute), delay(30*24*time.Hour))
		e.send(far...)
		ids := []string{"dead", "leased", "windowless", "unknown", "leased"}
		for _, m := range far {
			ids = append(ids, m.ID)
		}
		for i, r := range e.cancelAll(store.CancelRequest{IDs: ids, KeepIDs: true}) {
			if ids[i] == "unknown" || i == 4 {
				e.is(r.Err, store.ErrNotFound)
			} else {
				e.ok(r.Err)
			}
		}
		e.count(0, 0, 0, 0)
		for _, r := range e.trySend(append(far, message("dead"), message("leased"))...) {
			e.equal("duplicate", r.Duplicate, true)
		}
		e.send(message("windowless"), message("unknown"))
		e.advance(time.Minute)
		e.send(message("dead"), message("leased"))
		e.send(far...)
	}},
	{"a cancelled id has no dedup window", func(e *env) {
		e.send(message("m", dedupWindow(time.Hour)))
		e.cancel("m", store.StateReady)
		e.send(message("m"))
	}},
	{"queues do not share ids", func(e *env) {
		f := e.other()
		e.send(message("m"))
		f.send(message("m"))
		e.ack(e.claimOne("m", held))
		f.claimOne("m", held)
	}},
	{"a full batch is sent and claimed in one call each", func(e *env) {
		e.send(many(store.MaxBatch)...)
		e.equal("claimed", len(e.claim(store.MaxBatch)), store.MaxBatch)
	}},
	{"the caller may reuse its payload and headers", func(e *env) {
		m := message("m")
		m.Headers = map[string]string{"k": "v"}
		e.send(m)
		copy(m.Payload, "XXXXXXX")
		m.Headers["k"] = "X"
		for range 2 {
			c := e.claimOne("m", held)
			e.equal("payload", string(c.Payload), "payload of m")
			e.equal("headers", c.Headers, map[string]string{"k": "v"})
			copy(c.Payload, "XXXXXXX")
			c.Headers["k"] = "X"
			e.settle(store.Settlement{Receipt: c.Receipt, Action: store.Nack}, store.StateReady)
		}
	}},
	{"a prompt send sends, and returns the cause of a context that has ended", func(e *env) {
		s, ok := e.Store.(store.PromptSender)
		if !ok {
			e.Skip("the store does not implement PromptSender")
		}
		ctx, cancel := context.WithCancelCause(e.Context())
		for _, want := range []bool{false, true} {
			results, err := s.SendPromptly(ctx, e.queue, []store.Outgoing{message("m")})
			e.ok(err)
			e.equal("duplicate", results[0].Duplicate, want)
		}
		cause := errors.New("the caller has gone")
		cancel(cause)
		_, err := s.SendPromptly(ctx, e.queue, []store.Outgoing{message("other")})
		e.is(err, cause)
		e.ack(e.claimOne("m", held))
	}},
}
