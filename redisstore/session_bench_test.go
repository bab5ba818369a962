package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// BenchmarkSessionMemory measures the memory of the server for the sessions of a queue, while it is used and when it is
// idle.
func BenchmarkSessionMemory(b *testing.B) {
	rdb := redistest.Shared(b).Client(b)
	const sessions, queues = 1000, 100
	ids := make([]string, store.MaxBatch)
	for i := range ids {
		ids[i] = fmt.Sprint("unknown", i)
	}
	for b.Loop() {
		for i := range sessions {
			s := newStore(b, rdb)
			for q := range queues {
				if i%10 > 0 && q > 0 {
					continue // one queue has 1,000 sessions, the others 100
				}
				queue := fmt.Sprint("memory", q)
				if i == 0 {
					send(b, s, queue, "m", store.Due{Delay: time.Hour})
				}
				if _, err := s.Cancel(b.Context(), queue, store.CancelRequest{IDs: ids[:20]}); err != nil {
					b.Fatal(err)
				}
			}
			s.Close()
		}
	}
	usage := func(q int) (used int64, ends time.Duration) {
		prefix := fmt.Sprintf("later:{memory%d}:", q)
		for _, key := range []string{"sessions", "old_sessions", "meta"} {
			used += rdb.MemoryUsage(b.Context(), prefix+key, 0).Val()
		}
		return used, rdb.PTTL(b.Context(), prefix+"sessions").Val()
	}
	all, ends := usage(0)
	few, _ := usage(1)
	b.ReportMetric(float64(all)/sessions, "B/session_of_1000")
	b.ReportMetric(float64(few)/100, "B/session_of_100")
	b.ReportMetric(ends.Minutes(), "min_kept_idle")
}
