package later

import (
	"context"
	"sync"
	"time"
)

// messageContext is a handler's context. It becomes a real one, which is three allocations, when somebody first asks
// for what only that can give: a handler that just works never does. It is the task itself, so that it costs little memory.
type messageContext task

// contextState is a messageContext's part of its task.
type contextState struct {
	mu   sync.Mutex
	live *liveContext // nil until it is needed
}

type liveContext struct {
	context.Context
	end context.CancelCauseFunc
}

// real makes the context that stands behind this one. The lock is held.
func (c *messageContext) real() *liveContext {
	if c.live == nil {
		ctx, end := context.WithCancelCause(c.lease.qw.run.handling)
		c.live = &liveContext{ctx, end}
		if c.ended {
			end(nil)
		}
	}
	return c.live
}

// limit ends the context after so long with ErrTimeout. stop frees its timer.
func (c *messageContext) limit(d time.Duration) (stop context.CancelFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	live := c.real()
	ctx, stop := context.WithTimeoutCause(live.Context, d, ErrTimeout)
	c.live = &liveContext{ctx, live.end}
	return stop
}

// end ends the context with a cause; nil is context.Canceled.
func (c *messageContext) end(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live != nil || cause != nil {
		c.real().end(cause)
	}
	c.ended = true
}

// Deadline implements context.Context.
func (c *messageContext) Deadline() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live == nil {
		return time.Time{}, false
	}
	return c.live.Deadline()
}

// Done implements context.Context.
func (c *messageContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.real().Done()
}

// Err implements context.Context.
func (c *messageContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live == nil && !c.ended {
		return nil
	}
	return c.real().Err()
}

// Value implements context.Context. By a key of its own, package context asks a context behind this one for its cause.
func (c *messageContext) Value(key any) any {
	if key == (messageKey{}) {
		return &c.Message
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live == nil && !c.ended {
		return c.lease.qw.run.handling.Value(key)
	}
	return c.real().Value(key)
}

type messageKey struct{}

// MessageFromContext gives the message whose handler has this context, or one derived from it; nil elsewhere.
func MessageFromContext(ctx context.Context) *Message {
	m, _ := ctx.Value(messageKey{}).(*Message)
	return m
}
