package later

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/laterq/later/store"
)

// Pause stops the runs of a schedule until Resume, with a note of up to 1,024 bytes for people. It returns ErrNotFound
// if there is no schedule with the name. A schedule that is paused already gets the note.
func (s *Schedules) Pause(ctx context.Context, name, note string) error {
	if len(note) > maxPauseNote {
		return store.Invalid("note is %d bytes long: the limit is %d", len(note), maxPauseNote)
	}
	if !utf8.ValidString(note) {
		return store.Invalid("note %q is not UTF-8", note)
	}
	return s.changeExisting(ctx, name, func(r *scheduleRecord, now time.Time) error {
		switch {
		case r.PausedAt != 0 && r.PauseNote == note:
			return errUnchanged
		case r.PausedAt == 0:
			r.PausedAt = now.UnixMilli()
		}
		r.PauseNote = note
		return nil
	})
}

// Resume lets a paused schedule run again, next at the first time later than now. The runs of the meantime do not count
// as missed; one that was buffered counts as skipped. Resume returns ErrNotFound if there is no schedule with the name;
// one that is not paused does not change.
func (s *Schedules) Resume(ctx context.Context, name string) error {
	return s.changeExisting(ctx, name, func(r *scheduleRecord, now time.Time) error {
		if r.PausedAt == 0 {
			return errUnchanged
		}
		r.PausedAt, r.PauseNote = 0, ""
		return r.resume(now)
	})
}

// Trigger sends a run now, besides those of the rule, and returns it. It does so even if the schedule is paused or has
// finished, or a run is unfinished; a run that is due afterwards finds this one unfinished. It returns ErrNotFound if
// there is no schedule with the name.
//
// If Trigger returns a run with an ID and an error, the run was sent but not counted.
func (s *Schedules) Trigger(ctx context.Context, name string) (Run, error) {
	info, err := s.Get(ctx, name)
	if err != nil {
		return Run{}, err
	}
	queue := s.client.Queue(info.Queue)
	stats, err := queue.Stats(ctx)
	if err != nil {
		return Run{}, err
	}
	now := stats.Now.Truncate(time.Millisecond)
	run := Run{
		Schedule: name, Queue: info.Queue, ID: runID(name, now, store.NewID()), Nominal: now, Due: now,
		Cause: RunTriggered,
	}
	m := info.record.message(run)
	m.When = In(0)
	if err := s.sendRuns(ctx, queue, []Outgoing{m}, func(SendResult) {}); err != nil {
		return Run{}, err
	}
	err = s.changeExisting(ctx, name, func(r *scheduleRecord, _ time.Time) error {
		r.Triggered++
		r.sentLast(run)
		return nil
	})
	return run, err
}

// Backfilled is the result of a Backfill.
type Backfilled struct {
	// Runs counts the times of the rule in the range, Sent the runs that were sent, and Duplicates those that were left
	// out because their message is still there, or was acked within Schedule.DedupWindow.
	Runs, Sent, Duplicates int
}

// Backfill sends runs at once for the times of the rule in [from, to), at most MaxRuns: in order, whether or not runs
// are unfinished, and without counting for MaxRuns. It may be repeated: a run that was sent is not sent again within
// its dedup window. With dry set it sends nothing and returns how many times there are.
//
// Backfill returns ErrNotFound if there is no schedule with the name. After an error the result counts what was sent.
func (s *Schedules) Backfill(ctx context.Context, name string, from, to time.Time, dry bool) (Backfilled, error) {
	var result Backfilled
	if !from.Before(to) {
		return result, store.Invalid("backfill from %s to %s: give a time and a later one", from.Format(time.RFC3339),
			to.Format(time.RFC3339))
	}
	info, err := s.Get(ctx, name)
	if err != nil {
		return result, err
	}
	rule, err := info.record.rule()
	if err != nil {
		return result, err
	}
	var msgs []Outgoing
	for at := range rule.After(from.Add(-time.Millisecond)) {
		if !at.Nominal.Before(to) {
			break
		}
		if len(msgs) == MaxRuns {
			return result, store.TooLarge("backfill has more than %d runs: give a shorter range", MaxRuns)
		}
		m := info.record.message(info.record.run(at.Nominal, at.Due, RunBackfilled))
		m.When = In(0)
		msgs = append(msgs, m)
	}
	result.Runs = len(msgs)
	if dry || len(msgs) == 0 {
		return result, nil
	}
	err = s.sendRuns(ctx, s.client.Queue(info.Queue), msgs, func(r SendResult) {
		switch {
		case r.Duplicate:
			result.Duplicates++
		case r.Err == nil || errors.Is(r.Err, ErrNotDurable):
			result.Sent++
		}
	})
	return result, err
}

// sendRuns sends messages of runs and calls each with their results.
func (s *Schedules) sendRuns(ctx context.Context, q *Queue, msgs []Outgoing, each func(SendResult)) error {
	results, err := q.SendBatch(ctx, msgs)
	for _, r := range results {
		each(r)
	}
	if err != nil {
		return fmt.Errorf("runs could not be sent to queue %q: %w", q.name, err)
	}
	return nil
}

// Upcoming returns the next n runs of all schedules, in order of due time, as if all of them were sent. n is 1 to
// MaxRuns. Its cost depends on n, not on the number of schedules. Schedules that cannot be read have no runs.
func (s *Schedules) Upcoming(ctx context.Context, n int) ([]Run, error) {
	if err := checkRunCount(n); err != nil {
		return nil, err
	}
	records, err := s.earliest(ctx, n)
	if err != nil {
		return nil, err
	}
	var next runHeap
	for _, r := range records {
		upcoming, err := r.upcoming()
		if err != nil {
			return nil, err
		}
		if run, ok := upcoming(); ok {
			next = append(next, nextRun{run, upcoming})
		}
	}
	heap.Init(&next)
	var runs []Run
	for len(runs) < n && len(next) > 0 {
		first := &next[0]
		runs = append(runs, first.Run)
		var ok bool
		if first.Run, ok = first.upcoming(); ok {
			heap.Fix(&next, 0)
		} else {
			heap.Pop(&next)
		}
	}
	return runs, nil
}

// earliest returns the n schedules with a next run that are due first, which have the n next runs of all, and those
// that a worker holds.
func (s *Schedules) earliest(ctx context.Context, n int) (all []*scheduleRecord, err error) {
	for _, state := range []State{StateLeased, StateReady, StateScheduled} {
		for o := (ListOptions{State: state, Limit: min(n, store.MaxBatch)}); ; {
			records, _, next, err := s.list(ctx, o)
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
			if o.Cursor = next; next == "" || len(all) >= n || parkedFrom {
				break
			}
		}
	}
	return all, nil
}

// Run sends the runs of all schedules until ctx ends, for a program that has no worker. Workers do it by themselves. It
// returns the errors of Worker.Run.
func (s *Schedules) Run(ctx context.Context) error { return s.Worker().Run(ctx) }

// Worker returns the worker that Run runs. It has no queue, and Claimed stays open while there are no schedules.
func (s *Schedules) Worker() *Worker {
	w := NewWorker(s.client, WorkerConfig{Unlisted: true})
	w.onlySchedules = true
	return w
}

// nextRun is the next run of a schedule, and a function that returns those that follow.
type nextRun struct {
	Run
	upcoming func() (Run, bool)
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
