package storetest

import (
	"fmt"
	"math"
	"time"

	"github.com/laterq/later/store"
)

func (e *env) retain(r store.Retention) {
	e.Helper()
	e.ok(e.Peer.SetDeadRetention(e.Context(), e.queue, r, nil))
}

// dropped claims nothing else and returns the dropped ids of the claim.
func (e *env) dropped() []string {
	e.Helper()
	c := e.claimWith(1, held)
	e.equal("claimed", len(c.Messages), 0)
	return c.Dropped
}

var retentionRules = []rule{
	{"dead messages beyond the maximum count are dropped, those that died first", func(e *env) {
		for i := range 5 {
			e.sendDead(fmt.Sprint("m", i))
			if e.Exact {
				e.advance(time.Millisecond)
			}
		}
		e.equal("dropped without a retention", e.dropped(), []string(nil))
		e.retain(store.Retention{MaxCount: 3})
		e.count(0, 0, 0, 5)
		e.equal("dropped", e.dropped(), []string{"m0", "m1"})
		e.gone("m0")
		e.gone("m1")
		e.live("m2", store.StateDead)
		e.count(0, 0, 0, 3)
		e.equal("number of dropped messages", e.stats().Dropped, int64(2))
		e.equal("dropped by the next claim", e.dropped(), []string(nil))
		e.sendDead("m0") // its id is free
		e.equal("dropped", e.dropped(), []string{"m2"})
		e.equal("number of dropped messages", e.stats().Dropped, int64(3))
	}},
	{"dead messages are dropped when they reach the maximum age", func(e *env) {
		e.advance(time.Millisecond)
		e.retain(store.Retention{MaxAge: time.Hour})
		e.sendDead("a")
		e.advance(time.Minute)
		e.sendDead("b")
		e.advance(59*time.Minute - time.Millisecond)
		e.equal("dropped too early", e.dropped(), []string(nil))
		e.advance(time.Millisecond)
		e.equal("dropped", e.dropped(), []string{"a"})
		e.live("b", store.StateDead)
	}},
	{"a restored dead message keeps its time of death and may be dropped at once", func(e *env) {
		e.retain(store.Retention{MaxAge: time.Hour})
		now := e.now()
		dead := func(id string, died time.Time) store.Info {
			return store.Info{Message: store.Message{ID: id}, State: store.StateDead, Due: now, DiedAt: died,
				DeadReason: store.DeadBuried, LastError: "no", Attempts: 1}
		}
		_, err := e.Store.Restore(e.Context(), e.queue,
			[]store.Info{dead("old", now.Add(-2*time.Hour)), dead("new", now.Add(-time.Minute))})
		e.ok(err)
		e.equal("dropped", e.dropped(), []string{"old"})
		e.live("new", store.StateDead)
	}},
	{"a replayed message is not dropped", func(e *env) {
		e.sendDead("m")
		e.retain(store.Retention{MaxAge: time.Millisecond})
		bulk, err := e.Store.Replay(e.Context(), e.queue, store.Selection{State: store.StateDead}, store.Due{})
		e.ok(err)
		e.equal("replayed", bulk.Done, 1)
		e.claimOne("m", held)
		e.equal("number of dropped messages", e.stats().Dropped, int64(0))
	}},
	{"one claim drops a bounded number of messages, until all are dropped", func(e *env) {
		const n = 2*store.MaxBatch + 100
		e.send(many(n)...)
		for range 3 {
			var buried []store.Settlement
			for _, c := range e.claim(store.MaxBatch) {
				buried = append(buried, store.Settlement{Receipt: c.Receipt, Action: store.Bury, Reason: "no"})
			}
			e.trySettle(buried...)
		}
		e.count(0, 0, 0, n)
		e.retain(store.Retention{MaxCount: 10})
		dropped := map[string]bool{}
		for more := true; more; {
			c := e.claimWith(1, held)
			if len(c.Dropped) > store.MaxBatch {
				e.Fatalf("one claim dropped %d messages", len(c.Dropped))
			}
			for _, id := range c.Dropped {
				dropped[id] = true
			}
			more = c.More
		}
		e.equal("messages reported as dropped", len(dropped), n-10)
		e.count(0, 0, 0, 10)
		e.equal("number of dropped messages", e.stats().Dropped, int64(n-10))
	}},
	{"dead messages are dropped while the queue is paused", func(e *env) {
		e.sendDead("m")
		e.sendDead("n")
		e.send(message("ready"))
		e.ok(e.Store.SetPaused(e.Context(), e.queue, true))
		e.retain(store.Retention{MaxCount: 1})
		e.equal("dropped", len(e.dropped()), 1)
		e.count(0, 1, 0, 1)
	}},
	{"a claim that drops messages also claims", func(e *env) {
		e.sendDead("m")
		e.sendDead("n")
		e.retain(store.Retention{MaxCount: 1})
		e.send(message("ready"))
		c := e.claimWith(10, held)
		e.equal("claimed", ids(c.Messages), []string{"ready"})
		e.equal("dropped", len(c.Dropped), 1)
		e.count(0, 0, 1, 1)
	}},
	{"a retention is kept with the queue until it is changed or the queue deleted", func(e *env) {
		e.equal("retention", e.stats().DeadRetention, store.Retention{})
		for _, r := range []store.Retention{{MaxAge: time.Hour, MaxCount: 7}, {MaxAge: time.Millisecond}, {MaxCount: 1},
			{}, {MaxAge: store.MaxDelay, MaxCount: store.MaxDeadCount}} {
			e.retain(r)
			s := e.stats()
			e.equal("exists", s.Exists, true)
			e.equal("retention", s.DeadRetention, r)
		}
		e.purge(store.Selection{})
		e.equal("retention after a purge", e.stats().DeadRetention.MaxCount, store.MaxDeadCount)
		e.ok(e.Peer.Delete(e.Context(), e.queue))
		e.equal("retention after a delete", e.stats().DeadRetention, store.Retention{})
	}},
	{"a retention is rounded up to whole milliseconds", func(e *env) {
		e.retain(store.Retention{MaxAge: 1})
		e.equal("maximum age", e.stats().DeadRetention.MaxAge, time.Millisecond)
	}},
	{"a retention replaces only the former one that the caller names", func(e *env) {
		former := store.Retention{MaxAge: time.Hour, MaxCount: 5}
		replace := func(r, former store.Retention) error {
			return e.Store.SetDeadRetention(e.Context(), e.queue, r, &former)
		}
		e.is(replace(store.Retention{}, former), store.ErrConflict)
		e.equal("exists", e.stats().Exists, false)
		e.equal("listed", e.listed(), false)
		e.ok(replace(former, store.Retention{}))
		for _, other := range []store.Retention{{}, {MaxAge: time.Hour}, {MaxCount: 5},
			{MaxAge: time.Hour, MaxCount: 4}, {MaxAge: time.Minute, MaxCount: 5}} {
			e.is(replace(store.Retention{MaxCount: 1}, other), store.ErrConflict)
		}
		e.equal("retention", e.stats().DeadRetention, former)
		e.ok(replace(store.Retention{}, former))
		e.ok(replace(store.Retention{MaxAge: time.Minute}, e.stats().DeadRetention))
		e.equal("retention", e.stats().DeadRetention, store.Retention{MaxAge: time.Minute})
	}},
	{"a retention that is not allowed is refused", func(e *env) {
		for _, r := range []store.Retention{{MaxAge: -1}, {MaxCount: -1}, {MaxAge: store.MaxDelay + 1},
			{MaxCount: math.MaxInt64}} {
			e.is(e.Store.SetDeadRetention(e.Context(), e.queue, r, nil), store.ErrInvalid)
		}
		e.equal("exists", e.stats().Exists, false)
	}},
}
