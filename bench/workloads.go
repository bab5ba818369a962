package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/laterq/later/internal/benchmark"
)

const (
	batchSize    = 1000 // messages per batch of send
	batchSenders = 4
)

// runSend measures the rate of n concurrent senders, or of batches if n is 0.
func runSend(ctx context.Context, c *cell) error {
	cfg := benchmark.SendConfig{Messages: c.plan.Send, Goroutines: c.n, Size: c.Size, Limit: c.SendLimit}
	if c.n == 0 {
		if !c.batches() {
			return nil
		}
		cfg.Goroutines, cfg.Batch = batchSenders, batchSize
	}
	end, err := c.cost(ctx)
	if err != nil {
		return err
	}
	sent, err := c.target.Send(ctx, cfg)
	if err != nil {
		return err
	}
	values := map[string]float64{perSecond: sent.PerSecond(), sentCount: float64(sent.Messages), tookMS: millis(sent.Took)}
	if err := end(sent.Messages, values); err != nil {
		return err
	}
	c.emit(c.n, measurement{Values: values})
	return nil
}

// drained converts the result of Drain or Herd to values.
func (c *cell) drained(d benchmark.Drained) map[string]float64 {
	took := d.Took
	if c.subject.settled {
		took = d.Settled
	}
	values := map[string]float64{
		sentCount: float64(d.Messages), handled: float64(d.Handled),
		doubles: float64(d.Doubles), early: float64(d.Early),
		unfinished: float64(d.Left), lost: float64(d.Messages - d.Handled - d.Left),
	}
	if took > 0 { // otherwise the whole herd was early
		values[perSecond], values[tookMS] = float64(d.Handled)/took.Seconds(), millis(took)
	}
	return values
}

// handle runs Drain or Herd. It calls onFilled when the messages are in the queue.
func (c *cell) handle(
	ctx context.Context, do func(context.Context, benchmark.DrainConfig) (benchmark.Drained, error), messages int,
	onFilled func() error,
) (map[string]float64, error) {
	var end func(int, map[string]float64) error
	var begun error
	d, err := do(ctx, benchmark.DrainConfig{
		Messages: messages, Size: c.Size, Handlers: handlers, Limit: c.Patience,
		OnFilled: func() {
			if onFilled != nil {
				begun = onFilled()
			}
			var err error
			end, err = c.cost(ctx)
			begun = errors.Join(begun, err)
		},
	})
	if err = errors.Join(err, begun); err != nil {
		return nil, err
	}
	values := c.drained(d)
	return values, end(d.Handled, values)
}

func runDrain(ctx context.Context, c *cell) error {
	values, err := c.handle(ctx, c.target.Drain, c.plan.Drain, nil)
	if err == nil {
		c.emit(0, measurement{Values: values})
	}
	return err
}

// runHerd sends PINGs to a Redis meanwhile, like another client, and then asks for its slowest call. For comparison it
// then sends PINGs to the idle Redis beside busy processes, and drains as many messages that are due at once.
func runHerd(ctx context.Context, c *cell) error {
	n := c.plan.Herd
	if limit := c.subject.atMost["herd"]; limit > 0 {
		n = min(n, limit)
	}
	var worst func() (time.Duration, error)
	ping := func() (err error) {
		if err := c.server.logSlowCalls(ctx); err != nil {
			return err
		}
		worst, err = startPinger(ctx, c.server.addr)
		return err
	}
	if c.server == nil || c.server.redis == nil {
		ping = nil
	}
	values, err := c.handle(ctx, c.target.Herd, n, ping)
	if worst != nil {
		longest, pingErr := worst()
		slowest, slowErr := c.server.slowestCall(ctx)
		if err = errors.Join(err, pingErr, slowErr); err == nil {
			values[worstPing], values[longestCall] = millis(longest), millis(slowest)
		}
	}
	if err == nil && worst != nil {
		var alone time.Duration
		alone, err = pingBesideOthers(ctx, c.server.addr, max(time.Second, fromMillis(values[tookMS])))
		values[besidePing] = millis(alone)
	}
	if err == nil && values[handled] == float64(n) {
		plain, plainErr := c.handle(ctx, c.target.Drain, n, nil)
		values[plainRate], err = plain[perSecond], plainErr
	}
	if err == nil {
		c.emit(0, measurement{Values: values})
	}
	return err
}

// curvePoints is the number of points of a distribution. Half of them are in its last hundredth.
const curvePoints = 200

