package schedule

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/laterq/later/store"
)

// ApplyOptions are the options of Book.Apply.
type ApplyOptions struct {
	// Set is the name of the set of the schedules; see Schedule.Set. Each schedule must be in this set, or in no set:
	// it is then added to this one.
	Set string
	// Prune deletes the schedules of Set that are not among the applied ones. It requires Set.
	Prune bool
	// DryRun changes nothing.
	DryRun bool
}

// Change is the change that Apply made to a schedule, or would make.
type Change struct {
	Name   string
	Result PutResult // PutCreated, PutChanged, PutUnchanged or PutDeleted
	// Fields are the fields of the schedule's JSON that differ, sorted, with their old and new values. "" stands for a
	// field that is not there.
	Fields []FieldChange
}

// FieldChange is a field of a schedule that differs.
type FieldChange struct{ Name, Old, New string } // values as JSON

// Apply stores schedules, and returns a change for each, sorted by name. It checks all before it stores the first. It
// calls the book through call, which may refuse: so no call follows the end of a client.
func (b *Book) Apply(
	ctx context.Context, schedules []Schedule, o ApplyOptions, call func(func() error) error,
) ([]Change, error) {
	schedules, err := o.prepare(schedules)
	if err != nil {
		return nil, err
	}
	var changes []Change
	names := map[string]bool{}
	for i := range schedules {
		var change Change
		err := call(func() (err error) {
			change, err = b.apply(ctx, &schedules[i], o.DryRun)
			return err
		})
		if err != nil {
			return changes, fmt.Errorf("schedule %q: %w", schedules[i].Name, err)
		}
		names[change.Name] = true
		changes = append(changes, change)
	}
	if o.Prune {
		pruned, err := b.prune(ctx, names, o, call)
		if changes = append(changes, pruned...); err != nil {
			return changes, err
		}
	}
	slices.SortFunc(changes, func(a, b Change) int { return strings.Compare(a.Name, b.Name) })
	return changes, nil
}

// prepare checks the schedules, and returns them in their set and with their defaults.
func (o ApplyOptions) prepare(schedules []Schedule) ([]Schedule, error) {
	if o.Prune && o.Set == "" {
		return nil, store.Invalid("schedules are to be pruned without a set: name one, so that schedules of others stay")
	}
	var errs []error
	names := map[string]bool{}
	schedules = slices.Clone(schedules)
	for i := range schedules {
		s := &schedules[i]
		if s.Set != "" && s.Set != o.Set {
			errs = append(errs, store.Invalid("schedule %q is in set %q: leave that out, or apply set %q", s.Name, s.Set, s.Set))
		}
		s.Set = o.Set
		s.normalize()
		if err := s.checkNormal(); err != nil {
			errs = append(errs, fmt.Errorf("schedule %d: %w", i+1, err))
		}
		if s.Name != "" && names[s.Name] {
			errs = append(errs, store.Invalid("schedule %q is given twice: give it once", s.Name))
		}
		names[s.Name] = true
	}
	return schedules, errors.Join(errs...)
}

// apply stores a schedule, or in a dry run finds out the result.
func (b *Book) apply(ctx context.Context, put *Schedule, dry bool) (change Change, err error) {
	change = Change{Name: put.Name, Result: PutCreated}
	var before *Schedule
	switch info, err := b.Get(ctx, put.Name); {
	case err == nil:
		before = &info.Schedule
	case !errors.Is(err, store.ErrNotFound):
		return change, err
	}
	switch {
	case before == nil:
	case before.Set != put.Set && before.Set != "":
		return change, store.Invalid("it is in set %q already: give it another name, or delete it first", before.Set)
	case put.equal(before):
		change.Result = PutUnchanged
	default:
		change.Result = PutChanged
	}
	if change.Fields, err = fieldChanges(before, put); err == nil && !dry {
		change.Result, err = b.Put(ctx, *put, nil)
	}
	return change, err
}

// prune deletes the schedules of a set without the names, and returns these changes.
func (b *Book) prune(
	ctx context.Context, names map[string]bool, o ApplyOptions, call func(func() error) error,
) (changes []Change, err error) {
	for cursor, more := "", true; more; more = cursor != "" {
		var page Page
		err := call(func() (err error) {
			page, err = b.List(ctx, cursor, store.MaxBatch)
			return err
		})
		if err != nil {
			return changes, err
		}
		for _, info := range page.Schedules {
			if info.Set != o.Set || names[info.Name] {
				continue
			}
			if !o.DryRun {
				err := call(func() error { return b.Delete(ctx, info.Name) })
				if err != nil && !errors.Is(err, store.ErrNotFound) { // another process has deleted it
					return changes, err
				}
			}
			fields, err := fieldChanges(&info.Schedule, nil)
			if err != nil {
				return changes, err
			}
			changes = append(changes, Change{info.Name, PutDeleted, fields})
		}
		if len(page.Unreadable) > 0 {
			return changes, page.Unreadable[0]
		}
		cursor = page.Next
	}
	return changes, nil
}

// fieldChanges returns the fields that differ. Each schedule may be nil.
func fieldChanges(before, after *Schedule) (changes []FieldChange, err error) {
	old, err := jsonFields(before)
	if err != nil {
		return nil, err
	}
	now, err := jsonFields(after)
	if err != nil {
		return nil, err
	}
	all := slices.AppendSeq(slices.Collect(maps.Keys(old)), maps.Keys(now))
	slices.Sort(all)
	for _, name := range slices.Compact(all) {
		if !bytes.Equal(old[name], now[name]) {
			changes = append(changes, FieldChange{name, string(old[name]), string(now[name])})
		}
	}
	return changes, nil
}

func jsonFields(s *Schedule) (fields map[string]json.RawMessage, err error) {
	if s == nil {
		return nil, nil
	}
	text, err := json.Marshal(s)
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	return fields, err
}
