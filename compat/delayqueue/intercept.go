package delayqueue

import (
	"context"
	"errors"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

// The states of an InterceptResult. TryIntercept returns StatePending, StateReady and StateUnknown; the others exist
// for programs that name them.
const (
	StatePending    = "pending"
	StateReady      = "ready"
	StateReadyRetry = "ready_to_retry"
	StateConsuming  = "consuming"
	StateUnknown    = "unknown"
)

// InterceptResult is the result of TryIntercept.
type InterceptResult struct {
	// Intercepted reports whether the message was removed before it was ever delivered.
	Intercepted bool
	// State is StatePending or StateReady, the state that it was removed from, or StateUnknown.
	State string
}

// TryIntercept removes a message. If it has not been delivered yet, it never will be, and Intercepted is set. If it is
// being delivered or waits for a retry, Intercepted is false, and it is not delivered again. If it is done or a dead
// letter, nothing changes. Each of this is one atomic step.
func (q *DelayQueue) TryIntercept(msg *MessageInfo) (*InterceptResult, error) {
	if msg == nil {
		return nil, store.Invalid("message is nil: give the one that SendDelayMsgV2 or SendScheduleMsgV2 returned")
	}
	queue, err := q.queue()
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	for {
		state, changed, err := intercept(ctx, q.store(), queue, msg.id)
		if err != nil {
			return nil, err
		}
		if !changed {
			return &InterceptResult{Intercepted: state != StateUnknown, State: state}, nil
		}
	}
}

// intercept removes a message and returns the state to report. changed means that a consumer was faster, and that
// nothing was done.
func intercept(
	ctx context.Context, s store.Store, queue *later.Queue, id string,
) (state string, changed bool, err error) {
	found, err := s.Get(ctx, queue.Name(), []string{id})
	if err != nil || found[0] == nil || found[0].State == later.StateDead {
		return StateUnknown, false, err
	}
	info := *found[0]
	if info.State == later.StateLeased || info.Delivered || info.Attempts > 0 {
		if _, err := queue.Cancel(ctx, id); err != nil && !errors.Is(err, later.ErrNotFound) {
			return "", false, err
		}
		return StateUnknown, false, nil
	}
	removed, err := s.Remove(ctx, queue.Name(), []store.Info{info})
	if err != nil {
		return "", false, err
	}
	state = StatePending
	if info.State == later.StateReady {
		state = StateReady
	}
	return state, !removed[0], nil
}

// store returns the engine of the client that queue has made.
func (q *DelayQueue) store() store.Store {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.client.Store()
}
