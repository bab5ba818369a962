package benchmark

import (
	"context"
	"fmt"
	"time"
)

// DrainConfig says what Drain and Herd measure.
type DrainConfig struct {
	Messages int
	Size     int           // payload bytes, MinSize or more
	Handlers int           // that run at a time, and do nothing
	Limit    time.Duration // gives up then
	// OnFilled is called when the messages are in the queue; Herd calls it a second before they fall due. May be nil.
	OnFilled func()
}

// Drained is what Drain and Herd measured.
type Drained struct {
	Messages int
	Handled  int // each message once
	Doubles  int // further deliveries of messages that were handled
	Early    int // handled before their due time
	Left     int // that are in the queue afterwards
	// Took is the time until the last message was handled, Settled until the worker had settled all and returned.
	// Both count from the worker's start, those of a herd from the due time.
	Took, Settled time.Duration
}

// PerSecond is the rate until the last message was handled.
func (d Drained) PerSecond() float64 { return float64(d.Handled) / d.Took.Seconds() }

// Drain fills the queue with messages that are due at once and has them handled.
func Drain(ctx context.Context, q Queue, cfg DrainConfig) (Drained, error) {
	if err := Fill(ctx, q, cfg.Messages, cfg.Size, AtOnce); err != nil {
		return Drained{}, err
	}
	if cfg.OnFilled != nil {
		cfg.OnFilled()
	}
	return work(ctx, q, cfg, time.Time{})
}

// work handles what is in the queue until all is handled, or the limit has passed since due.
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
	if err := q.Work(working, cfg.Handlers, func(p []byte) { t.mark(p) }); err != nil {
		return Drained{}, err
	}
	d := Drained{
		Messages: cfg.Messages, Handled: int(t.handled.Load()), Doubles: int(t.doubles.Load()), Early: int(t.early.Load()),
		Took: t.took(), Settled: time.Since(t.begin),
	}
	if ctx.Err() != nil {
		return d, context.Cause(ctx)
	}
	var err error
	d.Left, err = q.Left(ctx)
	return d, err
}

// herdLead is how long before a herd falls due its worker starts.
const herdLead = time.Second

// Herd fills the queue with messages that all fall due in one millisecond, and has them handled by a worker that
// waits for them.
func Herd(ctx context.Context, q Queue, cfg DrainConfig) (Drained, error) {
	// The due time must be known before the first is sent: a part of them, far ahead, tells how fast it goes.
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
		return Drained{}, fmt.Errorf("%d messages took %v longer to send than the trial said: the machine is too busy, "+
			"or give a smaller herd", cfg.Messages, (over + herdLead).Round(time.Millisecond))
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

func sleepUntil(ctx context.Context, t time.Time) error {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
