//go:build unix

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

// operator looks after the messages that hold keys of queues with an order.
type operator struct {
	sync.WaitGroup
	end context.CancelFunc

	// Of limits, while the numbers of shards change.
	changes   sync.WaitGroup
	endLimits context.CancelFunc
	err       error
}

// operate has an operator look after the messages that hold keys of the queues with an order, until endOperating.
func (r *run) operate(ctx context.Context) {
	ctx, r.operator.end = context.WithCancel(ctx)
	for i, name := range r.queues[len(r.queues)-orderedQueues:] {
		r.operator.Go(func() {
			random := rand.New(rand.NewPCG(r.cfg.Seed, uint64(i)))
			for sleep(ctx, 100*time.Millisecond+time.Duration(random.Int64N(int64(300*time.Millisecond)))) {
				r.lookAfterDead(ctx, name, random)
				r.lookAfterReturned(ctx, name, random)
			}
		})
	}
	if r.fault.load.sharded {
		changing, end := context.WithCancel(ctx)
		r.operator.endLimits = end
		r.operator.changes.Go(func() { r.operator.err = r.changeShardedLimits(ctx, changing) })
	}
}

// changeShardedLimits gives queues other limits, and the hot keys of queues in which keys take turns limits of their
// own, again and again, until changing ends or a call fails for long. A call that has failed must not arrive after the
// next one, so no call ends with changing.
func (r *run) changeShardedLimits(ctx, changing context.Context) error {
	random := rand.New(rand.NewPCG(r.cfg.Seed, orderedQueues))
	for sleep(changing, 300*time.Millisecond+time.Duration(random.Int64N(int64(time.Second)))) {
		queue := random.IntN(len(r.queues))
		sets, set := r.fault.load.limits[queue], r.limits[r.queues[queue]]
		flow, overrides := sets[set].Normal(), keyOverrides
		if flow.Key.Order != store.OrderNone {
			overrides = orderedOverrides
		}
		var err error
		if flow.Fair && random.IntN(2) == 0 {
			err = r.setKeyFlow(ctx, queue, overrides[random.IntN(len(overrides))])
		} else {
			err = r.setFlow(ctx, queue, (set+1+random.IntN(len(sets)-1))%len(sets))
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// endChanges ends the changes of limits.
func (o *operator) endChanges() {
	if o.endLimits != nil {
		o.endLimits()
		o.changes.Wait()
	}
}

func (r *run) stopOperating() {
	if r.operator.end != nil {
		r.operator.end()
		r.operator.Wait()
		r.operator.changes.Wait()
	}
}

// endOperating ends the operator when all due messages are handled, and lets halted keys go on.
func (r *run) endOperating(ctx context.Context) error {
	if r.stopOperating(); !r.fault.load.limited {
		return nil
	}
	if err := r.operator.err; err != nil {
		r.result.violate("stuck", "-", "%v", err)
	}
	return r.limit(ctx, 0)
}

// lookAfterDead replays, purges or leaves each dead message of a queue, or resumes its key.
func (r *run) lookAfterDead(ctx context.Context, queue string, random *rand.Rand) {
	q := r.client.Queue(queue)
	for _, info := range someIn(ctx, q, later.StateDead) {
		switch n := random.IntN(10); {
		case n < 3:
			when := later.In(0)
			if random.IntN(2) == 0 {
				when = later.In(time.Duration(random.Int64N(int64(200 * time.Millisecond))))
			}
			r.journal.one(found, now(), info.ID, info.Attempts)
			r.untilKnown(ctx, beginReplay, endReplay, info.ID, outcomeOK, func() (int, error) {
				return q.Replay(ctx, when, info.ID)
			})
		case n < 4:
			r.untilKnown(ctx, beginCancel, endCancel, info.ID, string(later.StateDead), func() (int, error) {
				return q.PurgeDead(ctx, info.ID)
			})
		case n < 6 && info.Key != "":
			call := now()
			err := q.ResumeKey(ctx, info.Key)
			r.journal.one(keyResumed, now(), "-", queue, call, info.Key, outcomeOf(err))
		}
	}
}

// lookAfterReturned cancels some of the messages that wait for another attempt, and reschedules others.
func (r *run) lookAfterReturned(ctx context.Context, queue string, random *rand.Rand) {
	q := r.client.Queue(queue)
	for _, info := range someIn(ctx, q, later.StateScheduled) {
		if info.Attempts == 0 {
			continue
		}
		switch random.IntN(4) {
		case 0:
			r.journal.one(beginCancel, now(), info.ID)
			state, err := q.Cancel(ctx, info.ID)
			outcome := string(state)
			if err != nil {
				outcome = outcomeOf(err)
			}
			r.journal.one(endCancel, now(), info.ID, outcome)
		case 1:
			delay := time.Duration(random.IntN(100)) * time.Millisecond
			r.journal.one(beginReschedule, now(), info.ID, fmt.Sprint("+", delay.Milliseconds()))
			err := q.Reschedule(ctx, info.ID, later.In(delay))
			r.journal.one(endReschedule, now(), info.ID, outcomeOf(err))
		}
	}
}

// checkNoKeyWaits checks that no key waits after the run, in which all due messages were handled and no key may halt.
func (r *run) checkNoKeyWaits(ctx context.Context) error {
	for _, name := range r.queues {
		f, err := r.client.Queue(name).Flow(ctx)
		if err != nil {
			return err
		}
		if k := f.Keys; k.Waiting > 0 || k.Full > 0 || k.Halted > 0 {
			r.result.violate("waits", "-", "%s: keys wait after the run: %+v", name, k)
		}
	}
	return nil
}
