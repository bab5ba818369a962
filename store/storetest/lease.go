package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/laterq/later/store"
)

// short is the length of a lease that a rule lets expire.
const short = time.Second

var leaseRules = []rule{
	{"settle after lease expiry is refused, whether claimed again or not", func(e *env) {
		e.send(message("m"))
		c := e.claimOne("m", short)
		e.advance(short)
		e.refused(c.Receipt)
		e.claimOne("m", held)
		e.refused(c.Receipt)
	}},
	{"a lease lasts until its deadline", func(e *env) {
		e.send(message("m"))
		c := e.claimOne("m", short)
		e.advance(short - time.Millisecond)
		e.equal("claimed early", len(e.claim(1)), 0)
		e.ack(c)
	}},
	{"an expired lease counts a failed attempt, and its deadline is the new due time", func(e *env) {
		e.send(message("m"))
		c := e.claimWith(1, short)
		e.advance(time.Minute)
		e.send(message("younger"))
		again := e.claim(2)
		e.equal("claimed", ids(again), []string{"m", "younger"})
		e.equal("due", ms(again[0].Due), ms(c.Deadline))
		e.equal("attempt", again[0].Attempt, 2)
		info := e.live("m", store.StateLeased)
		e.equal("attempts", info.Attempts, 1)
		e.equal("due", ms(info.Due), ms(c.Deadline))
		e.equal("last error", info.LastError, store.LeaseExpiredText)
	}},
	{"the messages of an expired uncounted lease return as they were", func(e *env) {
		e.send(message("first", maxAttempts(1), expireAfter(time.Hour)), message("second"))
		c, err := e.Store.Claim(e.Context(), e.queue, store.ClaimRequest{Max: 1, Lease: short, Uncounted: true})
		e.ok(err)
		was := describe(e.live("first", store.StateLeased))
		e.advance(short)
		e.refused(c.Messages[0].Receipt)
		again, err := e.Store.Claim(e.Context(), e.queue, store.ClaimRequest{Max: 2, Lease: short, Uncounted: true})
		e.ok(err)
		e.equal("claimed", ids(again.Messages), []string{"first", "second"})
		e.equal("died", again.Died, []string(nil))
		e.equal("attempt", again.Messages[0].Attempt, 1)
		is := e.live("first", store.StateLeased)
		is.LeaseDeadline = c.Deadline
		e.equal("message", describe(is), was)
		e.settle(nack(again.Messages[1], 0), store.StateReady)
		e.advance(2 * time.Hour)
		e.equal("died of its expiry", e.claimWith(2, short).Died, []string{"first"})
	}},
	{"a message whose holders always crash is dead after its last attempt", func(e *env) {
		e.send(message("m", maxAttempts(3)))
		for attempt := 1; attempt <= 3; attempt++ {
			e.equal("attempt", e.claimOne("m", short).Attempt, attempt)
			e.advance(short)
		}
		now := e.now()
		c := e.claimWith(1, held)
		e.equal("claimed", len(c.Messages), 0)
		e.equal("died", c.Died, []string{"m"})
		info := e.live("m", store.StateDead)
		e.equal("reason", info.DeadReason, store.DeadLeaseExpired)
		e.equal("attempts", info.Attempts, 3)
		e.at("died at", info.DiedAt, now)
		e.equal("last error", info.LastError, store.LeaseExpiredText)
	}},
	{"a late ack leaves the message to its new holder", func(e *env) {
		e.send(message("m"))
		late := e.claimOne("m", short)
		e.advance(short)
		c := e.claimOne("m", held)
		e.refused(late.Receipt)
		e.ack(c)
		e.refused(late.Receipt)
	}},
	{"a late nack does not create a second copy", func(e *env) {
		e.send(message("m"))
		late := e.claimOne("m", short)
		e.advance(short)
		c := e.claimOne("m", held)
		r := e.trySettle(store.Settlement{Receipt: late.Receipt, Action: store.Nack, Reason: "late"})[0]
		e.is(r.Err, store.ErrLeaseLost)
		e.count(0, 0, 1, 0)
		e.equal("attempts", e.get("m").Attempts, 1)
		e.ack(c)
		e.count(0, 0, 0, 0)
		e.advance(time.Hour)
		e.equal("claimed", len(e.claim(10)), 0)
	}},
	{"an extended lease lasts from the engine's now", func(e *env) {
		e.send(message("m"))
		c := e.claimOne("m", short)
		for range 3 {
			e.advance(short - time.Millisecond)
			now := e.now()
			r := e.tryExtend(c.Receipt.Lease, short)
			e.ok(r.Err)
			e.at("deadline", r.Deadline, now.Add(short))
			e.equal("deadline", ms(e.live("m", store.StateLeased).LeaseDeadline), ms(r.Deadline))
			e.equal("lost", len(r.Lost), 0)
		}
		e.ack(c)
	}},
	{"extend counts from now, so it may shorten a lease", func(e *env) {
		e.send(message("m"))
		c := e.claimOne("m", time.Hour)
		e.ok(e.tryExtend(c.Receipt.Lease, short).Err)
		e.advance(short)
		e.refused(c.Receipt)
		e.claimOne("m", held)
	}},
	{"extend after lease expiry is refused and changes nothing", func(e *env) {
		e.send(message("m"))
		c := e.claimOne("m", short)
		e.advance(short)
		for range 2 {
			r := e.tryExtend(c.Receipt.Lease, held)
			e.is(r.Err, store.ErrLeaseLost)
			e.equal("deadline is zero", r.Deadline.IsZero(), true)
			e.refused(c.Receipt)
		}
		e.claimOne("m", held)
		e.is(e.tryExtend(c.Receipt.Lease, held).Err, store.ErrLeaseLost)
	}},
	{"a lease ends with its last message", func(e *env) {
		e.send(many(2)...)
		c := e.claim(2)
		lease := c[0].Receipt.Lease
		e.ack(c[0])
		e.ok(e.tryExtend(lease, held).Err)
		e.settle(store.Settlement{Receipt: c[1].Receipt, Action: store.Release}, store.StateReady)
		e.is(e.tryExtend(lease, held).Err, store.ErrLeaseLost)
	}},
	{"extend returns a result for each of several leases", func(e *env) {
		e.send(many(2)...)
		first, second := e.claim(1)[0], e.claim(1)[0]
		now := e.now()
		results, err := e.Store.Extend(e.Context(), e.queue, []store.Extension{
			{Lease: first.Receipt.Lease, For: time.Hour},
			{Lease: "unknown", For: time.Hour},
			{Lease: second.Receipt.Lease, For: 2 * time.Hour},
		})
		e.ok(err)
		e.equal("number of results", len(results), 3)
		e.ok(results[0].Err)
		e.at("deadline", results[0].Deadline, now.Add(time.Hour))
		e.is(results[1].Err, store.ErrLeaseLost)
		e.ok(results[2].Err)
		e.at("deadline", results[2].Deadline, now.Add(2*time.Hour))
	}},
	{"extend reports cancelled messages once", func(e *env) {
		e.send(many(4)...)
		c := e.claim(4)
		lease := c[0].Receipt.Lease
		e.cancel(c[1].ID, store.StateLeased)
		e.cancel(c[3].ID, store.StateLeased)
		r := e.tryExtend(lease, held)
		e.ok(r.Err)
		e.equal("lost", keys(r.Lost), []string{key(c[1].Receipt), key(c[3].Receipt)})
		r = e.tryExtend(lease, held)
		e.ok(r.Err)
		e.equal("lost", len(r.Lost), 0)
		e.ack(c[0], c[2])
		e.is(e.tryExtend(lease, held).Err, store.ErrLeaseLost)
	}},
	{"an extension by nothing reports cancelled messages and leaves the deadline", func(e *env) {
		e.send(many(3)...)
		c := e.claim(3)
		lease, deadline := c[0].Receipt.Lease, e.get(c[0].ID).LeaseDeadline
		e.cancel(c[1].ID, store.StateLeased)
		for _, lost := range [][]string{{key(c[1].Receipt)}, {}} {
			e.advance(time.Millisecond)
			r := e.tryExtend(lease, 0)
			e.ok(r.Err)
			e.at("deadline", r.Deadline, deadline)
			e.equal("lost", keys(r.Lost), lost)
		}
		e.cancel(c[0].ID, store.StateLeased)
		e.ack(c[2])
		r := e.tryExtend(lease, 0)
		e.is(r.Err, store.ErrLeaseLost)
		e.equal("lost", keys(r.Lost), []string{key(c[0].Receipt)})
		e.send(message("m"))
		m := e.claimOne("m", short)
		e.ok(e.tryExtend(m.Receipt.Lease, 0).Err)
		e.advance(short)
		e.is(e.tryExtend(m.Receipt.Lease, 0).Err, store.ErrLeaseLost)
		e.claimOne("m", held)
	}},
	{"extend reports a cancelled message after the rest of its lease is settled", func(e *env) {
		e.send(many(2)...)
		c := e.claim(2)
		e.cancel(c[0].ID, store.StateLeased)
		e.ack(c[1])
		r := e.tryExtend(c[0].Receipt.Lease, held)
		e.is(r.Err, store.ErrLeaseLost)
		e.equal("lost", keys(r.Lost), []string{key(c[0].Receipt)})
	}},
	{"a lease whose messages were all cancelled ends with the extend that reports it", func(e *env) {
		e.send(many(2)...)
		c := e.claim(2)
		e.cancel(c[0].ID, store.StateLeased)
		e.cancel(c[1].ID, store.StateLeased)
		r := e.tryExtend(c[0].Receipt.Lease, held)
		e.is(r.Err, store.ErrLeaseLost)
		e.equal("lost", keys(r.Lost), []string{key(c[0].Receipt), key(c[1].Receipt)})
		r = e.tryExtend(c[0].Receipt.Lease, held)
		e.is(r.Err, store.ErrLeaseLost)
		e.equal("lost", len(r.Lost), 0)
	}},
	{"all messages of an expired lease are ready again", func(e *env) {
		e.send(many(100)...)
		c := e.claimWith(100, short)
		e.ack(c.Messages[:50]...)
		e.advance(short)
		again := e.claimAll()
		slices.Sort(again)
		e.equal("claimed", again, ids(c.Messages[50:]))
	}},
	{"more than MaxBatch expired leases end over several claims", func(e *env) {
		const n = 2*store.MaxBatch + 200
		e.send(many(n, maxAttempts(1))...)
		for range n {
			e.equal("claimed", len(e.claimWith(1, short).Messages), 1)
		}
		e.advance(short)
		died := map[string]bool{}
		for {
			c := e.claimWith(store.MaxBatch, held)
			e.equal("claimed", len(c.Messages), 0)
			if len(c.Died) > store.MaxBatch+store.MaxBatch/2 {
				e.Fatalf("%d messages died in one claim", len(c.Died))
			}
			for _, id := range c.Died {
				died[id] = true
			}
			if !c.More {
				break
			}
			if len(c.Died) == 0 {
				e.Fatalf("a claim did nothing, but More is set")
			}
		}
		e.equal("died", len(died), n)
		e.count(0, 0, 0, n)
	}},
	{"large expired leases end over several claims", func(e *env) {
		const n = 3 * store.MaxBatch
		e.send(many(n)...)
		for range n / store.MaxBatch {
			e.equal("claimed", len(e.claimWith(store.MaxBatch, short).Messages), store.MaxBatch)
		}
		e.advance(short)
		e.equal("claimed", len(e.claimAll()), n)
		e.count(0, 0, n, 0)
	}},
	{"lease expiry discards what was cancelled", func(e *env) {
		e.send(many(2)...)
		c := e.claimWith(2, short).Messages
		e.cancel(c[0].ID, store.StateLeased)
		e.advance(short)
		e.equal("claimed", e.claimAll(), []string{c[1].ID})
		r := e.tryExtend(c[0].Receipt.Lease, held)
		e.is(r.Err, store.ErrLeaseLost)
		e.gone(c[0].ID)
	}},
}

// key returns a text that identifies a receipt: all but the engine's private data.
func key(r store.Receipt) string { return fmt.Sprintf("%q under %q, epoch %d", r.ID, r.Lease, r.Epoch) }

func keys(receipts []store.Receipt) []string {
	var all []string
	for _, r := range receipts {
		all = append(all, key(r))
	}
	slices.Sort(all)
	return all
}
