package later

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/memstore"
)

// ranks are the queues of the tests, by priority.
var ranks = map[string]QueueConfig{"high": {Priority: 1}, "low": {}, "lowest": {Priority: -1}}

// before counts the messages of a queue that ran before messages of another one. It ignores the last few messages of
// the other queue: they may have got their handlers earlier, and only their goroutines were late.
func before(order []string, queue, other string, ignore int) (n int) {
	for i := len(order) - 1; i >= 0; i-- {
		if order[i] != other {
			continue
		}
		if ignore--; ignore < 0 {
			for _, q := range order[:i] {
				if q == queue {
					n++
				}
			}
			return n
		}
	}
	return 0
}

func TestPriorityHigherQueuesRunFirst(t *testing.T) {
	for name, prefetch := range map[string]int{"prefetch": 0, "no prefetch": -1} {
		for _, handler := range []time.Duration{10 * time.Microsecond, time.Millisecond, time.Second} {
			for _, concurrency := range []int{1, 4, 64} {
				t.Run(fmt.Sprintf("%s, %d handlers of %v", name, concurrency, handler), func(t *testing.T) {
					inBubble(t, func(t *testing.T, c *Client) {
						const n = 1000
						w := NewWorker(c, WorkerConfig{
							Concurrency: concurrency, MaxPrefetch: prefetch, StarvationLimit: -1, Queues: ranks,
						})
						var order log[string]
						for q := range ranks {
							backlog(t, c.Queue(q), n)
							w.Handle(q, func(ctx context.Context, m *Message) error {
								order.add(m.Queue)
								return sleep(ctx, handler)
							})
						}
						start(t, w)
						time.Sleep(3 * n * max(handler, time.Millisecond))
						all := order.list()
						if len(all) != 3*n {
							t.Fatalf("%d messages ran, want %d", len(all), 3*n)
						}
						// Until the first claims are back, the worker does not know which messages are due. The last
						// claims of a backlog are two at a time, and the first that finds no more ends the wait for the
						// other.
						most := 3*concurrency + 2
						for _, pair := range [][2]string{{"low", "high"}, {"lowest", "low"}} {
							if got := before(all, pair[0], pair[1], concurrency); got > most {
								t.Errorf("%d messages of %s ran before the last one of %s, want at most %d", got, pair[0], pair[1], most)
							}
						}
					})
				})
			}
		}
	}
}

// Handlers become free while a claim is under way.
func TestPriorityHoldsWhileTheHigherQueueFetchesItsBacklog(t *testing.T) {
	for _, handler := range []time.Duration{100 * time.Microsecond, time.Millisecond, 20 * time.Millisecond} {
		t.Run(fmt.Sprint("handlers of ", handler), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &faulty{Store: memstore.New()}
				c := newClientOn(t, f)
				const n = 500
				w := NewWorker(c, WorkerConfig{Concurrency: 8, StarvationLimit: -1, Queues: map[string]QueueConfig{
					"high": {Priority: 1},
				}})
				var order log[string]
				for _, q := range []string{"high", "low"} {
					backlog(t, c.Queue(q), n)
					w.Handle(q, func(ctx context.Context, m *Message) error {
						order.add(m.Queue)
						return sleep(ctx, handler)
					})
				}
				f.set(nil, func(_ context.Context, call string) error {
					if call == "claim" {
						time.Sleep(5 * time.Millisecond)
					}
					return nil
				})
				start(t, w)
				time.Sleep(time.Minute)
				if got := before(order.list(), "low", "high", 8); got > 16 {
					t.Errorf("%d low messages ran before the last high one; want those of the first claims, at most 16", got)
				}
				wantCounts(t, c.Queue("low"), 0, 0, 0, 0)
			})
		})
	}
}

func TestPriorityNewMessageOfAHigherQueueTakesTheNextHandler(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		w := NewWorker(c, WorkerConfig{Concurrency: 2, Queues: ranks, StarvationLimit: -1})
		var late log[time.Duration]
		for q := range ranks {
			w.Handle(q, func(ctx context.Context, m *Message) error {
				if q == "high" {
					late.add(m.Lateness)
				}
				return sleep(ctx, 100*time.Millisecond)
			})
		}
		backlog(t, c.Queue("low"), 1000)
		backlog(t, c.Queue("lowest"), 1000)
		start(t, w)
		for range 50 {
			time.Sleep(310 * time.Millisecond)
			mustSend(t, c.Queue("high"), "")
		}
		time.Sleep(time.Second)
		if got := late.list(); len(got) != 50 || slices.Max(got) > 100*time.Millisecond {
			t.Errorf("%d messages ran, up to %v late; want 50, at most as late as a handler runs", len(got), slices.Max(got))
		}
	})
}

