package schedule

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/internal/topic"
	"github.com/laterq/later/internal/version"
	"github.com/laterq/later/store"
)

// Book has the schedules of a store.
type Book struct {
	Store     store.Store
	Durable   store.Durability // of changes
	announced atomic.Bool      // workers know that there are schedules
}

// PutResult is the effect of a Put.
type PutResult string

// Effects of a Put.
const (
	PutCreated   PutResult = "created"
	PutChanged   PutResult = "changed"
	PutUnchanged PutResult = "unchanged"
	PutDeleted   PutResult = "deleted"
)

// Put checks and stores a schedule, or replaces the one with its name. allow is called with the Version of the schedule
// that would be replaced, or "" if there is none, and may be nil. If it returns false, Put returns ErrConflict.
func (b *Book) Put(ctx context.Context, schedule Schedule, allow func(version string) bool) (PutResult, error) {
	schedule.normalize()
	if err := schedule.checkNormal(); err != nil {
		return "", err
	}
	result := PutUnchanged
	err := b.change(ctx, schedule.Name, func(r *Record, now time.Time) (err error) {
		current := ""
		if r.Created != 0 {
			current = r.Schedule.Version()
		}
		if allow != nil && !allow(current) {
			return version.ErrOther
		}
		result, err = schedule.putInto(r, now)
		return err
	})
	if errors.Is(err, version.ErrOther) { // which change would try again
		err = version.Conflict("schedule", schedule.Name)
	}
	return result, err
}

// putInto makes a record that of the schedule. The record is empty if there is none.
func (s *Schedule) putInto(r *Record, now time.Time) (PutResult, error) {
	switch {
	case r.Created == 0:
		r.set(s)
		r.Created, r.Changed = now.UnixMilli(), now.UnixMilli()
		return PutCreated, r.restart(now)
	case s.equal(&r.Schedule):
		return PutUnchanged, errUnchanged
	}
	sameRule := sameJSON(s.When, r.Schedule.When)
	r.set(s)
	r.Changed = now.UnixMilli()
	if sameRule {
		return PutChanged, nil
	}
	return PutChanged, r.restart(now)
}

// errUnchanged ends a change that leaves a schedule as it is.
var errUnchanged = errors.New("unchanged")

// changeTimeout limits how long a change waits for a worker that holds the schedule, besides the context.
const changeTimeout = 30 * time.Second

// change reads a schedule, changes it with f and stores it, unless f returns an error. If the schedule has changed
// meanwhile, it tries again. f gets an empty record if there is no schedule, and the store's clock.
func (b *Book) change(ctx context.Context, name string, f func(*Record, time.Time) error) error {
	if err := checkName(name); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		err := b.tryChange(ctx, name, f)
		switch {
		case errors.Is(err, errUnchanged):
			return nil
		case !errors.Is(err, store.ErrLeased) && !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrDuplicate):
			return err
		}
		if calls.Sleep(ctx, rand.N(wait)) != nil {
			return fmt.Errorf("schedule %q: %w", name, err)
		}
	}
}

// tryChange is one attempt of change. It returns ErrLeased, ErrConflict or ErrDuplicate if another caller was faster.
func (b *Book) tryChange(ctx context.Context, name string, f func(*Record, time.Time) error) error {
	stats, err := b.Store.Stats(ctx, reserved.Schedules)
	if err != nil {
		return err
	}
	known, r, err := b.read(ctx, name)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	fresh := known == nil
	if fresh {
		r = new(Record)
	}
	if err := f(r, stats.Now); err != nil {
		return err
	}
	if err := b.announce(ctx); err != nil {
		return err
	}
	m := r.outgoing(stats.Now)
	m.SentAt = store.Time(r.Created)
	m.Durable = b.Durable
	if !fresh {
		m.OnDuplicate = store.OnDuplicate{Mode: store.DuplicateReplace, Unchanged: known}
	}
	results, err := b.Store.Send(ctx, reserved.Schedules, []store.Outgoing{m})
	switch {
	case err != nil:
		return err
	case results[0].Duplicate, errors.Is(results[0].Err, store.ErrNotFound):
		return store.ErrDuplicate // created or deleted meanwhile
	}
	return results[0].Err
}

