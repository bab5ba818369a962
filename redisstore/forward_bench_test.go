package redisstore

import (
	"fmt"
	"testing"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// BenchmarkForward moves messages of 100 bytes in calls of 500 and reports messages a second. A worker's moves are
// compared with a bare script by the benchmark of the same name in internal/benchmark.
func BenchmarkForward(b *testing.B) {
	rdb := redistest.Start(b).Client(b)
	report := func(b *testing.B) { b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s") }
	payload := func(i int) []byte { return fmt.Appendf(nil, "%0100d", i) }
	for _, kind := range []store.TargetKind{store.TargetList, store.TargetStream, store.TargetChannel,
		store.TargetQueue} {
		b.Run(string(kind), func(b *testing.B) {
			ctx := b.Context()
			rdb.FlushAll(ctx)
			s := newStore(b, rdb)
			for i := 0; i < b.N; i += 500 {
				var msgs []store.Outgoing
				for k := i; k < min(i+500, b.N); k++ {
					msgs = append(msgs, store.Outgoing{Message: store.Message{ID: store.NewID(), Payload: payload(k)}})
				}
				if _, err := s.Send(ctx, "q", msgs); err != nil {
					b.Fatal(err)
				}
			}
			b.ResetTimer()
			to := store.Target{Kind: kind, Name: "to"}
			for moved := 0; moved < b.N; {
				f, err := s.Forward(ctx, "q", store.ForwardRequest{To: to, Max: store.MaxBatch})
				if err != nil || f.Count == 0 {
					b.Fatal(f, err)
				}
				moved += f.Count
			}
			report(b)
		})
	}
}
