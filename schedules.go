package later

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/laterq/later/internal/schedule"
	"github.com/laterq/later/store"
)

// Schedules manages the schedules of a store. Client.Schedules returns it; its methods are safe for concurrent use.
//
// Workers send the runs: any of them, whatever its queues, and any number may race. A run is sent in the same step of
// the store that stores the time of the next one, so a crash neither loses nor doubles it. In a Cluster, where a step
// cannot change two queues, a run is sent first, under an id that is remembered for a day. A program without a worker
// calls Run.
type Schedules struct {
	client *Client
	book   *schedule.Book
}

// Schedules returns the schedules of the client's store.
func (c *Client) Schedules() *Schedules { return &Schedules{c, &c.schedules} }

// call makes calls to the store.
func (s *Schedules) call(f func() error) error { return s.client.call(f) }

// PutResult is the effect of a Put.
type PutResult = schedule.PutResult

// Effects of a Put.
const (
	PutCreated   = schedule.PutCreated
	PutChanged   = schedule.PutChanged
	PutUnchanged = schedule.PutUnchanged
	PutDeleted   = schedule.PutDeleted // by Apply
)

// Put stores a schedule, or replaces the one with its name.
//
// It may be repeated: a schedule that is stored as it is does not change. If the rule or the time zone changes, the
// next run is the first one later than now on the store's clock, and When.MaxRuns counts from there; otherwise the
// next run stays. The counts and a pause stay in either case.
//
// Put returns ErrInvalid or ErrTooLarge for a schedule that is not allowed. The error names the field. Conditions get
// the Version of the schedule that is replaced, or "" for a new schedule.
func (s *Schedules) Put(ctx context.Context, put Schedule, conditions ...Condition) (PutResult, error) {
	return called(s.client, func() (PutResult, error) { return s.book.Put(ctx, put, allOf(conditions)) })
}

// Get returns a schedule. It returns ErrNotFound if there is none with the name.
func (s *Schedules) Get(ctx context.Context, name string) (*ScheduleInfo, error) {
	return called(s.client, func() (*ScheduleInfo, error) { return s.book.Get(ctx, name) })
}

// Delete deletes a schedule. Runs that were sent stay in their queue. Delete returns ErrNotFound if there is none with
// the name.
func (s *Schedules) Delete(ctx context.Context, name string) error {
	return s.call(func() error { return s.book.Delete(ctx, name) })
}

// SchedulePage is a page of schedules: Schedules, and Unreadable with an error for each schedule of the page that
// cannot be read. The error names the schedule, which does not run. Next is the cursor of the next page, or "" if this
// is the last one.
type SchedulePage = schedule.Page

// List returns a page of all schedules, in order of name: up to limit, 1 to store.MaxBatch or 0 for 100, from a cursor
// on, which is "" for the first page and else SchedulePage.Next.
func (s *Schedules) List(ctx context.Context, cursor string, limit int) (page SchedulePage, err error) {
	req, err := (&ListOptions{Group: schedule.Group, Limit: limit, Cursor: cursor}).request()
	if err != nil {
		return page, err
	}
	return called(s.client, func() (SchedulePage, error) { return s.book.List(ctx, req.Cursor, req.Limit) })
}

