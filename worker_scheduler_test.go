package later

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/internal/handle"
	"github.com/laterq/later/internal/slots"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// backlog fills a queue with n ready messages.
func backlog(t *testing.T, q *Queue, n int) {
	t.Helper()
	if _, err := q.SendBatch(t.Context(), make([]Outgoing, n)); err != nil {
		t.Fatal(err)
	}
}

// gauge counts how many handlers run at a time.
type gauge struct{ now, most atomic.Int32 }

func (g *gauge) in() {
	n := g.now.Add(1)
	for most := g.most.Load(); n > most && !g.most.CompareAndSwap(most, n); most = g.most.Load() {
	}
}

func (g *gauge) out() { g.now.Add(-1) }

func TestWorkerQueueAloneGetsTheWholeConcurrency(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		var running gauge
		w := NewWorker(c, WorkerConfig{Concurrency: 7})
		w.Handle("idle", ignore)
		w.Handle("busy", func(ctx context.Context, _ *Message) error {
			running.in()
			defer running.out()
			return sleep(ctx, time.Second)
		})
		backlog(t, c.Queue("busy"), 70)
		start(t, w)
		time.Sleep(10*time.Second + time.Millisecond)
		if running.most.Load() != 7 {
			t.Errorf("%d handlers ran at a time, want 7", running.most.Load())
		}
		wantCounts(t, c.Queue("busy"), 0, 0, 0, 0)
	})
}

func TestWorkerAcksOfALargeClaimAreBatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		var settles atomic.Int32
		f.set(func(_ context.Context, call string) error {
			if call == "settle" {
				settles.Add(1)
			}
			return nil
		}, nil)
		c := newClientOn(t, f)
		w := NewWorker(c, WorkerConfig{Concurrency: handle.MinAckGroup})
		w.Handle("q", func(_ context.Context, m *Message) error {
			time.Sleep(time.Duration(m.Payload[0]) * time.Microsecond)
			return nil
		})
		for i := range handle.MinAckGroup { // handlers end one after the other, within linger
			mustSend(t, c.Queue("q"), string(rune(i)))
		}
		start(t, w)
		time.Sleep(time.Second)
		if n := settles.Load(); n != 1 {
			t.Errorf("%d acks were made in %d calls, want 1", handle.MinAckGroup, n)
		}
		wantCounts(t, c.Queue("q"), 0, 0, 0, 0)
	})
}

func TestWorkerQueueKeepsToItsOwnConcurrency(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		var all, narrow gauge
		w := NewWorker(c, WorkerConfig{Concurrency: 10, Queues: map[string]QueueConfig{"narrow": {Concurrency: 2}}})
		handle := func(g *gauge) HandlerFunc {
			return func(ctx context.Context, _ *Message) error {
				all.in()
				g.in()
				defer all.out()
				defer g.out()
				return sleep(ctx, time.Millisecond)
			}
		}
		w.Handle("narrow", handle(&narrow))
		w.Handle("wide", handle(&gauge{}))
		backlog(t, c.Queue("narrow"), 200)
		backlog(t, c.Queue("wide"), 200)
		start(t, w)
		time.Sleep(time.Minute)
		if narrow.most.Load() != 2 || all.most.Load() != 10 {
			t.Errorf("concurrent handlers: %d for the narrow queue, %d in all; want 2 and 10",
				narrow.most.Load(), all.most.Load())
		}
		wantCounts(t, c.Queue("narrow"), 0, 0, 0, 0)
	})
}

