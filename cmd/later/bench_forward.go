package main

import (
	"context"
	"fmt"
	"time"

	"github.com/laterq/later/internal/benchmark"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"

	"github.com/laterq/later/internal/durations"
)

type benchForwardJSON struct {
	Workload  string        `json:"workload"`
	Messages  int           `json:"messages"`
	PerSecond float64       `json:"messages_per_second"`
	Bare      float64       `json:"bare_script_messages_per_second"`
	Ratio     float64       `json:"ratio_to_bare_script"`
	Rate      int           `json:"rate"`
	Handled   int           `json:"handled"`
	Doubles   int           `json:"doubles"`
	Early     int           `json:"early"`
	P50       wire.Duration `json:"lateness_p50"`
	P99       wire.Duration `json:"lateness_p99"`
	Max       wire.Duration `json:"lateness_max"`
	benchCostJSON
}

// forward measures how fast a worker moves messages to a list, and how late they are there at a steady rate.
func (b *bench) forward(ctx context.Context, q benchQueue) error {
	const name = "forward to a list"
	if b.redis == nil {
		return fmt.Errorf("it needs Redis, and the store has no lists: leave it out of --run: %w", store.ErrUnsupported)
	}
	b.progress(name)
	moved, err := b.redis.Move(ctx, b.client, benchmark.NameOf(q), b.o.messages, max(b.o.size, 20))
	if err != nil {
		return err
	}
	end, err := b.startCost(ctx)
	if err != nil {
		return err
	}
	list := b.redis.Forwarded(b.client, benchmark.NameOf(q))
	d, err := benchmark.Lateness(ctx, list, benchmark.LatenessConfig{
		Rate: b.o.rate, For: b.o.duration, Longest: b.o.delay, Size: b.o.size, Handlers: 1, Limit: drainLimit,
	})
	if err != nil {
		return err
	}
	cost, err := end()
	if err != nil {
		return err
	}
	perSecond := func(took time.Duration) float64 { return round3(float64(moved.Messages) / took.Seconds()) }
	at := func(p float64) time.Duration { return benchmark.Quantile(d.Samples, p) }
	j := benchForwardJSON{
		Workload: "forward", Messages: moved.Messages, PerSecond: perSecond(moved.Took), Bare: perSecond(moved.Bare),
		Ratio: round3(moved.Bare.Seconds() / moved.Took.Seconds()),
		Rate:  b.o.rate, Handled: len(d.Samples), Doubles: d.Doubles, Early: d.Early,
		P50: wire.Measured(at(0.5)), P99: wire.Measured(at(0.99)), Max: wire.Measured(at(1)),
		benchCostJSON: cost.json(d.Sent),
	}
	text := fmt.Sprintf("%.0f/s, %.2f of a bare script  at %d msg/s popped from the list: p50 %s  p99 %s  max %s  "+
		"%d of %d early", j.PerSecond, j.Ratio, b.o.rate, formatMillis(at(0.5)), formatMillis(at(0.99)),
		formatMillis(at(1)), d.Early, len(d.Samples))
	if d.Missing > 0 {
		text += fmt.Sprintf("  %d not delivered within %s", d.Missing, durations.Format(drainLimit))
	}
	if d.Doubles > 0 {
		text += fmt.Sprintf("  %d delivered twice", d.Doubles)
	}
	if err := b.result(j, name, "%s", text); err != nil {
		return err
	}
	b.warn(name, cost)
	return nil
}
