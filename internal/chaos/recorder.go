//go:build unix

package chaos

import (
	"context"
	"errors"
	"strings"

	"github.com/laterq/later/store"
)

// recorder is a consumer's store. It records each claim, settle and extension as it leaves the process, with the
// engine's own clock and deadlines, which the public API rounds.
type recorder struct {
	store.Store
	journal *journal
}

// Claim implements store.Store.
func (r recorder) Claim(ctx context.Context, queue string, req store.ClaimRequest) (store.Claim, error) {
	if req.Uncounted { // to distribute a topic's messages
		return r.Store.Claim(ctx, queue, req)
	}
	call := now()
	c, err := r.Store.Claim(ctx, queue, req)
	if len(c.Messages) > 0 {
		ret := now()
		r.journal.put(func(add func(byte, int64, string, ...any)) {
			for i := range c.Messages {
				m := &c.Messages[i]
				add(claimed, ret, m.ID, call, c.Now.UnixMicro(), c.Deadline.UnixMilli(), m.Receipt.Lease, queue,
					m.Due.UnixMilli(), m.Attempt, len(m.Payload), m.Key, m.Fence, string(m.Urgency))
			}
		})
	}
	if err != nil {
		r.journal.one(claimFailed, now(), "-", call, queue, outcomeOf(err))
	}
	return c, err
}

// Settle implements store.Store.
func (r recorder) Settle(ctx context.Context, queue string, s []store.Settlement) ([]store.SettleResult, error) {
	if strings.HasPrefix(queue, topicQueue) {
		return r.Store.Settle(ctx, queue, s)
	}
	call := now()
	r.journal.put(func(add func(byte, int64, string, ...any)) {
		for i := range s {
			add(beginSettle, call, s[i].Receipt.ID, s[i].Receipt.Lease, s[i].Action.String(), s[i].Delay.Microseconds())
		}
	})
	results, err := r.Store.Settle(ctx, queue, s)
	ret := now()
	r.journal.put(func(add func(byte, int64, string, ...any)) {
		for i := range s {
			outcome := err
			if err == nil {
				outcome = results[i].Err
			}
			add(endSettle, ret, s[i].Receipt.ID, s[i].Receipt.Lease, outcomeOf(outcome))
		}
	})
	return results, err
}

// Extend implements store.Store.
func (r recorder) Extend(ctx context.Context, queue string, e []store.Extension) ([]store.ExtendResult, error) {
	if strings.HasPrefix(queue, topicQueue) {
		return r.Store.Extend(ctx, queue, e)
	}
	call := now()
	results, err := r.Store.Extend(ctx, queue, e)
	ret := now()
	r.journal.put(func(add func(byte, int64, string, ...any)) {
		for i := range e {
			switch {
			case err != nil:
				add(extended, ret, "-", call, e[i].Lease, outcomeOf(err))
			case results[i].Err != nil:
				add(extended, ret, "-", call, e[i].Lease, outcomeOf(results[i].Err))
			default:
				add(extended, ret, "-", call, e[i].Lease, results[i].Deadline.UnixMilli())
			}
		}
	})
	return results, err
}

// Linked implements store.Linker, so that topics are distributed as without a recorder.
func (r recorder) Linked(queue, to string) bool { return store.Linked(r.Store, queue, to) }

// outcomeOf returns how the journal records an error.
func outcomeOf(err error) string {
	switch {
	case err == nil:
		return outcomeOK
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return "context"
	}
	return string(store.CodeOf(err))
}
