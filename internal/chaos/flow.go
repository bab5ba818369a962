//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/laterq/later"
)

// Under the flow faults every queue has limits, which change during the run. limitSets has those of the first three
// queues, and of the others in turn. The first ones are in force at the beginning and at the end.
var limitSets = [][]later.Flow{
	{
		{Concurrency: 5, Rate: later.Rate{N: 200, Per: time.Second, Burst: 8}},
		{Concurrency: 2, Rate: later.Rate{N: 80, Per: time.Second, Burst: 3}},
		{Concurrency: 9, Rate: later.Rate{N: 500, Per: time.Second, Burst: 20}},
		{Concurrency: 5},
		{},
	},
	{{Concurrency: 4}, {Concurrency: 2}, {Concurrency: 12}, {Rate: later.Rate{N: 100, Per: time.Second}}, {}},
	{
		{Rate: later.Rate{N: 150, Per: time.Second}}, // not a whole number of µs for each message
		{Rate: later.Rate{N: 70, Per: time.Second, Burst: 4}},
		{Rate: later.Rate{N: 20, Per: 50 * time.Millisecond, Burst: 10}},
		{Concurrency: 3, Rate: later.Rate{N: 150, Per: time.Second}},
		{},
	},
}

// limitedLoad is below the first limits allow, and more than some of the others.
var limitedLoad = defaultLoad.with(func(l *load) { l.rate, l.queues, l.limited = 300, len(limitSets), true })

// limit sets the first limits of all queues.
func (r *run) limit(ctx context.Context) error {
	for i := range r.queues {
		if err := r.setFlow(ctx, i, 0); err != nil {
			return err
		}
	}
	return nil
}

// setFlow gives a queue one of its limits. It repeats the call until it succeeds.
func (r *run) setFlow(ctx context.Context, queue, set int) error {
	name, f := r.queues[queue], limitSets[queue%len(limitSets)][set]
	call := now()
	err := within(ctx, time.Minute, "the limits of "+name, func(ctx context.Context) error {
		return r.client.Queue(name).SetFlow(ctx, f)
	})
	if err == nil {
		f = f.Normal()
		r.journal.one(flowSet, now(), "-", name, call, f.Concurrency, f.Rate.N, f.Rate.Per.Microseconds(), f.Rate.Burst)
		r.log("limits", name, call, fmt.Sprintf("%d,%s", f.Concurrency, f.Rate))
		r.limits[name] = set
	}
	return err
}

// changeLimits changes the limits of a queue while something else goes wrong. The time of the change is random within
// the first half second.
func (r *run) changeLimits(ctx context.Context, meanwhile func(context.Context, *run) error) error {
	queue, pause := r.random.IntN(len(r.queues)), r.upTo(500*time.Millisecond)
	set := r.random.IntN(len(limitSets[0]) - 1)
	if set >= r.limits[r.queues[queue]] {
		set++ // another one
	}
	var changing sync.WaitGroup
	var changed error
	changing.Go(func() {
		if sleep(ctx, pause) {
			changed = r.setFlow(ctx, queue, set)
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

// disruptLimitedCluster does so while slots of a Cluster migrate. No node dies, because a failover loses starts.
func disruptLimitedCluster(ctx context.Context, r *run) error {
	return r.changeLimits(ctx, r.inTurn(migrate, killConsumer, halfOpenAll, migrate, stopConsumer))
}

// calm is how long the load goes on after the last fault of a flow fault, so that it is seen whether messages wait
// longer than the limits require; see flowHistory.checkWaits.
const calm = 2 * time.Second

// resumeLimits sets the first limits again and lets the load go on without a fault.
func resumeLimits(ctx context.Context, r *run) error {
	if err := r.limit(ctx); err != nil {
		return err
	}
	r.log("calm")
	r.wait(ctx, unheardFor+calm)
	return ctx.Err()
}
