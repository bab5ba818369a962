package later

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
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
func (s *Schedules) call(f func() error) error {
	if err := s.client.begin(); err != nil {
		return err
	}
	defer s.client.calls.Done()
	return f()
}

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
// next run is the first one later than now on the store's clock, and MaxRuns counts from there; otherwise the
// next run stays. The counts and a pause stay in either case.
//
// Put returns ErrInvalid or ErrTooLarge for a schedule that is not allowed. The error names the field.
func (s *Schedules) Put(ctx context.Context, put Schedule) (PutResult, error) {
	return s.PutIf(ctx, put, nil)
}

// PutIf is Put on a condition: allow is called with the Version of the schedule that would be replaced, or "" for a new
// schedule. If it returns false, PutIf returns ErrConflict and changes nothing. If the schedule is replaced between the
// call of allow and the change, allow is called again. A nil allow always allows the change.
func (s *Schedules) PutIf(
	ctx context.Context, put Schedule, allow func(version string) bool,
) (result PutResult, err error) {
	put.stored().Normalize()
	if err := put.stored().CheckNormal(); err != nil {
		return "", err
	}
	err = s.call(func() (err error) {
		result, err = s.book.Put(ctx, *put.stored(), allow)
		return err
	})
	return result, err
}

// Get returns a schedule. It returns ErrNotFound if there is none with the name.
func (s *Schedules) Get(ctx context.Context, name string) (info *ScheduleInfo, err error) {
	if err := schedule.CheckName(name); err != nil {
		return nil, err
	}
	err = s.call(func() error {
		r, err := s.book.Get(ctx, name)
		if err == nil {
			info = newScheduleInfo(r)
		}
		return err
	})
	return info, err
}

// Delete deletes a schedule. Runs that were sent stay in their queue. Delete returns ErrNotFound if there is none with
// the name.
func (s *Schedules) Delete(ctx context.Context, name string) error {
	if err := schedule.CheckName(name); err != nil {
		return err
	}
	return s.call(func() error { return s.book.Delete(ctx, name) })
}

// SchedulePage is a page of schedules.
type SchedulePage struct {
	Schedules []*ScheduleInfo
	// Unreadable has an error for each schedule of the page that cannot be read. The error names the schedule, which
	// does not run.
	Unreadable []error
	// Next is the cursor of the next page, or "" if this is the last one.
	Next string
}

// List returns a page of all schedules, in order of name: up to limit, 1 to store.MaxBatch or 0 for 100, from a cursor
// on, which is "" for the first page and else SchedulePage.Next.
func (s *Schedules) List(ctx context.Context, cursor string, limit int) (page SchedulePage, err error) {
	req, err := (&ListOptions{Group: schedule.Group, Limit: limit, Cursor: cursor}).request()
	if err != nil {
		return page, err
	}
	err = s.call(func() error {
		records, unreadable, next, err := s.book.List(ctx, req.Cursor, req.Limit)
		page.Unreadable, page.Next = unreadable, next
		for _, r := range records {
			page.Schedules = append(page.Schedules, newScheduleInfo(r))
		}
		return err
	})
	return page, err
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
	return s.named(name, func() error { return s.book.Pause(ctx, name, note) })
}

// Resume lets a paused schedule run again, next at the first time later than now. The runs during the pause do not
// count as missed; a run that was buffered counts as skipped. Resume returns ErrNotFound if the schedule does not
// exist. A schedule that is not paused does not change.
func (s *Schedules) Resume(ctx context.Context, name string) error {
	return s.named(name, func() error { return s.book.Resume(ctx, name) })
}

// named makes calls for the schedule with a name.
func (s *Schedules) named(name string, f func() error) error {
	if err := schedule.CheckName(name); err != nil {
		return err
	}
	return s.call(f)
}

// Trigger sends a run now, in addition to the rule, and returns it. It does so even if the schedule is paused or has
// finished, or a run is unfinished; a run that is due afterwards finds this one unfinished. It returns ErrNotFound if
// the schedule does not exist.
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
		Schedule: name, Queue: info.Queue, ID: schedule.RunID(name, now, store.NewID()), Nominal: now, Due: now,
		Cause: RunTriggered,
	}
	m := runMessage(info.record, run)
	if err := s.sendRuns(ctx, queue, []Outgoing{m}, func(SendResult) {}); err != nil {
		return Run{}, err
	}
	return run, s.call(func() error { return s.book.Triggered(ctx, name, run) })
}

// runMessage returns the message of a run that is sent now.
func runMessage(r *schedule.Record, run Run) Outgoing {
	o := outgoingOf(r.Message(run))
	o.When = In(0)
	return o
}

// outgoingOf returns the message of a run to be sent.
func outgoingOf(m store.Outgoing) Outgoing {
	o := OutgoingOf(m.Message)
	o.When, o.run = At(m.Due.At), true
	return o
}

// Backfilled is the result of a Backfill.
type Backfilled struct {
	// Runs counts the times of the rule in the range, Sent the runs that were sent, and Duplicates the runs that were
	// left out because their message is still there, or was acked within Schedule.DedupWindow.
	Runs, Sent, Duplicates int
}

// Backfill sends runs at once for the times of the rule in [from, to), at most MaxRuns: in order, whether or not runs
// are unfinished, and without counting for MaxRuns. It may be repeated: a run that was sent is not sent again within
// its dedup window. With dry set it sends nothing and returns how many times there are.
//
// Backfill returns ErrNotFound if the schedule does not exist. After an error the result counts the runs that were
// sent.
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
	rule, err := info.record.Rule()
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
		msgs = append(msgs, runMessage(info.record, info.record.Run(at.Nominal, at.Due, RunBackfilled)))
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
// MaxRuns. Its cost depends on n, not on the number of schedules. It leaves out schedules that cannot be read.
func (s *Schedules) Upcoming(ctx context.Context, n int) (runs []Run, err error) {
	if err := schedule.CheckCount(n); err != nil {
		return nil, err
	}
	err = s.call(func() error {
		records, err := s.book.Earliest(ctx, n)
		if err == nil {
			runs, err = schedule.Upcoming(records, n)
		}
		return err
	})
	return runs, err
}

