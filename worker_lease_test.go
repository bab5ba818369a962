package later

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/internal/slots"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

func TestWorkerRunsEveryMessageOfABurstOnceWhenSlow(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q, begin := c.Queue("q"), time.Now()
		runs := map[string]int{}
		w := NewWorker(c, WorkerConfig{Concurrency: 1, Lease: 500 * time.Millisecond})
		w.Handle("q", func(ctx context.Context, m *Message) error {
			runs[m.ID]++
			if m.Attempt != 1 {
				t.Errorf("message %s was delivered again", m.ID)
			}
			return sleep(ctx, time.Second)
		})
		for i := range 100 {
			mustSend(t, q, "", WithID(fmt.Sprint(i)))
		}
		stop := start(t, w)
		time.Sleep(100*time.Second - time.Nanosecond)
		if s := mustStats(t, q); s.Leased != 1 {
			t.Errorf("%d messages are held while the last one runs; want 1", s.Leased)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if err := stop(); err != nil {
			t.Error(err)
		}
		wantCounts(t, q, 0, 0, 0, 0)
		if len(runs) != 100 || time.Since(begin) != 100*time.Second {
			t.Errorf("%d of 100 messages ran, in %v", len(runs), time.Since(begin))
		}
		for id, n := range runs {
			if n != 1 {
				t.Errorf("message %s ran %d times", id, n)
			}
		}
	})
}

func TestWorkerHeartbeatKeepsTheLeaseOfALongHandler(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		w := NewWorker(c, WorkerConfig{Lease: time.Second})
		w.Handle("q", func(ctx context.Context, m *Message) error {
			if m.Attempt != 1 {
				t.Errorf("attempt is %d", m.Attempt)
			}
			return sleep(ctx, 10*time.Minute)
		})
		start(t, w)
		mustSend(t, q, "")
		time.Sleep(9 * time.Minute)
		wantCounts(t, q, 0, 0, 1, 0)
		time.Sleep(2 * time.Minute)
		wantCounts(t, q, 0, 0, 0, 0)
	})
}

func TestWorkerHeartbeatsAreBatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var extends, looks atomic.Int32
		f := &faulty{Store: memstore.New()}
		c := newClientOn(t, f)
		w := NewWorker(c, WorkerConfig{Concurrency: 100, Lease: 30 * time.Second})
		w.Handle("q", func(ctx context.Context, _ *Message) error { return sleep(ctx, time.Hour) })
		start(t, w)
		for range 100 { // each gets its own lease
			mustSend(t, c.Queue("q"), "")
			time.Sleep(time.Millisecond)
		}
		f.set(func(_ context.Context, call string) error {
			switch call {
			case "extend":
				extends.Add(1)
			case "look":
				looks.Add(1)
			}
			return nil
		}, nil)
		time.Sleep(59 * time.Minute)
		if n := extends.Load(); n > 59*6+10 || n < 59*6-10 {
			t.Errorf("%d extensions in 59 minutes for 100 leases of 30 s; want one in 10 s", n)
		}
		if n := looks.Load(); n > 59*60*4/3 || n < 59*60 {
			t.Errorf("%d looks for cancelled messages in 59 minutes; want about one in 0.75 s", n)
		}
		wantCounts(t, c.Queue("q"), 0, 0, 100, 0)
	})
}

func TestWorkerCancelledMessageEndsTheHandlersContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen events
		c := newClientOn(t, memstore.New(), WithObserver(seen.add))
		q, causes := c.Queue("q"), make(chan error, 1)
		w := NewWorker(c, WorkerConfig{})
		w.Handle("q", func(ctx context.Context, _ *Message) error {
			causes <- sleep(ctx, time.Hour)
			return errors.New("must not be settled")
		})
		start(t, w)
		mustSend(t, q, "", WithID("id"))
		time.Sleep(5*time.Second + 375*time.Millisecond) // between two looks
		begin := time.Now()
		if state, err := q.Cancel(t.Context(), "id"); state != StateLeased || err != nil {
			t.Fatal(state, err)
		}
		if cause := <-causes; !errors.Is(cause, ErrCancelled) || time.Since(begin) > time.Second {
			t.Errorf("cause is %v after %v", cause, time.Since(begin))
		}
		time.Sleep(time.Minute)
		wantCounts(t, q, 0, 0, 0, 0)
		if lost := seen.of(EventLeaseLost); len(lost) != 1 || lost[0].Err != ErrCancelled || len(seen.of(EventNacked)) != 0 {
			t.Errorf("events %v", seen.kinds("id"))
		}
	})
}