// All returns an iterator over all schedules, in order of name within a page. For a schedule that cannot be read it
// yields an error that names the schedule. Iteration ends after an error of the store.
func (s *Schedules) All(ctx context.Context) iter.Seq2[*ScheduleInfo, error] {
	return func(yield func(*ScheduleInfo, error) bool) {
		for cursor := ""; ; {
			page, err := s.List(ctx, cursor, store.MaxBatch)
			for _, info := range page.Schedules {
				if !yield(info, nil) {
					return
				}
			}
			for _, unreadable := range page.Unreadable {
				if !yield(nil, unreadable) {
					return
				}
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if cursor = page.Next; cursor == "" {
				return
			}
		}
	}
}

// Pause stops the runs of a schedule until Resume, with a note of up to 1,024 bytes for people. It returns ErrNotFound
// if the schedule does not exist. A schedule that is paused already gets the note.
func (s *Schedules) Pause(ctx context.Context, name, note string) error {
	return s.call(func() error { return s.book.Pause(ctx, name, note) })
}

// Resume lets a paused schedule run again, next at the first time later than now. The runs during the pause do not
// count as missed; a run that was buffered counts as skipped. Resume returns ErrNotFound if the schedule does not
// exist. A schedule that is not paused does not change.
func (s *Schedules) Resume(ctx context.Context, name string) error {
	return s.call(func() error { return s.book.Resume(ctx, name) })
}

// Trigger sends a run now, in addition to the rule, and returns it. It does so even if the schedule is paused or has
// finished, or a run is unfinished; a run that is due afterwards finds this one unfinished. It returns ErrNotFound if
// the schedule does not exist.
//
// If Trigger returns a run with an ID and an error, the run was sent but not counted.
func (s *Schedules) Trigger(ctx context.Context, name string) (run Run, err error) {
	var m store.Outgoing
	err = s.call(func() (err error) {
		run, m, err = s.book.Trigger(ctx, name)
		return err
	})
	if err == nil {
		_, err = s.sendRuns(ctx, run.Queue, m)
	}
	if err != nil {
		return Run{}, err
	}
	return run, s.call(func() error { return s.book.Triggered(ctx, run) })
}

// sendRuns sends the messages of runs.
func (s *Schedules) sendRuns(ctx context.Context, queue string, runs ...store.Outgoing) ([]SendResult, error) {
	msgs := make([]Outgoing, len(runs))
	for i := range runs {
		msgs[i] = outgoingRun(runs[i])
	}
	results, err := s.client.Queue(queue).SendBatch(ctx, msgs)
	if err != nil {
		err = fmt.Errorf("runs could not be sent to queue %q: %w", queue, err)
	}
	return results, err
}

// outgoingRun returns the message of a run to be sent.
func outgoingRun(m store.Outgoing) Outgoing {
	o := OutgoingOf(m.Message)
	if o.When, o.run = In(0), true; m.Due != (store.Due{}) {
		o.When = At(m.Due.At)
	}
	return o
}

// Backfilled is the result of a Backfill.
type Backfilled struct {
	// Runs counts the times of the rule in the range, Sent the runs that were sent, and Duplicates the runs that were
	// left out because their message is still there, or was acked within Schedule.DedupWindow.
	Runs, Sent, Duplicates int
}

// Backfill sends runs at once for the times of the rule in [from, to), at most 10,000: in order, whether or not runs
// are unfinished, and without counting for When.MaxRuns. It may be repeated: a run that was sent is not sent again
// within its dedup window. With dry set it sends nothing and returns how many times there are.
//
// Backfill returns ErrNotFound if the schedule does not exist. After an error the result counts the runs that were
// sent.
func (s *Schedules) Backfill(ctx context.Context, name string, from, to time.Time, dry bool) (
	result Backfilled, err error,
) {
	var queue string
	var runs []store.Outgoing
	err = s.call(func() (err error) {
		queue, runs, err = s.book.Backfill(ctx, name, from, to)
		return err
	})
	if result.Runs = len(runs); err != nil || dry || len(runs) == 0 {
		return result, err
	}
	results, err := s.sendRuns(ctx, queue, runs...)
	for _, r := range results {
		switch {
		case r.Duplicate:
			result.Duplicates++
		case r.Err == nil || errors.Is(r.Err, ErrNotDurable):
			result.Sent++
		}
	}
	return result, err
}

// Upcoming returns the next n runs of all schedules, in order of due time, as if all of them were sent. n is 1 to
// 10,000. Its cost depends on n, not on the number of schedules. It leaves out schedules that cannot be read.
func (s *Schedules) Upcoming(ctx context.Context, n int) ([]Run, error) {
	return called(s.client, func() ([]Run, error) { return s.book.Upcoming(ctx, n) })
}

// Runs returns up to n runs of a schedule with nominal times in [from, to), in order: past runs since its rule was
// stored, and coming runs as if all of them were sent. n is 1 to 10,000, and a zero to means no limit. A schedule that
// is paused or has finished has none to come. Triggered runs are left out.
//
// Runs returns ErrNotFound if the schedule does not exist.
func (s *Schedules) Runs(ctx context.Context, name string, from, to time.Time, n int) ([]ScheduledRun, error) {
	return called(s.client, func() ([]ScheduledRun, error) { return s.book.Runs(ctx, name, from, to, n) })
}

// Run sends the runs of all schedules until ctx ends, for a program without a worker. Workers do it by themselves. It
// returns the errors of Worker.Run.
func (s *Schedules) Run(ctx context.Context) error { return s.Worker().Run(ctx) }

// Worker returns the worker that Run runs. It is a worker without queues. Claimed stays open while there are no
// schedules.
func (s *Schedules) Worker() *Worker {
	w := NewWorker(s.client, WorkerConfig{Unlisted: true})
	w.onlySchedules = true
	return w
}

// ApplyOptions are the options of Schedules.Apply.
//
// Set is the name of the set of the schedules; see Schedule.Set. Each schedule must be in this set, or in no set: it is
// then added to this one. Prune deletes the schedules of Set that are not among the applied ones. It requires Set.
// DryRun changes nothing.
type ApplyOptions = schedule.ApplyOptions

// ScheduleChange is the change that Apply made to a schedule, or would make. Result is PutCreated, PutChanged,
// PutUnchanged or PutDeleted. Fields are the fields of the schedule's JSON that differ, sorted, with their old and new
// values. "" stands for a field that is not there.
type ScheduleChange = schedule.Change

// Apply stores schedules, such as the ones of a file in a repository, and returns a change for each, sorted by name.
//
// All are checked before the first is stored. If some are not allowed, Apply returns an ErrInvalid that lists them, and
// changes nothing. Each schedule is stored as by Put. After another error some may have been stored; it is safe to
// apply again, and the changes so far are returned.
func (s *Schedules) Apply(ctx context.Context, schedules []Schedule, o ApplyOptions) ([]ScheduleChange, error) {
	return s.book.Apply(ctx, schedules, o, s.client.call)
}