// Runs returns up to n runs of a schedule with nominal times in [from, to), in order: past runs since its rule was
// stored, and coming runs as if all of them were sent. n is 1 to MaxRuns, and a zero to means no limit. A schedule that
// is paused or has finished has none to come. Triggered runs are left out.
//
// Runs returns ErrNotFound if the schedule does not exist.
func (s *Schedules) Runs(ctx context.Context, name string, from, to time.Time, n int) ([]ScheduledRun, error) {
	if err := schedule.CheckCount(n); err != nil {
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
	runs, err := info.record.Between(from, to, n)
	if err != nil {
		return nil, err
	}
	return runs, s.call(func() error { return s.book.AddStates(ctx, info.Queue, runs) })
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
type ApplyOptions struct {
	// Set is the name of the set of the schedules; see Schedule.Set. Each schedule must be in this set, or in no set:
	// it is then added to this one.
	Set string
	// Prune deletes the schedules of Set that are not among the applied ones. It requires Set.
	Prune bool
	// DryRun changes nothing.
	DryRun bool
}

// ScheduleChange is the change that Apply made to a schedule, or would make.
type ScheduleChange struct {
	Name   string
	Result PutResult // PutCreated, PutChanged, PutUnchanged or PutDeleted
	// Fields are the fields of the schedule's JSON that differ, sorted, with their old and new values. "" stands for a
	// field that is not there.
	Fields []FieldChange
}

// FieldChange is a field of a schedule that differs, with its values as JSON.
type FieldChange = schedule.FieldChange

// Apply stores schedules, such as the ones of a file in a repository, and returns a change for each, sorted by name.
//
// All are checked before the first is stored. If some are not allowed, Apply returns an ErrInvalid that lists them, and
// changes nothing. Each schedule is stored as by Put. After another error some may have been stored; it is safe to
// apply again, and the changes so far are returned.
func (s *Schedules) Apply(ctx context.Context, schedules []Schedule, o ApplyOptions) ([]ScheduleChange, error) {
	schedules, err := o.check(schedules)
	if err != nil {
		return nil, err
	}
	var changes []ScheduleChange
	names := map[string]bool{}
	for _, put := range schedules {
		names[put.Name] = true
		change, err := s.apply(ctx, &put, o)
		if err != nil {
			return changes, fmt.Errorf("schedule %q: %w", put.Name, err)
		}
		changes = append(changes, change)
	}
	if o.Prune {
		for info, err := range s.All(ctx) {
			if err != nil {
				return changes, err
			}
			if info.Set != o.Set || names[info.Name] {
				continue
			}
			if err := s.prune(ctx, info.Name, o); err != nil {
				return changes, err
			}
			fields, err := schedule.FieldChanges(info.Schedule.stored(), nil)
			if err != nil {
				return changes, err
			}
			changes = append(changes, ScheduleChange{info.Name, PutDeleted, fields})
		}
	}
	slices.SortFunc(changes, func(a, b ScheduleChange) int { return strings.Compare(a.Name, b.Name) })
	return changes, nil
}

// check returns the schedules in their set, with their defaults.
func (o ApplyOptions) check(schedules []Schedule) ([]Schedule, error) {
	if o.Prune && o.Set == "" {
		return nil, store.Invalid("schedules are to be pruned without a set: name one, so that those of others stay")
	}
	var errs []error
	names := map[string]bool{}
	checked := slices.Clone(schedules)
	for i := range checked {
		s := &checked[i]
		if s.Set != "" && s.Set != o.Set {
			errs = append(errs, store.Invalid("schedule %q is in set %q: leave that out, or apply set %q", s.Name, s.Set, s.Set))
		}
		s.Set = o.Set
		s.stored().Normalize()
		if err := s.stored().CheckNormal(); err != nil {
			errs = append(errs, fmt.Errorf("schedule %d: %w", i+1, err))
		}
		if s.Name != "" && names[s.Name] {
			errs = append(errs, store.Invalid("schedule %q is given twice: give it once", s.Name))
		}
		names[s.Name] = true
	}
	return checked, errors.Join(errs...)
}

// apply stores a schedule, or in a dry run finds out the result.
func (s *Schedules) apply(ctx context.Context, put *Schedule, o ApplyOptions) (ScheduleChange, error) {
	change := ScheduleChange{Name: put.Name, Result: PutCreated}
	info, err := s.Get(ctx, put.Name)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return change, err
	}
	var before *Schedule
	if err == nil {
		before = &info.Schedule
		if before.Set != put.Set && before.Set != "" {
			return change, store.Invalid("it is in set %q already: give it another name, or delete it first", before.Set)
		}
		change.Result = PutChanged
		if put.stored().Equal(before.stored()) {
			change.Result = PutUnchanged
		}
	}
	if change.Fields, err = schedule.FieldChanges(before.stored(), put.stored()); err != nil || o.DryRun {
		return change, err
	}
	change.Result, err = s.Put(ctx, *put)
	return change, err
}

func (s *Schedules) prune(ctx context.Context, name string, o ApplyOptions) error {
	if o.DryRun {
		return nil
	}
	err := s.Delete(ctx, name)
	if errors.Is(err, ErrNotFound) {
		return nil // deleted in between
	}
	return err
}
