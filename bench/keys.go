package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/benchmark"
	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/store"
)

// The workloads of keys. Only queues of Later take part.

const (
	manyHandlers = 500 // so many that claims are large, although workers prefetch nothing from queues with keys
	slowHandlers = 8
	slowFor      = 10 * time.Millisecond
	crowdKey     = "crowd"
	otherKey     = "other"
	others       = 20 // messages behind a crowd, one after the other
)

// later returns the queue of Later.
func (c *cell) later() *benchmark.LaterQueue {
	return c.Load.(benchmark.Local).Queue.(*laterQueue).LaterQueue
}

// withoutKeys is the case of a queue with a limit, but without keys.
const withoutKeys = -1

// runKeys measures drains of as many keys as the case says, which take turns. With 0 keys the queue is a plain one.
func runKeys(ctx context.Context, c *cell) error {
	flow := later.Flow{Fair: c.n > 0}
	if c.n == withoutKeys {
		flow.Concurrency = store.MaxConcurrency
	}
	return c.drainKeys(ctx, flow, c.plan.Drain)
}

// runOrdered measures the same of keys with messages that start in order. A few keys drain slowly, and have fewer.
func runOrdered(ctx context.Context, c *cell) error {
	flow := later.Flow{Key: later.KeyFlow{Order: later.OrderContinue}}
	return c.drainKeys(ctx, flow, min(c.plan.Drain, 5000*c.n))
}

// drainKeys measures drains of a number of messages.
func (c *cell) drainKeys(ctx context.Context, flow later.Flow, messages int) error {
	t := *c.Target
	if flow.Limited() {
		if err := c.later().Queue().SetFlow(ctx, flow); err != nil {
			return err
		}
	}
	if c.n > 0 {
		q := c.later().WithKeys(func(number int) string { return strconv.Itoa(number % c.n) })
		t.Load = benchmark.Local{Queue: q}
	}
	v, err := t.MeasureDrain(ctx, messages, false)
	if err != nil {
		return err
	}
	t.Handlers = manyHandlers
	many, err := t.MeasureDrain(ctx, messages, false)
	v[benchmark.ManyRate] = many[benchmark.PerSecond]
	if used, ok := many[benchmark.ServerCPU]; ok {
		v[benchmark.ManyCPU] = used
	}
	v[benchmark.Unfinished] += many[benchmark.Unfinished]
	return c.emitting(v, err)
}

// runParked measures messages of a key that may only have one in flight, and the messages of another key behind them.
func runParked(ctx context.Context, c *cell) error {
	return c.crowd(ctx, c.crowdOfAKey(), later.Flow{Key: later.KeyFlow{Concurrency: 1}}, time.Time{})
}

// runUrgent measures urgent messages behind messages of low urgency. All have the same key, so no turns help them.
func runUrgent(ctx context.Context, c *cell) error {
	q := c.later().WithKeys(func(int) string { return crowdKey }).WithUrgency(func(n int) bool { return n >= c.n })
	return c.crowd(ctx, q, later.Flow{Urgency: true}, time.Time{})
}

// runCrowd measures messages of a key that fall due in the same millisecond, and messages of another key behind them.
func runCrowd(ctx context.Context, c *cell) error {
	lead := time.Second + time.Duration(c.n)*50*time.Microsecond // for the sends
	return c.crowd(ctx, c.crowdOfAKey(), later.Flow{Fair: true}, time.Now().Add(lead).Truncate(time.Millisecond))
}

// crowdOfAKey returns a queue for messages of one key, and other messages of another.
func (c *cell) crowdOfAKey() *benchmark.LaterQueue {
	return c.later().WithKeys(func(number int) string {
		if number < c.n {
			return crowdKey
		}
		return otherKey
	})
}

