package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/laterq/later/internal/benchmark"
	"github.com/laterq/later/internal/redistest"
)

// claimer is a queue with messages that are claimed and acked one by one, in calls of their own.
type claimer interface {
	Claim(ctx context.Context) (ack func(ctx context.Context) error, err error)
}

// runInstructions counts the instructions that a Redis executes for a call of one message, made by a single sender or
// receiver with a context that can be cancelled. The count includes reading the call and writing the reply. It hardly
// depends on the machine and its load, unlike the time.
func runInstructions(ctx context.Context, c *cell) error {
	if err := redistest.CannotCount(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx) // calls with such a context take another path than ones without an end
	defer cancel()
	q, n := c.Load.(benchmark.Local).Queue, c.plan.Instructions
	v := benchmark.Values{}
	send := func(delay func() time.Duration) func(int) error {
		return func(i int) error {
			due := time.Now().Add(delay())
			_, err := q.Send(ctx, benchmark.NewPayload(c.plan.Size, i, due), due)
			return err
		}
	}
	after := func(d time.Duration) func() time.Duration { return func() time.Duration { return d } }
	hours := func() time.Duration { return time.Hour + rand.N(47*time.Hour) }
	if err := repeat(n, send(after(30*time.Minute))); err != nil { // the scripts are loaded and the queue exists
		return err
	}
	count := func(value string, call func(int) error) error {
		kIr, err := c.server.run.Instructions(ctx, func() error { return repeat(n, call) })
		v[value] = kIr / float64(n)
		return err
	}
	err := errors.Join(count(benchmark.NearKIr, send(after(30*time.Minute))),
		count(benchmark.FarKIr, send(after(24*time.Hour))), count(benchmark.SpreadKIr, send(hours)))
	if err != nil {
		return err
	}
	if one, ok := q.(claimer); ok {
		err = countClaims(ctx, one, n, send(after(0)), count)
	} else {
		if err = repeat(n, send(after(-time.Second))); err == nil {
			err = count(benchmark.HandleKIr, workOnce(ctx, q, n))
		}
	}
	if one, ok := v[benchmark.ClaimKIr]; ok {
		v[benchmark.HandleKIr] = one + v[benchmark.AckKIr]
	}
	v[benchmark.LifeKIr] = v[benchmark.NearKIr] + v[benchmark.HandleKIr]
	return c.emitting(v, err)
}

// repeat calls a function n times.
func repeat(n int, call func(i int) error) error {
	for i := range n {
		if err := call(i); err != nil {
			return err
		}
	}
	return nil
}

// countClaims counts n claims, and then the acks of the messages.
func countClaims(ctx context.Context, q claimer, n int, send func(int) error,
	count func(value string, call func(int) error) error) error {
	if err := repeat(n, send); err != nil {
		return err
	}
	acks := make([]func(context.Context) error, n)
	err := count(benchmark.ClaimKIr, func(i int) (err error) {
		acks[i], err = q.Claim(ctx)
		return err
	})
	if err != nil {
		return err
	}
	return count(benchmark.AckKIr, func(i int) error { return acks[i](ctx) })
}

// workOnce returns a function for repeat, the last call of which has a worker handle n messages, one at a time.
func workOnce(ctx context.Context, q benchmark.Queue, n int) func(i int) error {
	return func(i int) error {
		if i < n-1 {
			return nil
		}
		ctx, done := context.WithCancel(ctx)
		defer done()
		var mu sync.Mutex
		handled := 0
		return q.Work(ctx, 1, func([]byte) {
			mu.Lock()
			defer mu.Unlock()
			if handled++; handled == n {
				done()
			}
		})
	}
}
