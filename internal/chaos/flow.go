//go:build unix

package chaos

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

// Under the flow faults every queue has limits, which change during the run. limitSets has the sets of limits of each
// queue. The first set, and of the last queue the one in which keys halt, is in force at the beginning and at the end,
// until all messages are handled. In some sets keys take turns or have limits, which some messages of the run would
// exceed. The last orderedQueues have an order most of the time. Half of the sets have Urgency; the others refuse
// messages with an urgency.
var limitSets = [][]later.Flow{
	{
		{Concurrency: 5, Rate: later.Rate{N: 200, Per: time.Second, Burst: 8}, Key: later.KeyFlow{
			Concurrency: 3, Rate: later.Rate{N: 60, Per: time.Second, Burst: 4},
		}, Urgency: true},
		{Concurrency: 2, Rate: later.Rate{N: 80, Per: time.Second, Burst: 3}},
		{Concurrency: 9, Rate: later.Rate{N: 500, Per: time.Second, Burst: 20}, Key: later.KeyFlow{Concurrency: 1},
			Urgency: true},
		{Concurrency: 5, Fair: true},
		{},
	},
	{
		{Concurrency: 4, Urgency: true},
		{Concurrency: 2},
		{Concurrency: 12, Key: later.KeyFlow{Rate: later.Rate{N: 25, Per: time.Second, Burst: 2}}, Urgency: true},
		{Rate: later.Rate{N: 100, Per: time.Second}, Key: later.KeyFlow{Concurrency: 2}},
		{},
	},
	{
		{Rate: later.Rate{N: 150, Per: time.Second}, Urgency: true}, // not a whole number of µs for each message
		{Rate: later.Rate{N: 70, Per: time.Second, Burst: 4}, Urgency: true},
		{Rate: later.Rate{N: 20, Per: 50 * time.Millisecond, Burst: 10}, Key: later.KeyFlow{
			Concurrency: 2, Rate: later.Rate{N: 20, Per: time.Second, Burst: 5},
		}},
		{Concurrency: 3, Rate: later.Rate{N: 150, Per: time.Second}, Key: later.KeyFlow{
			Concurrency: 1, Rate: later.Rate{N: 150, Per: time.Second},
		}, Urgency: true},
		{},
	},
	{
		{Key: later.KeyFlow{Order: store.OrderContinue}},
		{Concurrency: 4, Key: later.KeyFlow{Order: store.OrderHalt}, Urgency: true},
		{Rate: later.Rate{N: 150, Per: time.Second, Burst: 8}, Key: later.KeyFlow{
			Rate: later.Rate{N: 40, Per: time.Second, Burst: 3}, Order: store.OrderContinue,
		}},
		{Concurrency: 5, Urgency: true},
		{},
	},
	{
		{Concurrency: 6, Key: later.KeyFlow{Order: store.OrderContinue}},
		{Key: later.KeyFlow{Order: store.OrderHalt}, Urgency: true},
		{Concurrency: 9, Key: later.KeyFlow{
			Rate: later.Rate{N: 60, Per: time.Second, Burst: 4}, Order: store.OrderHalt,
		}},
		{Key: later.KeyFlow{Concurrency: 1, Order: store.OrderContinue}, Urgency: true},
		{},
	},
}

// orderedQueues is the number of the last queues that have an order most of the time.
const orderedQueues = 2

// halts is the index of limits in which the keys of the last queue halt.
const halts = 1

// keyOverrides are limits that the hot key of a queue gets while its keys have limits or take turns.
var keyOverrides = []later.KeyOverride{
	{Concurrency: new(int), Rate: &later.Rate{}}, // none
	{Concurrency: ptr(1)},
	{Concurrency: ptr(4), Rate: &later.Rate{N: 50, Per: time.Second, Burst: 2}},
	{},
}

// orderedOverrides are the overrides of a queue with an order.
var orderedOverrides = []later.KeyOverride{
	{Rate: &later.Rate{N: 30, Per: time.Second, Burst: 2}},
	{Concurrency: ptr(1), Rate: &later.Rate{}},
	{},
}

func ptr[T any](v T) *T { return &v }

