package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/laterq/later/store"
)

// flowRules are the rules of limits of a queue.
var flowRules = slices.Concat(flowSettingRules, concurrencyLimitRules, learningRules, rateRules, flowWaitRules)

// limit sets the flow of the queue.
func (e *env) limit(f store.Flow) {
	e.Helper()
	e.ok(e.Peer.SetFlow(e.Context(), e.queue, f, nil))
}

func (e *env) flow() store.FlowState {
	e.Helper()
	stats, err := e.Store.Stats(e.Context(), e.queue)
	e.ok(err)
	if !stats.Flow.Limited() {
		e.equal("state of a plain queue", stats.Flow, store.FlowState{})
		stats.Flow.Now = stats.Now
	}
	return stats.Flow
}

// counted checks how many messages count against the concurrency.
func (e *env) counted(n int) {
	e.Helper()
	e.equal("messages that count", e.flow().Leased, n)
}

// full checks that a claim takes nothing, and that nothing is left that another one could take.
func (e *env) full() {
	e.Helper()
	c := e.claimWith(10, held)
	e.equal("claimed while a limit is reached", ids(c.Messages), []string(nil))
	e.equal("more", c.More, false)
}

// takes checks that a claim of n+5 messages takes n, and that a limit holds back the next.
func (e *env) takes(n int) []store.Claimed {
	e.Helper()
	c := e.claimWith(n+5, held)
	e.equal("claimed", len(c.Messages), n)
	e.equal("more", c.More, false)
	e.full()
	return c.Messages
}

func concurrency(n int) store.Flow { return store.Flow{Concurrency: n} }

func rate(n int, per time.Duration, burst int) store.Flow {
	return store.Flow{Rate: store.Rate{N: n, Per: per, Burst: burst}}
}

