package later

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/internal/handle"
	"github.com/laterq/later/internal/pump"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// scripted is a store with claims, settles and waits that a test sees and changes, except on workers' own queues.
type scripted struct {
	store.Store
	claim   func(req store.ClaimRequest) error // before the store's claim
	settle  func(results []store.SettleResult) // after the store's settle
	mu      sync.Mutex
	waiting int
}

func (s *scripted) Claim(ctx context.Context, queue string, req store.ClaimRequest) (store.Claim, error) {
	if s.claim != nil && !reserved.IsWorker(queue) {
		if err := s.claim(req); err != nil {
			return store.Claim{}, err
		}
	}
	return s.Store.Claim(ctx, queue, req)
}

func (s *scripted) Settle(ctx context.Context, queue string, all []store.Settlement) ([]store.SettleResult, error) {
	results, err := s.Store.Settle(ctx, queue, all)
	if s.settle != nil && !reserved.IsWorker(queue) {
		s.settle(results)
	}
	return results, err
}

func (s *scripted) Wait(ctx context.Context, queue string) error {
	if reserved.IsWorker(queue) {
		return s.Store.Wait(ctx, queue)
	}
	s.wait(1)
	defer s.wait(-1)
	return s.Store.Wait(ctx, queue)
}

func (s *scripted) wait(n int) (waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting += n
	return s.waiting
}

func TestWorkerSettleThatIsNotDurableTookEffectAndALostOneDidNot(t *testing.T) {
	for _, c := range []struct {
		result     error
		want, none EventKind
	}{
		{store.ErrNotDurable, EventAcked, EventUnsettled},
		{store.ErrLeaseLost, EventLeaseLost, EventAcked}, // the first settle: no earlier one of ours can have done it
	} {
		synctest.Test(t, func(t *testing.T) {
			var seen events
			s := &scripted{Store: memstore.New(), settle: func(results []store.SettleResult) { results[0].Err = c.result }}
			client := newClientOn(t, s, WithObserver(seen.add))
			w := NewWorker(client, WorkerConfig{})
			w.Handle("q", ignore)
			start(t, w)
			mustSend(t, client.Queue("q"), "")
			synctest.Wait()
			if len(seen.of(c.want)) != 1 || len(seen.of(c.none)) != 0 {
				t.Errorf("%v: %d %s events and %d %s events", c.result, len(seen.of(c.want)), c.want, len(seen.of(c.none)), c.none)
			}
		})
	}
}

// The lease is extended between the failures. The settle is still given up when the lease would have ended without the
// extension.
func TestWorkerSettleIsGivenUpWhenTheLeaseOfItsFirstFailureWouldHaveEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen events
		f := &faulty{Store: memstore.New()}
		c := newClientOn(t, f, WithObserver(seen.add))
		w := NewWorker(c, WorkerConfig{Lease: 6 * time.Second, Concurrency: 2})
		w.Handle("q", ignore)
		start(t, w)
		f.set(unavailable("settle"), nil)
		mustSend(t, c.Queue("q"), "")
		time.Sleep(7 * time.Second)
		if n := len(seen.of(EventUnsettled)); n != 1 {
			t.Errorf("%d events of a settle that was given up; want 1", n)
		}
		f.set(nil, nil)
		time.Sleep(time.Minute)
	})
}

// The message that follows in the buffer is handled by another goroutine.
func TestWorkerGoexitLosesNoMessageOfTheBuffer(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		w := NewWorker(c, WorkerConfig{Concurrency: 1})
		var n atomic.Int32
		w.Handle("q", func(context.Context, *Message) error {
			if n.Add(1)%10 == 0 {
				runtime.Goexit()
			}
			return nil
		})
		backlog(t, c.Queue("q"), 100)
		start(t, w)
		time.Sleep(time.Hour)
		wantCounts(t, c.Queue("q"), 0, 0, 0, 0)
	})
}

func TestWorkerThatIsPausedWaitsForNothingAndReportsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged lockedBuffer
		s := &scripted{Store: memstore.New()}
		c := newClientOn(t, s, WithLogger(logged.logger()))
		w := NewWorker(c, WorkerConfig{})
		w.Handle("q", ignore)
		start(t, w)
		synctest.Wait()
		if n := s.wait(0); n != 1 {
			t.Fatalf("%d waits before the pause", n)
		}
		w.Pause()
		synctest.Wait()
		if n := s.wait(0); n != 0 {
			t.Errorf("%d waits during the pause: they take wake-ups from other processes", n)
		}
		if strings.Contains(logged.String(), "the store is failing") {
			t.Errorf("a pause is logged as a failure: %s", logged.String())
		}
	})
}

func TestWorkerRetriesEachOutageSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{Store: memstore.New()}
		var failing atomic.Bool
		var failed log[time.Time]
		s.claim = func(store.ClaimRequest) error {
			if !failing.Load() {
				return nil
			}
			failed.add(time.Now())
			return store.ErrUnavailable
		}
		c := newClientOn(t, s)
		w := NewWorker(c, WorkerConfig{Concurrency: 1})
		w.Handle("q", ignore)
		start(t, w)
		for range 2 {
			failing.Store(true)
			first := len(failed.list())
			mustSend(t, c.Queue("q"), "")
			time.Sleep(30 * time.Second)
			if at := failed.list()[first:]; len(at) < 10 || at[1].Sub(at[0]) > 2*calls.MinPause {
				t.Errorf("%d claims failed, the second after %v; want it within %v", len(at), at[1].Sub(at[0]), calls.MinPause)
			}
			failing.Store(false)
			time.Sleep(time.Minute)
			wantCounts(t, c.Queue("q"), 0, 0, 0, 0)
		}
	})
}

func TestAliveSeesTheCallsOfForwarders(t *testing.T) {
	c := newClientOn(t, memstore.New())
	w := NewWorker(c, WorkerConfig{})
	f := &forwarder{queueWorker: &queueWorker{queue: c.Queue("q")}, batch: new(pump.Batch)}
	f.batch.Watch.Begin(false, time.Second)
	running := handle.New(t.Context(), c.store, c.log, handle.Config{}, nil, w.claimed)
	running.Begun = time.Now().Add(-time.Hour)
	w.run = &run{Worker: running, forwarders: []*forwarder{f}}
	if err := w.Alive(); err == nil || !strings.Contains(err.Error(), "has not returned") {
		t.Errorf("Alive returned %v", err)
	}
}

func TestForwardSettleWhoseReplyWasLostIsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen events
		f := &faulty{Store: memstore.New()}
		c := newClientOn(t, f, WithObserver(seen.add))
		w := NewWorker(c, WorkerConfig{})
		w.Forward("q", To(takes{}))
		start(t, w)
		synctest.Wait()
		var settles atomic.Int32
		f.set(nil, func(_ context.Context, call string) error {
			if call == "settle" && settles.Add(1) == 1 {
				return store.ErrUnavailable
			}
			return nil
		})
		mustSend(t, c.Queue("q"), "")
		time.Sleep(10 * time.Second)
		if done, lost := len(seen.of(EventForwarded)), len(seen.of(EventLeaseLost)); done != 1 || lost != 0 {
			t.Errorf("%d messages were forwarded and %d lost after %d settles", done, lost, settles.Load())
		}
	})
}

// takes is a destination that takes everything.
type takes struct{}

func (takes) Deliver(context.Context, []*Message) []error { return nil }
func (takes) String() string                              { return "takes" }

// endless is a destination that works until its context ends.
type endless struct{ causes *log[error] }

func (e endless) Deliver(ctx context.Context, msgs []*Message) []error {
	<-ctx.Done()
	e.causes.add(context.Cause(ctx))
	return same(msgs, ctx.Err())
}

func (endless) String() string { return "endless" }

func TestForwardEndsADeliverWhoseLeaseCannotBeExtended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		c := newClientOn(t, f)
		var causes log[error]
		w := NewWorker(c, WorkerConfig{Lease: 3 * time.Second})
		w.Forward("q", To(endless{&causes}))
		start(t, w)
		mustSend(t, c.Queue("q"), "")
		synctest.Wait()
		f.set(unavailable("extend"), nil)
		time.Sleep(5 * time.Second)
		if all := causes.list(); len(all) == 0 || !errors.Is(all[0], ErrLeaseLost) {
			t.Errorf("the contexts ended with %v; want ErrLeaseLost", all)
		}
	})
}

// A settle fails until the lease has ended. The store's answer about the message is then true.
func TestForwardSettleAfterTheEndOfTheLeaseIsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen events
		f := &faulty{Store: memstore.New()}
		c := newClientOn(t, f, WithObserver(seen.add))
		w := NewWorker(c, WorkerConfig{Lease: 3 * time.Second})
		w.Forward("q", To(takes{}))
		start(t, w)
		synctest.Wait()
		var settles atomic.Int32
		f.set(func(_ context.Context, call string) error {
			switch {
			case call == "extend":
				return store.ErrUnavailable
			case call == "settle" && settles.Add(1) == 1:
				return store.ErrUnavailable
			case call == "settle" && settles.Load() == 2:
				time.Sleep(4 * time.Second) // it reaches the store after the end of the lease
			}
			return nil
		}, nil)
		mustSend(t, c.Queue("q"), "")
		time.Sleep(time.Minute)
		if lost := len(seen.of(EventLeaseLost)); lost != 1 {
			t.Errorf("%d leases were lost; want the first", lost)
		}
		wantCounts(t, c.Queue("q"), 0, 0, 0, 0)
	})
}