func TestWorkerWeightsDivideTheHandlersAndNoQueueStarves(t *testing.T) {
	for name, prefetch := range map[string]int{"prefetch": 0, "no prefetch": -1} {
		for _, concurrency := range []int{1, 4} {
			t.Run(fmt.Sprintf("%s, %d handlers", name, concurrency), func(t *testing.T) {
				inBubble(t, func(t *testing.T, c *Client) {
					weights := map[string]int{"heavy": 30, "middle": 10, "light": 1}
					cfg := WorkerConfig{Concurrency: concurrency, MaxPrefetch: prefetch, Queues: map[string]QueueConfig{}}
					for q, weight := range weights {
						cfg.Queues[q] = QueueConfig{Weight: weight}
					}
					w := NewWorker(c, cfg)
					var order log[string]
					for q := range weights {
						backlog(t, c.Queue(q), 3000)
						w.Handle(q, func(ctx context.Context, m *Message) error {
							order.add(m.Queue)
							return sleep(ctx, time.Millisecond)
						})
					}
					start(t, w)
					for len(order.list()) < 2000 {
						time.Sleep(time.Millisecond)
					}
					counts := map[string]int{}
					for _, q := range order.list()[500:1730] { // 30 rounds of 41
						counts[q]++
					}
					for q, weight := range weights {
						if n := counts[q]; n < 27*weight || n > 33*weight+3 {
							t.Errorf("%s ran %d of 1230 messages, want about %d", q, n, 30*weight)
						}
					}
				})
			})
		}
	}
}

func TestWorkerSlowQueueDoesNotStopAFastOne(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		w := NewWorker(c, WorkerConfig{Concurrency: 4, Queues: map[string]QueueConfig{"slow": {Concurrency: 3}}})
		w.Handle("slow", func(ctx context.Context, _ *Message) error { return sleep(ctx, time.Hour) })
		w.Handle("fast", func(ctx context.Context, _ *Message) error { return sleep(ctx, time.Millisecond) })
		backlog(t, c.Queue("slow"), 100)
		backlog(t, c.Queue("fast"), 100)
		start(t, w)
		time.Sleep(time.Second)
		wantCounts(t, c.Queue("fast"), 0, 0, 0, 0)
	})
}

func TestWorkerClaimsOnlyForFreeSlotsWhenHandlersAreSlow(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		w := NewWorker(c, WorkerConfig{Concurrency: 5})
		w.Handle("q", func(ctx context.Context, _ *Message) error { return sleep(ctx, time.Second) })
		backlog(t, q, 100)
		start(t, w)
		for range 15 {
			time.Sleep(time.Second)
			synctest.Wait()
			if s := mustStats(t, q); s.Leased != 5 {
				t.Fatalf("%d messages are held by 5 handlers", s.Leased)
			}
		}
	})
}

// claims is a store that records how many messages claims ask for.
type claims struct {
	store.Store
	asked log[int]
}

func (s *claims) Claim(ctx context.Context, queue string, req store.ClaimRequest) (store.Claim, error) {
	s.asked.add(req.Max)
	return s.Store.Claim(ctx, queue, req)
}

func TestWorkerPrefetchesForFastHandlersInLargeClaims(t *testing.T) {
	for _, c := range []struct {
		name                 string
		prefetch             int
		handler              time.Duration
		fewest, most, atMost int // bounds for the number of claims; messages per claim
	}{
		{"1 ms", 0, time.Millisecond, 150, 210, 4 + 80}, // 20 ms of work for 4 handlers is 80 messages
		{"bounded", 10, time.Millisecond, 600, 1700, 4 + 10},
		{"none", -1, time.Millisecond, 1900, 9000, 4},
		{"slow", 0, 100 * time.Millisecond, 1900, 9000, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &claims{Store: memstore.New()}
				client := newClientOn(t, s)
				w := NewWorker(client, WorkerConfig{Concurrency: 4, MaxPrefetch: c.prefetch, Unlisted: true})
				w.Handle("q", func(ctx context.Context, _ *Message) error { return sleep(ctx, c.handler) })
				backlog(t, client.Queue("q"), 8000)
				start(t, w)
				time.Sleep(time.Hour)
				asked := s.asked.list()
				if n := len(asked); n < c.fewest || n > c.most {
					t.Errorf("%d claims for 8000 messages, want %d to %d", n, c.fewest, c.most)
				}
				// The last claims find the queue empty and the handlers idle.
				if most := slices.Max(asked[1 : len(asked)-10]); most > c.atMost {
					t.Errorf("a claim asked for %d messages, want at most %d", most, c.atMost)
				}
				wantCounts(t, client.Queue("q"), 0, 0, 0, 0)
			})
		})
	}
}

