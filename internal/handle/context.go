package handle

import (
	"context"
	"sync"
	"time"
)

// messageContext is a handler's context. A real context takes three allocations, so it is created only when
// the handler first uses a method that needs one; most handlers never do. A messageContext is the task
// itself, to save memory.
type messageContext Task

// contextState is the part of a task that belongs to its messageContext.
type contextState struct {
	mu   sync.Mutex
	live *liveContext // nil until needed
}

type liveContext struct {
	context.Context
	end   context.CancelCauseFunc
	batch *messageBatch // nil unless a batch handler gets the message
}

// real returns the real context, and creates it if necessary. The lock is held.
func (c *messageContext) real() *liveContext {
	if c.live == nil {
		ctx, end := context.WithCancelCause(c.lease.queue.worker.Handling)
		c.live = &liveContext{Context: ctx, end: end}
		if c.ended {
			end(nil)
		}
	}
	return c.live
}

// limit ends the context with ErrTimeout after d. The caller calls stop to free its timer.
func (c *messageContext) limit(d time.Duration) (stop context.CancelFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	live := c.real()
	ctx, stop := context.WithTimeoutCause(live.Context, d, ErrTimeout)
	c.live = &liveContext{Context: ctx, end: live.end}
	return stop
}

// join adds the message to a batch, which then learns when its context ends. It reports false if it has ended.
func (c *messageContext) join(b *messageBatch) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return false
	}
	own := c.live
	if own == nil {
		c.live = &b.liveContext
		return true
	}
	// An observer has used the context.
	end := func(cause error) {
		own.end(cause)
		b.left(cause)
	}
	c.live = &liveContext{Context: own.Context, end: end, batch: b}
	return true
}

// end ends the context with a cause. A nil cause means context.Canceled.
func (c *messageContext) end(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
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

// Value implements context.Context. Package context uses a key of its own to find the cause of a parent
// context.
func (c *messageContext) Value(key any) any {
	worker := c.lease.queue.worker
	switch key {
	case messageKey{}:
		return &c.Message
	case concurrencyKey{}:
		return worker.Concurrency
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live == nil && !c.ended {
		return worker.Handling.Value(key)
	}
	return c.real().Value(key)
}
