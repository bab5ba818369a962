package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/benchmark"
	"github.com/laterq/later/redisstore"
	"github.com/laterq/later/store"
)

// scripted makes single script calls.
type scripted interface {
	// send sends messages. A zero due time means at once.
	send(ctx context.Context, payloads [][]byte, due func() time.Time) error
	// claim claims n ready messages and returns a function that acks a range of them.
	claim(ctx context.Context, n int) (ack func(ctx context.Context, from, to int) error, err error)
}

// runScripts measures what sends, claims and acks cost Redis, depending on the size of a call and on the number of
// pieces in which a claim is acked, without a worker. The case is 10 times the size plus the number of pieces.
func runScripts(ctx context.Context, c *cell) error {
	var by scripted = bareScripts{c.server.rdb}
	pieces := []int{1} // bare acks cover the whole claim
	if c.subject.name != "ceiling" {
		s := redisstore.New(c.server.rdb)
		defer s.Close()
		by, pieces = laterScripts{s}, []int{1, 2, 4}
	}
	for _, batch := range []int{500, 100, 32} {
		for _, parts := range pieces {
			if err := c.server.rdb.FlushAll(ctx).Err(); err != nil {
				return err
			}
			values, err := c.scripts(ctx, by, c.plan.Drain/batch, batch, parts)
			if err != nil {
				return err
			}
			c.emit(10*batch+parts, measurement{Values: values})
		}
	}
	return nil
}

func (c *cell) scripts(ctx context.Context, by scripted, calls, batch, parts int) (map[string]float64, error) {
	n := calls * batch
	payloads := make([][]byte, batch)
	for i := range payloads {
		payloads[i] = benchmark.NewPayload(c.Size, i, time.Time{})
	}
	values := map[string]float64{sentCount: float64(n)}
	soon := func() time.Time { return time.Now().Add(10*time.Minute + rand.N(40*time.Minute)) }
	send := func(int) error { return by.send(ctx, payloads, soon) }
	if err := c.timed(ctx, calls, values, sendUS, sendCPU, send); err != nil {
		return nil, err
	}
	if err := c.server.rdb.FlushAll(ctx).Err(); err != nil {
		return nil, err
	}
	for range calls {
		if err := by.send(ctx, payloads, func() time.Time { return time.Time{} }); err != nil {
			return nil, err
		}
	}
	acks := make([]func(ctx context.Context, from, to int) error, calls)
	err := c.timed(ctx, calls, values, claimUS, claimCPU, func(i int) (err error) {
		acks[i], err = by.claim(ctx, batch)
		return err
	})
	if err != nil {
		return nil, err
	}
	err = c.timed(ctx, calls*parts, values, ackUS, ackCPU, func(i int) error {
		piece := i % parts
		return acks[i/parts](ctx, piece*batch/parts, (piece+1)*batch/parts)
	})
	for _, name := range []string{sendUS, sendCPU, claimUS, claimCPU} { // convert from per call to per message
		values[name] /= float64(batch)
	}
	for _, name := range []string{ackUS, ackCPU} {
		values[name] /= float64(batch) / float64(parts)
	}
	return values, err
}

type laterScripts struct{ store *redisstore.Store }

func (l laterScripts) send(ctx context.Context, payloads [][]byte, due func() time.Time) error {
	msgs := make([]store.Outgoing, len(payloads))
	for i, p := range payloads {
		msgs[i].Message = store.Message{ID: store.NewID(), Payload: p}
		msgs[i].Due.At = due()
	}
	_, err := l.store.Send(ctx, queueName, msgs)
	return err
}

func (l laterScripts) claim(ctx context.Context, n int) (func(context.Context, int, int) error, error) {
	claim, err := l.store.Claim(ctx, queueName, store.ClaimRequest{Max: n, Lease: time.Hour})
	if err == nil && len(claim.Messages) != n {
		err = fmt.Errorf("claimed %d messages of %d", len(claim.Messages), n)
	}
	return func(ctx context.Context, from, to int) error {
		acks := make([]store.Settlement, to-from)
		for i := range acks {
			acks[i] = store.Settlement{Receipt: claim.Messages[from+i].Receipt, Action: store.Ack}
		}
		_, err := l.store.Settle(ctx, queueName, acks)
		return err
	}, err
}

type bareScripts struct{ rdb *redis.Client }

func (b bareScripts) send(ctx context.Context, payloads [][]byte, due func() time.Time) error {
	args := make([]any, 0, 3*len(payloads))
	for _, p := range payloads {
		args = append(args, bareDue(due()), store.NewID(), p)
	}
	return bareSend.Run(ctx, b.rdb, bareKeys, args...).Err()
}

func (b bareScripts) claim(ctx context.Context, n int) (func(context.Context, int, int) error, error) {
	lease := store.NewID()
	reply, err := bareClaim.Run(ctx, b.rdb, bareKeys, n, lease).Slice()
	if err != nil {
		return nil, err
	}
	if len(reply) != 2 {
		return nil, fmt.Errorf("claimed no message of %d", n)
	}
	args := append([]any{lease}, reply[0].([]any)...)
	return func(ctx context.Context, _, _ int) error {
		acked, err := bareAck.Run(ctx, b.rdb, bareKeys, args...).Int()
		if err == nil && acked != n {
			err = fmt.Errorf("acked %d messages of %d", acked, n)
		}
		return err
	}, nil
}