// read returns a schedule's message and its record, or ErrNotFound.
func (b *Book) read(ctx context.Context, name string) (*store.Info, *Record, error) {
	infos, err := b.Store.Get(ctx, reserved.Schedules, []string{name})
	if err != nil {
		return nil, nil, err
	}
	if infos[0] == nil {
		return nil, nil, fmt.Errorf("schedule %q: %w", name, store.ErrNotFound)
	}
	r, err := recordOf(name, infos[0].Payload, infos[0].State, infos[0].LastError)
	return infos[0], r, err
}

// recordOf returns the record in a schedule's message.
func recordOf(name string, payload []byte, state store.State, lastError string) (*Record, error) {
	if state == store.StateDead {
		return nil, fmt.Errorf("schedule %q does not run, because %s; replay it in queue %q, or delete it: %w", name,
			lastError, reserved.Schedules, store.ErrCorrupt)
	}
	return Decode(name, payload, nil)
}

// announce has workers look at the schedules.
func (b *Book) announce(ctx context.Context) error {
	if b.announced.Load() {
		return nil
	}
	err := b.Store.SetProperties(ctx, reserved.TopicIndex, map[string]string{topic.SchedulesExist: "1"}, nil)
	if err == nil {
		b.announced.Store(true)
	}
	return err
}

// changeExisting is change for a schedule that must exist.
func (b *Book) changeExisting(ctx context.Context, name string, f func(*Record, time.Time) error) error {
	return b.change(ctx, name, func(r *Record, now time.Time) error {
		if r.Created == 0 {
			return fmt.Errorf("schedule %q: %w", name, store.ErrNotFound)
		}
		return f(r, now)
	})
}