func TestWorkerLostLeaseEndsTheHandlersContext(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q, causes := c.Queue("q"), make(chan error, 1)
		w := NewWorker(c, WorkerConfig{Lease: 3 * time.Second})
		w.Handle("q", func(ctx context.Context, _ *Message) error {
			causes <- sleep(ctx, time.Hour)
			return nil
		})
		start(t, w)
		mustSend(t, q, "")
		synctest.Wait()
		if err := q.Delete(t.Context()); err != nil {
			t.Fatal(err)
		}
		if cause := <-causes; !errors.Is(cause, ErrLeaseLost) || errors.Is(cause, ErrCancelled) {
			t.Errorf("cause is %v", cause)
		}
	})
}

func TestWorkerHandlerEndsWithItsLeaseWhenTheStoreIsUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		c := newClientOn(t, f)
		type end struct {
			cause error
			after time.Duration
		}
		q, ends := c.Queue("q"), make(chan end, 2)
		var attempts log[int]
		w := NewWorker(c, WorkerConfig{Lease: 9 * time.Second})
		w.Handle("q", func(ctx context.Context, m *Message) error {
			begin := time.Now()
			attempts.add(m.Attempt)
			if m.Attempt == 1 {
				ends <- end{sleep(ctx, time.Hour), time.Since(begin)}
			}
			return nil
		})
		start(t, w)
		mustSend(t, q, "")
		time.Sleep(4 * time.Second) // one extension, at 3 s
		f.set(unavailable(), nil)
		// Extended at 3 s, the lease ends at 12 s on the store's clock.
		if e := <-ends; !errors.Is(e.cause, ErrLeaseLost) || e.after < 11*time.Second || e.after >= 12*time.Second {
			t.Errorf("cause is %v after %v", e.cause, e.after)
		}
		f.set(nil, nil)
		time.Sleep(time.Minute)
		if got := attempts.list(); len(got) != 2 || got[1] != 2 {
			t.Errorf("attempts %v; want the message delivered again once", got)
		}
		wantCounts(t, q, 0, 0, 0, 0)
	})
}

// The lease counts from the store's clock at the call, which may be long before its reply.
func TestWorkerLeaseCountsFromTheRequestOfAClaimOrExtension(t *testing.T) {
	const length, slow = 9 * time.Second, 2 * time.Second
	for call, want := range map[string]time.Duration{ // from the first claim
		"claim":  length,
		"extend": length + length/3, // one extension, requested at a third of the lease
	} {
		t.Run(call, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &faulty{Store: memstore.New()}
				c := newClientOn(t, f)
				begin, ended := time.Now(), make(chan time.Duration, 1)
				w := NewWorker(c, WorkerConfig{Lease: length})
				w.Handle("q", func(ctx context.Context, m *Message) error {
					if m.Attempt == 1 {
						err := sleep(ctx, time.Hour)
						ended <- time.Since(begin)
						return err
					}
					return nil
				})
				f.set(nil, func(_ context.Context, made string) error {
					if made == call {
						f.set(unavailable("extend"), nil)
						time.Sleep(slow)
					}
					return nil
				})
				mustSend(t, c.Queue("q"), "")
				start(t, w)
				if after := <-ended; after > want || after < want-time.Second {
					t.Errorf("the handler ended %v after the claim; the store ended its lease after %v", after, want)
				}
				f.set(nil, nil)
			})
		})
	}
}

