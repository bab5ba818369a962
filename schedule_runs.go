package later

import (
	"context"
	"slices"
	"time"

	"github.com/laterq/later/store"
)

// RunState is what became of a run: the State of its message if that is live, or else RunPlanned or RunPast.
type RunState string

const (
	RunPlanned RunState = "planned" // it is to come
	RunPast    RunState = "past"    // its time is over, and its message is not live: done, missed or skipped
)

// ScheduledRun is a run of a schedule, past or to come.
type ScheduledRun struct {
	Run
	State RunState
}

// maxSkippedRuns is how many runs of a schedule with MaxRuns are counted up to the first that is asked for.
const maxSkippedRuns = 100_000

// Runs returns up to n runs of a schedule whose nominal times are in [from, to), in order: past ones since its rule was
// stored, and those to come as if all of them were sent. n is 1 to MaxRuns, and a zero to is no limit. A schedule that
// is paused or has finished has none to come. Runs that were triggered are not among them.
//
// Runs returns ErrNotFound if there is no schedule with the name.
func (s *Schedules) Runs(ctx context.Context, name string, from, to time.Time, n int) ([]ScheduledRun, error) {
	if err := checkRunCount(n); err != nil {
		return nil, err
	}
	if !to.IsZero() && !from.Before(to) {
		return nil, store.Invalid("runs from %s to %s: give a time and a later one", from.Format(time.RFC3339),
			to.Format(time.RFC3339))
	}
	info, err := s.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	runs, err := info.record.between(from, to, n)
	if err != nil {
		return nil, err
	}
	return runs, s.addStates(ctx, info.Queue, runs)
}

// addStates sets the states of runs whose messages are live.
func (s *Schedules) addStates(ctx context.Context, queue string, runs []ScheduledRun) error {
	if err := s.client.begin(); err != nil {
		return err
	}
	defer s.client.calls.Done()
	for part := range slices.Chunk(runs, store.MaxBatch) {
		ids := make([]string, len(part))
		for i := range part {
			ids[i] = part[i].ID
		}
		infos, err := s.client.store.Get(ctx, queue, ids)
		if err != nil {
			return err
		}
		for i, info := range infos {
			if info != nil {
				part[i].State = RunState(info.State)
			}
		}
	}
	return nil
}

// between returns the first n runs in [from, to).
func (r *scheduleRecord) between(from, to time.Time, n int) (runs []ScheduledRun, err error) {
	rule, err := r.rule()
	if err != nil {
		return nil, err
	}
	add := func(run Run, state RunState) (more bool) {
		if !to.IsZero() && !run.Nominal.Before(to) || len(runs) == n {
			return false
		}
		runs = append(runs, ScheduledRun{run, state})
		return true
	}
	// The generation is when the rule was stored, in milliseconds, or a little later. Runs at that time or before are of
	// no rule that is known.
	first := max(store.UnixMillis(from)-1, r.Generation)
	for at := range rule.After(time.UnixMilli(first)) {
		if r.pastEnd(at.Nominal) {
			break
		}
		if !add(r.run(at.Nominal, at.Due, RunDue), RunPast) {
			return runs, nil
		}
	}
	if r.Next == 0 || r.PausedAt != 0 {
		return runs, nil
	}
	if r.Schedule.When.MaxRuns == 0 {
		for at := range rule.After(time.UnixMilli(max(first, r.Next-1))) {
			if !add(r.run(at.Nominal, at.Due, RunDue), RunPlanned) {
				break
			}
		}
		return runs, nil
	}
	next, err := r.upcoming()
	for i := 0; i < maxSkippedRuns; i++ {
		run, ok := next()
		if !ok || run.Nominal.UnixMilli() > first && !add(run, RunPlanned) {
			break
		}
	}
	return runs, err
}

// pastEnd reports whether a time of the rule is not past: it is to come, or there was no run any more.
func (r *scheduleRecord) pastEnd(nominal time.Time) bool {
	at := nominal.UnixMilli()
	switch {
	case r.PausedAt != 0:
		return at > r.PausedAt
	case r.Next != 0:
		return at >= r.Next
	}
	return at > r.LastNominal
}
