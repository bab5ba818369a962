package calls

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestLimitEndsWithItsTime(t *testing.T) {
	for _, asked := range []bool{false, true} { // for Done, before the end
		synctest.Test(t, func(t *testing.T) {
			caller, cancel := context.WithCancel(t.Context())
			defer cancel()
			l := Limit(caller, time.Second)
			defer l.End()
			if asked {
				l.Done()
			}
			if end, ok := l.Deadline(); !ok || !end.Equal(time.Now().Add(time.Second)) || l.Err() != nil {
				t.Errorf("deadline %v, %v, error %v", end, ok, l.Err())
			}
			time.Sleep(time.Second)
			synctest.Wait()
			if err := l.Err(); err != context.DeadlineExceeded || context.Cause(l) != err {
				t.Errorf("error %v, cause %v", err, context.Cause(l))
			}
			<-l.Done()
			if caller.Err() != nil {
				t.Error("the caller's context has ended, too")
			}
		})
	}
}

func TestLimitEndsWithItsCaller(t *testing.T) {
	for _, asked := range []bool{false, true} {
		caller, cancel := context.WithCancelCause(t.Context())
		l := Limit(caller, time.Hour)
		if asked {
			l.Done()
		}
		gone := errors.New("gone")
		cancel(gone)
		<-l.Done()
		if l.Err() != context.Canceled || context.Cause(l) != gone {
			t.Errorf("error %v, cause %v", l.Err(), context.Cause(l))
		}
		l.End()
	}
}

func TestLimitKeepsASoonerDeadline(t *testing.T) {
	caller, cancel := context.WithTimeout(context.WithValue(t.Context(), limitKey{}, "no limit"), time.Minute)
	defer cancel()
	l := Limit(caller, time.Hour)
	defer l.End()
	got, _ := l.Deadline()
	if want, _ := caller.Deadline(); !got.Equal(want) {
		t.Errorf("deadline %v, want %v", got, want)
	}
	if Untimed(caller) != caller {
		t.Error("a context without a limit has changed")
	}
}

// lateContext is a context whose deadline has passed, and which is about to end.
type lateContext struct{ context.Context }

func (lateContext) Deadline() (time.Time, bool) { return time.Unix(1, 0), true }

// At the deadline of its caller, a limit ends when the caller's context does, and so with its cause.
func TestLimitEndsWithTheDeadlineOfItsCaller(t *testing.T) {
	for _, asked := range []bool{false, true} {
		caller, cancel := context.WithCancelCause(t.Context())
		l := Limit(lateContext{caller}, time.Hour)
		if asked {
			l.Done()
		}
		if l.Err() != nil {
			t.Errorf("error %v before the end of the caller's context", l.Err())
		}
		gone := errors.New("gone")
		cancel(gone)
		<-l.Done()
		if l.Err() != context.Canceled || context.Cause(l) != gone {
			t.Errorf("error %v, cause %v", l.Err(), context.Cause(l))
		}
		l.End()
	}
}

func TestLimitHasEndedAfterEnd(t *testing.T) {
	for _, asked := range []bool{false, true} {
		l := Limit(t.Context(), time.Hour)
		if asked {
			l.Done()
		}
		l.End()
		if l.Err() != context.Canceled || context.Cause(l) != context.Canceled {
			t.Errorf("error %v, cause %v", l.Err(), context.Cause(l))
		}
		select {
		case <-l.Done():
		default:
			t.Error("it is not done")
		}
	}
}

type testKey struct{}

// Untimed leaves out no end of a context: not one of its own, nor one that has none.
func TestUntimedEndsWithItsContext(t *testing.T) {
	caller, cancel := context.WithCancel(context.WithValue(t.Context(), testKey{}, "v"))
	defer cancel()
	l := Limit(caller, time.Hour)
	defer l.End()
	if l.Value(testKey{}) != "v" {
		t.Error("a value is missing")
	}
	if got := Untimed(context.WithValue(l, testKey{}, "w")); got != caller {
		t.Errorf("%v, want the caller's context", got)
	}
	if kept := context.WithoutCancel(l); Untimed(kept) != kept {
		t.Error("a context without an end has one")
	}
	own, end := context.WithCancel(l)
	defer end()
	if got := Untimed(own); got != own {
		t.Errorf("%v, want the context with an end of its own", got)
	}
}
