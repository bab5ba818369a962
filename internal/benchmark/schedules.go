package benchmark

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/recurrence"
)

// Scheduled is the result of a Schedules workload.
type Scheduled struct {
	Schedules int
	Put       float64       // schedules stored per second
	Runs      float64       // runs sent per second when all schedules are due at once
	Upcoming  time.Duration // the longest time to compute the next hundred runs of all schedules
	Page      time.Duration // the longest time to read a page of a hundred schedules
}

const (
	// schedulePutters is how many goroutines store and delete schedules.
	schedulePutters = 64
	// scheduleReads is how often the next runs and pages are read.
	scheduleReads = 50
)

// Schedules measures schedules whose names begin with prefix: storing n of them, reading them, and sending the runs of
// all of them, which are due at one time, to a queue of that name. It deletes the schedules. run is called around
// the sending of the runs, which it has begin.
func Schedules(
	ctx context.Context, c *later.Client, prefix string, n, size int, run func(send func() error) error,
) (result Scheduled, err error) {
	result.Schedules = n
	name := func(i int64) string { return fmt.Sprintf("%s-%07d", prefix, i) }
	all := func(f func(ctx context.Context, i int64) error) error {
		var next atomic.Int64
		return inParallel(ctx, schedulePutters, func(ctx context.Context) error {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				if err := f(ctx, i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	s, payload := c.Schedules(), make([]byte, size)
	stats, err := c.Queue(prefix).Stats(ctx)
	if err != nil {
		return result, err
	}
	// Later than all of them are stored, unless that takes much longer than it should.
	start := stats.Now.Add(time.Duration(n)*time.Millisecond + 10*time.Second).Truncate(time.Second)
	begin := time.Now()
	err = all(func(ctx context.Context, i int64) error {
		_, err := s.Put(ctx, later.Schedule{
			Name: name(i), Queue: prefix, When: recurrence.Spec{Every: 24 * time.Hour, Start: start}, Payload: payload,
		})
		return err
	})
	result.Put = float64(n) / time.Since(begin).Seconds()
	defer func() {
		if deleted := all(func(ctx context.Context, i int64) error { return s.Delete(ctx, name(i)) }); err == nil {
			err = deleted
		}
	}()
	if err != nil {
		return result, err
	}
	if result.Upcoming, err = slowest(func() error {
		runs, err := s.Upcoming(ctx, 100)
		if err == nil && len(runs) < min(100, n) {
			err = fmt.Errorf("%d next runs of %d schedules", len(runs), n)
		}
		return err
	}); err != nil {
		return result, err
	}
	cursor := ""
	if result.Page, err = slowest(func() error {
		page, err := s.List(ctx, cursor, 100)
		cursor = page.Next
		return err
	}); err != nil {
		return result, err
	}
	return result, run(func() error {
		result.Runs, err = sendRuns(ctx, c, prefix, n, start)
		return err
	})
}

// slowest returns the longest time that calls of f take.
func slowest(f func() error) (time.Duration, error) {
	var took []time.Duration
	for range scheduleReads {
		begin := time.Now()
		if err := f(); err != nil {
			return 0, err
		}
		took = append(took, time.Since(begin))
	}
	return slices.Max(took), nil
}

// sendRuns has the runs of n schedules sent that are due at a time, and returns how many were sent per second.
func sendRuns(ctx context.Context, c *later.Client, queue string, n int, due time.Time) (float64, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	stats, err := c.Queue(queue).Stats(ctx)
	if err != nil {
		return 0, err
	}
	begin := time.Now().Add(max(0, due.Sub(stats.Now)))
	ended := make(chan error, 1)
	go func() { ended <- c.Schedules().Run(ctx) }()
	for tick := time.NewTicker(5 * time.Millisecond); ; {
		if stats, err = c.Queue(queue).Stats(ctx); err != nil || stats.Ready >= int64(n) {
			tick.Stop()
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
	took := time.Since(begin)
	stop()
	if ended := <-ended; err == nil {
		err = ended
	}
	return float64(n) / took.Seconds(), err
}
