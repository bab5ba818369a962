package redisstore

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// BenchmarkFollowUps reports how long the server takes for one ack of messages with follow-ups in queues.
func BenchmarkFollowUps(b *testing.B) {
	rdb := redistest.Start(b).Client(b)
	for _, c := range []struct{ msgs, queues, size int }{
		{1, 1, 100}, {1, 64, 100}, {7, 64, 100}, {500, 1, 100}, {50, 10, 100}, {1, 64, 24000}, {7, 64, 4600},
		{500, 1, 4100},
	} {
		b.Run(fmt.Sprintf("messages=%d/queues=%d/bytes=%d", c.msgs, c.queues, c.size), func(b *testing.B) {
			ctx := b.Context()
			rdb.FlushAll(ctx)
			s := newStore(b, rdb)
			payload := make([]byte, c.size)
			var usec, calls []int
			for range b.N {
				var msgs []store.Outgoing
				for range c.msgs {
					msgs = append(msgs, store.Outgoing{Message: store.Message{ID: store.NewID(), Payload: payload}})
				}
				if _, err := s.Send(ctx, "q", msgs); err != nil {
					b.Fatal(err)
				}
				claim, err := s.Claim(ctx, "q", store.ClaimRequest{Max: store.MaxBatch, Lease: time.Minute})
				if err != nil {
					b.Fatal(err)
				}
				var all []store.Settlement
				for _, m := range claim.Messages {
					st := store.Settlement{Receipt: m.Receipt, Action: store.Ack}
					for q := range c.queues {
						st.Then = append(st.Then, store.FollowUp{Queue: fmt.Sprint("to", q),
							Message: store.Outgoing{Message: m.Message, Due: store.Due{At: m.Due}}})
					}
					all = append(all, st)
				}
				rdb.ConfigResetStat(ctx)
				if _, err := s.Settle(ctx, "q", all); err != nil {
					b.Fatal(err)
				}
				found := regexp.MustCompile(`cmdstat_evalsha:calls=(\d+),usec=(\d+)`).FindStringSubmatch(
					rdb.Info(ctx, "commandstats").Val())
				n, _ := strconv.Atoi(found[1])
				took, _ := strconv.Atoi(found[2])
				usec, calls = append(usec, took/n), append(calls, n)
			}
			slices.Sort(usec)
			b.ReportMetric(float64(usec[len(usec)/2]), "server-µs/call")
			b.ReportMetric(float64(usec[0]), "min-µs/call")
			b.ReportMetric(float64(calls[0]), "calls")
		})
	}
}
