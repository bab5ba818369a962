package storetest

import (
	"fmt"
	"time"

	"github.com/laterq/later/store"
)

var queueRules = []rule{
	{"stats count messages by state and return the next due time", func(e *env) {
		now := e.now()
		e.sendDead("dead")
		e.send(message("leased"))
		e.claimOne("leased", held)
		e.equal("next due is zero", e.stats().NextDue.IsZero(), true)
		e.send(message("scheduled", delay(time.Hour)), message("later", delay(2*time.Hour)))
		e.count(2, 0, 1, 1)
		e.at("next due", e.stats().NextDue, now.Add(time.Hour))
		e.send(message("ready", at(now.Add(-time.Second))))
		e.count(2, 1, 1, 1)
		s := e.stats()
		e.equal("next due", ms(s.NextDue), ms(now.Add(-time.Second)))
		e.equal("exists, paused", []bool{s.Exists, s.Paused}, []bool{true, false})
		e.at("now", s.Now, now)
	}},
	{"stats follow the clock", func(e *env) {
		e.send(message("m", delay(time.Minute)))
		e.advance(time.Minute - time.Millisecond)
		e.count(1, 0, 0, 0)
		e.advance(time.Millisecond)
		e.count(0, 1, 0, 0)
	}},
	{"a queue that never had a message has zero stats", func(e *env) {
		s := e.stats()
		e.equal("now is zero", s.Now.IsZero(), false)
		s.Now = time.Time{}
		e.equal("stats", s, store.Stats{})
	}},
	{"a queue exists from its first message, even after that is gone", func(e *env) {
		e.send(message("m"))
		e.ack(e.claimOne("m", held))
		e.equal("exists", e.stats().Exists, true)
	}},
	{"calls on an unknown queue do not create it", func(e *env) {
		e.gone("m")
		e.is(e.tryCancel("m").Err, store.ErrNotFound)
		e.is(e.tryReschedule("m", store.Due{}), store.ErrNotFound)
		receipt := store.Receipt{Lease: "l", ID: "m"}
		e.is(e.trySettle(store.Settlement{Receipt: receipt, Action: store.Ack})[0].Err, store.ErrLeaseLost)
		e.is(e.tryExtend("l", held).Err, store.ErrLeaseLost)
		counts := e.histogram([]time.Time{time.UnixMilli(1), time.UnixMilli(2), time.UnixMilli(3)})
		e.equal("histogram", counts, []int64{0, 0})
		e.equal("exists", e.stats().Exists, false)
	}},
	{"histogram counts at the edges of buckets", func(e *env) {
		from := e.now().Add(time.Hour).Truncate(time.Millisecond)
		at := func(ms int) func(*store.Outgoing) { return at(from.Add(time.Duration(ms) * time.Millisecond)) }
		e.send(message("before", at(-1)), message("first", at(0)), message("still first", at(9)),
			message("second", at(10)), message("last", at(29)), message("after", at(30)))
		counts := e.histogram(store.HistogramBounds(from, from.Add(30*time.Millisecond), 3))
		e.equal("histogram", counts, []int64{2, 1, 1})
		counts = e.histogram(store.HistogramBounds(from.Add(-time.Millisecond), from.Add(2*time.Millisecond), 3))
		e.equal("histogram of single milliseconds", counts, []int64{1, 1, 0})
	}},
	{"histogram counts between bounds at any distance", func(e *env) {
		at := func(d time.Duration) time.Time { return e.now().Truncate(time.Millisecond).Add(d) }
		for i, d := range []time.Duration{0, 5, 6, 999, 59_000, 60_000, 3_599_999, 3_600_000, 90_000_000,
			3_000_000_000} {
			e.send(message(fmt.Sprint(i), func(m *store.Outgoing) { m.Due = store.Due{At: at(d * time.Millisecond)} }))
		}
		counts := e.histogram([]time.Time{time.UnixMilli(1), at(0), at(time.Millisecond), at(6 * time.Millisecond),
			at(time.Minute), at(time.Hour), at(25 * time.Hour), at(25*time.Hour + time.Millisecond),
			at(9999 * time.Hour)})
		e.equal("histogram", counts, []int64{0, 1, 1, 3, 2, 1, 1, 1})
	}},
	{"histogram counts each message once in buckets of unequal length", func(e *env) {
		const n = 100
		from := e.now().Add(time.Hour)
		msgs := many(n)
		for i := range msgs {
			msgs[i].Due = store.Due{At: from.Add(time.Duration(i) * time.Millisecond)}
		}
		e.send(msgs...)
		for _, buckets := range []int{1, 3, 7, 99, n} {
			counts := e.histogram(store.HistogramBounds(from, from.Add(n*time.Millisecond), buckets))
			e.equal("number of buckets", len(counts), buckets)
			sum := int64(0)
			for _, c := range counts {
				sum += c
				if c < int64(n/buckets) || c > int64(n/buckets)+1 {
					e.Fatalf("one of %d buckets has %d of %d messages", buckets, c, n)
				}
			}
			e.equal("sum", sum, int64(n))
		}
	}},
	{"histogram counts scheduled and ready messages, not leased or dead ones", func(e *env) {
		now := e.now()
		e.sendDead("dead")
		e.send(message("leased"))
		e.claimOne("leased", held)
		e.send(message("ready"), message("scheduled", delay(time.Minute)))
		from, to := now.Add(-time.Minute), now.Add(3*time.Minute)
		counts := e.histogram(store.HistogramBounds(from, to, store.MaxBuckets))
		sum := int64(0)
		for _, c := range counts {
			sum += c
		}
		e.equal("sum", sum, int64(2))
	}},
	{"a paused queue accepts messages and returns none", func(e *env) {
		e.send(message("a"))
		e.ok(e.Peer.SetPaused(e.Context(), e.queue, true))
		e.equal("paused", e.stats().Paused, true)
		e.send(message("b"))
		c := e.claimWith(10, held)
		e.equal("claimed", len(c.Messages), 0)
		e.equal("more", c.More, false)
		e.count(0, 2, 0, 0)
		e.ok(e.Peer.SetPaused(e.Context(), e.queue, false))
		e.equal("paused", e.stats().Paused, false)
		e.equal("claimed", len(e.claim(10)), 2)
	}},
	{"current leases stay valid when the queue is paused", func(e *env) {
		e.send(many(3)...)
		c := e.claim(3)
		e.ok(e.Store.SetPaused(e.Context(), e.queue, true))
		e.ok(e.tryExtend(c[0].Receipt.Lease, held).Err)
		e.ack(c[0])
		e.settle(store.Settlement{Receipt: c[1].Receipt, Action: store.Nack, Reason: "no"}, store.StateReady)
		e.settle(store.Settlement{Receipt: c[2].Receipt, Action: store.Release}, store.StateReady)
		e.count(0, 2, 0, 0)
	}},
	{"leases expire while the queue is paused", func(e *env) {
		e.send(message("m"))
		c := e.claimOne("m", short)
		e.ok(e.Store.SetPaused(e.Context(), e.queue, true))
		e.advance(short)
		e.equal("claimed", len(e.claim(1)), 0)
		e.refused(c.Receipt)
		e.count(0, 1, 0, 0)
		e.equal("attempts", e.live("m", store.StateReady).Attempts, 1)
	}},
	{"a pause creates the queue and may be repeated", func(e *env) {
		for range 2 {
			e.ok(e.Store.SetPaused(e.Context(), e.queue, true))
			s := e.stats()
			e.equal("exists, paused", []bool{s.Exists, s.Paused}, []bool{true, true})
		}
		e.equal("listed", e.listed(), true)
	}},
	{"queues are listed until they are deleted", func(e *env) {
		e.equal("listed", e.listed(), false)
		e.send(message("m"))
		e.equal("listed", e.listed(), true)
		e.ack(e.claimOne("m", held))
		e.equal("listed", e.listed(), true)
		e.ok(e.Store.Delete(e.Context(), e.queue))
		e.equal("listed", e.listed(), false)
	}},
	{"many queues are listed over several pages", func(e *env) {
		want := map[string]bool{}
		for range 50 {
			f := &env{T: e.T, Harness: e.Harness, queue: newQueueName()}
			f.send(message("m"))
			want[f.queue] = true
		}
		for _, name := range e.queues() {
			delete(want, name)
		}
		e.equal("queues not listed", len(want), 0)
	}},
	{"delete removes a queue with its messages, leases, dedup windows and pause", func(e *env) {
		e.sendDead("dead")
		e.send(message("done", dedupWindow(time.Hour)))
		e.ack(e.claimOne("done", held))
		e.send(message("leased"))
		c := e.claimOne("leased", held)
		e.send(message("ready"), message("scheduled", delay(time.Hour)))
		e.ok(e.Store.SetPaused(e.Context(), e.queue, true))
		e.ok(e.Peer.Delete(e.Context(), e.queue))
		s := e.stats()
		s.Now = time.Time{}
		e.equal("stats", s, store.Stats{})
		for _, id := range []string{"dead", "done", "leased", "ready", "scheduled"} {
			e.gone(id)
		}
		e.is(e.tryExtend(c.Receipt.Lease, held).Err, store.ErrLeaseLost)
		e.send(message("leased"), message("done"))
		e.is(e.trySettle(nack(c, 0))[0].Err, store.ErrLeaseLost)
		again := e.claim(10)
		e.equal("claimed", len(again), 2)
		e.is(e.trySettle(store.Settlement{Receipt: c.Receipt, Action: store.Ack})[0].Err, store.ErrLeaseLost)
		e.ack(again...)
	}},
	{"delete of a queue that does not exist is no error", func(e *env) {
		e.ok(e.Store.Delete(e.Context(), e.queue))
		e.ok(e.Store.Delete(e.Context(), e.queue))
		e.equal("exists", e.stats().Exists, false)
	}},
	{"delete of one queue leaves the others", func(e *env) {
		f := e.other()
		e.send(message("m"))
		f.send(message("m"))
		e.ok(e.Store.Delete(e.Context(), e.queue))
		f.claimOne("m", held)
	}},
	{"a queue of 5000 messages drains in order", func(e *env) {
		const n = 5000
		now := e.now()
		msgs := many(n)
		for i := range msgs {
			msgs[i].Due = store.Due{At: now.Add(-time.Duration(i*7919%n) * time.Millisecond)}
		}
		e.send(msgs...)
		var last time.Time
		drained := 0
		for drained < n {
			c := e.claim(store.MaxBatch)
			if len(c) == 0 {
				e.Fatalf("a claim is empty after %d of %d messages", drained, n)
			}
			for _, m := range c {
				if m.Due.Before(last) {
					e.Fatalf("a message due at %s was claimed after one due at %s", m.Due, last)
				}
				last = m.Due
			}
			drained += len(c)
		}
		e.count(0, 0, n, 0)
	}},
}

// queues returns the names of all queues.
func (e *env) queues() []string {
	e.Helper()
	var all []string
	cursor := ""
	for {
		names, next, err := e.Peer.Queues(e.Context(), cursor)
		e.ok(err)
		all = append(all, names...)
		if next == "" {
			return all
		}
		cursor = next
	}
}

func (e *env) listed() bool {
	e.Helper()
	for _, name := range e.queues() {
		if name == e.queue {
			return true
		}
	}
	return false
}
