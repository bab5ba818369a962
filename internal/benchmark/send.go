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

// SendConfig configures Send.
type SendConfig struct {
	Messages   int           // number of messages, unless the limit is reached first
	Goroutines int           // each sends one message or batch after the other
	Batch      int           // messages per call; 0 or 1 sends single messages
	Size       int           // payload bytes, MinSize or more
	Limit      time.Duration // 0 means no limit
	// Interruptible makes each call with a context that can be cancelled, as the context of a web request can.
	Interruptible bool
	// Due returns when a message is due. Default: at a random time in 10 to 50 minutes.
	Due func(number int) time.Time `json:"-"`
}

// Sent is the result of Send.
type Sent struct {
	Messages int
	Took     time.Duration
}

// PerSecond returns the rate of messages.
func (s Sent) PerSecond() float64 { return float64(s.Messages) / s.Took.Seconds() }

// Send sends messages.
func (l Local) Send(ctx context.Context, cfg SendConfig) (Sent, error) {
	batches, ok := l.Queue.(BatchQueue)
	if cfg.Batch > 1 && !ok {
		return Sent{}, errors.New("this queue does not support batches")
	}
	if cfg.Due == nil {
		cfg.Due = withinTheHour
	}
	var next, sent atomic.Int64
	begin := time.Now()
	err := inParallel(ctx, cfg.Goroutines, func(ctx context.Context) error {
		sending := ctx
		if !cfg.Interruptible {
			sending = context.WithoutCancel(ctx) // calls are not interrupted, and do not cost what that takes
		}
		payload := make([]byte, cfg.Size)
		for ctx.Err() == nil && (cfg.Limit == 0 || time.Since(begin) < cfg.Limit) {
			first := int(next.Add(int64(max(1, cfg.Batch)))) - max(1, cfg.Batch)
			n := min(max(1, cfg.Batch), cfg.Messages-first)
			if n <= 0 {
				return nil
			}
			var err error
			if cfg.Batch > 1 {
				err = batches.SendBatch(sending, outgoing(n, first, cfg.Size, cfg.Due))
			} else {
				due := cfg.Due(first)
				putPayload(payload, first, due)
				_, err = l.Queue.Send(sending, payload, due)
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

// withinTheHour returns a due time so far ahead that no message is due during a measurement.
func withinTheHour(int) time.Time {
	return time.Now().Add(10*time.Minute + rand.N(40*time.Minute)).Truncate(time.Millisecond)
}

// InAnHour is a due time for Fill, one to two hours ahead, which Later stores as far in the future.
func InAnHour(int) time.Time {
	return time.Now().Add(time.Hour + rand.N(time.Hour)).Truncate(time.Millisecond)
}

// AtOnce is a due time for Fill.
func AtOnce(int) time.Time { return time.Time{} }

func outgoing(n, first, size int, due func(number int) time.Time) []Outgoing {
	msgs := make([]Outgoing, n)
	for i := range msgs {
		at := due(first + i)
		msgs[i] = Outgoing{Payload: NewPayload(size, first+i, at), Due: at}
	}
	return msgs
}

// Fill sends n messages of size bytes as fast as possible, numbered from 0.
func Fill(ctx context.Context, q Queue, n, size int, due func(number int) time.Time) error {
	cfg := SendConfig{Messages: n, Goroutines: fillSenders, Size: size, Due: due}
	if _, ok := q.(BatchQueue); ok {
		cfg.Goroutines, cfg.Batch = fillers, MaxFillBatch
	}
	if _, err := (Local{q}).Send(ctx, cfg); err != nil {
		return fmt.Errorf("fill the queue: %w", err)
	}
	return nil
}

// inParallel runs f in several goroutines and returns the first error, which cancels the context of the others.
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
