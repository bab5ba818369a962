package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// BenchmarkTurns measures claims and acks of up to 500 messages in a queue in which keys take turns: µs of the server
// for each message, sorting included, like BenchmarkScripts.
//
//	go test ./redisstore -run '^$' -bench Turns -benchtime 20x
func BenchmarkTurns(b *testing.B) {
	rdb := redistest.Start(b).Client(b)
	if err := rdb.ConfigSet(b.Context(), "appendonly", "no").Err(); err != nil {
		b.Fatal(err)
	}
	x := &scriptBench{newWith(b, production(), rdb), rdb}
	rate := store.Rate{N: 1_000_000, Per: time.Second, Burst: 1_000_000}
	for name, f := range map[string]store.Flow{
		"plain": {}, "concurrency": {Concurrency: 1_000_000}, "turns": {Fair: true},
		"limits of keys": {Key: store.KeyFlow{Concurrency: 1_000_000, Rate: rate}},
	} {
		for _, keys := range []int{20, 1000} {
			b.Run(fmt.Sprintf("%s, %d keys", name, keys), func(b *testing.B) {
				queue := fmt.Sprintf("turns-%s-%d-%d", name, keys, b.N)
				if err := x.s.SetFlow(b.Context(), queue, f, nil); err != nil {
					b.Fatal(err)
				}
				x.drain(b, queue, keys)
			})
		}
	}
}

// drain sends, claims and acks b.N times 1,000 messages.
func (x *scriptBench) drain(b *testing.B, queue string, keys int) {
	var claims, acks float64
	for range b.N {
		for part := range 2 {
			var msgs []store.Outgoing
			for i := range store.MaxBatch {
				m := store.Message{ID: store.NewID(), Key: fmt.Sprintf("customer-%d", (part*store.MaxBatch+i)%keys),
					Payload: make([]byte, 100)}
				msgs = append(msgs, store.Outgoing{Message: m})
			}
			if _, err := x.s.Send(b.Context(), queue, msgs); err != nil {
				b.Fatal(err)
			}
		}
		for left := 2 * store.MaxBatch; left > 0; {
			from := x.scriptMicros(b)
			c, err := x.s.Claim(b.Context(), queue, store.ClaimRequest{Max: store.MaxBatch, Lease: time.Hour})
			claims += x.scriptMicros(b) - from
			if err != nil {
				b.Fatal(err)
			}
			var settlements []store.Settlement
			for _, m := range c.Messages {
				settlements = append(settlements, store.Settlement{Receipt: m.Receipt, Action: store.Ack})
			}
			if left -= len(settlements); len(settlements) == 0 {
				continue
			}
			from = x.scriptMicros(b)
			if _, err := x.s.Settle(b.Context(), queue, settlements); err != nil {
				b.Fatal(err)
			}
			acks += x.scriptMicros(b) - from
		}
	}
	n := float64(b.N * 2 * store.MaxBatch)
	b.ReportMetric(claims/n, "claim-µs/message")
	b.ReportMetric(acks/n, "ack-µs/message")
}
