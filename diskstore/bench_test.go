package diskstore

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laterq/later/store"
)

// Benchmarks run on the disk of the temporary directory, with an fsync before every reply, 100-byte payloads.
// TMPDIR says which disk; one op is one message.

func benchStore(b *testing.B, opts ...Option) *Store {
	s, err := Open(b.TempDir(), opts...)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return s
}

var benchPayload = make([]byte, 100)

func outgoing(n int, due store.Due) []store.Outgoing {
	msgs := make([]store.Outgoing, n)
	for i := range msgs {
		msgs[i] = store.Outgoing{Message: store.Message{ID: store.NewID(), Payload: benchPayload}, Due: due}
	}
	return msgs
}

// parallel runs do by a number of goroutines until total messages are done; do returns how many it did.
func parallel(b *testing.B, goroutines, total int, do func() int) {
	var done atomic.Int64
	var group sync.WaitGroup
	for range goroutines {
		group.Go(func() {
			for done.Load() < int64(total) && !b.Failed() {
				done.Add(int64(do()))
			}
		})
	}
	group.Wait()
	b.ReportMetric(float64(done.Load())/b.Elapsed().Seconds(), "msg/s")
}

func BenchmarkSend(b *testing.B) {
	for _, c := range []struct{ goroutines, batch int }{{1, 1}, {32, 1}, {1000, 1}, {1, 500}, {4, 500}} {
		b.Run(fmt.Sprintf("goroutines=%d/batch=%d", c.goroutines, c.batch), func(b *testing.B) {
			s := benchStore(b)
			b.ResetTimer()
			parallel(b, c.goroutines, b.N, func() int {
				if _, err := s.Send(b.Context(), "q", outgoing(c.batch, store.Due{Delay: time.Hour})); err != nil {
					b.Error(err)
				}
				return c.batch
			})
		})
	}
}

// fill sends messages that are due now.
func fill(b *testing.B, s *Store, n int) {
	for ; n > 0; n -= store.MaxBatch {
		if _, err := s.Send(b.Context(), "q", outgoing(store.MaxBatch, store.Due{})); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDrain claims in batches and acks: a whole batch at once, or each message by itself from 32 goroutines
// as workers do.
func BenchmarkDrain(b *testing.B) {
	for _, c := range []struct{ workers, batch, ack, pending int }{
		{1, 500, 500, 0}, {4, 500, 500, 0}, {32, 32, 32, 0}, {32, 32, 1, 0}, {4, 500, 500, 1_000_000},
	} {
		b.Run(fmt.Sprintf("workers=%d/claim=%d/ack=%d/pending=%d", c.workers, c.batch, c.ack, c.pending), func(b *testing.B) {
			s := benchStore(b)
			fill(b, s, b.N+c.pending)
			b.ResetTimer()
			parallel(b, c.workers, b.N, func() int { return drain(b, s, c.batch, c.ack) })
		})
	}
}

func drain(b *testing.B, s *Store, batch, ack int) int {
	c, err := s.Claim(b.Context(), "q", store.ClaimRequest{Max: batch, Lease: time.Minute})
	if err != nil {
		b.Error(err)
		return 0
	}
	var group sync.WaitGroup
	settlements := make([]store.Settlement, len(c.Messages))
	for i, m := range c.Messages {
		settlements[i] = store.Settlement{Receipt: m.Receipt, Action: store.Ack}
	}
	for from := 0; from < len(settlements); from += ack {
		part := settlements[from:min(from+ack, len(settlements))]
		group.Go(func() {
			if _, err := s.Settle(b.Context(), "q", part); err != nil {
				b.Error(err)
			}
		})
	}
	group.Wait()
	return max(1, len(c.Messages))
}
