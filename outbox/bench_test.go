package outbox

import (
	"fmt"
	"testing"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
)

// BenchmarkRelay moves rows of 100 bytes to Redis.
func BenchmarkRelay(b *testing.B) {
	server := redistest.Start(b)
	for _, k := range kinds {
		for _, relays := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/relays=%d", k.name, relays), func(b *testing.B) {
				box, db := k.newBox(b)
				client := open(b, server.URL())
				for left := b.N; left > 0; left -= 5000 {
					commit(b, box, db, b.Name(), payloads(min(left, 5000))...)
				}
				b.ResetTimer()
				ended := make(chan error, relays)
				for range relays {
					go func() { ended <- box.Relay(db, client, RelayConfig{Logger: quiet}).Flush(b.Context()) }()
				}
				for range relays {
					if err := <-ended; err != nil {
						b.Error(err)
					}
				}
				b.StopTimer()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
				wantRows(b, box, db, 0)
				if s, err := client.Queue(b.Name()).Stats(b.Context()); err != nil || s.Scheduled+s.Ready != int64(b.N) {
					b.Errorf("queue has %d messages, %v; want %d", s.Scheduled+s.Ready, err, b.N)
				}
				if err := client.Queue(b.Name()).Delete(b.Context()); err != nil {
					b.Error(err)
				}
			})
		}
	}
}

// BenchmarkSend writes rows, 100 in a transaction.
func BenchmarkSend(b *testing.B) {
	for _, k := range kinds {
		b.Run(k.name, func(b *testing.B) {
			box, db := k.newBox(b)
			for left := b.N; left > 0; left -= 100 {
				commit(b, box, db, "q", payloads(min(left, 100))...)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

func payloads(n int) []later.Outgoing {
	msgs := make([]later.Outgoing, n)
	for i := range msgs {
		msgs[i].Payload = fmt.Appendf(nil, `{"order": %d, "customer": "c-4711", "note": "%060d"}`, 100_000+i, i)
	}
	return msgs
}
