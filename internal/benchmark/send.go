package benchmark

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// SendConfig says what Send measures.
type SendConfig struct {
	Messages   int           // as many, unless the limit comes before
	Goroutines int           // that send, each one message, or one batch, after the other
	Batch      int           // messages in a call; 0 or 1: one, by itself
	Size       int           // payload bytes, MinSize or more
	Limit      time.Duration // 0: none
}

// Sent is what Send measured.
type Sent struct {
	Messages int
	Took     time.Duration
}

// PerSecond is the rate.
func (s Sent) PerSecond() float64 { return float64(s.Messages) / s.Took.Seconds() }

// Send sends messages that fall due at random within the hour.
func Send(ctx context.Context, q Queue, cfg SendConfig) (Sent, error) {
	batches, ok := q.(BatchQueue)
	if cfg.Batch > 1 && !ok {
		return Sent{}, errors.New("this queue has no batches")
	}
	var next, sent atomic.Int64
	begin := time.Now()
	err := inParallel(ctx, cfg.Goroutines, func(ctx context.Context) error {
		sending := context.WithoutCancel(ctx) // a call is not given up half-way, and nobody pays for that it could be
		payload := make([]byte, cfg.Size)
		for ctx.Err() == nil && (cfg.Limit == 0 || time.Since(begin) < cfg.Limit) {
			first := int(next.Add(int64(max(1, cfg.Batch)))) - max(1, cfg.Batch)
			n := min(max(1, cfg.Batch), cfg.Messages-first)
			if n <= 0 {
				return nil
			}
			var err error
			if cfg.Batch > 1 {
				err = batches.SendBatch(sending, outgoing(n, first, cfg.Size, withinTheHour))
			} else {
				due := withinTheHour(first)
				putPayload(payload, first, due)
				_, err = q.Send(sending, payload, due)
			}
			if err != nil {
				return err
			}
			sent.Add(int64(n))
		}
		return context.Cause(ctx)
	})
	return Sent{Messages: int(sent.Load()), Took: time.Since(begin)}, err
}

// withinTheHour is far enough ahead that nothing falls due while it is measured.
func withinTheHour(int) time.Time {
	return time.Now().Add(10*time.Minute + rand.N(40*time.Minute)).Truncate(time.Millisecond)
}

// inAnHour is what Later calls the far future.
func inAnHour(int) time.Time {
	return time.Now().Add(time.Hour + rand.N(time.Hour)).Truncate(time.Millisecond)
}

func outgoing(n, first, size int, due func(number int) time.Time) []Outgoing {
	msgs := make([]Outgoing, n)
	for i := range msgs {
		at := due(first + i)
		msgs[i] = Outgoing{Payload: NewPayload(size, first+i, at), Due: at}
	}
	return msgs
}

// AtOnce and InAnHour are due times for Fill.
var (
	AtOnce   = func(int) time.Time { return time.Time{} }
	InAnHour = inAnHour
)

// Fill sends n messages of so many bytes as fast as it goes, numbered from 0 on.
func Fill(ctx context.Context, q Queue, n, size int, due func(number int) time.Time) error {
	batches, inBatches := q.(BatchQueue)
	goroutines, step := fillSenders, 1
	if inBatches {
		goroutines, step = fillers, MaxFillBatch
	}
	var next atomic.Int64
	return inParallel(ctx, goroutines, func(ctx context.Context) error {
		for ctx.Err() == nil {
			first := int(next.Add(int64(step))) - step
			count := min(step, n-first)
			if count <= 0 {
				return nil
			}
			msgs := outgoing(count, first, size, due)
			var err error
			if inBatches {
				err = batches.SendBatch(ctx, msgs)
			} else {
				_, err = q.Send(ctx, msgs[0].Payload, msgs[0].Due)
			}
			if err != nil {
				return fmt.Errorf("filling the queue: %w", err)
			}
		}
		return context.Cause(ctx)
	})
}

// inParallel runs f in so many goroutines and gives the first error, which ends the context of the others.
func inParallel(ctx context.Context, goroutines int, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			if err := f(ctx); err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}
