package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/laterq/later/internal/benchmark"
)

// The workloads of limited starts: messages that are all due at once, and workers that may only start some a second.

const (
	limitRate    = 100 // starts a second
	limitClients = 8   // with smallHandlers each
)

// startLimit is a limit of starts, for all workers of a queue together.
type startLimit struct {
	perSecond, burst int
	limiter          *rate.Limiter // for queues without a limit of their own
	refused          atomic.Int64  // by the limiter
}

var errRefused = errors.New("rate limited")

// refuses reports whether a handler may not start. A nil limit refuses nothing.
func (l *startLimit) refuses() bool {
	if l == nil || l.limiter.Allow() {
		return false
	}
	l.refused.Add(1)
	return true
}

// limitable is a queue that can limit starts.
type limitable interface {
	limitStarts(ctx context.Context, l *startLimit) error
}

// runLimit measures a limit with a burst, which is the case.
func runLimit(ctx context.Context, c *cell) error {
	return c.limited(ctx, benchmark.DrainConfig{Rate: limitRate, Burst: c.n, Workers: limitClients}, c.plan.Limit)
}

// runHeld measures many workers that a limit holds back, by the rate, which is the case.
func runHeld(ctx context.Context, c *cell) error {
	cfg := benchmark.DrainConfig{Rate: c.n, Burst: 1, Workers: c.plan.Held, Lead: c.plan.Settle}
	return c.limited(ctx, cfg, c.plan.HeldFor)
}

// limited measures as many messages as the limit starts in a time.
func (c *cell) limited(ctx context.Context, cfg benchmark.DrainConfig, d time.Duration) error {
	cfg.Messages, cfg.Limit = int(float64(cfg.Rate)*d.Seconds()), 4*d
	l := &startLimit{
		perSecond: cfg.Rate, burst: cfg.Burst, limiter: rate.NewLimiter(rate.Limit(cfg.Rate), cfg.Burst),
	}
	var stores []*countingStore
	claims := func() (n int64) {
		for _, s := range stores {
			n += s.claims.Load()
		}
		return n
	}
	measure := func(t *benchmark.Target) error {
		t.Handlers = smallHandlers
		v, err := t.MeasureLimit(ctx, cfg, claims)
		if err != nil {
			return err
		}
		handled := v[benchmark.Handled]
		v[benchmark.HandlerCalls] = (handled + v[benchmark.Doubles] + float64(l.refused.Load())) / handled
		return c.emitting(v, nil)
	}
	if c.subject.connect == nil { // another process, which knows the limit from cfg
		t := *c.Target
		return measure(&t)
	}
	return c.withFleet(ctx, cfg.Workers, func(t *benchmark.Target) error {
		for _, q := range t.Load.(benchmark.Local).Queue.(*fleet).all {
			if err := q.(limitable).limitStarts(ctx, l); err != nil {
				return err
			}
			if q, ok := q.(*laterQueue); ok {
				stores = append(stores, q.store)
			}
		}
		return measure(t)
	})
}
