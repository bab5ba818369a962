//go:build unix

package chaos

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/laterq/later"
)

// operator looks after the dead messages of queues with an order.
type operator struct {
	sync.WaitGroup
	end context.CancelFunc
}

// operate has an operator look after the dead messages of the queues with an order until endOperating.
func (r *run) operate(ctx context.Context) {
	ctx, r.operator.end = context.WithCancel(ctx)
	for i, name := range r.queues[len(r.queues)-orderedQueues:] {
		r.operator.Go(func() {
			random := rand.New(rand.NewPCG(r.cfg.Seed, uint64(i)))
			for sleep(ctx, 100*time.Millisecond+time.Duration(random.Int64N(int64(300*time.Millisecond)))) {
				r.lookAfterDead(ctx, name, random)
			}
		})
	}
}

func (r *run) endOperating() {
	if r.operator.end != nil {
		r.operator.end()
		r.operator.Wait()
	}
}

// lookAfterDead replays, purges or leaves each dead message of a queue, or resumes its key.
func (r *run) lookAfterDead(ctx context.Context, queue string, random *rand.Rand) {
	q := r.client.Queue(queue)
	page, err := q.List(ctx, later.ListOptions{State: later.StateDead, Limit: 100})
	if err != nil {
		return // the next time
	}
	for _, info := range page.Messages {
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
