package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/laterq/later/redisstore"
	"github.com/laterq/later/store"
)

// scriptsRound measures what claims and acks cost Redis by the size of a claim and by how many pieces its acks
// come in, without a worker around them.
func scriptsRound(ctx context.Context, b *bench) {
	payload := []byte(strings.Repeat("x", b.size))
	for _, batch := range []int{500, 100, 32} {
		for _, parts := range []int{1, 2, 4} {
			b.empty(ctx)
			s := redisstore.New(b.rdb)
			n := b.n / batch * batch
			for sent := 0; sent < n; {
				msgs := make([]store.Outgoing, min(store.MaxBatch, n-sent))
				for i := range msgs {
					msgs[i].Message = store.Message{ID: store.NewID(), Payload: payload}
				}
				_, err := s.Send(ctx, queueName, msgs)
				check(err)
				sent += len(msgs)
			}
			start := b.cpu(ctx)
			claims := make([]store.Claim, n/batch)
			for i := range claims {
				var err error
				claims[i], err = s.Claim(ctx, queueName, store.ClaimRequest{Max: batch, Lease: time.Hour})
				check(err)
			}
			claimed := b.cpu(ctx)
			for _, c := range claims {
				for p := range parts {
					part := c.Messages[p*batch/parts : (p+1)*batch/parts]
					acks := make([]store.Settlement, len(part))
					for i := range part {
						acks[i] = store.Settlement{Receipt: part[i].Receipt, Action: store.Ack}
					}
					_, err := s.Settle(ctx, queueName, acks)
					check(err)
				}
			}
			workload := fmt.Sprintf("claims of %d, acked in %d", batch, parts)
			b.report.add(workload, "claim", "µs Redis CPU a message", float64((claimed-start).Microseconds())/float64(n))
			b.report.add(workload, "ack", "µs Redis CPU a message", float64((b.cpu(ctx)-claimed).Microseconds())/float64(n))
			check(s.Close())
		}
	}
}
