package main

import (
	"context"
	"time"

	"github.com/laterq/later/internal/benchmark"
	"github.com/laterq/later/redisstore"
	"github.com/laterq/later/store"
)

// runScripts measures what claims and acks cost Redis by the size of a claim and by how many pieces its acks come
// in, without a worker around them. The case is 10 times the size plus the pieces.
func runScripts(ctx context.Context, c *cell) error {
	for _, batch := range []int{500, 100, 32} {
		for _, parts := range []int{1, 2, 4} {
			if err := c.server.rdb.FlushAll(ctx).Err(); err != nil {
				return err
			}
			values, err := c.scripts(ctx, c.plan.Drain/batch, batch, parts)
			if err != nil {
				return err
			}
			c.emit(10*batch+parts, measurement{Values: values})
		}
	}
	return nil
}

func (c *cell) scripts(ctx context.Context, claims, batch, parts int) (map[string]float64, error) {
	s := redisstore.New(c.server.rdb)
	defer s.Close()
	n := claims * batch
	for sent := 0; sent < n; {
		msgs := make([]store.Outgoing, min(store.MaxBatch, n-sent))
		for i := range msgs {
			msgs[i].Message = store.Message{ID: store.NewID(), Payload: benchmark.NewPayload(c.Size, i, time.Time{})}
		}
		if _, err := s.Send(ctx, queueName, msgs); err != nil {
			return nil, err
		}
		sent += len(msgs)
	}
	values := map[string]float64{sentCount: float64(n)}
	held := make([]store.Claim, claims)
	err := c.timed(ctx, claims, values, claimUS, claimCPU, func(i int) (err error) {
		held[i], err = s.Claim(ctx, queueName, store.ClaimRequest{Max: batch, Lease: time.Hour})
		return err
	})
	if err != nil {
		return nil, err
	}
	err = c.timed(ctx, claims*parts, values, ackUS, ackCPU, func(i int) error {
		msgs := held[i/parts].Messages
		piece := i % parts
		part := msgs[piece*batch/parts : (piece+1)*batch/parts]
		acks := make([]store.Settlement, len(part))
		for i := range part {
			acks[i] = store.Settlement{Receipt: part[i].Receipt, Action: store.Ack}
		}
		_, err := s.Settle(ctx, queueName, acks)
		return err
	})
	for _, name := range []string{claimUS, claimCPU} { // of calls, to of messages
		values[name] /= float64(batch)
	}
	for _, name := range []string{ackUS, ackCPU} {
		values[name] /= float64(batch) / float64(parts)
	}
	return values, err
}
