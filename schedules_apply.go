package later

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/laterq/later/internal/schedule"
	"github.com/laterq/later/store"
)

// ApplyOptions changes what Schedules.Apply does.
type ApplyOptions struct {
	// Set is the name of the set of the schedules; see Schedule.Set. Each must have it, or none, in which case it gets
	// it.
	Set string
	// Prune deletes the schedules of Set that are not among those that are applied. It requires Set.
	Prune bool
	// DryRun changes nothing.
	DryRun bool
}

// ScheduleChange is what Apply did with a schedule, or would do.
type ScheduleChange struct {
	Name   string
	Result PutResult // PutCreated, PutChanged, PutUnchanged or PutDeleted
	// Fields are the fields of the schedule's JSON that differ, sorted, with their old and new values. "" stands for a
	// field that is not there.
	Fields []FieldChange
}

// FieldChange is a field of a schedule that differs, with its values as JSON.
type FieldChange = schedule.FieldChange

// Apply stores schedules, such as those of a file in a repository, and returns what it did with each, sorted by name.
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

// apply stores a schedule, or finds out what that would change.
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
		return nil // deleted meanwhile
	}
	return err
}
