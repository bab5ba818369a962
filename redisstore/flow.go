package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/laterq/later/store"
)

// Replies of set_flow.lua besides the ones of every script.
const replyUnfinished = 2 // the flow is set, and finish_flow.lua has to do the rest

// SetFlow implements store.Store. Like SetDeadRetention, it works on a full server if the queue exists. A change that
// concerns many messages or keys takes several calls. If the process dies in between, claims do the rest.
func (s *Store) SetFlow(ctx context.Context, queue string, f store.Flow, former *store.Flow) error {
	if err := store.CheckFlow(queue, f); err != nil {
		return err
	}
	c := s.newCall("set_flow", queue, 27)
	c.safe = isSubQueue(queue) // no process sets a share again that a failover has lost
	defer s.sessions.release(s.stampRequest(ctx, c))
	create := len(c.args)
	c.add("0")
	c.addFlow(f)
	if former != nil {
		c.addFlow(*former)
	}
	for {
		reply, err := s.runCreating(ctx, queue, c, create)
		if err != nil {
			return err
		}
		if isConflict(reply) {
			return fmt.Errorf("queue %q: %w", queue, store.ErrConflict)
		}
		busy := reply == any(int64(replyBusy)) // with an earlier change
		if !busy && reply != any(int64(replyUnfinished)) {
			return nil
		}
		if err := s.finishFlow(ctx, queue); err != nil || !busy {
			return err
		}
	}
}

// finishFlow finishes a change of the flow.
func (s *Store) finishFlow(ctx context.Context, queue string) error {
	for {
		reply, err := s.query(ctx, "finish_flow", queue)
		if err != nil || reply != any(int64(1)) {
			return err
		}
	}
}

// addFlow adds ten numbers, 0 for no limit, the order of keys, "0" for none, and whether there is an urgency.
func (c *call) addFlow(f store.Flow) {
	f = f.Normal()
	c.add(f.Concurrency, f.Rate.N, f.Rate.Per.Microseconds(), f.Rate.Burst, f.Fair, f.Key.Concurrency, f.Key.Rate.N,
		f.Key.Rate.Per.Microseconds(), f.Key.Rate.Burst, f.Key.Weight, cmp.Or(string(f.Key.Order), "0"),
		f.Urgency)
}

// flowOf returns the limits and their state as stats.lua returns them.
func flowOf(r []any, now time.Time) store.FlowState {
	n := func(i int) int { return int(r[i].(int64)) }
	state := store.FlowState{Leased: n(4), Now: now}
	state.Concurrency, state.Rate = n(0), rateOf(n(1), n(2), n(3))
	if state.Rate.N > 0 {
		state.Next = time.UnixMicro(r[5].(int64))
	}
	if state.Fair = n(6) == 1; state.Fair {
		state.Key = store.KeyFlow{Concurrency: n(7), Rate: rateOf(n(8), n(9), n(10)), Weight: n(11),
			Order: store.Order(r[15].(string))}.Normal()
		state.Urgency = n(17) == 1
		state.Keys = store.KeyCounts{Waiting: r[12].(int64), Full: r[13].(int64), Resting: r[14].(int64),
			Halted: r[16].(int64)}
	}
	if !state.Limited() {
		return store.FlowState{}
	}
	return state
}

func rateOf(n, micros, burst int) store.Rate {
	return store.Rate{N: n, Per: time.Duration(micros) * time.Microsecond, Burst: burst}
}
