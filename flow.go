package later

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/laterq/later/internal/event"
	"github.com/laterq/later/store"
)

// Flow limits how fast the messages of a queue may start, on all machines together; see Queue.SetFlow.
type Flow = store.Flow

// Rate is a limit of starts in a span of time; see Flow.
type Rate = store.Rate

// FlowState is a Flow with the state that its limits have now; see Queue.Flow.
type FlowState = store.FlowState

// KeyFlow is the limits of each key of a queue, and the share of a key; see Flow.Key and Key.
type KeyFlow = store.KeyFlow

// Urgency says which messages of a queue go before others; see Urgent, Background and Flow.Urgency.
type Urgency = store.Urgency

// The urgencies of messages.
const (
	UrgencyNormal = store.UrgencyNormal
	UrgencyHigh   = store.UrgencyHigh
	UrgencyLow    = store.UrgencyLow
)

// Order says whether the messages of a key start one at a time and in order; see KeyFlow.Order.
type Order = store.Order

// The orders of the messages of a key. With OrderContinue a dead message lets the next one of its key start. With
// OrderHalt it halts the key until it is replayed or removed, or until ResumeKey.
const (
	OrderNone     = store.OrderNone
	OrderContinue = store.OrderContinue
	OrderHalt     = store.OrderHalt
)

// KeyOverride is the limits of a single key that differ from Flow.Key; see Queue.SetKeyFlow.
type KeyOverride = store.KeyOverride

// KeyState is the limits of a key with the state that they have now; see Queue.Keys.
type KeyState = store.KeyState

// KeysRequest selects keys for Queue.Keys.
type KeysRequest = store.KeysRequest

// SetFlow limits how many messages of the queue may be in flight at once and how many may start in a span of time, by
// all workers and receivers together, for the queue and for each key of its messages. It also says whether keys take
// turns. It replaces all limits and creates the queue if necessary. The zero Flow removes them.
//
//	err := q.SetFlow(ctx, later.Flow{
//		Concurrency: 20,
//		Rate:        later.Rate{N: 100, Per: time.Second},
//		Key:         later.KeyFlow{Concurrency: 1}, // one at a time for each customer
//	})
//
// The limits are kept in the store, and every process obeys them from its next claim on. A message that is held back
// stays ready. A worker that is held back sleeps until the next message may start, and a handler is called once for
// each delivery. Workers do not prefetch from a queue with limits. Messages that were leased before the queue had
// limits do not count. It returns an ErrInvalid for a flow that is not allowed and for queues of Later's own.
//
// The shards of a queue share its limits: each of them is at least the number of shards, or SetFlow returns an
// ErrInvalid; see SetShards. While messages move to other shards it returns an ErrUnavailable. Conditions get
// the Version of the Flow that is replaced, or "" if the queue does not exist.
func (q *Queue) SetFlow(ctx context.Context, f Flow, conditions ...Condition) error {
	if err := cmp.Or(store.CheckFlow(q.name, f), q.old); err != nil {
		return err
	}
	return q.replace(ctx, "flow", conditions, func(former *Stats) error {
		if former == nil {
			return q.client.store.SetFlow(ctx, q.name, f, nil)
		}
		return q.client.store.SetFlow(ctx, q.name, f, &former.Flow.Flow)
	}, func(s *Stats) string { return s.Flow.Version() })
}

// Flow returns the limits of the queue, with how many messages count as in flight and when the next one may start. A
// queue without limits and one that does not exist have the zero Flow. Stats has the same.
func (q *Queue) Flow(ctx context.Context) (FlowState, error) {
	stats, err := q.Stats(ctx)
	return stats.Flow, err
}

// SetKeyFlow sets limits of a single key that differ from the Key of the queue's Flow, such as the share of a large
// customer. Fields that are nil stay as Flow.Key says, and the zero KeyOverride removes the override. A queue can have
// 10,000 of them. It returns an ErrInvalid for a key or limits that are not allowed, and if the queue's keys have no
// limits and take no turns.
func (q *Queue) SetKeyFlow(ctx context.Context, key string, o KeyOverride) error {
	if err := cmp.Or(store.CheckKeyFlow(q.name, key, o), q.old); err != nil {
		return err
	}
	if err := q.begin(); err != nil {
		return err
	}
	defer q.client.calls.Done()
	return q.client.store.SetKeyFlow(ctx, q.name, key, o)
}

// ResumeKey lets a key that a dead message has halted go on with its next message; see OrderHalt. The dead one stays
// dead. To have it start first, replay it instead. ResumeKey returns ErrNotFound when the key is not halted.
func (q *Queue) ResumeKey(ctx context.Context, key string) error {
	if err := store.CheckResume(q.name, key); err != nil {
		return err
	}
	if err := q.begin(); err != nil {
		return err
	}
	defer q.client.calls.Done()
	err := q.client.store.ResumeKey(ctx, q.name, key)
	switch {
	case errors.Is(err, ErrNotFound):
		return fmt.Errorf("key %q of queue %q is not halted: %w", key, q.name, err)
	case err == nil:
		q.keysResumed(ctx, []string{key})
	}
	return err
}

// keysResumed reports that halted keys go on.
func (q *Queue) keysResumed(ctx context.Context, keys []string) {
	event.CollectResumed(ctx, keys)
	for _, key := range keys {
		q.event(ctx, EventKeyResumed, key)
	}
}

// Keys returns keys of the queue with their limits and what they wait for, in the order of their bytes: these that
// wait, or the ones that the request names. A Limit of 0 is the largest, 500. It returns none if keys of the queue have
// no limits and take no turns. A key waits from the claim on that finds its first message ready.
func (q *Queue) Keys(ctx context.Context, req KeysRequest) ([]KeyState, error) {
	req.Limit = cmp.Or(req.Limit, store.MaxKeysPage)
	if err := req.Check(); err != nil {
		return nil, err
	}
	if err := q.begin(); err != nil {
		return nil, err
	}
	defer q.client.calls.Done()
	return q.client.store.Keys(ctx, q.name, req)
}
