package later

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/internal/topic"
	"github.com/laterq/later/internal/version"
	"github.com/laterq/later/store"
)

// Schedules manages the schedules of a store. Client.Schedules returns it; its methods are safe for concurrent use.
//
// Workers send the runs: any of them, whatever its queues, and any number may race. A run is sent in the same step of
// the store that stores the time of the next one, so a crash neither loses nor doubles it. In a Cluster, where a step
// cannot change two queues, a run is sent first, under an id that is remembered for a day. A program without a worker
// calls Run.
type Schedules struct{ client *Client }

// Schedules returns the schedules of the client's store.
func (c *Client) Schedules() *Schedules { return &Schedules{c} }

// PutResult says what a Put did.
type PutResult string

// What a Put did.
const (
	PutCreated   PutResult = "created"
	PutChanged   PutResult = "changed"
	PutUnchanged PutResult = "unchanged"
)

// Put stores a schedule, or replaces the one with its name.
//
// It may be repeated: a schedule that is stored as it is does not change. If the rule or the time zone changes, the
// next run is the first one later than now on the store's clock, and MaxRuns counts from there; otherwise the
// next run stays. The counts and a pause stay in either case.
//
// Put returns ErrInvalid or ErrTooLarge for a schedule that is not allowed. The error names the field.
func (s *Schedules) Put(ctx context.Context, schedule Schedule) (PutResult, error) {
	return s.PutIf(ctx, schedule, nil)
}

