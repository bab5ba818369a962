//go:build unix

package chaos

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/laterq/later"
)

// disruptDead replays and purges dead messages, which the load makes all the time, while replies are lost, requests are
// late, or a consumer dies.
func disruptDead(ctx context.Context, r *run) error {
	random := rand.New(rand.NewPCG(r.cfg.Seed, uint64(r.injected)))
	var operating sync.WaitGroup
	for _, name := range r.queues {
		seed := random.Uint64()
		operating.Go(func() { r.replayAndPurge(ctx, name, rand.New(rand.NewPCG(seed, 0))) })
	}
	defer operating.Wait()
	switch r.injected % 3 {
	case 1:
		return loseReplies(ctx, r)
	case 2:
		return delayRequests(ctx, r)
	}
	return killConsumer(ctx, r)
}

// someIn returns some messages of a queue in a state, none if the server does not answer: the next time it may.
func someIn(ctx context.Context, q *later.Queue, state later.State) []*later.Info {
	page, err := q.List(ctx, later.ListOptions{State: state, Limit: 100})
	if err != nil {
		return nil
	}
	return page.Messages
}

// replayAndPurge replays some of the dead messages of a queue, purges some, and leaves the others.
func (r *run) replayAndPurge(ctx context.Context, queue string, random *rand.Rand) {
	q := r.client.Queue(queue)
	for _, info := range someIn(ctx, q, later.StateDead) {
		r.journal.one(found, now(), info.ID, info.Attempts)
		delay := time.Duration(random.Int64N(int64(time.Second)))
		switch n := random.IntN(10); {
		case n < 5:
			r.untilKnown(ctx, beginReplay, endReplay, info.ID, outcomeOK, func() (int, error) {
				return q.Replay(ctx, later.In(delay), info.ID)
			})
		case n < 8:
			r.untilKnown(ctx, beginCancel, endCancel, info.ID, string(later.StateDead), func() (int, error) {
				return q.PurgeDead(ctx, info.ID)
			})
		}
	}
}

// untilKnown repeats and records a call for one message until its outcome is known: done, or not found.
func (r *run) untilKnown(ctx context.Context, begin, end byte, id, done string, call func() (int, error)) {
	for ctx.Err() == nil {
		r.journal.one(begin, now(), id)
		n, err := call()
		outcome := done
		if err != nil {
			outcome = outcomeOf(err)
		} else if n == 0 {
			outcome = outcomeNotFound
		}
		r.journal.one(end, now(), id, outcome)
		if err == nil {
			return
		}
		sleep(ctx, 20*time.Millisecond)
	}
}