var flowSettingRules = []rule{
	{"a queue has the zero flow until it is set", func(e *env) {
		f := e.flow()
		e.at("now", f.Now, e.now())
		f.Now = time.Time{}
		e.equal("flow", f, store.FlowState{})
		e.equal("exists", e.stats().Exists, false)
		e.send(many(3)...)
		c := e.claimWith(2, held)
		e.equal("claimed", len(c.Messages), 2)
		e.equal("limited", c.Limited, false)
		f = e.flow()
		e.equal("state", fmt.Sprint(f.Flow, f.Leased, f.Next.IsZero()), fmt.Sprint(store.Flow{}, 0, true))
	}},
	{"a flow is kept with the queue until it is changed or the queue is deleted", func(e *env) {
		for _, f := range []store.Flow{
			concurrency(1), concurrency(store.MaxConcurrency), rate(100, time.Second, 5), {},
			rate(1, time.Microsecond, 0), rate(store.MaxRate, store.MaxPeriod, store.MaxRate),
			rate(3, 7*time.Microsecond, 2), {Concurrency: 7, Rate: store.Rate{N: 1, Per: time.Hour}},
		} {
			e.limit(f)
			e.equal("exists", e.stats().Exists, true)
			e.equal("listed", e.listed(), true)
			e.equal("flow", e.flow().Flow, f.Normal())
		}
		e.purge(store.Selection{})
		e.equal("concurrency after a purge", e.flow().Concurrency, 7)
		e.ok(e.Peer.SetPaused(e.Context(), e.queue, true))
		e.retain(store.Retention{MaxCount: 5})
		e.equal("concurrency of a paused queue", e.flow().Concurrency, 7)
		e.ok(e.Peer.Delete(e.Context(), e.queue))
		e.equal("flow after a delete", e.flow().Flow, store.Flow{})
		e.equal("exists", e.stats().Exists, false)
	}},
	{"a flow replaces only the former one that the caller names", func(e *env) {
		former := store.Flow{Concurrency: 5, Rate: store.Rate{N: 10, Per: time.Second}}
		replace := func(f, former store.Flow) error { return e.Store.SetFlow(e.Context(), e.queue, f, &former) }
		e.is(replace(store.Flow{}, former), store.ErrConflict)
		e.equal("exists", e.stats().Exists, false)
		e.equal("listed", e.listed(), false)
		e.ok(replace(former, store.Flow{}))
		for _, other := range []store.Flow{
			{}, concurrency(5), rate(10, time.Second, 0), {Concurrency: 4, Rate: former.Rate},
			{Concurrency: 5, Rate: store.Rate{N: 11, Per: time.Second}},
			{Concurrency: 5, Rate: store.Rate{N: 10, Per: time.Minute}},
			{Concurrency: 5, Rate: store.Rate{N: 10, Per: time.Second, Burst: 2}},
		} {
			e.is(replace(concurrency(1), other), store.ErrConflict)
		}
		e.equal("flow", e.flow().Flow, former.Normal())
		e.ok(replace(concurrency(2), former.Normal())) // a burst of 0 is one of 1
		e.ok(replace(former.Normal(), e.flow().Flow))
		e.ok(replace(store.Flow{}, former))
		e.equal("flow", e.flow().Flow, store.Flow{})
	}},
	{"a flow that is not allowed is refused with its error", func(e *env) {
		for _, f := range []store.Flow{
			concurrency(-1), concurrency(store.MaxConcurrency + 1), rate(0, time.Second, 0), rate(0, 0, 1),
			rate(store.MaxRate+1, time.Hour, 0), rate(10, 9*time.Microsecond, 0), rate(1, 1500*time.Nanosecond, 0),
			rate(1, store.MaxPeriod+time.Microsecond, 0), rate(1, time.Second, -1),
			rate(1, time.Second, store.MaxRate+1), rate(1, store.MaxPeriod, 2),
		} {
			e.refusesFlow(e.queue, f)
		}
		e.equal("exists", e.stats().Exists, false)
		for _, queue := range []string{"topic:" + e.queue, "topic-history:" + e.queue, "schedules:", "logouts:",
			"worker:" + e.queue} {
			e.refusesFlow(queue, concurrency(1))
		}
	}},
	{"a flow changes no messages", func(e *env) {
		c := e.inEveryState()
		look := func() (text string) {
			for _, id := range []string{"dead", "leased", "ready", "scheduled"} {
				text += describe(e.get(id)) + "\n"
			}
			for _, state := range allStates {
				text += strings.Join(infoIDs(e.list(store.ListRequest{State: state, Limit: 10})), " ") + "\n"
			}
			return text
		}
		before := look()
		for _, f := range []store.Flow{concurrency(1), rate(1, time.Hour, 1), {}} {
			e.limit(f)
			e.equal("messages", look(), before)
			e.count(1, 1, 1, 1)
		}
		e.limit(concurrency(1))
		e.claimOne("ready", held)
		e.count(1, 0, 2, 1)
		e.equal("leased", e.live("ready", store.StateLeased).Attempts, 0)
		e.ack(c)
	}},
	{"every claim on a queue with a flow says so, and none on a plain queue", func(e *env) {
		e.limit(concurrency(2))
		e.equal("limited, nothing ready", e.claimWith(1, held).Limited, true)
		e.send(many(3)...)
		e.equal("limited, with messages", e.claimWith(5, held).Limited, true)
		e.equal("limited, full", e.claimWith(5, held).Limited, true)
		e.ok(e.Peer.SetPaused(e.Context(), e.queue, true))
		e.equal("limited, paused", e.claimWith(5, held).Limited, true)
		e.limit(store.Flow{})
		e.equal("limited, without a flow", e.claimWith(5, held).Limited, false)
	}},
	{"messages that no handler is free for are left in a queue with a flow", func(e *env) {
		ahead := func(max, ahead int) store.Claim {
			e.Helper()
			c, err := e.Store.Claim(e.Context(), e.queue, store.ClaimRequest{Max: max, Ahead: ahead, Lease: held})
			e.ok(err)
			return c
		}
		e.send(many(30)...)
		e.limit(rate(1000, time.Second, 1000))
		e.equal("claimed", len(ahead(5, 3).Messages), 2)
		e.equal("claimed", len(ahead(5, 5).Messages), 0)
		e.equal("claimed", len(ahead(5, 0).Messages), 5)
		e.limit(concurrency(9))
		e.equal("claimed", len(ahead(5, 1).Messages), 2)
		e.limit(store.Flow{})
		e.equal("claimed without a flow", len(ahead(5, 5).Messages), 5)
	}},
	{"a queue whose flow is removed is plain", func(e *env) {
		e.send(many(20)...)
		e.limit(store.Flow{Concurrency: 3, Rate: store.Rate{N: 1, Per: time.Hour, Burst: 5}})
		limited := e.takes(3)
		e.limit(store.Flow{})
		plain := e.claimWith(20, held)
		e.equal("claimed", len(plain.Messages), 17)
		e.ack(limited...)
		e.ack(plain.Messages...)
		e.count(0, 0, 0, 0)
		e.counted(0)
	}},
}

// refusesFlow checks that SetFlow returns the error of CheckFlow.
func (e *env) refusesFlow(queue string, f store.Flow) {
	e.Helper()
	want := store.CheckFlow(queue, f)
	for _, s := range []store.Store{e.Store, e.Peer} {
		err := s.SetFlow(e.Context(), queue, f, nil)
		e.is(err, store.ErrInvalid)
		if !strings.Contains(err.Error(), want.Error()) {
			e.Fatalf("flow %+v is refused with %q, want %q", f, err, want)
		}
	}
}
