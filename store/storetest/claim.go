package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/laterq/later/store"
)

var claimRules = []rule{
	{"claims are in order of due time, then id", func(e *env) {
		now := e.now()
		due := at(now.Add(-time.Second))
		e.send(
			message("c", due), message("b", due), message("a", due), message("B", due),
			message("z", at(now.Add(-time.Minute))), message("later", delay(time.Minute)),
		)
		e.equal("claimed", ids(e.claim(10)), []string{"z", "B", "a", "b", "c"})
	}},
	{"a claim takes no more than it asked for", func(e *env) {
		e.send(many(5)...)
		c := e.claimWith(2, held)
		e.equal("claimed", ids(c.Messages), []string{"m00000", "m00001"})
		e.equal("more", c.More, true)
		e.count(0, 3, 2, 0)
	}},
	{"a claim without more leaves nothing ready", func(e *env) {
		e.send(many(3)...)
		e.send(message("later", delay(time.Hour)))
		e.equal("claimed", len(e.claimAll()), 3)
		e.count(1, 0, 3, 0)
	}},
	{"an empty claim returns the time and creates no lease", func(e *env) {
		now := e.now()
		e.send(message("later", delay(time.Hour)))
		c := e.claimWith(10, held)
		e.at("now", c.Now, now)
		e.equal("deadline is zero", c.Deadline.IsZero(), true)
		e.equal("messages", len(c.Messages), 0)
		e.equal("more", c.More, false)
	}},
	{"a claim on an unknown queue is empty and does not create the queue", func(e *env) {
		now := e.now()
		c := e.claimWith(10, held)
		e.equal("messages", len(c.Messages), 0)
		e.equal("more", c.More, false)
		e.at("now", c.Now, now)
		e.equal("exists", e.stats().Exists, false)
	}},
	{"a claimed message is not claimed again", func(e *env) {
		e.send(message("a"), message("b"))
		e.claimOne("a", held)
		e.claimOne("b", held)
		e.equal("claimed", len(e.claim(10)), 0)
		c, err := e.Peer.Claim(e.Context(), e.queue, store.ClaimRequest{Max: 10, Lease: held})
		e.ok(err)
		e.equal("claimed by the peer", len(c.Messages), 0)
	}},
	{"a claim has one lease for its messages, and two claims have two", func(e *env) {
		e.send(many(4)...)
		first, second := e.claim(2), e.claim(2)
		e.equal("lease", first[1].Receipt.Lease, first[0].Receipt.Lease)
		e.equal("lease", second[1].Receipt.Lease, second[0].Receipt.Lease)
		e.equal("engine data", second[1].Receipt.Claim, second[0].Receipt.Claim)
		if first[0].Receipt.Lease == second[0].Receipt.Lease || first[0].Receipt.Lease == "" {
			e.Fatalf("two claims have the same lease %q, or none", first[0].Receipt.Lease)
		}
		for _, c := range slices.Concat(first, second) {
			e.equal("id of the receipt", c.Receipt.ID, c.ID)
		}
	}},
	{"the deadline is the claim's now plus the lease, rounded up", func(e *env) {
		e.send(message("m"))
		c := e.claimWith(1, time.Second+time.Nanosecond)
		e.equal("deadline", ms(c.Deadline), c.Now.UnixMilli()+1001)
		e.equal("deadline", ms(e.live("m", store.StateLeased).LeaseDeadline), ms(c.Deadline))
	}},
	{"attempts count from one", func(e *env) {
		e.send(message("m"))
		for attempt := 1; attempt <= 3; attempt++ {
			c := e.claimOne("m", held)
			e.equal("attempt", c.Attempt, attempt)
			e.settle(store.Settlement{Receipt: c.Receipt, Action: store.Nack, Reason: "no"}, store.StateReady)
			e.equal("attempts", e.live("m", store.StateReady).Attempts, attempt)
		}
	}},
	{"claims are bounded in bytes but return at least one message", func(e *env) {
		const n = 10
		for i := range n {
			m := message(fmt.Sprintf("m%d", i))
			m.Payload = make([]byte, store.MaxPayload)
			e.send(m)
		}
		claimed := 0
		for claimed < n {
			c := e.claimWith(n, held)
			size := 0
			for _, m := range c.Messages {
				size += len(m.Payload)
			}
			if len(c.Messages) == 0 || size > store.MaxBatchBytes+store.MaxPayload {
				e.Fatalf("a claim returned %d messages with %d bytes in total", len(c.Messages), size)
			}
			claimed += len(c.Messages)
			if claimed < n && !c.More {
				e.Fatalf("%d of %d messages were claimed, and More is not set", claimed, n)
			}
		}
		e.count(0, 0, n, 0)
	}},
	{"a message due in the current millisecond is ready", func(e *env) {
		e.send(message("m", delay(time.Millisecond)))
		e.equal("claimed early", len(e.claim(1)), 0)
		e.advance(time.Millisecond)
		e.live("m", store.StateReady)
		e.claimOne("m", held)
	}},
	{"no message is lost when a consumer is away for a year", func(e *env) {
		e.send(many(10, delay(time.Hour))...)
		e.advance(365 * 24 * time.Hour)
		e.equal("claimed", len(e.claimAll()), 10)
	}},
}
