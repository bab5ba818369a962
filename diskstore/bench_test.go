package diskstore

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"strings"
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

// noise is the source of payloads that do not compress.
var noise = func() []byte {
	b := make([]byte, 1<<20)
	rand.NewChaCha8([32]byte{}).Read(b)
	return b
}()

func outgoing(n int, due store.Due) []store.Outgoing {
	msgs := make([]store.Outgoing, n)
	for i := range msgs {
		at := rand.IntN(len(noise) - 100)
		msgs[i] = store.Outgoing{Message: store.Message{ID: store.NewID(), Payload: noise[at : at+100]}, Due: due}
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
	cases := []struct{ workers, batch, ack, pending int }{
		{1, 500, 500, 0}, {4, 500, 500, 0}, {32, 32, 32, 0}, {32, 32, 1, 0}, {4, 500, 500, 1_000_000},
	}
	if os.Getenv("LATER_LONG") != "" {
		cases = append(cases, struct{ workers, batch, ack, pending int }{32, 32, 1, 5_000_000})
	}
	for _, c := range cases {
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

// BenchmarkPending measures the cost of a full queue: b.N messages pending, due within the hour.
// Run it with -benchtime 10000000x.
func BenchmarkPending(b *testing.B) {
	dir := b.TempDir()
	s, err := Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	for sent := 0; sent < b.N; sent += store.MaxBatch {
		msgs := outgoing(store.MaxBatch, store.Due{})
		for i := range msgs {
			msgs[i].Due.Delay = time.Duration(rand.Int64N(int64(time.Hour)))
		}
		if _, err := s.Send(b.Context(), "q", msgs); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
	b.ReportMetric(residentMiB(b), "MiB-sent")
	if err := s.db.Compact(b.Context(), []byte{0}, []byte{0xff}, true); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(s.db.Metrics().DiskSpaceUsage())/(1<<20), "MiB-disk")
	s.Close()
	debug.FreeOSMemory()
	begin := time.Now()
	if s, err = Open(dir); err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	b.ReportMetric(time.Since(begin).Seconds()*1000, "ms-open")
	fill(b, s, 10_000)
	begin = time.Now()
	const claims = 100
	for range claims {
		if _, err := s.Claim(b.Context(), "q", store.ClaimRequest{Max: 100, Lease: time.Minute}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(time.Since(begin).Seconds()*1000/claims, "ms-claim")
	for name, within := range map[string]time.Duration{"ms-histogram-1h": time.Hour, "ms-histogram-1m": time.Minute} {
		var took []float64
		for range 10 {
			begin = time.Now()
			bounds := store.HistogramBounds(begin, begin.Add(within), store.MaxBuckets)
			if _, err := s.Histogram(b.Context(), "q", bounds); err != nil {
				b.Fatal(err)
			}
			took = append(took, time.Since(begin).Seconds()*1000)
		}
		b.ReportMetric(slices.Max(took), name+"-max")
		b.ReportMetric(slices.Min(took), name+"-min")
	}
	b.ReportMetric(residentMiB(b), "MiB-open")
}

// residentMiB returns the resident memory of the process in MiB, as /proc shows it.
func residentMiB(b *testing.B) float64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Skip(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	var kib float64
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		b.Fatal(err)
	}
	return kib / 1024
}

// BenchmarkLateness waits for messages as a worker does and reports how late they came. One op is one message, 500 a
// second.
func BenchmarkLateness(b *testing.B) {
	s := benchStore(b)
	begin := time.Now().Add(time.Second)
	msgs := outgoing(b.N, store.Due{})
	for i := range msgs {
		msgs[i].Due.At = begin.Add(time.Duration(i) * 2 * time.Millisecond)
	}
	for batch := range slices.Chunk(msgs, store.MaxBatch) {
		if _, err := s.Send(b.Context(), "q", batch); err != nil {
			b.Fatal(err)
		}
	}
	var late []time.Duration
	for len(late) < b.N {
		c, err := s.Claim(b.Context(), "q", store.ClaimRequest{Max: 100, Lease: time.Minute})
		if err != nil {
			b.Fatal(err)
		}
		for _, m := range c.Messages {
			late = append(late, time.Since(m.Due))
		}
		if len(c.Messages) == 0 {
			if err := s.Wait(b.Context(), "q"); err != nil {
				b.Fatal(err)
			}
		}
	}
	slices.Sort(late)
	b.ReportMetric(float64(late[0].Microseconds()), "us-min")
	b.ReportMetric(float64(late[len(late)/2].Microseconds()), "us-p50")
	b.ReportMetric(float64(late[len(late)*99/100].Microseconds()), "us-p99")
}