// limitedLoad is below the first limits allow, and more than some of the others.
var limitedLoad = defaultLoad.with(func(l *load) {
	l.rate, l.queues, l.limited, l.limits, l.ordered = 300, len(limitSets), true, limitSets, orderedQueues
})

// limit sets the first limits of all queues, and others of the last one.
func (r *run) limit(ctx context.Context, last int) error {
	for i := range r.queues {
		set := 0
		if i == len(r.queues)-1 {
			set = last
		}
		if err := r.setFlow(ctx, i, set); err != nil {
			return err
		}
	}
	return nil
}

// setFlow gives a queue one of its limits. It repeats the call until it succeeds.
func (r *run) setFlow(ctx context.Context, queue, set int) error {
	name, f := r.queues[queue], r.fault.load.limits[queue][set]
	call := now()
	err := within(ctx, time.Minute, "the limits of "+name, func(ctx context.Context) error {
		return r.client.Queue(name).SetFlow(ctx, f)
	})
	if err == nil {
		f = f.Normal()
		r.journal.one(flowSet, now(), "-", flowFields(name, call, f)...)
		r.log("limits", name, call, f.Version())
		r.limits[name] = set
	}
	return err
}

// flowFields returns the fields of the record of a SetFlow.
func flowFields(queue string, call int64, f store.Flow) []any {
	flag := func(set bool) int {
		if set {
			return 1
		}
		return 0
	}
	limits := func(concurrency int, r store.Rate) []any {
		return []any{concurrency, r.N, r.Per.Microseconds(), r.Burst}
	}
	return slices.Concat([]any{queue, call}, limits(f.Concurrency, f.Rate), []any{flag(f.Fair)},
		limits(f.Key.Concurrency, f.Key.Rate), []any{string(f.Key.Order), flag(f.Urgency)})
}

// overrideFields returns the fields of the record of a SetKeyFlow.
func overrideFields(queue string, call int64, key string, o store.KeyOverride) []any {
	fields := []any{queue, call, key, "", "", "", ""}
	if o.Concurrency != nil {
		fields[3] = *o.Concurrency
	}
	if r := o.Rate; r != nil {
		n := r.Normal()
		fields[4], fields[5], fields[6] = n.N, n.Per.Microseconds(), n.Burst
	}
	return fields
}

// setKeyFlow gives the hot key of a queue limits of its own. It repeats the call until it succeeds.
func (r *run) setKeyFlow(ctx context.Context, queue int, o later.KeyOverride) error {
	name, call := r.queues[queue], now()
	err := within(ctx, time.Minute, "the limits of a key of "+name, func(ctx context.Context) error {
		return r.client.Queue(name).SetKeyFlow(ctx, hotKey, o)
	})
	if err == nil {
		r.journal.one(keyFlowSet, now(), "-", overrideFields(name, call, hotKey, o)...)
		r.log("limits", name, call, hotKey)
	}
	return err
}

// changeLimits changes the limits of a queue while something else goes wrong. The time of the change is random within
// the first half second. If its keys then have limits, the hot key may get limits of its own.
func (r *run) changeLimits(ctx context.Context, meanwhile func(context.Context, *run) error) error {
	queue, pause := r.random.IntN(len(r.queues)), r.upTo(500*time.Millisecond)
	set := r.random.IntN(len(limitSets[0]) - 1)
	if set >= r.limits[r.queues[queue]] {
		set++ // another one
	}
	overrides := keyOverrides
	if limitSets[queue][set].Key.Order != store.OrderNone {
		overrides = orderedOverrides
	}
	override := r.random.IntN(2 * len(overrides))
	var changing sync.WaitGroup
	var changed error
	changing.Go(func() {
		if sleep(ctx, pause) {
			changed = r.setFlow(ctx, queue, set)
			fair := limitSets[queue][set].Normal().Fair
			if changed == nil && fair && override < len(overrides) {
				changed = r.setKeyFlow(ctx, queue, overrides[override])
			}
		}
	})
	err := meanwhile(ctx, r)
	changing.Wait()
	return errors.Join(err, changed)
}

