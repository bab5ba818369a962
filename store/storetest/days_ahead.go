package storetest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/laterq/later/store"
)

// day is long enough that an engine may store messages due after it differently from messages due soon.
const day = 24 * time.Hour

var daysAheadRules = []rule{
	{"an id that is named twice is rescheduled once", func(e *env) {
		e.send(message("m", delay(48*time.Hour)))
		errs, err := e.Store.Reschedule(e.Context(), e.queue, []string{"m", "m", "none"}, store.Due{})
		e.ok(err)
		e.equal("errors", []error{errs[0], errs[1]}, []error{nil, nil})
		e.is(errs[2], store.ErrNotFound)
		e.count(0, 1, 0, 0)
		e.claimOne("m", held)
	}},
	{"messages of several days are claimed in order, however far the clock jumps", func(e *env) {
		want := e.spread(2000)
		e.send(message("a"), message("b"), message("c"))
		e.count(2000, 3, 0, 0)
		e.equal("claimed", len(e.drain()), 3)
		for _, step := range []time.Duration{time.Hour, day, time.Millisecond, day, 4 * day} {
			e.advance(step)
			due := 0
			for now := e.now(); due < len(want) && !want[due].Due.At.After(now); due++ {
			}
			s := e.stats()
			e.equal("scheduled and ready", []int64{s.Scheduled, s.Ready}, []int64{int64(len(want) - due), int64(due)})
			if len(want) > 0 {
				e.equal("next due", ms(s.NextDue), ms(want[0].Due.At))
			}
			e.equal("claimed after "+step.String(), strings.Join(e.drain(), " "),
				strings.Join(outgoingIDs(want[:due]), " "))
			want = want[due:]
		}
		e.equal("left", len(want), 0)
	}},
	{"small claims are in order when much is overdue", func(e *env) {
		want := outgoingIDs(e.spread(300))
		e.advance(5 * day)
		e.send(message("last"))
		for len(want) > 0 {
			n := min(7, len(want))
			e.equal("claimed", ids(e.claim(7))[:n], want[:n])
			want = want[n:]
		}
	}},
	{"a message due soon is claimed on time and before all that are due later", func(e *env) {
		e.spread(200)
		e.send(message("soon", delay(time.Second)))
		e.equal("claimed early", len(e.claim(10)), 0)
		e.advance(time.Second)
		e.claimOne("soon", time.Hour)
		first := e.stats().NextDue
		e.advance(first.Sub(e.now()) - time.Millisecond)
		e.equal("claimed early", len(e.claim(10)), 0)
		e.advance(time.Millisecond)
		e.equal("due", ms(e.claim(1)[0].Due), ms(first))
	}},
	{"messages days ahead are read, cancelled and rescheduled by id", func(e *env) {
		all := e.spread(600)
		for i, m := range all {
			switch i % 10 {
			case 0:
				e.equal("due", ms(e.live(m.ID, store.StateScheduled).Due), ms(m.Due.At))
				e.equal("payload", string(e.get(m.ID).Payload), string(m.Payload))
			case 1:
				e.cancel(m.ID, store.StateScheduled)
				e.gone(m.ID)
				e.is(e.tryCancel(m.ID).Err, store.ErrNotFound)
			case 2:
				e.ok(e.tryReschedule(m.ID, store.Due{}))
				e.ack(e.claimOne(m.ID, held))
			case 3:
				m.Due.At = m.Due.At.Add(day)
				e.ok(e.tryReschedule(m.ID, m.Due))
				e.equal("due", ms(e.live(m.ID, store.StateScheduled).Due), ms(m.Due.At))
				all[i] = m
			case 4:
				r := e.trySend(message(m.ID, delay(time.Hour)))
				e.equal("duplicate", r[0].Duplicate, true)
			}
		}
		e.count(480, 0, 0, 0)
		all = slices.DeleteFunc(all, func(m store.Outgoing) bool { return e.get(m.ID) == nil })
		sortOutgoing(all)
		e.advance(10 * day)
		e.equal("claimed", strings.Join(e.drain(), " "), strings.Join(outgoingIDs(all), " "))
	}},
	{"cancel removes a batch of messages days ahead", func(e *env) {
		all := outgoingIDs(e.spread(1000))
		for part := range slices.Chunk(all, store.MaxBatch) {
			results, err := e.Store.Cancel(e.Context(), e.queue, store.CancelRequest{IDs: part})
			e.ok(err)
			for _, r := range results {
				e.ok(r.Err)
				e.equal("state", r.State, store.StateScheduled)
			}
		}
		s := e.stats()
		e.equal("scheduled", s.Scheduled, int64(0))
		e.equal("next due is zero", s.NextDue.IsZero(), true)
		e.send(message("again", delay(day)))
		e.advance(day)
		e.claimOne("again", held)
	}},
	{"messages days ahead are listed in order, for any page size and time range", func(e *env) {
		all := e.spread(700)
		e.send(message("now"), message("soon", delay(time.Minute)))
		now := e.now()
		for _, limit := range []int{7, 100, store.MaxBatch} {
			want := append([]string{"soon"}, outgoingIDs(all)...)
			e.equal("scheduled", infoIDs(e.list(store.ListRequest{State: store.StateScheduled, Limit: limit})), want)
			req := store.ListRequest{State: store.StateScheduled, Limit: limit, From: now.Add(day),
				To: now.Add(2 * day)}
			e.equal("of the second day", infoIDs(e.list(req)), outgoingIDs(between(all, req.From, req.To)))
		}
		e.advance(day)
		ready := append([]string{"now", "soon"},
			outgoingIDs(between(all, time.Time{}, now.Add(day+time.Millisecond)))...)
		e.equal("ready", infoIDs(e.list(store.ListRequest{State: store.StateReady, Limit: 50})), ready)
		for _, info := range e.list(store.ListRequest{State: store.StateScheduled, Limit: 500})[:20] {
			e.equal("listed", describe(&info), describe(e.live(info.ID, store.StateScheduled)))
		}
	}},
	{"a histogram over days is exact", func(e *env) {
		all := e.spread(1500)
		from := e.now().Add(-time.Hour)
		for _, buckets := range []int{1, 6, 123, store.MaxBuckets} {
			bounds := store.HistogramBounds(from, from.Add(3*day), buckets)
			counts := e.histogram(bounds)
			for i, count := range counts {
				want := len(between(all, bounds[i], bounds[i+1]))
				if count != int64(want) {
					e.Fatalf("bucket %d of %d has %d messages, want %d", i, buckets, count, want)
				}
			}
		}
	}},
	{"purge of scheduled messages leaves ready ones, and the reverse, days ahead", func(e *env) {
		for _, state := range []store.State{store.StateReady, store.StateScheduled} {
			e.spread(1200)
			e.advance(2 * day)
			s := e.stats()
			done := map[store.State]int64{store.StateReady: s.Ready, store.StateScheduled: s.Scheduled}[state]
			e.equal("purged", e.purge(store.Selection{State: state}), int(done))
			after := e.stats()
			e.equal("left", []int64{after.Ready, after.Scheduled}, map[store.State][]int64{
				store.StateReady: {0, s.Scheduled}, store.StateScheduled: {s.Ready, 0},
			}[state])
			e.equal("claimed", len(e.drain()), int(after.Ready))
			e.equal("purged", e.purge(store.Selection{}), int(after.Scheduled))
			e.count(0, 0, 0, 0)
		}
	}},
	{"many messages days ahead may be due in the same millisecond", func(e *env) {
		due := e.now().Add(day)
		e.send(message("before", at(due.Add(-time.Millisecond))), message("after", at(due.Add(time.Millisecond))))
		e.send(many(1100, at(due))...)
		e.cancel("m00500", store.StateScheduled)
		e.cancel("m00003", store.StateScheduled)
		want := []string{"before"}
		for _, m := range many(1100) {
			if m.ID != "m00500" && m.ID != "m00003" {
				want = append(want, m.ID)
			}
		}
		want = append(want, "after")
		e.equal("listed", infoIDs(e.list(store.ListRequest{State: store.StateScheduled, Limit: 99})), want)
		e.advance(day + time.Millisecond)
		e.equal("claimed", e.drain(), want)
	}},
	{"messages sent in rising or falling order of due time are all found", func(e *env) {
		start := e.now().Add(day)
		for i := range 150 {
			e.send(message(fmt.Sprint("up", i), at(start.Add(time.Duration(i)*time.Second))),
				message(fmt.Sprint("down", i), at(start.Add(-time.Duration(i)*time.Second))))
		}
		for i := range 150 {
			up, down := e.live(fmt.Sprint("up", i), store.StateScheduled),
				e.live(fmt.Sprint("down", i), store.StateScheduled)
			e.equal("due", ms(up.Due), ms(start.Add(time.Duration(i)*time.Second)))
			e.equal("due", ms(down.Due), ms(start.Add(-time.Duration(i)*time.Second)))
		}
		e.advance(day)
		e.equal("claimed", len(e.drain()), 151)
	}},
	{"messages days ahead move to another queue and back", func(e *env) {
		e.spread(400)
		all := e.list(store.ListRequest{State: store.StateScheduled, Limit: 90})
		f := e.other()
		f.restore(all...)
		for i, removed := range e.remove(all...) {
			e.equal("removed "+all[i].ID, removed, true)
		}
		e.count(0, 0, 0, 0)
		listed := f.list(store.ListRequest{State: store.StateScheduled, Limit: 400})
		e.equal("listed", describeAll(listed, f.now()), describeAll(all, e.now()))
		f.advance(10 * day)
		e.equal("claimed", f.drain(), infoIDs(all))
	}},
	{"short and long messages days ahead keep their contents", func(e *env) {
		for i, n := range []int{0, 1, 50, 100, 5000, 16_000, 20_000, 200_000} {
			m := message(fmt.Sprint("m", i), delay(day), maxAttempts(i), expireAfter(time.Hour))
			m.Payload = []byte(strings.Repeat("x", n))
			e.send(m)
			e.equal("length", len(e.live(m.ID, store.StateScheduled).Payload), n)
		}
		e.advance(day)
		for i, m := range e.claim(8) {
			e.equal("id", m.ID, fmt.Sprint("m", i))
			e.equal("attempts", m.MaxAttempts, i)
		}
		e.send(message("late", delay(day), expireAfter(time.Hour)))
		e.advance(2 * day)
		c := e.claimWith(20, held)
		e.equal("expired", slices.Contains(c.Expired, "late"), true)
	}},
}