func runLateness(ctx context.Context, c *cell) error {
	end, err := c.cost(ctx)
	if err != nil {
		return err
	}
	d, err := c.target.Lateness(ctx, benchmark.LatenessConfig{
		Rate: c.n, For: c.plan.Lateness, Longest: c.Longest, Size: c.Size, Handlers: handlers, Limit: c.Patience,
		WholeSeconds: c.subject.wholeSeconds,
	})
	if err != nil {
		return err
	}
	at := func(p float64) float64 { return millis(benchmark.Quantile(d.Samples, p)) }
	values := map[string]float64{
		sentCount: float64(d.Sent), handled: float64(len(d.Samples)), perSecond: float64(d.Sent) / d.Took.Seconds(),
		early: float64(d.Early), unfinished: float64(d.Missing), doubles: float64(d.Doubles),
	}
	m := measurement{Values: values}
	if len(d.Samples) > 0 {
		values[minMS], values[p50], values[p99], values[p999], values[maxMS] = at(0), at(0.5), at(0.99), at(0.999), at(1)
		part := float64(len(d.Samples)) / float64(d.Sent)
		for i := range curvePoints / 2 {
			p := float64(i) / (curvePoints / 2) * 0.99
			m.Curve = append(m.Curve, [2]float64{at(p), p * part})
		}
		for i := range curvePoints/2 + 1 {
			p := 0.99 + float64(i)/(curvePoints/2)*0.01
			m.Curve = append(m.Curve, [2]float64{at(p), p * part})
		}
	}
	if err := end(len(d.Samples), values); err != nil {
		return err
	}
	c.emit(c.n, m)
	return nil
}

// runMemory measures the size of a message: memory for a Redis, files for an embedded store.
func runMemory(ctx context.Context, c *cell) error {
	used := func() (int64, error) {
		if c.server == nil {
			return directorySize(c.dir)
		}
		return c.server.memory(ctx)
	}
	n := c.MemoryFor
	// The first message creates what a queue takes once.
	if err := c.FillLater(ctx, 1, c.n); err != nil {
		return err
	}
	before, err := used()
	if err != nil {
		return err
	}
	if err := c.FillLater(ctx, n, c.n); err != nil {
		return err
	}
	after, err := used()
	if err != nil {
		return err
	}
	c.emit(c.n, measurement{Values: map[string]float64{
		sentCount: float64(n), bytesAbove: float64(after-before)/float64(n) - float64(c.n),
	}})
	return nil
}

// runGrowth fills a queue step by step and measures at each step the cost of a send, of a claim with its ack, and of a
// cancel. Sends and cancels are made one after the other.
func runGrowth(ctx context.Context, c *cell) error {
	q, ok := c.load.(local)
	if !ok {
		return errors.New("growth is measured only from Go")
	}
	cancels, ok := q.Queue.(benchmark.CancelQueue)
	if !ok {
		return errors.New("the queue has no cancel")
	}
	pending := 0
	for _, n := range c.plan.Growth {
		if limit := c.subject.atMost["growth"]; limit > 0 && n > limit {
			break
		}
		if err := benchmark.Fill(ctx, q.Queue, n-pending, c.Size, benchmark.InAnHour); err != nil {
			return err
		}
		pending = n
		values := map[string]float64{}
		var ids []string
		err := c.timed(ctx, c.GrowthOps, values, sendUS, sendCPU, func(i int) error {
			due := benchmark.InAnHour(i)
			id, err := q.Queue.Send(ctx, benchmark.NewPayload(c.Size, i, due), due)
			ids = append(ids, id)
			return err
		})
		if err != nil {
			return err
		}
		err = c.timed(ctx, len(ids), values, cancelUS, cancelCPU, func(i int) error { return cancels.Cancel(ctx, ids[i]) })
		if err != nil {
			return err
		}
		due := 10 * c.GrowthOps
		drained, err := c.handle(ctx, c.target.Drain, due, nil)
		if err != nil {
			return err
		}
		if got := drained[handled]; got != float64(due) || drained[unfinished] != float64(pending) {
			return fmt.Errorf("handled %v of %d due messages with %d pending, and %v are left",
				got, due, pending, drained[unfinished])
		}
		values[claimUS] = 1000 * drained[tookMS] / float64(due)
		if cpu, ok := drained[serverCPU]; ok {
			values[claimCPU] = cpu
		}
		c.emit(n, measurement{Values: values})
	}
	return nil
}

// timed calls f n times and records the time and server CPU per call.
func (c *cell) timed(
	ctx context.Context, n int, values map[string]float64, took, cpu string, f func(i int) error,
) error {
	end, err := c.cost(ctx)
	if err != nil {
		return err
	}
	begin := time.Now()
	for i := range n {
		if err := f(i); err != nil {
			return err
		}
	}
	values[took] = micros(time.Since(begin)) / float64(n)
	cost := map[string]float64{}
	if err := end(n, cost); err != nil {
		return err
	}
	if v, ok := cost[serverCPU]; ok {
		values[cpu] = v
	}
	return nil
}
