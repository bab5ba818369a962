package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/laterq/later/internal/benchmark"
)

// The workloads of small calls: processes that each send or handle a message now and then, so that no calls travel
// together. Contexts can be cancelled, as the contexts of web requests can.

const (
	smallClients  = 64 // processes, each with connections of its own; here they share this process
	smallHandlers = 4
	// spreadMinutes is the case of messages due at random within 1 to 48 hours.
	spreadMinutes = 48 * 60
)

func runClients(ctx context.Context, c *cell) error { return c.sendSmall(ctx, smallClients) }

func runSingle(ctx context.Context, c *cell) error { return c.sendSmall(ctx, 1) }

// sendSmall measures clients with one sender each. The case is the delay in minutes.
func (c *cell) sendSmall(ctx context.Context, clients int) error {
	return c.withFleet(ctx, clients, func(t *benchmark.Target) error {
		due := func(int) time.Time {
			delay := time.Duration(c.n) * time.Minute
			if c.n == spreadMinutes {
				delay = time.Hour + rand.N(47*time.Hour)
			}
			return time.Now().Add(delay)
		}
		return c.emitting(t.MeasureSend(ctx, benchmark.SendConfig{
			Messages: c.plan.Send, Goroutines: clients, Limit: c.plan.SendLimit, Interruptible: true, Due: due,
		}))
	})
}

// runLife measures messages that are sent, claimed and acked at a steady rate, which is the case.
func runLife(ctx context.Context, c *cell) error {
	return c.emitting(c.life(ctx, c.Target, c.n))
}

// runWorkers measures as many workers as the case says on one queue.
func runWorkers(ctx context.Context, c *cell) error {
	return c.withFleet(ctx, c.n, func(t *benchmark.Target) error {
		t.Handlers = smallHandlers
		return c.emitting(c.life(ctx, t, 500))
	})
}

func (c *cell) life(ctx context.Context, t *benchmark.Target, rate int) (benchmark.Values, error) {
	v, _, err := t.MeasureLateness(ctx, benchmark.LatenessConfig{
		Rate: rate, For: c.plan.Lateness, Longest: c.plan.Longest, WholeSeconds: c.subject.wholeSeconds,
	})
	return v, err
}

// withFleet calls f with the target as several clients use it.
func (c *cell) withFleet(ctx context.Context, clients int, f func(t *benchmark.Target) error) (err error) {
	queues := &fleet{Queue: c.Load.(benchmark.Local).Queue, free: make(chan benchmark.Queue, clients)}
	for range clients {
		q, closeQueue, failed := c.subject.connect(ctx, c.server.addr)
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, closeQueue()) }()
		queues.all = append(queues.all, q)
		queues.free <- q
	}
	t := *c.Target
	t.Load = benchmark.Local{Queue: queues}
	return f(&t)
}

// fleet is a queue that several clients use.
type fleet struct {
	benchmark.Queue
	all  []benchmark.Queue
	free chan benchmark.Queue // clients that do not send
}

func (f *fleet) Send(ctx context.Context, payload []byte, due time.Time) (string, error) {
	q := <-f.free
	defer func() { f.free <- q }()
	return q.Send(ctx, payload, due)
}

// Work runs a worker of each client.
func (f *fleet) Work(ctx context.Context, handlers int, handle func(payload []byte)) error {
	var all sync.WaitGroup
	errs := make([]error, len(f.all))
	for i, q := range f.all {
		all.Go(func() { errs[i] = q.Work(ctx, handlers, handle) })
	}
	all.Wait()
	return errors.Join(errs...)
}
