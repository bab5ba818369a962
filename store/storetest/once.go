package storetest

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/laterq/later/store"
)

// once names the request that a message is sent for.
func once(key, request string) func(*store.Outgoing) {
	return func(m *store.Outgoing) { m.Once = store.NewOnce([]byte(key), []byte(request)) }
}

// repeats fails unless a send repeats the first one of a message with an id.
func (e *env) repeats(m store.Outgoing, first string, due time.Time) {
	e.Helper()
	r := e.trySend(m)[0]
	e.ok(r.Err)
	e.equal("added, duplicate", [2]bool{r.Added(), r.Duplicate}, [2]bool{false, true})
	if r.First == nil {
		e.Fatalf("the send of %q does not name the first one", m.ID)
	}
	e.equal("first id", r.First.ID, first)
	e.at("first due time", r.First.Due, due)
}

// sendsOnce sends a message for the first time, and returns its due time.
func (e *env) sendsOnce(m store.Outgoing) time.Time {
	e.Helper()
	e.ok(m.Check())
	r := e.trySend(m)[0]
	e.ok(r.Err)
	if r.Duplicate || r.First == nil || r.First.ID != m.ID {
		e.Fatalf("the send of %q returns %+v", m.ID, r)
	}
	e.equal("due", r.First.Due.UnixMilli(), e.get(m.ID).Due.UnixMilli())
	return r.First.Due
}

