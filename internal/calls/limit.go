package calls

import (
	"context"
	"sync"
	"time"
)

// Limited is a context that ends with another one or after a time, as that of context.WithTimeout does, which sets a
// timer for each call and removes it again. This one has a timer once Done is called.
type Limited struct {
	context.Context // the other one
	deadline        time.Time

	mu    sync.Mutex
	timed context.Context // with the timer; nil without
	end   context.CancelFunc
}

// Limit returns a context that ends with ctx or after d. The caller must call End.
func Limit(ctx context.Context, d time.Duration) *Limited {
	l := &Limited{Context: ctx, deadline: time.Now().Add(d)}
	if sooner, ok := ctx.Deadline(); ok && sooner.Before(l.deadline) {
		l.deadline = sooner
	}
	return l
}

// End ends the context, to free its timer.
func (l *Limited) End() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timed != nil {
		l.end()
	}
}

// Deadline implements context.Context.
func (l *Limited) Deadline() (time.Time, bool) { return l.deadline, true }

// Done implements context.Context.
func (l *Limited) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timed == nil {
		l.timed, l.end = context.WithDeadline(l.Context, l.deadline)
	}
	return l.timed.Done()
}

// Err implements context.Context.
func (l *Limited) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timed != nil {
		return l.timed.Err()
	}
	if err := l.Context.Err(); err != nil {
		return err
	}
	if !time.Now().Before(l.deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// limitKey is the key of a context's Limited.
type limitKey struct{}

// Value implements context.Context.
func (l *Limited) Value(key any) any {
	if key == any(limitKey{}) {
		return l
	}
	return l.Context.Value(key)
}

// Untimed returns a context that ends like ctx but for its deadline, for callers that observe the deadline themselves.
// It has the timers of ctx only if something has asked for them already.
func Untimed(ctx context.Context) context.Context {
	l, ok := ctx.Value(limitKey{}).(*Limited)
	if !ok {
		return ctx
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timed != nil { // ctx may be of a context with an end of its own, which watches that of l
		return ctx
	}
	return l.Context
}
