package later

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/memstore"
)

func TestWorkerDrainLetsHandlersFinish(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		w := NewWorker(c, WorkerConfig{Concurrency: 1, Lease: time.Second})
		w.Handle("q", func(ctx context.Context, _ *Message) error { return sleep(ctx, 20*time.Second) })
		mustSend(t, q, "")
		mustSend(t, q, "")
		stop := start(t, w)
		synctest.Wait()
		begin := time.Now()
		if err := stop(); err != nil || time.Since(begin) != 20*time.Second {
			t.Errorf("Run returned %v after %v", err, time.Since(begin))
		}
		wantCounts(t, q, 0, 1, 0, 0) // no other message was started
	})
}

func TestWorkerDrainWhenIdleIsImmediate(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		w := NewWorker(c, WorkerConfig{})
		w.Handle("q", ignore)
		stop := start(t, w)
		synctest.Wait()
		begin := time.Now()
		if err := stop(); err != nil || time.Since(begin) != 0 {
			t.Errorf("Run returned %v after %v", err, time.Since(begin))
		}
	})
}

func TestWorkerDrainReleasesMessagesAfterShutdownTimeout(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q, causes := c.Queue("q"), make(chan error, 1)
		w := NewWorker(c, WorkerConfig{ShutdownTimeout: 5 * time.Second})
		w.Handle("q", func(ctx context.Context, _ *Message) error {
			err := sleep(ctx, time.Hour)
			time.Sleep(time.Second / 2) // cleanup
			causes <- err
			return err
		})
		mustSend(t, q, "", MaxAttempts(1))
		stop := start(t, w)
		synctest.Wait()
		begin := time.Now()
		if err := stop(); err != nil || time.Since(begin) != 5500*time.Millisecond {
			t.Errorf("Run returned %v after %v", err, time.Since(begin))
		}
		if cause := <-causes; !errors.Is(cause, ErrShutdown) || !errors.Is(cause, context.Canceled) {
			t.Errorf("cause is %v", cause)
		}
		wantCounts(t, q, 0, 1, 0, 0)
		if d := mustReceive(t, q, 1)[0]; d.Attempt != 1 {
			t.Errorf("attempt is %d; a release must not count as an attempt", d.Attempt)
		}
	})
}

func TestWorkerDrainWithoutTimeReleasesAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		w := NewWorker(c, WorkerConfig{ShutdownTimeout: -1})
		w.Handle("q", func(ctx context.Context, _ *Message) error { return sleep(ctx, time.Hour) })
		mustSend(t, c.Queue("q"), "")
		stop := start(t, w)
		synctest.Wait()
		begin := time.Now()
		if err := stop(); err != nil || time.Since(begin) != 0 {
			t.Errorf("Run returned %v after %v", err, time.Since(begin))
		}
		wantCounts(t, c.Queue("q"), 0, 1, 0, 0)
	})
}

func TestWorkerDrainReportsHandlersThatIgnoreTheirContext(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		let := make(chan struct{})
		w := NewWorker(c, WorkerConfig{ShutdownTimeout: 5 * time.Second})
		w.Handle("q", func(context.Context, *Message) error { <-let; return nil })
		mustSend(t, c.Queue("q"), "")
		mustSend(t, c.Queue("q"), "")
		stop := start(t, w)
		synctest.Wait()
		begin := time.Now()
		err := stop()
		if err == nil || !strings.Contains(err.Error(), "2 handlers ignored") || time.Since(begin) != 6*time.Second {
			t.Errorf("Run returned %v after %v", err, time.Since(begin))
		}
		wantCounts(t, c.Queue("q"), 0, 2, 0, 0) // other workers can claim them
		close(let)
		synctest.Wait()
		wantCounts(t, c.Queue("q"), 0, 2, 0, 0) // a late result changes nothing
	})
}

func TestWorkerDrainReleasesTheBufferAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		var handled atomic.Int32
		w := NewWorker(c, WorkerConfig{Concurrency: 1, MaxPrefetch: 50})
		w.Handle("q", func(ctx context.Context, _ *Message) error {
			if handled.Add(1) == 10 {
				return sleep(ctx, time.Second/2)
			}
			return nil
		})
		if _, err := q.SendBatch(t.Context(), make([]Outgoing, 100)); err != nil {
			t.Fatal(err)
		}
		stop := start(t, w)
		synctest.Wait()
		if s := mustStats(t, q); s.Leased < 20 {
			t.Fatalf("%d messages are held; want some in the buffer", s.Leased)
		}
		stopped := make(chan error)
		go func() { stopped <- stop() }()
		synctest.Wait()
		wantCounts(t, q, 0, 90, 1, 0)
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		wantCounts(t, q, 0, 90, 0, 0)
		counted := func(d *Delivery) bool { return d.Attempt != 1 }
		if d := mustReceive(t, q, 100); len(d) != 90 || slices.ContainsFunc(d, counted) {
			t.Errorf("received %d messages; want 90 with attempt 1", len(d))
		}
	})
}