// crowd sends the messages of a crowd, and then another message that is due at the same time. A worker with slow
// handlers waits for them. When all are sorted by key, more of the others are sent, one by one.
func (c *cell) crowd(ctx context.Context, q *benchmark.LaterQueue, flow later.Flow, due time.Time) error {
	ctx, stop := context.WithTimeoutCause(ctx, 5*c.Limit, errors.New("a message behind the crowd does not start"))
	defer stop()
	if err := q.Queue().SetFlow(ctx, flow); err != nil {
		return err
	}
	empty, err := c.Used(ctx)
	if err != nil {
		return err
	}
	if err := benchmark.Fill(ctx, q, c.n, c.plan.Size, func(int) time.Time { return due }); err != nil {
		return err
	}
	v := benchmark.Values{benchmark.Messages: float64(c.n)}
	bytes := func(name string) error {
		used, err := c.Used(ctx)
		v[name] = float64(used-empty)/float64(c.n) - float64(c.plan.Size)
		return err
	}
	sendOther := func(number int, due time.Time) error {
		_, err := q.Send(ctx, benchmark.NewPayload(c.plan.Size, c.n+number, due), due)
		return err
	}
	if err := errors.Join(bytes(benchmark.BytesAbove), sendOther(0, due)); err != nil {
		return err
	}
	if !due.IsZero() && time.Now().After(due) {
		return fmt.Errorf("sending %d messages took too long: the machine is too busy", c.n)
	}
	if c.server != nil {
		if err := c.server.logSlowCalls(ctx); err != nil {
			return err
		}
	}
	w := c.startSlow(ctx, q)
	from := due
	if due.IsZero() {
		from = time.Now()
	}
	first, err := w.started(ctx)
	v[benchmark.FirstMS] = benchmark.Millis(first.Sub(from))
	if err == nil {
		err = sorted(ctx, q.Queue(), c.n, &w.ofCrowd)
		v[benchmark.SortedMS] = benchmark.Millis(time.Since(from))
	}
	if err == nil {
		err = bytes(benchmark.SortedBytes)
	}
	var waits []time.Duration
	for number := 1; err == nil && number <= others; number++ {
		if err = calls.Sleep(ctx, 2*slowFor); err != nil { // the message before may have the only slot of the key
			break
		}
		begin := time.Now()
		if err = sendOther(number, time.Time{}); err == nil {
			var at time.Time
			at, err = w.started(ctx)
			waits = append(waits, at.Sub(begin))
		}
	}
	if err == nil && c.server != nil {
		var slowest time.Duration
		slowest, err = c.server.slowestCall(ctx)
		v[benchmark.LongestCall] = benchmark.Millis(slowest)
	}
	stop()
	slices.Sort(waits)
	v[benchmark.P50], v[benchmark.MaxMS] = benchmark.Millis(benchmark.Quantile(waits, 0.5)),
		benchmark.Millis(benchmark.Quantile(waits, 1))
	return c.emitting(v, errors.Join(err, <-w.ended))
}

// sorted waits until all n messages of the crowd are sorted, of which some have started. It seldom looks, because that
// reads 5,000 messages.
func sorted(ctx context.Context, q *later.Queue, n int, started *atomic.Int64) error {
	for {
		keys, err := q.Keys(ctx, later.KeysRequest{Key: crowdKey})
		if err != nil {
			return err
		}
		if len(keys) == 1 && keys[0].Waiting+started.Load() >= int64(n) {
			return nil
		}
		if err := calls.Sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// slowWorker is a worker with slow handlers.
type slowWorker struct {
	others  chan time.Time // when the other messages started
	ofCrowd atomic.Int64   // started
	ended   chan error
}

// startSlow starts a slow worker, which runs until ctx ends.
func (c *cell) startSlow(ctx context.Context, q benchmark.Queue) *slowWorker {
	w := &slowWorker{others: make(chan time.Time, others+1), ended: make(chan error, 1)}
	go func() {
		w.ended <- q.Work(ctx, slowHandlers, func(payload []byte) {
			if benchmark.NumberOf(payload) < c.n {
				w.ofCrowd.Add(1)
			} else {
				w.others <- time.Now()
			}
			time.Sleep(slowFor)
		})
	}()
	return w
}

// started returns when the next of the other messages started.
func (w *slowWorker) started(ctx context.Context) (time.Time, error) {
	select {
	case at := <-w.others:
		return at, nil
	case err := <-w.ended:
		w.ended <- err
		return time.Time{}, errors.Join(errors.New("the worker has ended"), err)
	case <-ctx.Done():
		return time.Time{}, context.Cause(ctx)
	}
}