// PutIf is Put on a condition: allow is called with the Version of the schedule that would be replaced, or "" if there
// is none. If it returns false, PutIf returns ErrConflict and changes nothing. Nobody can replace the schedule between
// the call of allow and the change: allow is then called again. An allow of nil allows it always.
func (s *Schedules) PutIf(ctx context.Context, schedule Schedule, allow func(version string) bool) (PutResult, error) {
	schedule.normalize()
	if err := schedule.check(); err != nil {
		return "", err
	}
	result := PutUnchanged
	err := s.change(ctx, schedule.Name, func(r *scheduleRecord, now time.Time) (err error) {
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

// Version returns a text that is different for a schedule with other fields. It does not depend on runs and pauses.
func (s Schedule) Version() string {
	s.normalize()
	text, err := s.MarshalJSON()
	if err != nil {
		return "" // it is not allowed
	}
	return version.Of(text)
}

// putInto makes a record that of the schedule. The record is empty if there is none.
func (s *Schedule) putInto(r *scheduleRecord, now time.Time) (PutResult, error) {
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
func (s *Schedules) change(ctx context.Context, name string, f func(*scheduleRecord, time.Time) error) error {
	if err := checkScheduleName(name); err != nil {
		return err
	}
	if err := s.client.begin(); err != nil {
		return err
	}
	defer s.client.calls.Done()
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		err := s.tryChange(ctx, name, f)
		switch {
		case errors.Is(err, errUnchanged):
			return nil
		case !errors.Is(err, ErrLeased) && !errors.Is(err, ErrConflict) && !errors.Is(err, ErrDuplicate):
			return err
		}
		if calls.Sleep(ctx, rand.N(wait)) != nil {
			return fmt.Errorf("schedule %q: %w", name, err)
		}
	}
}

// tryChange is one attempt of change. It returns ErrLeased, ErrConflict or ErrDuplicate if somebody else was faster.
func (s *Schedules) tryChange(ctx context.Context, name string, f func(*scheduleRecord, time.Time) error) error {
	stats, err := s.client.store.Stats(ctx, reserved.Schedules)
	if err != nil {
		return err
	}
	known, r, err := s.read(ctx, name)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	fresh := known == nil
	if fresh {
		r = new(scheduleRecord)
	}
	if err := f(r, stats.Now); err != nil {
		return err
	}
	if err := s.announce(ctx); err != nil {
		return err
	}
	m := r.outgoing(stats.Now)
	m.SentAt = store.Time(r.Created)
	if d := s.client.defaults; d != nil {
		m.Durable = d.Durability.asked
	}
	if !fresh {
		m.OnDuplicate = store.OnDuplicate{Mode: store.DuplicateReplace, Unchanged: known}
	}
	results, err := s.client.store.Send(ctx, reserved.Schedules, []store.Outgoing{m})
	switch {
	case err != nil:
		return err
	case results[0].Duplicate, errors.Is(results[0].Err, ErrNotFound):
		return ErrDuplicate // created or deleted meanwhile
	}
	return results[0].Err
}

// read returns a schedule's message and its record, or ErrNotFound.
func (s *Schedules) read(ctx context.Context, name string) (*store.Info, *scheduleRecord, error) {
	infos, err := s.client.store.Get(ctx, reserved.Schedules, []string{name})
	if err != nil {
		return nil, nil, err
	}
	if infos[0] == nil {
		return nil, nil, fmt.Errorf("schedule %q: %w", name, ErrNotFound)
	}
	r, err := recordOf(name, infos[0].Payload, infos[0].State, infos[0].LastError)
	return infos[0], r, err
}

// recordOf returns the record in a schedule's message.
func recordOf(name string, payload []byte, state State, lastError string) (*scheduleRecord, error) {
	if state == StateDead {
		return nil, fmt.Errorf("schedule %q does not run, because %s; replay it in queue %q, or delete it: %w", name,
			lastError, reserved.Schedules, ErrCorrupt)
	}
	return decodeSchedule(name, payload, nil)
}

// announce has workers look at the schedules.
func (s *Schedules) announce(ctx context.Context) error {
	if s.client.announced.Load() {
		return nil
	}
	err := s.client.store.SetProperties(ctx, reserved.TopicIndex, map[string]string{topic.SchedulesExist: "1"}, nil)
	if err == nil {
		s.client.announced.Store(true)
	}
	return err
}

// changeExisting is change for a schedule that must exist.
func (s *Schedules) changeExisting(ctx context.Context, name string, f func(*scheduleRecord, time.Time) error) error {
	return s.change(ctx, name, func(r *scheduleRecord, now time.Time) error {
		if r.Created == 0 {
			return fmt.Errorf("schedule %q: %w", name, ErrNotFound)
		}
		return f(r, now)
	})
}

// Get returns a schedule. It returns ErrNotFound if there is none with the name.
func (s *Schedules) Get(ctx context.Context, name string) (*ScheduleInfo, error) {
	if err := checkScheduleName(name); err != nil {
		return nil, err
	}
	if err := s.client.begin(); err != nil {
		return nil, err
	}
	defer s.client.calls.Done()
	_, r, err := s.read(ctx, name)
	if err != nil {
		return nil, err
	}
	return r.info(), nil
}

// Delete deletes a schedule. Runs that were sent stay in their queue. Delete returns ErrNotFound if there is none with
// the name.
func (s *Schedules) Delete(ctx context.Context, name string) error {
	if err := checkScheduleName(name); err != nil {
		return err
	}
	if err := s.client.begin(); err != nil {
		return err
	}
	defer s.client.calls.Done()
	results, err := s.client.store.Cancel(ctx, reserved.Schedules, store.CancelRequest{IDs: []string{name}})
	if err == nil {
		err = results[0].Err
	}
	if err != nil {
		return fmt.Errorf("schedule %q: %w", name, err)
	}
	return nil
}

// SchedulePage is a page of schedules.
type SchedulePage struct {
	Schedules []*ScheduleInfo
	// Unreadable has an error for each schedule of the page that cannot be read, which names it. Such a schedule does not
	// run.
	Unreadable []error
	// Next is the cursor of the next page, or "" if this is the last one.
	Next string
}

// List returns a page of all schedules, in order of name: up to limit, 1 to store.MaxBatch or 0 for 100, from a cursor
// on, which is "" for the first page and else SchedulePage.Next.
func (s *Schedules) List(ctx context.Context, cursor string, limit int) (page SchedulePage, err error) {
	records, unreadable, next, err := s.list(ctx, ListOptions{Group: schedulesGroup, Cursor: cursor, Limit: limit})
	page.Unreadable, page.Next = unreadable, next
	for _, r := range records {
		page.Schedules = append(page.Schedules, r.info())
	}
	return page, err
}

// All returns an iterator over all schedules, in order of name within a page. A schedule that cannot be read is an
// error, which names it. Iteration ends after an error of the store.
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

// list returns the records in a page of the schedules' queue, and an error for each that cannot be read.
func (s *Schedules) list(ctx context.Context, o ListOptions) (
	records []*scheduleRecord, unreadable []error, next string, err error,
) {
	page, err := s.client.Queue(reserved.Schedules).List(ctx, o)
	for _, info := range page.Messages {
		if r, err := recordOf(info.ID, info.Payload, info.State, info.LastError); err != nil {
			unreadable = append(unreadable, err)
		} else {
			records = append(records, r)
		}
	}
	return records, unreadable, page.Next, err
}