// inTurn returns the n-th of several faults, beginning with one that the seed determines.
func (r *run) inTurn(faults ...func(context.Context, *run) error) func(context.Context, *run) error {
	return faults[(uint64(r.injected)+r.cfg.Seed)%uint64(len(faults))]
}

// halfOpenAll makes connections half-open.
func halfOpenAll(_ context.Context, r *run) error {
	r.log("half-open")
	for _, p := range r.servers.proxies {
		p.halfOpen(0.5)
	}
	return nil
}

// flushScripts makes the server forget its scripts.
func flushScripts(ctx context.Context, r *run) error {
	r.log("script-flush")
	return r.servers.admin[0].ScriptFlush(ctx).Err()
}

// disruptLimited changes the limits of a queue while a consumer or the server is killed, a consumer is frozen,
// connections are half-open, replies are lost, requests are late or scripts are forgotten, in turn.
func disruptLimited(ctx context.Context, r *run) error {
	return r.changeLimits(ctx, r.inTurn(killConsumer, halfOpenAll, killServer, stopConsumer, loseReplies, flushScripts,
		delayRequests))
}

// disruptLimitedServer does so where a process serves an embedded store.
func disruptLimitedServer(ctx context.Context, r *run) error {
	return r.changeLimits(ctx, r.inTurn(killServing, killConsumer, halfOpenAll, freezeServing, stopConsumer,
		loseReplies, killServing, delayRequests))
}

// disruptLimitedMemory does so where a process serves a store in memory.
func disruptLimitedMemory(ctx context.Context, r *run) error {
	return r.changeLimits(ctx, r.inTurn(killConsumer, halfOpenAll, freezeServing, stopConsumer, loseReplies,
		delayRequests))
}

// disruptLimitedCluster does so while slots of a Cluster migrate. No node dies, because a failover loses starts.
func disruptLimitedCluster(ctx context.Context, r *run) error {
	return r.changeLimits(ctx, r.inTurn(migrate, killConsumer, halfOpenAll, migrate, stopConsumer))
}

// disruptLimitedPrimary changes the limits of a queue and, when they have certainly reached the replicas, kills the
// primary. Every second time it restarts at once, and accepts writes that are lost.
func disruptLimitedPrimary(ctx context.Context, r *run) error {
	if err := r.changeLimits(ctx, waitASecond); err != nil {
		return err
	}
	sleep(ctx, maxReplicationLag+200*time.Millisecond)
	return r.inTurn(failover, failoverInHaste)(ctx, r)
}

func waitASecond(ctx context.Context, _ *run) error {
	sleep(ctx, time.Second)
	return ctx.Err()
}

// limitedClockSteps are the clock's offsets, one after the other.
var limitedClockSteps = []time.Duration{3 * time.Second, 0, -2 * time.Second, -5 * time.Second, 0, clockStep, 0,
	-clockStep, 0}

// disruptLimitedClock changes the limits of a queue while the server's clock is stepped, and a consumer is killed or
// frozen in turn. Connections stay good: a step makes the server forget calls, which it then cannot know when they are
// repeated.
func disruptLimitedClock(ctx context.Context, r *run) error {
	return r.changeLimits(ctx, func(ctx context.Context, r *run) error {
		err := r.step(ctx, limitedClockSteps[(uint64(r.injected)+r.cfg.Seed)%uint64(len(limitedClockSteps))])
		return errors.Join(err, r.inTurn(killConsumer, waitASecond, stopConsumer, waitASecond)(ctx, r))
	})
}

// resumeLimitedClock steps the clock past all that is due, and sets the first limits.
func resumeLimitedClock(ctx context.Context, r *run) error {
	return errors.Join(stepPastAll(ctx, r), resumeLimits(ctx, r))
}

// calm is how long the load goes on after the last fault of a flow fault, so that it is seen whether messages wait
// longer than the limits require; see flowGroup.eachAllowed.
const calm = 2 * time.Second

// resumeLimits sets the first limits again and lets the load go on without a fault.
func resumeLimits(ctx context.Context, r *run) error {
	if err := r.limit(ctx, halts); err != nil {
		return err
	}
	r.log("calm")
	r.wait(ctx, unheardFor+calm)
	return ctx.Err()
}
