//go:build unix

package chaos

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// injectFaults injects faults at seeded random times until the run's duration is over.
func (r *run) injectFaults(ctx context.Context) error {
	began := time.Now()
	end := began.Add(r.cfg.Duration)
	for r.injected == 0 || time.Now().Before(end) {
		pause := r.fault.pause/2 + time.Duration(r.random.Int64N(int64(r.fault.pause)))
		left := time.Until(end)
		over := r.injected > 0 && left < pause
		if over {
			pause = left
		}
		r.result.CutShort = !r.wait(ctx, pause)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if over || r.result.CutShort {
			break
		}
		r.injected++
		if err := r.fault.inject(ctx, r); err != nil {
			return fmt.Errorf("fault %d: %w", r.injected, err)
		}
		r.healed = now()
	}
	if r.result.Injected = r.injected; r.result.CutShort {
		r.result.Seconds, r.result.Planned = time.Since(began).Seconds(), r.cfg.Duration.Seconds()
	}
	return nil
}

// wait lets the load run for d. It returns false if ctx was done or the run was cut short before.
func (r *run) wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-r.cfg.Cut:
	case <-ctx.Done():
	case <-timer.C:
		select {
		case <-r.cfg.Cut: // during the last fault
		default:
			return true
		}
	}
	return false
}

// pick returns a random running child of one of the kinds.
func (r *run) pick(kinds ...string) *child {
	var of []*child
	for _, c := range r.children {
		if slices.Contains(kinds, c.role.Kind) && c.alive() && !(r.fault.name == Soak && c == r.children[firstWorker]) {
			of = append(of, c)
		}
	}
	return of[r.random.IntN(len(of))]
}

// upTo returns a random duration below d.
func (r *run) upTo(d time.Duration) time.Duration { return time.Duration(r.random.Int64N(int64(d))) }