// Pause stops the runs of a schedule until Resume, with a note.
func (b *Book) Pause(ctx context.Context, name, note string) error {
	if len(note) > maxPauseNote {
		return store.Invalid("note is %d bytes long: the limit is %d", len(note), maxPauseNote)
	}
	if !utf8.ValidString(note) {
		return store.Invalid("note %q is not UTF-8", note)
	}
	return b.changeExisting(ctx, name, func(r *Record, now time.Time) error {
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

// Resume lets a paused schedule run again, next at the first time later than now.
func (b *Book) Resume(ctx context.Context, name string) error {
	return b.changeExisting(ctx, name, func(r *Record, now time.Time) error {
		if r.PausedAt == 0 {
			return errUnchanged
		}
		r.PausedAt, r.PauseNote = 0, ""
		return r.resume(now)
	})
}

// Trigger returns a run that is due now, in addition to the rule, and its message.
func (b *Book) Trigger(ctx context.Context, name string) (run Run, m store.Outgoing, err error) {
	r, err := b.record(ctx, name)
	if err != nil {
		return run, m, err
	}
	stats, err := b.Store.Stats(ctx, r.Schedule.Queue)
	now := stats.Now.Truncate(time.Millisecond)
	run = r.Run(now, now, RunTriggered)
	run.ID = runID(name, now, store.NewID())
	return run, r.messageNow(run), err
}

// Triggered counts a run that Trigger returned and that was sent.
func (b *Book) Triggered(ctx context.Context, run Run) error {
	return b.changeExisting(ctx, run.Schedule, func(r *Record, _ time.Time) error {
		r.Triggered++
		r.sentLast(run)
		return nil
	})
}

// Backfill returns the messages of the runs at the times of the rule in [from, to), and their queue.
func (b *Book) Backfill(ctx context.Context, name string, from, to time.Time) (
	queue string, msgs []store.Outgoing, err error,
) {
	if !from.Before(to) {
		return "", nil, errRange("backfill", from, to)
	}
	r, err := b.record(ctx, name)
	if err != nil {
		return "", nil, err
	}
	rule, err := r.Rule()
	if err != nil {
		return "", nil, err
	}
	for at := range rule.After(from.Add(-time.Millisecond)) {
		if !at.Nominal.Before(to) {
			break
		}
		if len(msgs) == MaxRuns {
			return "", nil, store.TooLarge("backfill has more than %d runs: give a shorter range", MaxRuns)
		}
		msgs = append(msgs, r.messageNow(r.Run(at.Nominal, at.Due, RunBackfilled)))
	}
	return r.Schedule.Queue, msgs, nil
}

// messageNow returns the message of a run that is sent at once.
func (r *Record) messageNow(run Run) store.Outgoing {
	m := r.Message(run)
	m.Due = store.Due{}
	return m
}

// record returns the record of a schedule, or ErrNotFound.
func (b *Book) record(ctx context.Context, name string) (*Record, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	_, r, err := b.read(ctx, name)
	return r, err
}

// Get returns a schedule, or ErrNotFound.
func (b *Book) Get(ctx context.Context, name string) (*Info, error) {
	r, err := b.record(ctx, name)
	if err != nil {
		return nil, err
	}
	return newInfo(r), nil
}

// Delete deletes a schedule. It returns ErrNotFound if there is none with the name.
func (b *Book) Delete(ctx context.Context, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	results, err := b.Store.Cancel(ctx, reserved.Schedules, store.CancelRequest{IDs: []string{name}})
	if err == nil {
		err = results[0].Err
	}
	if err != nil {
		return fmt.Errorf("schedule %q: %w", name, err)
	}
	return nil
}

// Page is a page of schedules.
type Page struct {
	Schedules []*Info
	// Unreadable has an error for each schedule of the page that cannot be read. The error names the schedule, which
	// does not run.
	Unreadable []error
	// Next is the cursor of the next page, or "" if this is the last one.
	Next string
}

// List returns a page of up to limit schedules, in order of name.
func (b *Book) List(ctx context.Context, cursor string, limit int) (page Page, err error) {
	records, unreadable, next, err := b.list(ctx, store.ListRequest{Group: Group, Cursor: cursor, Limit: limit})
	page.Unreadable, page.Next = unreadable, next
	for _, r := range records {
		page.Schedules = append(page.Schedules, newInfo(r))
	}
	return page, err
}

func (b *Book) list(ctx context.Context, req store.ListRequest) (
	records []*Record, unreadable []error, next string, err error,
) {
	page, err := b.Store.List(ctx, reserved.Schedules, req)
	for i := range page.Messages {
		info := &page.Messages[i]
		if r, err := recordOf(info.ID, info.Payload, info.State, info.LastError); err != nil {
			unreadable = append(unreadable, err)
		} else {
			records = append(records, r)
		}
	}
	return records, unreadable, page.Next, err
}

// Runs returns the first n runs of a schedule in [from, to), with their states.
func (b *Book) Runs(ctx context.Context, name string, from, to time.Time, n int) ([]ScheduledRun, error) {
	if err := checkCount(n); err != nil {
		return nil, err
	}
	if !to.IsZero() && !from.Before(to) {
		return nil, errRange("runs", from, to)
	}
	r, err := b.record(ctx, name)
	if err != nil {
		return nil, err
	}
	runs, err := r.Between(from, to, n)
	if err != nil {
		return nil, err
	}
	return runs, b.addStates(ctx, r.Schedule.Queue, runs)
}

// errRange is the error for a range of times that ends before it begins.
func errRange(of string, from, to time.Time) error {
	return store.Invalid("%s from %s to %s: give a time and a later one", of, from.Format(time.RFC3339),
		to.Format(time.RFC3339))
}

// addStates sets the states of runs whose messages are live.
func (b *Book) addStates(ctx context.Context, queue string, runs []ScheduledRun) error {
	for part := range slices.Chunk(runs, store.MaxBatch) {
		ids := make([]string, len(part))
		for i := range part {
			ids[i] = part[i].ID
		}
		infos, err := b.Store.Get(ctx, queue, ids)
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
