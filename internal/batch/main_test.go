package batch

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/laterq/later/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var testConfig = Config{Timeout: 30 * time.Second, Closed: store.ErrClosed}

func wantError(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error is %v; want %v", err, want)
	}
}

// log records values of many goroutines.
type log[T any] struct {
	mu  sync.Mutex
	all []T
}

func (l *log[T]) add(v T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, v)
}

func (l *log[T]) list() []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]T(nil), l.all...)
}

// nothing is a batcher's call without cost, to measure the batcher itself.
func nothing(_ context.Context, items []int) ([]struct{}, error) {
	return make([]struct{}, len(items)), nil
}

func BenchmarkBatcher(b *testing.B) {
	batches := newBatcher(nothing, func(int) int { return 100 }, testConfig)
	defer batches.Close()
	ctx := b.Context()
	b.ReportAllocs()
	var left atomic.Int64
	left.Store(int64(b.N))
	var all sync.WaitGroup
	b.ResetTimer()
	for range 1000 {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				if _, err := batches.Do(ctx, 1); err != nil {
					b.Error(err)
				}
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "items/s")
}
