package benchmark

import (
	"context"
	"errors"
	"slices"
	"time"
)

// MeasureLimit drains a queue with a limit of starts, which cfg repeats. P50, P99 and MaxMS say how late messages start
// after the limit allowed it, and the values of the grid how late compared with starts that are spaced evenly from the
// first one on. claims returns how many claims the workers have made.
func (t *Target) MeasureLimit(ctx context.Context, cfg DrainConfig, claims func() int64) (Values, error) {
	var end func(int, Values) error
	var begun error
	var scripts, claimed int64
	cfg.Size, cfg.Handlers = t.Size, t.Handlers
	cfg.OnFilled = func() {
		end, begun = t.cost(ctx)
		n, err := t.Redis.ScriptCalls(ctx)
		scripts, claimed, begun = n, claims(), errors.Join(begun, err)
	}
	d, err := t.Drain(ctx, cfg)
	if err = errors.Join(err, begun); err != nil {
		return nil, err
	}
	if len(d.Starts) == 0 {
		return nil, errors.New("no message was started")
	}
	v := Values{
		Messages: float64(d.Messages), Handled: float64(d.Handled), Doubles: float64(d.Doubles),
		Unfinished: float64(d.Messages - d.Handled), PerSecond: d.PerSecond(), TookMS: Millis(d.Took),
	}
	handled := float64(d.Handled)
	if n := claims() - claimed; n > 0 {
		v[ClaimCalls] = float64(n) / handled
	}
	calls, err := t.Redis.ScriptCalls(ctx)
	v[ScriptCalls] = float64(calls-scripts) / handled
	late, off := lateStarts(d.Starts, cfg.Rate, cfg.Burst)
	v[P50], v[P99], v[MaxMS] = Millis(Quantile(late, 0.5)), Millis(Quantile(late, 0.99)), Millis(Quantile(late, 1))
	v[MinMS] = Millis(Quantile(late, 0))
	v[GridP50], v[GridP99] = Millis(Quantile(off, 0.5)), Millis(Quantile(off, 0.99))
	return v, errors.Join(err, end(d.Handled, v))
}

// lateStarts returns how late messages, all of which are due at once, start under a limit: after the limit allowed the
// start, counting from the starts before it, and after the start's place in an even grid that begins with the first
// start. Both are sorted.
func lateStarts(starts []time.Duration, perSecond, burst int) (late, offGrid []time.Duration) {
	interval := time.Second / time.Duration(perSecond)
	gathers := time.Duration(burst-1) * interval
	first := starts[0]
	next := first // as if all starts were spaced evenly
	for i, at := range starts {
		late = append(late, at-max(first, next-gathers))
		offGrid = append(offGrid, at-first-max(0, time.Duration(i)*interval-gathers))
		next = max(next, at) + interval
	}
	slices.Sort(late)
	slices.Sort(offGrid)
	return late, offGrid
}