// drain claims and acks until nothing is ready, and returns the ids.
func (e *env) drain() []string {
	e.Helper()
	var all []string
	for {
		c := e.claimWith(store.MaxBatch, held)
		all = append(all, ids(c.Messages)...)
		var acks []store.Settlement
		for _, m := range c.Messages {
			acks = append(acks, store.Settlement{Receipt: m.Receipt, Action: store.Ack})
		}
		if len(acks) > 0 {
			for _, r := range e.trySettle(acks...) {
				e.ok(r.Err)
			}
		}
		if !c.More {
			return all
		}
	}
}

// spread sends n messages with scattered due times within three days, some of them equal. It returns the messages in
// order of due time, then id.
func (e *env) spread(n int) []store.Outgoing {
	e.Helper()
	start := e.now().Add(time.Hour)
	msgs := many(n)
	for i := range msgs {
		part := (i * 7919) % (n - n/10) // the last tenth shares due times with others
		msgs[i].Due.At = start.Add(time.Duration(part) * (3 * day / time.Duration(n))).Truncate(time.Millisecond)
	}
	e.send(msgs...)
	sortOutgoing(msgs)
	return msgs
}

func sortOutgoing(msgs []store.Outgoing) {
	slices.SortFunc(msgs, func(a, b store.Outgoing) int {
		return cmp.Or(a.Due.At.Compare(b.Due.At), strings.Compare(a.ID, b.ID))
	})
}

func outgoingIDs(msgs []store.Outgoing) []string {
	var all []string
	for _, m := range msgs {
		all = append(all, m.ID)
	}
	return all
}

// between returns the messages that fall due in [from, to).
func between(msgs []store.Outgoing, from, to time.Time) []store.Outgoing {
	var all []store.Outgoing
	for _, m := range msgs {
		if !m.Due.At.Before(from) && m.Due.At.Before(to) {
			all = append(all, m)
		}
	}
	return all
}