func TestWorkerHandlerEndsWithItsLeaseWhenTheStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		c := newClientOn(t, f)
		ended := make(chan time.Duration, 2)
		w := NewWorker(c, WorkerConfig{Lease: 3 * time.Second})
		w.Handle("q", func(ctx context.Context, m *Message) error {
			begin := time.Now()
			err := sleep(ctx, time.Minute)
			ended <- time.Since(begin)
			return err
		})
		start(t, w)
		mustSend(t, c.Queue("q"), "")
		synctest.Wait()
		f.set(func(ctx context.Context, _ string) error { <-ctx.Done(); return context.Cause(ctx) }, nil)
		if after := <-ended; after >= 3*time.Second {
			t.Errorf("handler ended after %v", after)
		}
		f.set(nil, nil)
	})
}

func TestWorkerKeepsItsLeaseDuringABriefOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		c := newClientOn(t, f)
		w := NewWorker(c, WorkerConfig{Lease: 9 * time.Second})
		w.Handle("q", func(ctx context.Context, m *Message) error {
			if m.Attempt != 1 {
				t.Errorf("attempt is %d", m.Attempt)
			}
			return sleep(ctx, time.Minute)
		})
		start(t, w)
		mustSend(t, c.Queue("q"), "")
		for range 5 {
			time.Sleep(4 * time.Second)
			f.set(unavailable(), nil)
			time.Sleep(4 * time.Second)
			f.set(nil, nil)
		}
		time.Sleep(time.Minute)
		wantCounts(t, c.Queue("q"), 0, 0, 0, 0)
	})
}

func TestWorkerDoesNotRunAClaimWhoseReplyComesAfterItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		c := newClientOn(t, f)
		q := c.Queue("q")
		var attempts log[int]
		w := NewWorker(c, WorkerConfig{Lease: time.Second})
		w.Handle("q", func(_ context.Context, m *Message) error { attempts.add(m.Attempt); return nil })
		var slow atomic.Bool
		slow.Store(true)
		f.set(nil, func(_ context.Context, call string) error {
			if call == "claim" && slow.Swap(false) {
				time.Sleep(2 * time.Second)
			}
			return nil
		})
		mustSend(t, q, "")
		start(t, w)
		time.Sleep(time.Minute)
		if got := attempts.list(); len(got) != 1 || got[0] != 2 {
			t.Errorf("attempts %v; want only the second", got)
		}
	})
}

func TestWorkerStopsClaimingWithTooManySettlesInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		c := newClientOn(t, f)
		q := c.Queue("q")
		let := make(chan struct{})
		f.set(func(_ context.Context, call string) error {
			if call == "settle" {
				<-let
			}
			return nil
		}, nil)
		const n = 10 * store.MaxBatch
		if _, err := q.SendBatch(t.Context(), make([]Outgoing, n)); err != nil {
			t.Fatal(err)
		}
		w := NewWorker(c, WorkerConfig{Concurrency: 100})
		w.Handle("q", ignore)
		start(t, w)
		synctest.Wait()
		if s := mustStats(t, q); s.Leased < slots.MaxPrefetch || s.Leased > 2*slots.MaxPrefetch {
			t.Errorf("%d messages are held; want %d to %d", s.Leased, slots.MaxPrefetch, 2*slots.MaxPrefetch)
		}
		close(let)
		time.Sleep(time.Second)
		wantCounts(t, q, 0, 0, 0, 0)
	})
}

// This test is for the race detector: the hold.Keeper reports the loss while the handler begins or ends.
func TestWorkerLostLeaseDoesNotRaceWithItsHandler(t *testing.T) {
	const n = 20
	lost := make(chan struct{}, n)
	c := mustNew(t, memstore.New(), WithObserver(func(e Event) {
		if e.Kind == EventLeaseLost {
			lost <- struct{}{}
		}
	}))
	defer c.Close()
	q := c.Queue("q")
	for range n {
		mustSend(t, q, "")
	}
	w := NewWorker(c, WorkerConfig{Concurrency: n, Lease: 30 * time.Millisecond})
	begun := make(chan struct{}, n)
	ended := make(chan struct{})
	w.Handle("q", func(context.Context, *Message) error {
		begun <- struct{}{}
		<-ended
		return nil
	})
	stop := start(t, w)
	for range n {
		<-begun
	}
	if _, err := q.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range n {
		<-lost
	}
	close(ended)
	if err := stop(); err != nil {
		t.Error(err)
	}
}