func TestPriorityStarvationLimitGivesLowerQueuesATurn(t *testing.T) {
	for _, c := range []struct {
		handler, limit time.Duration
		prefetch       int
		fewest, most   int // messages of each lower priority in 20 s
	}{
		{5 * time.Millisecond, time.Second, 0, 9, 30}, // a prefetched message returns after a second, and waits again
		{5 * time.Millisecond, time.Second, -1, 18, 25},
		{time.Second, 4 * time.Second, -1, 4, 8},
		{5 * time.Millisecond, 0, -1, 3, 8}, // 5 s by default
		{5 * time.Millisecond, -1, -1, 0, 3},
	} {
		t.Run(fmt.Sprintf("%v, handlers of %v", c.limit, c.handler), func(t *testing.T) {
			inBubble(t, func(t *testing.T, client *Client) {
				var handled [3]atomic.Int32
				w := NewWorker(client, WorkerConfig{
					Concurrency: 2, StarvationLimit: c.limit, MaxPrefetch: c.prefetch, Queues: ranks,
				})
				for q, cfg := range ranks {
					backlog(t, client.Queue(q), 1000)
					w.Handle(q, func(ctx context.Context, m *Message) error {
						handled[1+cfg.Priority].Add(1)
						if q == "high" { // it never ends
							mustSend(t, client.Queue(q), "")
						}
						return sleep(ctx, c.handler)
					})
				}
				stop := start(t, w)
				time.Sleep(20*time.Second + time.Millisecond)
				if err := stop(); err != nil {
					t.Error(err)
				}
				for rank := range 2 {
					if n := int(handled[rank].Load()); n < c.fewest || n > c.most {
						t.Errorf("priority %d started %d messages in 20 s, want %d to %d", rank-1, n, c.fewest, c.most)
					}
				}
			})
		})
	}
}

func TestPriorityLeavesToLowerQueuesWhatTheHigherOneCannotUse(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		var high, low gauge
		w := NewWorker(c, WorkerConfig{
			Concurrency: 10, StarvationLimit: -1, Queues: map[string]QueueConfig{"high": {Priority: 1, Concurrency: 3}},
		})
		for q, g := range map[string]*gauge{"high": &high, "low": &low} {
			backlog(t, c.Queue(q), 1000)
			w.Handle(q, func(ctx context.Context, _ *Message) error {
				g.in()
				defer g.out()
				return sleep(ctx, time.Second)
			})
		}
		start(t, w)
		time.Sleep(30*time.Second + time.Millisecond)
		synctest.Wait()
		if high.now.Load() != 3 || low.now.Load() != 7 {
			t.Errorf("%d high and %d low handlers run, want 3 and 7", high.now.Load(), low.now.Load())
		}
	})
}

// An idle queue of a high priority, and one with few messages, must not slow the others down.
func TestPriorityOfAQueueWithFewMessagesCostsTheOthersLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		c := newClientOn(t, f)
		f.set(nil, func(_ context.Context, call string) error {
			if call == "claim" {
				time.Sleep(2 * time.Millisecond)
			}
			return nil
		})
		var low atomic.Int32
		w := NewWorker(c, WorkerConfig{Concurrency: 10, StarvationLimit: -1, Queues: ranks})
		w.Handle("lowest", ignore)
		w.Handle("high", func(ctx context.Context, _ *Message) error { return sleep(ctx, time.Millisecond) })
		w.Handle("low", func(ctx context.Context, _ *Message) error {
			low.Add(1)
			return sleep(ctx, 10*time.Millisecond)
		})
		backlog(t, c.Queue("low"), 10_000)
		start(t, w)
		for range 1000 { // for 5 s
			time.Sleep(5 * time.Millisecond)
			mustSend(t, c.Queue("high"), "")
		}
		if n := low.Load(); n < 3500 { // of 5000 with no other queue
			t.Errorf("%d low messages ran in 5 s next to 1000 high ones, want at least 3500", n)
		}
	})
}

func TestPriorityQueueWhoseClaimsFailDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFreezing()
		c := newClientOn(t, f)
		w := NewWorker(c, WorkerConfig{Concurrency: 2, Lease: 100 * time.Millisecond, StarvationLimit: -1, Queues: ranks})
		w.Handle("lowest", ignore)
		w.Handle("high", ignore)
		var low log[time.Duration]
		w.Handle("low", func(_ context.Context, m *Message) error { low.add(m.Lateness); return nil })
		backlog(t, c.Queue("high"), 1000)
		f.freeze(func(queue string) bool { return queue == "high" }) // claims fail after the lease
		start(t, w)
		for range 1000 {
			time.Sleep(10 * time.Millisecond)
			mustSend(t, c.Queue("low"), "")
		}
		time.Sleep(time.Second)
		if got := low.list(); len(got) != 1000 || slices.Max(got) > 500*time.Millisecond {
			t.Errorf("%d messages ran, up to %v late; want 1000, at most 0.5 s", len(got), slices.Max(got))
		}
		f.thaw()
		time.Sleep(time.Minute)
		wantCounts(t, c.Queue("high"), 0, 0, 0, 0)
	})
}

func TestPriorityOnRedis(t *testing.T) {
	server := redistest.Start(t)
	c, err := Open(t.Context(), server.URL(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const n = 1500
	w := NewWorker(c, WorkerConfig{Concurrency: 8, StarvationLimit: -1, Queues: ranks})
	var order log[string]
	handled := make(chan struct{}, 3*n)
	for q := range ranks {
		backlog(t, c.Queue(q), n)
		w.Handle(q, func(ctx context.Context, m *Message) error {
			order.add(m.Queue)
			_, err := c.Queue(m.Queue).Get(ctx, m.ID) // some work: a round trip
			handled <- struct{}{}
			return err
		})
	}
	stop := start(t, w)
	timeout := time.After(30 * time.Second)
	for range 3 * n {
		select {
		case <-handled:
		case <-timeout:
			t.Fatalf("%d messages ran, want %d", len(order.list()), 3*n)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	all := order.list()
	for _, pair := range [][2]string{{"low", "high"}, {"lowest", "low"}} {
		// See TestPriorityHigherQueuesRunFirst. In addition, the machine may hold up a claim.
		if got := before(all, pair[0], pair[1], 8); got > n/2 {
			t.Errorf("%d messages of %s ran before the last one of %s", got, pair[0], pair[1])
		}
	}
}
