package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/laterq/later/store"
)

// SetFlow implements store.Store. Like SetDeadRetention, it works on a full server if the queue exists.
func (s *Store) SetFlow(ctx context.Context, queue string, f store.Flow, former *store.Flow) error {
	if err := store.CheckFlow(queue, f); err != nil {
		return err
	}
	c := s.newCall("set_flow", queue, 11)
	defer s.sessions.release(s.stampRequest(ctx, c))
	create := len(c.args)
	c.add("0")
	c.addFlow(f)
	if former != nil {
		c.addFlow(*former)
	}
	reply, err := s.runCreating(ctx, queue, c, create)
	if err == nil && isConflict(reply) {
		err = fmt.Errorf("queue %q: %w", queue, store.ErrConflict)
	}
	return err
}

// addFlow adds four numbers, 0 for no limit.
func (c *call) addFlow(f store.Flow) {
	f = f.Normal()
	c.add(f.Concurrency, f.Rate.N, f.Rate.Per.Microseconds(), f.Rate.Burst)
}

// flowOf returns the limits and their state as stats.lua returns them.
func flowOf(r []any, now time.Time) store.FlowState {
	n := func(i int) int { return int(r[i].(int64)) }
	state := store.FlowState{Leased: n(4), Now: now}
	state.Concurrency = n(0)
	state.Rate = store.Rate{N: n(1), Per: time.Duration(n(2)) * time.Microsecond, Burst: n(3)}
	if state.Rate.N > 0 {
		state.Next = time.UnixMicro(r[5].(int64))
	}
	return state
}
