package schedule

import (
	"container/heap"
	"context"
	"time"

	"github.com/laterq/later/recurrence"
	"github.com/laterq/later/store"
)

// RunState is the state of a run: the State of its message if that is live, or else RunPlanned or RunPast.
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

// Between returns the first n runs in [from, to).
func (r *Record) Between(from, to time.Time, n int) (runs []ScheduledRun, err error) {
	rule, err := r.Rule()
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
	// The generation is when the rule was stored, in milliseconds, or a little later. Runs at that time or before are
	// of no rule that is known.
	first := max(store.UnixMillis(from)-1, r.Generation)
	for at := range rule.After(time.UnixMilli(first)) {
		if r.pastEnd(at.Nominal) {
			break
		}
		if !add(r.Run(at.Nominal, at.Due, RunDue), RunPast) {
			return runs, nil
		}
	}
	if r.Next == 0 || r.PausedAt != 0 {
		return runs, nil
	}
	if r.Schedule.When.MaxRuns == 0 {
		for at := range rule.After(time.UnixMilli(max(first, r.Next-1))) {
			if !add(r.Run(at.Nominal, at.Due, RunDue), RunPlanned) {
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
func (r *Record) pastEnd(nominal time.Time) bool {
	at := nominal.UnixMilli()
	switch {
	case r.PausedAt != 0:
		return at > r.PausedAt
	case r.Next != 0:
		return at >= r.Next
	}
	return at > r.LastNominal
}

// upcoming returns a function that returns the next runs, one after the other.
func (r *Record) upcoming() (next func() (Run, bool), err error) {
	none := func() (Run, bool) { return Run{}, false }
	rule, err := r.Rule()
	if err != nil || r.Next == 0 || r.PausedAt != 0 {
		return none, err
	}
	zone := rule.Location()
	at := recurrence.Occurrence{Nominal: store.Time(r.Next).In(zone), Due: store.Time(r.NextDue).In(zone)}
	ok, n := true, int(r.Runs-r.RunsBefore)
	return func() (Run, bool) {
		if !ok || rule.Finished(n) {
			return Run{}, false
		}
		run := r.Run(at.Nominal, at.Due, RunDue)
		at, ok = rule.Next(at.Nominal)
		n++
		return run, true
	}, nil
}

// Upcoming returns the next n runs of all schedules that can be read, in order of due time.
func (b *Book) Upcoming(ctx context.Context, n int) ([]Run, error) {
	if err := checkCount(n); err != nil {
		return nil, err
	}
	records, err := b.earliest(ctx, n)
	if err != nil {
		return nil, err
	}
	return upcoming(records, n)
}

// earliest returns the n schedules with a next run that are due first, which have the n next runs of all, and the
// schedules that a worker holds.
func (b *Book) earliest(ctx context.Context, n int) (all []*Record, err error) {
	for _, state := range []store.State{store.StateLeased, store.StateReady, store.StateScheduled} {
		for req := (store.ListRequest{State: state, Limit: min(n, store.MaxBatch)}); ; {
			records, _, next, err := b.list(ctx, req)
			if err != nil {
				return nil, err
			}
			for _, r := range records {
				if r.Next != 0 && r.PausedAt == 0 {
					all = append(all, r)
				}
			}
			last := len(records) - 1
			parkedFrom := last >= 0 && records[last].due(time.Time{}).Equal(parked)
			if req.Cursor = next; next == "" || len(all) >= n || parkedFrom {
				break
			}
		}
	}
	return all, nil
}

// upcoming returns the next n runs of schedules, in order of due time.
func upcoming(records []*Record, n int) ([]Run, error) {
	var next runHeap
	for _, r := range records {
		following, err := r.upcoming()
		if err != nil {
			return nil, err
		}
		if run, ok := following(); ok {
			next = append(next, nextRun{run, following})
		}
	}
	heap.Init(&next)
	var runs []Run
	for len(runs) < n && len(next) > 0 {
		first := &next[0]
		runs = append(runs, first.Run)
		var ok bool
		if first.Run, ok = first.following(); ok {
			heap.Fix(&next, 0)
		} else {
			heap.Pop(&next)
		}
	}
	return runs, nil
}

// nextRun is the next run of a schedule, and a function that returns the runs that follow.
type nextRun struct {
	Run
	following func() (Run, bool)
}

// runHeap is a heap of schedules by their next runs.
type runHeap []nextRun

func (h runHeap) Len() int           { return len(h) }
func (h runHeap) Less(i, j int) bool { return h[i].Due.Before(h[j].Due) }
func (h runHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *runHeap) Push(x any)        { *h = append(*h, x.(nextRun)) }
func (h *runHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}