func TestWorkerReleasesBufferedMessagesWhenAHandlerBecomesSlow(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		var handled atomic.Int32
		w := NewWorker(c, WorkerConfig{Concurrency: 1})
		w.Handle("q", func(ctx context.Context, _ *Message) error {
			if handled.Add(1) == 100 {
				return sleep(ctx, time.Hour)
			}
			return nil
		})
		backlog(t, q, 1000)
		start(t, w)
		synctest.Wait()
		if s := mustStats(t, q); s.Leased < 100 {
			t.Fatalf("%d messages are held; want some in the buffer", s.Leased)
		}
		time.Sleep(slots.MaxBuffered)
		synctest.Wait()
		wantCounts(t, q, 0, 900, 1, 0)
		time.Sleep(10 * time.Minute)
		wantCounts(t, q, 0, 900, 1, 0) // and none is prefetched again
		if d := mustReceive(t, q, 1)[0]; d.Attempt != 1 {
			t.Errorf("attempt is %d; a release must not count as an attempt", d.Attempt)
		}
	})
}

func TestWorkerWithASingleHandlerDoesNotWaitForRoundTrips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		c := newClientOn(t, f)
		q := c.Queue("q")
		const n, roundTrip = 20_000, 4 * time.Millisecond
		w := NewWorker(c, WorkerConfig{Concurrency: 1})
		var order log[string]
		done := make(chan struct{})
		w.Handle("q", func(_ context.Context, m *Message) error {
			order.add(m.ID)
			if len(order.all) == n {
				close(done)
			}
			return nil
		})
		msgs := make([]Outgoing, n)
		for i := range msgs {
			msgs[i].ID = fmt.Sprintf("%06d", i)
		}
		if _, err := q.SendBatch(t.Context(), msgs); err != nil {
			t.Fatal(err)
		}
		f.set(nil, func(context.Context, string) error {
			time.Sleep(roundTrip)
			return nil
		})
		begin := time.Now()
		start(t, w)
		<-done
		if took := time.Since(begin); took > time.Second {
			t.Errorf("%d messages took %v with round trips of %v; want at most 1 s", n, took, roundTrip)
		}
		if !slices.IsSorted(order.list()) {
			t.Error("the messages were not handled in order")
		}
	})
}

func TestWorkerIdleQueueHasOneGoroutineAndNoTurn(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		const n = 1000
		w := NewWorker(c, WorkerConfig{Concurrency: 10})
		for i := range n {
			w.Handle(fmt.Sprint(i), ignore)
		}
		before := runtime.NumGoroutine()
		start(t, w)
		check := func(when string) {
			synctest.Wait()
			if g := runtime.NumGoroutine() - before; g > n+10 {
				t.Errorf("%s: %d goroutines for %d idle queues; want one each", when, g, n)
			}
			load := w.run.Load()
			if load.Turns != 0 || load.Claims != 0 || load.Free != 10 {
				t.Errorf("%s: %d idle queues wait for a turn, %d claim, and %d slots of 10 are free",
					when, load.Turns, load.Claims, load.Free)
			}
			if load.Capacity > 32 {
				t.Errorf("%s: an idle queue keeps a buffer for %d messages", when, load.Capacity)
			}
		}
		check("at the start")
		for i := range n / 10 {
			backlog(t, c.Queue(fmt.Sprint(i)), 2000) // enough to fetch ahead
			synctest.Wait()
		}
		check("after bursts")
	})
}
