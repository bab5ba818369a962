package later

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

func BenchmarkSend(b *testing.B) {
	c := mustNew(b, memstore.New())
	defer c.Close()
	payload := make([]byte, 100)
	q, ctx := c.Queue("bench"), b.Context()
	inParallel(b, 1000, func() {
		if _, err := q.Send(ctx, payload); err != nil {
			b.Error(err)
		}
	})
}

func BenchmarkSendAlone(b *testing.B) {
	c := mustNew(b, memstore.New())
	defer c.Close()
	payload := make([]byte, 100)
	q, ctx := c.Queue("bench"), b.Context()
	inParallel(b, 1, func() {
		if _, err := q.Send(ctx, payload); err != nil {
			b.Error(err)
		}
	})
}

// inParallel calls f b.N times from the given number of goroutines.
func inParallel(b *testing.B, goroutines int, f func()) {
	b.ReportAllocs()
	var left atomic.Int64
	left.Store(int64(b.N))
	var all sync.WaitGroup
	b.ResetTimer()
	for range goroutines {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				f()
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "items/s")
}

// instant is a store that always has messages and settles them at once, to measure the worker itself.
type instant struct {
	store.Store
	left atomic.Int64
	done chan struct{}
}

func (s *instant) Claim(_ context.Context, _ string, req store.ClaimRequest) (store.Claim, error) {
	msgs := make([]store.Claimed, req.Max)
	for i := range msgs {
		msgs[i] = store.Claimed{Message: store.Message{ID: "id"}, Attempt: 1}
	}
	return store.Claim{Messages: msgs, More: true}, nil
}

func (s *instant) Settle(_ context.Context, _ string, items []store.Settlement) ([]store.SettleResult, error) {
	if left := s.left.Add(-int64(len(items))); left <= 0 && left+int64(len(items)) > 0 {
		close(s.done)
	}
	return make([]store.SettleResult, len(items)), nil
}

func BenchmarkWorker(b *testing.B) {
	s := &instant{Store: memstore.New(), done: make(chan struct{})}
	s.left.Store(int64(b.N))
	c := mustNew(b, s)
	w := NewWorker(c, WorkerConfig{Unlisted: true, Concurrency: 32})
	w.Handle("bench", func(context.Context, *Message) error { return nil })
	ctx, cancel := context.WithCancel(b.Context())
	b.ReportAllocs()
	b.ResetTimer()
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.Run(ctx); err != nil {
			b.Error(err)
		}
	})
	<-s.done
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "items/s")
	cancel()
	running.Wait()
	c.Close()
}