func TestWorkerDrainReleasesMessagesOfAClaimInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		c := newClientOn(t, f)
		q, let := c.Queue("q"), make(chan struct{})
		f.set(nil, func(_ context.Context, call string) error {
			if call == "claim" {
				<-let
			}
			return nil
		})
		w := NewWorker(c, WorkerConfig{})
		w.Handle("q", func(context.Context, *Message) error { t.Error("handler was called"); return nil })
		mustSend(t, q, "")
		stop := start(t, w)
		synctest.Wait()
		stopped := make(chan error)
		go func() { stopped <- stop() }()
		synctest.Wait()
		begin := time.Now()
		close(let)
		if err := <-stopped; err != nil || time.Since(begin) != 0 {
			t.Errorf("Run returned %v after %v; want the message released at once", err, time.Since(begin))
		}
		wantCounts(t, q, 0, 1, 0, 0)
	})
}

// The drain may begin after a claim has returned and before its messages are delivered.
func TestWorkerDrainReleasesAClaimThatIsBeingDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		c := newClientOn(t, memstore.New(), WithObserver(func(e Event) {
			if e.Kind == EventClaimed {
				cancel()
				<-ended // only the worker's own context has ended; its drain has begun
			}
		}))
		q := c.Queue("q")
		w := NewWorker(c, WorkerConfig{})
		w.Handle("q", func(context.Context, *Message) error { t.Error("handler was called"); return nil })
		mustSend(t, q, "")
		result := make(chan error)
		go func() { result <- w.Run(ctx) }()
		synctest.Wait()
		begin := time.Now()
		close(ended)
		if err := <-result; err != nil || time.Since(begin) != 0 {
			t.Errorf("Run returned %v after %v; want the message released at once", err, time.Since(begin))
		}
		wantCounts(t, q, 0, 1, 0, 0)
	})
}

func TestWorkerDrainSettlesEverythingBeforeRunReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		c := newClientOn(t, f)
		q := c.Queue("q")
		w := NewWorker(c, WorkerConfig{})
		w.Handle("q", ignore)
		f.set(unavailable("settle"), nil)
		mustSend(t, q, "")
		stop := start(t, w)
		synctest.Wait()
		time.AfterFunc(10*time.Second, func() { f.set(nil, nil) })
		begin := time.Now()
		if err := stop(); err != nil || time.Since(begin) < 10*time.Second || time.Since(begin) > 13*time.Second {
			t.Errorf("Run returned %v after %v", err, time.Since(begin))
		}
		wantCounts(t, q, 0, 0, 0, 0)
	})
}

func TestWorkerDrainEndsInTimeWhenTheStoreIsUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		c := newClientOn(t, f)
		w := NewWorker(c, WorkerConfig{Lease: time.Hour, ShutdownTimeout: 5 * time.Second})
		w.Handle("q", ignore)
		f.set(unavailable("settle", "extend"), nil)
		mustSend(t, c.Queue("q"), "")
		stop := start(t, w)
		synctest.Wait()
		begin := time.Now()
		err := stop()
		if !errors.Is(err, ErrUnavailable) || time.Since(begin) > 7*time.Second {
			t.Errorf("Run returned %v after %v", err, time.Since(begin))
		}
		f.set(nil, nil)
		time.Sleep(time.Hour)
		if d := mustReceive(t, c.Queue("q"), 1)[0]; d.Attempt != 2 {
			t.Errorf("attempt is %d", d.Attempt)
		}
	})
}

func TestWorkerDrainWaitsForOnDead(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		returned := false
		w := NewWorker(c, WorkerConfig{OnDead: func(ctx context.Context, _ *Info) {
			if err := sleep(ctx, 10*time.Second); err != nil {
				t.Error(err)
			}
			returned = true
		}})
		w.Handle("q", func(context.Context, *Message) error { return Bury(nil) })
		mustSend(t, c.Queue("q"), "")
		stop := start(t, w)
		synctest.Wait()
		if err := stop(); err != nil || !returned {
			t.Errorf("Run returned %v; OnDead returned: %v", err, returned)
		}
	})
}

func TestWorkerDrainReportsAnOnDeadThatIgnoresItsContext(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		let := make(chan struct{})
		w := NewWorker(c, WorkerConfig{
			ShutdownTimeout: time.Second,
			OnDead:          func(context.Context, *Info) { <-let },
		})
		w.Handle("q", func(context.Context, *Message) error { return Bury(nil) })
		mustSend(t, c.Queue("q"), "")
		stop := start(t, w)
		synctest.Wait()
		if err := stop(); err == nil || !strings.Contains(err.Error(), "OnDead ignored") {
			t.Error(err)
		}
		close(let)
	})
}

func TestWorkerDrainContinuesHeartbeats(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		w := NewWorker(c, WorkerConfig{Lease: time.Second})
		w.Handle("q", func(ctx context.Context, m *Message) error { return sleep(ctx, 20*time.Second) })
		mustSend(t, q, "")
		stop := start(t, w)
		synctest.Wait()
		stopped := make(chan error)
		go func() { stopped <- stop() }()
		time.Sleep(19 * time.Second)
		wantCounts(t, q, 0, 0, 1, 0)
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		wantCounts(t, q, 0, 0, 0, 0)
	})
}
