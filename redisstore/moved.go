package redisstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/laterq/later/store"
)

// movedMessage is what lua/rename.lua and lua/retire.lua send to the processes that wait for a queue.
const movedMessage = "moved"

// movedAway is called when a queue has moved from a name. A process that waits there looks, and learns of the sign.
func (v *wakeServer) movedAway(name string) {
	w := v.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if q := w.queues[name]; q != nil && !w.closed {
		q.heard++
		q.listing = min(q.listing, maybeListed)
		w.settle(q)
	}
}

// movedError returns the error of a name whose scripts reply with a number, nil if no queue has moved from there.
func (s *Store) movedError(ctx context.Context, name string, reply int64) *store.Moved {
	switch reply {
	case replyGone:
		return &store.Moved{Name: name}
	case replyNewer:
		moved, _ := errors.AsType[*store.Moved](s.formatError(ctx, name))
		return moved
	}
	return nil
}

// movedAfter returns the error of a call that was refused, after an attempt that may have been executed, if unknown is
// its error. A *store.Moved would deny that. Its caller may make the call again elsewhere if it has a store.Request,
// because the queue keeps it under any name. A claim that was executed is of no consequence.
func (c *call) movedAfter(ctx context.Context, unknown, refused error) error {
	_, moved := errors.AsType[*store.Moved](refused)
	_, named := store.RequestOf(ctx)
	if changes := c.stamp > 0 && c.repeated == 0; !moved || unknown == nil || named || !changes {
		return refused
	}
	return wrap(store.ErrUnavailable, fmt.Errorf("%w; a repetition was refused: %v", unknown, refused))
}

// endMoved ends a call that has found that the queue has moved, and with it every wait. The lock is held.
func (w *waker) endMoved(start claimStart, moved *store.Moved) {
	q := start.q
	if w.end(start) {
		q.listing = notListed
	}
	q.notified = false
	if len(q.waiters) > 0 {
		w.waiting--
	}
	for _, woken := range q.waiters {
		woken <- moved
		close(woken)
	}
	q.waiters = nil
}
