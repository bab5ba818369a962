package later

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/laterq/later/store"
)

func TestWorkersHandleEachMessageOnceWhileNumbersOfShardsChange(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		var mu sync.Mutex
		handled := map[string]int{}
		stop := startsWorker(t, c, func(_ context.Context, m *Message) error {
			time.Sleep(rand.N(2 * time.Second))
			mu.Lock()
			defer mu.Unlock()
			handled[string(m.Payload)]++
			return nil
		})
		sent := 0
		for _, n := range []int{3, 5, 2, 1, 16, 64, 1} {
			for range 100 {
				var msgs []Outgoing
				for range 10 {
					m := Outgoing{Payload: fmt.Append(nil, sent), When: In(rand.N(20 * time.Minute))}
					msgs = append(msgs, m)
					sent++
				}
				if _, err := q.SendBatch(t.Context(), msgs); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
			}
			if err := store.SetShards(t.Context(), c.store, "q", n); err != nil {
				t.Fatal(err)
			}
			time.Sleep(9 * time.Minute)
			shards, err := store.ShardsOf(t.Context(), c.store, "q")
			if err != nil || shards.Number != n || !shards.Since.IsZero() {
				t.Errorf("%d shards: %+v, %v", n, shards, err)
			}
		}
		time.Sleep(30 * time.Minute)
		stop()
		if len(handled) != sent {
			t.Errorf("%d of %d messages were handled", len(handled), sent)
		}
		for m, n := range handled {
			if n != 1 {
				t.Errorf("message %s was handled %d times", m, n)
			}
		}
		stats, err := c.store.Stats(t.Context(), "q")
		if err != nil || stats.Ready+stats.Scheduled+stats.Leased+stats.Dead > 0 {
			t.Errorf("%+v, %v", stats, err)
		}
	})
}

func startsWorker(t *testing.T, c *Client, h HandlerFunc) (stop func()) {
	w := NewWorker(c, WorkerConfig{Concurrency: 20})
	w.Handle("q", h)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	}
}
