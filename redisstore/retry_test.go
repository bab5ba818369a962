package redisstore

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// A call may have been executed although its reply was lost. Then ErrClosed would be wrong, because it states that
// nothing was done.
func TestCloseReportsUnknownOutcomeAsUnavailable(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	l := &loseFirstReply{UniversalClient: rdb}
	s := newStore(t, l)
	if err := s.ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.registered.Store("closed", true)
	send(t, newStore(t, rdb), "closed", "first", store.Due{})
	l.do = func() { s.Close() }
	_, err := s.Send(t.Context(), "closed", []store.Outgoing{{Message: store.Message{ID: "m"}}})
	if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrClosed) || !errors.Is(err, errLostReply) {
		t.Errorf("the send whose reply was lost returned %v, want ErrUnavailable", err)
	}
	infos, err := newStore(t, rdb).Get(t.Context(), "closed", []string{"m"})
	if err != nil || infos[0] == nil {
		t.Errorf("the message was not sent: %v, %v; the test proves nothing", infos, err)
	}
}

// failDial fails every call as a server that is gone does, and calls do before.
type failDial struct {
	redis.UniversalClient
	do func()
}

func (f *failDial) Process(context.Context, redis.Cmder) error {
	f.do()
	return errConnClosed
}

func TestCloseReportsCallThatWasNeverSentAsClosed(t *testing.T) {
	f := &failDial{UniversalClient: redistest.Shared(t).Client(t)}
	s := newStore(t, f)
	s.preflightDone.Store(true)
	f.do = func() { s.Close() }
	if _, err := s.Stats(t.Context(), "q"); !errors.Is(err, store.ErrClosed) {
		t.Errorf("the call returned %v, want ErrClosed", err)
	}
}

// The server forgets requests, so a call that it may have executed is repeated for minutes at most, even with a longer
// RetryFor.
func TestCallThatMayHaveBeenExecutedIsRepeatedForMinutes(t *testing.T) {
	for _, c := range []struct {
		err error
		min time.Duration
		max time.Duration
	}{
		{errLostReply, maxRetry, maxRetry + 2*maxBackoff},
		{errDial, time.Hour, time.Hour + 2*maxBackoff}, // never sent
	} {
		synctest.Test(t, func(t *testing.T) {
			s := New(nil, RetryFor(time.Hour))
			defer s.Close()
			began := time.Now()
			_, err := s.retry(t.Context(), func(context.Context) (any, error) { return nil, c.err })
			if took := time.Since(began); !errors.Is(err, store.ErrUnavailable) || took < c.min || took > c.max {
				t.Errorf("%v was repeated for %v and returned %v; want %v to %v", c.err, took, err, c.min, c.max)
			}
		})
	}
}

var errDial = &net.OpError{Op: "dial", Err: errors.New("connection refused")}
