package benchmark

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// LatenessConfig configures Lateness.
type LatenessConfig struct {
	Rate     int           // messages a second
	For      time.Duration // duration of sending
	Longest  time.Duration // upper bound of the random delays
	Size     int           // payload bytes, MinSize or more
	Handlers int
	Limit    time.Duration // how long after the last due time to wait for messages
	// WholeSeconds makes delays whole seconds, at least 1, for a queue that supports no others.
	WholeSeconds bool
}

// Delivered is the result of Lateness.
type Delivered struct {
	// Samples are the times from the due time of each handled message to the start of its handler, sorted. Early
	// messages have negative times.
	Samples []time.Duration
	Sent    int
	Took    time.Duration // for sending; longer than LatenessConfig.For if the queue did not keep up
	Doubles int
	Early   int
	Missing int // sent but not handled within the limit
}

// lateSenders is enough goroutines to keep the pace when replies are slow, and few enough to be affordable.
const lateSenders = 1000

// Lateness sends messages at a steady rate, each due after a random delay, while a worker handles them. It measures how
// late they are by this machine's clock. If the queue uses another clock, the results include the difference.
func (l Local) Lateness(ctx context.Context, cfg LatenessConfig) (Delivered, error) {
	n := int(math.Round(float64(cfg.Rate) * cfg.For.Seconds()))
	t := newTally(n)
	late := make([]time.Duration, n)
	var count atomic.Int64
	working, stop := context.WithCancel(ctx)
	defer stop()
	worked := make(chan error, 1)
	go func() {
		worked <- l.Work(working, cfg.Handlers, func(p []byte) {
			if d, first := t.record(p); first {
				late[count.Add(1)-1] = d
			}
		})
		stop() // stops sending too if the worker failed
	}()
	sent, took, err := pace(working, l.Queue, cfg, n)
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

// pace sends n messages at a steady rate from several goroutines.
func pace(ctx context.Context, q Queue, cfg LatenessConfig, n int) (sent int, took time.Duration, err error) {
	turns := make(chan int, n)
	var done atomic.Int64
	begin := time.Now()
	var pacing sync.WaitGroup
	pacing.Go(func() {
		defer close(turns)
		// Each tick wakes an idle process, as the next message would, and its CPU counts as that of the queue.
		tick := time.NewTicker(max(time.Millisecond, time.Second/time.Duration(cfg.Rate)))
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

// dueAfter returns a due time after a random delay, in whole milliseconds so that rounding up makes no queue late.
func dueAfter(cfg LatenessConfig) time.Time {
	if cfg.WholeSeconds {
		return time.Now().Add(time.Second + rand.N(cfg.Longest).Truncate(time.Second))
	}
	return time.Now().Add(rand.N(cfg.Longest)).Add(time.Millisecond - 1).Truncate(time.Millisecond)
}

// Quantile returns the p-quantile of sorted samples, or zero if there are none.
func Quantile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(p*float64(len(sorted)-1))]
}
