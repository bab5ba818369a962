//go:build unix

package diskstore

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laterq/later/store"
)

// BenchmarkSmallMessagesBesideLargeOnes measures how long small messages take through the socket while 100 senders of
// 1 MB keep the store busy: 100 a second, in a queue of their own, and in that of the large ones. It reports
// percentiles of a send, and of a send with its claim and ack.
func BenchmarkSmallMessagesBesideLargeOnes(b *testing.B) {
	for _, queue := range []string{"small", "large"} {
		b.Run("queue="+queue, func(b *testing.B) {
			dir := b.TempDir()
			share(b, dir)
			large, other := share(b, dir), share(b, dir)
			var stop atomic.Bool
			var crowd sync.WaitGroup
			var sent atomic.Int64
			payload := make([]byte, store.MaxPayload)
			for i := range 100 {
				crowd.Go(func() {
					for n := 0; !stop.Load(); n++ {
						m := plain(fmt.Sprintf("%d-%d", i, n))
						m.Payload = payload
						m.Due = store.Due{Delay: time.Hour}
						if _, err := large.Send(b.Context(), "large", []store.Outgoing{m}); err != nil {
							b.Error(err)
							return
						}
						sent.Add(1)
						if _, err := large.Cancel(b.Context(), "large", store.CancelRequest{IDs: []string{m.ID}}); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			defer crowd.Wait()
			defer stop.Store(true)
			var sends, rounds []time.Duration
			began := time.Now()
			next := began
			for i := range b.N {
				time.Sleep(time.Until(next)) // the rate
				next = next.Add(10 * time.Millisecond)
				start := time.Now()
				m := plain(fmt.Sprint(i))
				if _, err := other.Send(b.Context(), queue, []store.Outgoing{m}); err != nil {
					b.Fatal(err)
				}
				sends = append(sends, time.Since(start))
				c, err := other.Claim(b.Context(), queue, store.ClaimRequest{Max: 1, Lease: time.Minute})
				if err != nil || len(c.Messages) != 1 {
					b.Fatal(len(c.Messages), err)
				}
				ack := []store.Settlement{{Receipt: c.Messages[0].Receipt, Action: store.Ack}}
				if _, err := other.Settle(b.Context(), queue, ack); err != nil {
					b.Fatal(err)
				}
				rounds = append(rounds, time.Since(start))
			}
			for name, all := range map[string][]time.Duration{"send": sends, "send-claim-ack": rounds} {
				slices.Sort(all)
				b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, name+"-p50-ms")
				b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, name+"-p99-ms")
			}
			b.ReportMetric(float64(sent.Load())/time.Since(began).Seconds(), "MB/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}
