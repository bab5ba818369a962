package benchmark

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/laterq/later/internal/calls"
)

// DrainConfig configures Drain.
type DrainConfig struct {
	Messages int
	Herd     bool          // the messages are due in the same millisecond
	Size     int           // payload bytes, MinSize or more
	Handlers int           // concurrent handlers, which do nothing
	Limit    time.Duration // when to give up
	// Rate is how many messages all workers together may start in a second, and Burst how many at once. The queue has
	// this limit already, unless it is in another process, where Workers is how many workers share it. With a Rate, the
	// result has the Starts.
	Rate, Burst, Workers int
	// Lead, if not 0, makes messages due so long after they are sent. The worker starts before, and OnFilled is called
	// shortly before they are due. Only for queues in this process.
	Lead time.Duration
	// OnFilled, if not nil, is called when the messages are in the queue, the ones of a Herd a second before they are due.
	OnFilled func() `json:"-"`
}

// Drained is the result of Drain.
type Drained struct {
	Messages int
	Handled  int // counts each message once
	Doubles  int // further deliveries of handled messages
	Early    int // handled before their due time
	Left     int // in the queue afterwards
	// Starts are the times of the first deliveries since the start of the worker, sorted.
	Starts []time.Duration
	// Took is the time until the last message was handled, and Settled the time until the worker had settled all
	// messages and returned. Both count from the start of the worker or, for a herd, from the due time.
	Took, Settled time.Duration
}

// PerSecond returns the rate of messages until the last one was handled.
func (d Drained) PerSecond() float64 { return float64(d.Handled) / d.Took.Seconds() }

// Drain fills the queue with messages that are due at once and handles them. With Herd they are due in the same
// millisecond, and a worker waits for them.
func (l Local) Drain(ctx context.Context, cfg DrainConfig) (Drained, error) {
	switch {
	case cfg.Herd:
		return herd(ctx, l.Queue, cfg)
	case cfg.Lead > 0:
		return drainSettled(ctx, l.Queue, cfg)
	}
	if err := Fill(ctx, l.Queue, cfg.Messages, cfg.Size, AtOnce); err != nil {
		return Drained{}, err
	}
	if cfg.OnFilled != nil {
		cfg.OnFilled()
	}
	return work(ctx, l.Queue, cfg, time.Time{})
}

// drainSettled drains messages that fall due when the worker has started.
func drainSettled(ctx context.Context, q Queue, cfg DrainConfig) (Drained, error) {
	due := time.Now().Add(cfg.Lead).Truncate(time.Millisecond)
	if err := Fill(ctx, q, cfg.Messages, cfg.Size, func(int) time.Time { return due }); err != nil {
		return Drained{}, err
	}
	var filled sync.WaitGroup
	filled.Go(func() {
		if sleepUntil(ctx, due.Add(-cfg.Lead/10)) == nil && cfg.OnFilled != nil {
			cfg.OnFilled()
		}
	})
	d, err := work(ctx, q, cfg, due)
	filled.Wait()
	return d, err
}

// work handles the messages in the queue until all are handled, or the limit has passed since due.
func work(ctx context.Context, q Queue, cfg DrainConfig, due time.Time) (Drained, error) {
	t := newTally(cfg.Messages)
	if !due.IsZero() {
		t.begin = due
	}
	working, stop := context.WithTimeout(ctx, time.Until(t.begin)+cfg.Limit)
	defer stop()
	go func() {
		select {
		case <-t.all:
			stop()
		case <-working.Done():
		}
	}()
	handle := func(p []byte) { t.record(p) }
	var starts []time.Duration
	if cfg.Rate > 0 {
		var mu sync.Mutex
		handle = func(p []byte) {
			if _, first := t.record(p); first {
				mu.Lock()
				defer mu.Unlock()
				starts = append(starts, time.Since(t.begin))
			}
		}
	}
	if err := q.Work(working, cfg.Handlers, handle); err != nil {
		return Drained{}, err
	}
	slices.Sort(starts)
	d := Drained{
		Messages: cfg.Messages, Handled: int(t.handled.Load()), Doubles: int(t.doubles.Load()),
		Early: int(t.early.Load()), Starts: starts,
		Took: t.took(), Settled: time.Since(t.begin),
	}
	if ctx.Err() != nil {
		return d, context.Cause(ctx)
	}
	var err error
	d.Left, err = q.Left(ctx)
	return d, err
}

// herdLead is how long before the due time of a herd its worker starts.
const herdLead = time.Second

// herd fills the queue with messages due in the same millisecond, and handles them with a worker that waits for them.
func herd(ctx context.Context, q Queue, cfg DrainConfig) (Drained, error) {
	// The due time must be known before the first send, so measure the speed with some messages due far in the future.
	trial := max(1, cfg.Messages/50)
	begin := time.Now()
	if err := Fill(ctx, q, trial, cfg.Size, func(int) time.Time { return begin.Add(24 * time.Hour) }); err != nil {
		return Drained{}, err
	}
	forAll := time.Since(begin) * time.Duration(cfg.Messages) / time.Duration(trial)
	due := time.Now().Add(2*forAll + 2*herdLead).Truncate(time.Millisecond)
	if err := Fill(ctx, q, cfg.Messages, cfg.Size, func(int) time.Time { return due }); err != nil {
		return Drained{}, err
	}
	if over := time.Since(due); over > -herdLead {
		return Drained{}, fmt.Errorf("sending %d messages took %v longer than the trial predicted: the machine is "+
			"too busy, or the herd too large", cfg.Messages, (over + herdLead).Round(time.Millisecond))
	}
	if err := sleepUntil(ctx, due.Add(-herdLead)); err != nil {
		return Drained{}, err
	}
	if cfg.OnFilled != nil {
		cfg.OnFilled()
	}
	d, err := work(ctx, q, cfg, due)
	d.Left -= trial
	return d, err
}

func sleepUntil(ctx context.Context, t time.Time) error { return calls.Sleep(ctx, time.Until(t)) }
