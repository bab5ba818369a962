package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/laterq/later/internal/benchmark"
	"github.com/laterq/later/internal/calls"
)

// runSend measures the rate of n concurrent senders, or of 4 senders of batches if n is 0.
func runSend(ctx context.Context, c *cell) error {
	cfg := benchmark.SendConfig{Messages: c.plan.Send, Goroutines: c.n, Limit: c.plan.SendLimit}
	if c.n == 0 {
		if !c.batches() {
			return nil
		}
		cfg.Goroutines, cfg.Batch = 4, 1000
	}
	return c.emitting(c.MeasureSend(ctx, cfg))
}

func runDrain(ctx context.Context, c *cell) error {
	return c.emitting(c.MeasureDrain(ctx, c.plan.Drain, false))
}

// runHerd asks a Redis for its slowest call of the herd, and then drains as many messages that are due at once.
func runHerd(ctx context.Context, c *cell) error {
	n := c.plan.Herd
	if limit := c.subject.atMost["herd"]; limit > 0 {
		n = min(n, limit)
	}
	v, err := c.MeasureDrain(ctx, n, true)
	if err == nil && c.Redis != nil {
		var slowest time.Duration
		slowest, err = c.server.slowestCall(ctx)
		v[benchmark.LongestCall] = benchmark.Millis(slowest)
	}
	if err == nil && v[benchmark.Handled] == float64(n) {
		plain, failed := c.MeasureDrain(ctx, n, false)
		v[benchmark.PlainRate], err = plain[benchmark.PerSecond], failed
	}
	return c.emitting(v, err)
}

func runLateness(ctx context.Context, c *cell) error {
	v, samples, err := c.MeasureLateness(ctx, benchmark.LatenessConfig{
		Rate: c.n, For: c.plan.Lateness, Longest: c.plan.Longest, WholeSeconds: c.subject.wholeSeconds,
	})
	if err == nil {
		c.emit(c.n, measurement{Values: v, Curve: benchmark.Curve(samples, v[benchmark.Messages])})
	}
	return err
}

func runMemory(ctx context.Context, c *cell) error {
	return c.emitting(c.MeasureMemory(ctx, c.plan.MemoryFor, c.n))
}

// runGrowth fills a queue step by step and measures at each step the cost of a send, of a claim with its ack, and of a
// cancel. Sends and cancels are made one after the other. Only queues of Later take part.
func runGrowth(ctx context.Context, c *cell) error {
	q := c.Load.(benchmark.Local).Queue
	cancels := q.(interface {
		Cancel(ctx context.Context, id string) error
	})
	pending, ops := 0, c.plan.GrowthOps
	for _, n := range c.plan.Growth {
		if err := c.FillLater(ctx, n-pending, c.plan.Size); err != nil {
			return err
		}
		pending = n
		v, ids := benchmark.Values{}, make([]string, ops)
		err := c.Timed(ctx, ops, v, benchmark.SendUS, benchmark.SendCPU, func(i int) (err error) {
			due := benchmark.InAnHour(i)
			ids[i], err = q.Send(ctx, benchmark.NewPayload(c.plan.Size, i, due), due)
			return err
		})
		if err == nil {
			err = c.Timed(ctx, ops, v, benchmark.CancelUS, benchmark.CancelCPU, func(i int) error {
				return cancels.Cancel(ctx, ids[i])
			})
		}
		if err != nil {
			return err
		}
		due := float64(10 * ops)
		drained, err := c.MeasureDrain(ctx, 10*ops, false)
		if err != nil {
			return err
		}
		if got := drained[benchmark.Handled]; got != due || drained[benchmark.Unfinished] != float64(pending) {
			return fmt.Errorf("handled %v of %v due messages with %d pending: %v", got, due, pending, drained)
		}
		v[benchmark.ClaimUS] = 1000 * drained[benchmark.TookMS] / due
		if cpu, ok := drained[benchmark.ServerCPU]; ok {
			v[benchmark.ClaimCPU] = cpu
		}
		c.emit(n, measurement{Values: v})
	}
	return nil
}

// runIdle measures n idle worker processes, or one worker in this process, which alone can use an embedded store. The
// queue has one message, due in an hour.
func runIdle(ctx context.Context, c *cell) error {
	if c.server == nil {
		if c.n > 1 {
			return nil
		}
		return c.emitting(c.MeasureIdle(ctx, c.Load.(benchmark.Local).Queue, c.plan.Settle, c.plan.IdleFor, nil))
	}
	if err := c.FillLater(ctx, 1, c.plan.Size); err != nil {
		return err
	}
	var workers []*reporter
	defer func() {
		for _, w := range workers {
			w.stop()
		}
	}()
	for range c.n {
		w, err := c.startIdle(ctx)
		if err != nil {
			return err
		}
		workers = append(workers, w)
	}
	t := *c.Target
	t.CPU = func(ctx context.Context) (client, server time.Duration, err error) {
		for _, w := range workers {
			var used time.Duration
			if err := w.do(ctx, "cpu", nil, &used, nil); err != nil {
				return 0, 0, err
			}
			client += used
		}
		u, err := c.server.usage(ctx)
		return client, u.CPU, err
	}
	v, err := t.MeasureQuiet(ctx, c.plan.Settle, c.plan.IdleFor, nil)
	if err == nil {
		v[benchmark.ServerLoad] += 0 // known, even if the server has not used 10 ms yet
	}
	// MONITOR comes last, because it costs a Redis more than the workers do.
	if err == nil && c.Redis != nil {
		v[benchmark.CommandRate], err = commandsPerSecond(ctx, c.server.addr, c.plan.IdleFor)
	}
	return c.emitting(v, err)
}

// startIdle starts one idle worker process.
func (c *cell) startIdle(ctx context.Context) (*reporter, error) {
	if c.subject.connect != nil {
		cmd, err := self("idle", c.subject.Name, c.server.addr)
		if err != nil {
			return nil, err
		}
		return startReporter(cmd)
	}
	node, err := startNode(c.server.addr)
	if err != nil {
		return nil, err
	}
	if err := node.do(ctx, "idle", benchmark.DrainConfig{Handlers: handlers}, nil, nil); err != nil {
		node.stop()
		return nil, err
	}
	return node, nil
}

// commandsPerSecond counts the commands that clients send to a Redis, using MONITOR. It excludes commands called by
// scripts.
func commandsPerSecond(ctx context.Context, addr string, d time.Duration) (float64, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return 0, err
	}
	var count atomic.Int64
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			if strings.Contains(lines.Text(), "[") && !strings.Contains(lines.Text(), " lua] ") {
				count.Add(1)
			}
		}
	}()
	defer func() {
		conn.Close()
		<-ended
	}()
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		return 0, err
	}
	err = calls.Sleep(ctx, d)
	return float64(count.Load()) / d.Seconds(), err
}
