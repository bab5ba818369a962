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
	own             bool // the deadline is not that of the other one, which ends by itself, with its own cause

	mu    sync.Mutex
	timed context.Context // with the timer; nil without
	end   context.CancelFunc
	ended bool
}

// Limit returns a context that ends with ctx or after d. The caller must call End.
func Limit(ctx context.Context, d time.Duration) *Limited {
	l := &Limited{Context: ctx, deadline: time.Now().Add(d), own: true}
	if sooner, ok := ctx.Deadline(); ok && sooner.Before(l.deadline) {
		l.deadline, l.own = sooner, false
	}
	return l
}

// End ends the context, to free its timer.
func (l *Limited) End() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
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
		if l.own {
			l.timed, l.end = context.WithDeadline(l.Context, l.deadline)
		} else {
			l.timed, l.end = context.WithCancel(l.Context)
		}
		if l.ended {
			l.end()
		}
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
	err := l.Context.Err()
	switch {
	case err != nil:
	case l.ended:
		err = context.Canceled
	case l.own && !time.Now().Before(l.deadline):
		err = context.DeadlineExceeded
	}
	return err
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
	if end, _ := ctx.Deadline(); !end.Equal(l.deadline) { // it has none or another one, as that of WithoutCancel
		return ctx
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timed != nil { // ctx may be of a context with an end of its own, which watches that of l
		return ctx
	}
	return l.Context
}
