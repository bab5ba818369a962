package later

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// TestWorkerLosesNothingUnderRandomFaults runs random workers with random handlers on random messages. The
// store sometimes fails before or after a call takes effect, and workers are paused and replaced. In the
// end every message must have been handled, and never by two handlers with a live context at once.
func TestWorkerLosesNothingUnderRandomFaults(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newChaos(t, seed).run() })
		})
	}
}

type chaos struct {
	t      *testing.T
	store  *faulty
	client *Client
	queues []string
	sent   int

	mu      sync.Mutex
	random  *rand.Rand
	running map[string]context.Context // contexts of the running handlers, by message
	done    map[string]bool
}

func newChaos(t *testing.T, seed uint64) *chaos {
	f := &faulty{Store: memstore.New()}
	c := &chaos{
		t: t, store: f, client: newClientOn(t, f),
		random: rand.New(rand.NewPCG(seed, 0)), running: map[string]context.Context{}, done: map[string]bool{},
	}
	for i := range 1 + c.below(4) {
		c.queues = append(c.queues, fmt.Sprint("q", i))
	}
	return c
}

func (c *chaos) below(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.random.IntN(n)
}

func (c *chaos) upTo(d time.Duration) time.Duration { return time.Duration(c.below(int(d))) }

func (c *chaos) run() {
	for _, name := range c.queues {
		msgs := make([]Outgoing, c.below(800))
		for i := range msgs {
			msgs[i] = Outgoing{ID: fmt.Sprint(name, "-", i), MaxAttempts: store.MaxAttempts}
			if c.below(2) == 0 {
				msgs[i].When = In(c.upTo(10 * time.Second))
			}
		}
		if _, err := c.client.Queue(name).SendBatch(c.t.Context(), msgs); err != nil {
			c.t.Fatal(err)
		}
		c.sent += len(msgs)
	}
	for range 4 {
		c.workForAWhile(10 * time.Second)
	}
	c.store.set(nil, nil)
	c.workForAWhile(10 * time.Minute)
	if c.handled() != c.sent {
		c.t.Errorf("%d of %d messages were handled", c.handled(), c.sent)
	}
	for _, name := range c.queues {
		wantCounts(c.t, c.client.Queue(name), 0, 0, 0, 0)
	}
}

func (c *chaos) handled() (n int) {
	for _, done := range c.done {
		if done {
			n++
		}
	}
	return n
}

// workForAWhile runs one or two workers for d, with pauses and outages.
func (c *chaos) workForAWhile(d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	var workers sync.WaitGroup
	for range 1 + c.below(2) {
		w := c.newWorker()
		workers.Go(func() {
			if err := w.Run(ctx); err != nil && !errors.Is(err, ErrUnavailable) {
				c.t.Error(err)
			}
		})
		workers.Go(func() {
			for ctx.Err() == nil && d < time.Minute {
				sleep(ctx, c.upTo(3*time.Second))
				w.Pause()
				sleep(ctx, c.upTo(time.Second))
				w.Resume()
			}
		})
	}
	if d < time.Minute {
		fail := func(context.Context, string) error {
			if c.below(20) == 0 {
				return store.ErrUnavailable
			}
			return nil
		}
		c.store.set(fail, fail)
	}
	workers.Wait()
}

func (c *chaos) newWorker() *Worker {
	cfg := WorkerConfig{
		Concurrency:     1 + c.below(6),
		Lease:           500*time.Millisecond + c.upTo(3*time.Second),
		MaxPrefetch:     []int{-1, 0, 5}[c.below(3)],
		ShutdownTimeout: c.upTo(2*time.Second) - time.Millisecond,
		Backoff:         ConstantBackoff(c.upTo(time.Second)),
		Queues:          map[string]QueueConfig{},
	}
	for _, name := range c.queues {
		cfg.Queues[name] = QueueConfig{Concurrency: c.below(4), Weight: c.below(10)}
	}
	w := NewWorker(c.client, cfg)
	for _, name := range c.queues {
		w.Handle(name, c.handle)
	}
	return w
}

func (c *chaos) handle(ctx context.Context, m *Message) error {
	c.mu.Lock()
	if other := c.running[m.ID]; other != nil && other.Err() == nil {
		c.t.Errorf("message %s has two handlers at once", m.ID)
	}
	c.running[m.ID] = ctx
	c.mu.Unlock()
	done := false
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.running[m.ID] == ctx {
			delete(c.running, m.ID)
		}
		c.done[m.ID] = c.done[m.ID] || done
	}()
	err := c.handling(ctx)
	done = err == nil
	return err
}

func (c *chaos) handling(ctx context.Context) error {
	switch n := c.below(1000); {
	case n < 700:
		return nil
	case n < 960:
		return sleep(ctx, c.upTo(10*time.Millisecond))
	case n < 965:
		return sleep(ctx, c.upTo(4*time.Second))
	case n < 980:
		return errors.New("failed")
	case n < 990:
		return Snooze(c.upTo(time.Second))
	}
	panic("panicked")
}
