package benchmark

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// LatenessConfig says what Lateness measures.
type LatenessConfig struct {
	Rate     int           // messages sent a second
	For      time.Duration // how long they are sent
	Longest  time.Duration // delays are random, up to this
	Size     int           // payload bytes, MinSize or more
	Handlers int
	Limit    time.Duration // how long after the last due time messages are waited for
	// WholeSeconds: delays are whole seconds, from 1 on, for a queue that knows no others.
	WholeSeconds bool
}

// Delivered is what Lateness measured.
type Delivered struct {
	// Samples are the handled messages' times from the due time to the start of the handler, sorted. One below
	// zero is a message that came early.
	Samples []time.Duration
	Sent    int
	Took    time.Duration // for sending: longer than asked for when the queue did not keep up
	Doubles int
	Early   int
	Missing int // sent and not handled within the limit
}

// lateSenders are enough goroutines that a slow reply does not hold up the pace, and few enough to be bearable.
const lateSenders = 1000

// Lateness sends messages at a steady rate, each due after a random delay, while a worker handles them, and tells
// how late they came, by this machine's clock. For a queue whose clock is another one's the difference is in it.
func Lateness(ctx context.Context, q Queue, cfg LatenessConfig) (Delivered, error) {
	n := int(float64(cfg.Rate) * cfg.For.Seconds())
	t := newTally(n)
	late := make([]time.Duration, n)
	var count atomic.Int64
	working, stop := context.WithCancel(ctx)
	defer stop()
	worked := make(chan error, 1)
	go func() {
		worked <- q.Work(working, cfg.Handlers, func(p []byte) {
			if d, first := t.mark(p); first {
				late[count.Add(1)-1] = d
			}
		})
		stop() // sending ends too when the worker failed
	}()
	sent, took, err := pace(working, q, cfg, n)
	if err == nil {
		select {
		case <-t.all:
		case <-time.After(cfg.Longest + cfg.Limit):
		case <-working.Done():
		}
	}
	stop()
	if failed := <-worked; failed != nil {
		err = failed
	} else if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	samples := late[:count.Load()]
	slices.Sort(samples)
	return Delivered{
		Samples: samples, Sent: sent, Took: took,
		Doubles: int(t.doubles.Load()), Early: int(t.early.Load()), Missing: sent - len(samples),
	}, err
}

// pace sends n messages, each when its turn has come, by goroutines that send one after the other.
func pace(ctx context.Context, q Queue, cfg LatenessConfig, n int) (sent int, took time.Duration, err error) {
	turns := make(chan int, n)
	var done atomic.Int64
	begin := time.Now()
	var pacing sync.WaitGroup
	pacing.Go(func() {
		defer close(turns)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for number := 0; number < n; {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			for due := int(time.Since(begin).Seconds() * float64(cfg.Rate)); number < min(n, due); number++ {
				turns <- number
			}
		}
	})
	err = inParallel(ctx, min(lateSenders, n), func(ctx context.Context) error {
		payload := make([]byte, cfg.Size)
		for number := range turns {
			due := dueAfter(cfg)
			putPayload(payload, number, due)
			if _, err := q.Send(ctx, payload, due); err != nil {
				return err
			}
			done.Add(1)
		}
		return context.Cause(ctx)
	})
	took = time.Since(begin)
	pacing.Wait()
	return int(done.Load()), took, err
}

// dueAfter gives a due time after a random delay, in whole milliseconds, so that no queue is late by rounding up.
func dueAfter(cfg LatenessConfig) time.Time {
	if cfg.WholeSeconds {
		return time.Now().Add(time.Second + rand.N(cfg.Longest).Truncate(time.Second))
	}
	return time.Now().Add(rand.N(cfg.Longest)).Add(time.Millisecond - 1).Truncate(time.Millisecond)
}

// Quantile gives the sample at p of 1 of a sorted list; zero for an empty one.
func Quantile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(p*float64(len(sorted)-1))]
}