var onceRules = []rule{
	{"a repeated request sends nothing, whatever became of its message", func(e *env) {
		far := e.now().Add(5 * day)
		for name, c := range map[string]struct {
			set     func(*store.Outgoing)
			becomes func(id string)
		}{
			"waits": {delay(time.Hour), func(string) {}},
			"far":   {func(m *store.Outgoing) { m.Due.At = far }, func(string) {}},
			"moved": {delay(time.Hour),
				func(id string) { e.ok(e.tryReschedule(id, store.Due{Delay: 2 * time.Hour})) }},
			"leased":  {nil, func(id string) { e.claimOne(id, held) }},
			"acked":   {nil, func(id string) { e.ack(e.claimOne(id, held)) }},
			"dedup":   {dedupWindow(time.Millisecond), func(id string) { e.ack(e.claimOne(id, held)) }},
			"grouped": {group("g"), func(id string) { e.ack(e.claimOne(id, held)) }},
			"dead": {nil, func(id string) {
				e.settle(store.Settlement{Receipt: e.claimOne(id, held).Receipt, Action: store.Bury}, store.StateDead)
			}},
			"cancelled": {delay(time.Hour), func(id string) { e.cancel(id, store.StateScheduled) }},
			"purged":    {nil, func(string) { e.purge(store.Selection{State: store.StateReady}) }},
		} {
			m := message(name, once(name, "1"))
			if c.set != nil {
				c.set(&m)
			}
			due := e.sendsOnce(m)
			c.becomes(name)
			before := e.get(name)
			again := message(name+" again", once(name, "1"), delay(time.Minute))
			e.advance(2 * time.Millisecond)
			e.repeats(again, name, due)
			e.repeats(message(name, once(name, "1"), replacing), name, due)
			e.gone(again.ID)
			if after := e.get(name); (before == nil) != (after == nil) || before != nil && !before.Same(after) {
				e.Errorf("%s: %+v became %+v", name, before, after)
			}
		}
	}},
	{"a key that is used with another request is a conflict, and changes nothing", func(e *env) {
		due := e.sendsOnce(message("m", once("k", "1"), delay(time.Hour)))
		for _, again := range []store.Outgoing{message("n", once("k", "2")), message("m", once("k", "2"), replacing)} {
			r := e.trySend(again)[0]
			e.is(r.Err, store.ErrConflict)
			e.equal("result", [4]bool{r.Added(), r.Duplicate, r.Replaced, r.First != nil}, [4]bool{})
		}
		e.count(1, 0, 0, 0)
		e.repeats(message("n", once("k", "1")), "m", due)
		e.sendsOnce(message("other", once("l", "2")))
	}},
	{"a key is remembered for 24 hours from the send", func(e *env) {
		for round := range 3 {
			id := fmt.Sprint("m", round)
			due := e.sendsOnce(message(id, once("k", "1"), dedupWindow(time.Millisecond)))
			e.ack(e.claimOne(id, held))
			e.advance(store.OnceWindow / 2)
			e.sendsOnce(message(id+" half", once("half "+id, "1"), delay(3*day)))
			e.advance(store.OnceWindow/2 - time.Millisecond)
			e.repeats(message("n", once("k", "1")), id, due)
			e.is(e.trySend(message("n", once("k", "2")))[0].Err, store.ErrConflict)
			e.advance(time.Millisecond)
			e.repeats(message("n", once("half "+id, "1")), id+" half", e.get(id+" half").Due)
		}
	}},
	{"a send that is refused does not use up its key", func(e *env) {
		e.send(message("live", delay(time.Hour)), message("leased"))
		e.claimOne("leased", held)
		e.equal("results", e.trySend(message("live", once("k", "1"))), []store.SendResult{{Duplicate: true}})
		e.is(e.trySend(message("leased", once("k", "2"), replacing))[0].Err, store.ErrLeased)
		e.sendsOnce(message("m", once("k", "3")))
	}},
	{"a send with a key may replace, debounce and follow, and its repetition does not", func(e *env) {
		for name, mode := range modes {
			e.send(message(name, delay(time.Hour)))
			m := message(name, mode, payload("new"), once(name, "1"))
			r := e.trySend(m)[0]
			e.equal("replaced", r.Replaced, true)
			due := e.get(name).Due
			e.equal("first", *r.First, store.FirstSend{ID: name, Due: r.First.Due})
			e.at("first due time", r.First.Due, due)
			e.trySend(message(name, mode, payload("newer")))
			e.repeats(m, name, due)
			e.equal("payload", string(e.get(name).Payload), "newer")
		}
		e.send(message("held"))
		c := e.claimOne("held", held)
		m := message("held", following, payload("next"), once("f", "1"))
		r := e.trySend(m)[0]
		e.equal("follows", r.Follows, true)
		e.ack(c)
		e.ack(e.claimOne("held", held))
		e.repeats(m, "held", r.First.Due)
		e.gone("held")
	}},
	{"a message that is kept has the time of its sender", func(e *env) {
		m := message("m", once("k", "1"))
		m.SentAt = time.UnixMilli(12345)
		e.sendsOnce(m)
		e.equal("sent", e.get("m").SentAt.UnixMilli(), int64(12345))
	}},
	{"equal keys of one send take effect in order", func(e *env) {
		r := e.trySend(message("a", once("k", "1"), delay(time.Hour)), message("b", once("k", "1")),
			message("c", once("k", "2")), message("d", once("l", "1")), message("d", once("m", "1")),
			message("a", keepingDue))
		e.equal("added", []bool{r[0].Added(), r[1].Added(), r[2].Added(), r[3].Added(), r[4].Added(), r[5].Replaced},
			[]bool{true, false, false, true, false, true})
		e.equal("first", r[1].First.ID, "a")
		e.is(r[2].Err, store.ErrConflict)
		e.equal("duplicate", [2]bool{r[4].Duplicate, r[4].First == nil}, [2]bool{true, true})
		e.count(1, 1, 0, 0)
	}},
	{"keys are no ids", func(e *env) {
		m := message("m", once("k", "1"))
		e.sendsOnce(m)
		e.ack(e.claimOne("m", held))
		// A key need not be text, but an id does, so that only this one can be compared.
		o := &store.Once{Key: strings.Repeat("k", store.OnceSize), Fingerprint: strings.Repeat("f", store.OnceSize)}
		due := e.sendsOnce(message("n", func(m *store.Outgoing) { m.Once = o }))
		e.send(message(o.Key, dedupWindow(time.Hour)))
		e.cancel("n", store.StateReady)
		e.ack(e.claimOne(o.Key, held))
		e.repeats(message("x", func(m *store.Outgoing) { m.Once = o }), "n", due)
	}},
	{"many keys are sent once", func(e *env) {
		msgs := many(store.MaxBatch)
		for i := range msgs {
			once(msgs[i].ID, "1")(&msgs[i])
		}
		for i, r := range e.trySend(msgs...) {
			e.equal("added", r.Added(), true)
			e.equal("first", r.First.ID, msgs[i].ID)
		}
		for i, r := range e.trySend(msgs...) {
			e.equal("duplicate", r.Duplicate, true)
			e.equal("first", r.First.ID, msgs[i].ID)
		}
		e.equal("drained", len(e.drain()), len(msgs))
	}},
	{"a deleted queue forgets its keys", func(e *env) {
		e.sendsOnce(message("m", once("k", "1")))
		e.ok(e.Store.Delete(e.Context(), e.queue))
		e.sendsOnce(message("n", once("k", "2")))
	}},
	{"a send with a key may be durable, and so may its repetition", func(e *env) {
		m := message("m", once("k", "1"), durable(0, hangTimeout))
		results, err := e.Store.Send(e.Context(), e.queue, []store.Outgoing{m})
		if err != nil {
			e.is(err, store.ErrUnsupported)
			return
		}
		e.ok(results[0].Err)
		m.ID = "n"
		e.repeats(m, "m", results[0].First.Due)
	}},
	{"of racing requests with a key one sends", func(e *env) {
		var added, repeated, refused atomic.Int64
		e.concurrently(func(worker int, s store.Store) error {
			for i := range 20 {
				m := message(fmt.Sprint(worker, " ", i), once(fmt.Sprint(i), fmt.Sprint(worker%2)))
				r, err := s.Send(e.Context(), e.queue, []store.Outgoing{m})
				switch {
				case err != nil:
					return err
				case r[0].Added():
					added.Add(1)
				case r[0].Duplicate:
					repeated.Add(1)
				case store.CodeOf(r[0].Err) == store.ErrConflict.Code:
					refused.Add(1)
				default:
					return fmt.Errorf("send returned %+v", r[0])
				}
			}
			return nil
		})
		e.equal("added", added.Load(), int64(20))
		e.equal("drained", len(e.drain()), 20)
		if repeated.Load() == 0 || refused.Load() == 0 {
			e.Errorf("%d were repeated and %d refused", repeated.Load(), refused.Load())
		}
	}},
}
