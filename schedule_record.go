package later

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/laterq/later/recurrence"
	"github.com/laterq/later/store"
)

// The queue reserved.Schedules has a message for each schedule. Its id is the schedule's name, its payload a
// scheduleRecord, and it is due when the schedule's next step is. So the record and what triggers it cannot come apart,
// and each step replaces the record in the same step of the store that sends the runs.

// schedulesGroup is the group of all schedules, by which they are listed in order of name.
const schedulesGroup = "schedules"

// maxPauseNote is the maximum length of the note of a pause, in bytes.
const maxPauseNote = 1024

// maxStateBytes is more than the JSON of a schedule's state takes: the note of a pause and the last id grow sixfold if
// all of their characters are escaped.
const maxStateBytes = 16 << 10

// scheduleVersion is the version of the records that this code writes. Those of later versions are left alone. Versions
// before 3 had text in the field "payload", and version 1 stored the default of MissedWithin, which was an hour.
const scheduleVersion = 3

// missedWithin1 is the default of MissedWithin in records of version 1.
const missedWithin1 = time.Hour

// scheduleRecord is a schedule as it is stored: a line with the JSON of its state, and that of the Schedule.
type scheduleRecord struct {
	scheduleState
	Schedule   Schedule
	definition []byte           // the JSON of Schedule, or nil
	compiled   *recurrence.Rule // of Schedule, or nil
}

// scheduleState is what became of a schedule. Times are milliseconds since 1970, 0 for none.
type scheduleState struct {
	Version int   `json:"v"`
	Created int64 `json:"created"`
	Changed int64 `json:"changed"`
	// Generation distinguishes the runs of a rule from those of an earlier one at the same times. It grows.
	Generation  int64    `json:"generation"`
	Next        int64    `json:"next,omitempty"` // nominal
	NextDue     int64    `json:"next_due,omitempty"`
	LastID      string   `json:"last_id,omitempty"`
	LastNominal int64    `json:"last,omitempty"`
	LastCause   RunCause `json:"last_cause,omitempty"`
	Buffered    int64    `json:"buffered,omitempty"` // nominal
	BufferedDue int64    `json:"buffered_due,omitempty"`
	Runs        int64    `json:"runs,omitempty"`
	RunsBefore  int64    `json:"runs_before,omitempty"` // of earlier generations, which do not count for MaxRuns
	Missed      int64    `json:"missed,omitempty"`
	LastMissed  int64    `json:"last_missed,omitempty"` // nominal
	Skipped     int64    `json:"skipped,omitempty"`
	LastSkipped int64    `json:"last_skipped,omitempty"` // nominal
	Triggered   int64    `json:"triggered,omitempty"`
	PausedAt    int64    `json:"paused_at,omitempty"`
	PauseNote   string   `json:"pause_note,omitempty"`
}

// encode returns the payload of the record.
func (r *scheduleRecord) encode() []byte {
	r.Version = scheduleVersion
	state, err := json.Marshal(&r.scheduleState)
	if err == nil && r.definition == nil {
		r.definition, err = r.Schedule.MarshalJSON()
	}
	if err != nil {
		panic(fmt.Sprintf("later: a schedule that was checked has no JSON: %v", err))
	}
	return append(append(state, '\n'), r.definition...)
}

// errLaterVersion is the error of decodeSchedule for a record that a later version of this package wrote.
var errLaterVersion = fmt.Errorf("it was stored by a later version of this program: upgrade: %w", ErrUnsupported)

// decodeSchedule returns the record in a payload. It returns ErrCorrupt if it cannot be read. like may be an earlier
// record of the schedule, or nil; what both have in common is not decoded again.
func decodeSchedule(name string, payload []byte, like *scheduleRecord) (*scheduleRecord, error) {
	r := new(scheduleRecord)
	state, definition, _ := bytes.Cut(payload, []byte{'\n'})
	err := json.Unmarshal(state, &r.scheduleState)
	switch {
	case err == nil && r.Version > scheduleVersion:
		return nil, fmt.Errorf("schedule %q: %w", name, errLaterVersion)
	case err == nil && like != nil && bytes.Equal(definition, like.definition):
		r.Schedule, r.definition = like.Schedule, like.definition
		if r.Created == like.Created {
			r.compiled = like.compiled
		}
	case err == nil:
		if r.definition = definition; r.Version < scheduleVersion {
			definition, r.definition = bytes.Replace(definition, []byte(`"payload":`), []byte(`"payload_text":`), 1), nil
		}
		err = r.Schedule.UnmarshalJSON(definition)
	}
	if r.Version == 1 && r.Schedule.MissedWithin == missedWithin1 {
		r.Schedule.MissedWithin, r.definition = 0, nil
	}
	if err == nil && r.Schedule.Name != name {
		err = fmt.Errorf("it is named %q", r.Schedule.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("schedule %q cannot be read: %w: %w", name, ErrCorrupt, err)
	}
	return r, nil
}

// set replaces the schedule.
func (r *scheduleRecord) set(s *Schedule) { r.Schedule, r.definition, r.compiled = *s, nil, nil }

// rule returns the compiled rule of the schedule.
func (r *scheduleRecord) rule() (rule *recurrence.Rule, err error) {
	if r.compiled == nil {
		r.compiled, err = r.Schedule.rule(store.Time(r.Created))
	}
	return r.compiled, err
}

// zone returns the zone of the schedule's rule, or UTC if this machine does not know it.
func (r *scheduleRecord) zone() *time.Location {
	if rule, err := r.rule(); err == nil {
		return rule.Location()
	}
	return time.UTC
}

// restart sets the next run to the first one later than now, of a new generation.
func (r *scheduleRecord) restart(now time.Time) error {
	r.Generation = max(r.Generation+1, now.UnixMilli())
	r.RunsBefore = r.Runs
	r.setNext(nil)
	return r.resume(now)
}

// resume sets the next run to the first one later than now, unless jitter delays an earlier one until then. A buffered
// run is skipped.
func (r *scheduleRecord) resume(now time.Time) error {
	rule, err := r.rule()
	if err != nil {
		return err
	}
	if r.Buffered != 0 {
		r.skip(r.Buffered)
		r.Buffered, r.BufferedDue = 0, 0
	}
	if ms := now.UnixMilli(); r.Next <= ms && ms < r.NextDue {
		return nil
	}
	r.setNext(nil)
	if next, ok := rule.Next(now); ok && !rule.Finished(int(r.Runs-r.RunsBefore)) {
		r.setNext(&next)
	}
	return nil
}

// outgoing returns the message of the record, due at its next step.
func (r *scheduleRecord) outgoing(now time.Time) store.Outgoing {
	return store.Outgoing{
		Message: store.Message{
			ID: r.Schedule.Name, Payload: r.encode(), Group: schedulesGroup, MaxAttempts: store.MaxAttempts,
		},
		Due: store.Due{At: r.due(now)},
	}
}

// ScheduleInfo is a schedule as it is stored, and what became of it.
type ScheduleInfo struct {
	Schedule
	// Created is when the schedule was first stored, Changed when it was last changed, on the store's clock.
	Created, Changed time.Time
	// Generation grows when the rule changes. The ids of runs contain it, so that a new rule can run at times at which
	// an old one did.
	Generation int64
	// NextRun is the next run: Nominal is zero if the schedule has finished or is paused.
	NextRun Run
	// LastRun is the last run that was sent, without Due. Nominal is zero if there was none.
	LastRun Run
	// Finished reports that the rule has no further times, or that MaxRuns is reached.
	Finished bool
	// Paused is set by Schedules.Pause, with its note and time.
	Paused    bool
	PauseNote string
	PausedAt  time.Time
	// Runs counts the runs that were sent because of the rule, MissedRuns those that were missed and left out,
	// SkippedRuns those that were left out because the one before was unfinished, and TriggeredRuns those of
	// Schedules.Trigger.
	Runs, MissedRuns, SkippedRuns, TriggeredRuns int64
	// MadeUpWithin is the age up to which missed runs are made up for: MissedWithin or its default.
	MadeUpWithin time.Duration
	// LastMissed and LastSkipped are the nominal times of the last of MissedRuns and SkippedRuns, or zero. Schedules.
	// Backfill sends a run that was left out.
	LastMissed, LastSkipped time.Time
	// Buffered is the nominal time of the run that waits for the end of the one before, or zero.
	Buffered time.Time

	record *scheduleRecord
}

// NextRuns returns up to n next runs, 1 to MaxRuns, as if all of them were sent. It uses no store. A schedule that is
// paused or has finished has none.
func (i *ScheduleInfo) NextRuns(n int) ([]Run, error) {
	if err := checkRunCount(n); err != nil {
		return nil, err
	}
	if i.record == nil {
		return nil, store.Invalid("schedule %q was not returned by Get or List: use Schedule.Next", i.Name)
	}
	next, err := i.record.upcoming()
	var runs []Run
	for run, ok := next(); ok && err == nil && len(runs) < n; run, ok = next() {
		runs = append(runs, run)
	}
	return runs, err
}

// upcoming returns a function that returns the next runs, one after the other.
func (r *scheduleRecord) upcoming() (next func() (Run, bool), err error) {
	none := func() (Run, bool) { return Run{}, false }
	rule, err := r.rule()
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
		run := r.run(at.Nominal, at.Due, RunDue)
		at, ok = rule.Next(at.Nominal)
		n++
		return run, true
	}, nil
}

// info returns what users see of the record.
func (r *scheduleRecord) info() *ScheduleInfo {
	i := &ScheduleInfo{
		Schedule: r.Schedule, Created: store.Time(r.Created), Changed: store.Time(r.Changed), Generation: r.Generation,
		Finished: r.Next == 0 && r.Buffered == 0 && r.PausedAt == 0, Paused: r.PausedAt != 0, PauseNote: r.PauseNote,
		PausedAt: store.Time(r.PausedAt), Runs: r.Runs, MissedRuns: r.Missed, SkippedRuns: r.Skipped,
		TriggeredRuns: r.Triggered, LastMissed: store.Time(r.LastMissed), LastSkipped: store.Time(r.LastSkipped),
		Buffered: store.Time(r.Buffered), record: r,
	}
	if rule, err := r.rule(); err == nil {
		i.MadeUpWithin = r.missedWithin(rule, i.Changed)
	}
	if r.Next != 0 && !i.Paused {
		zone := r.zone()
		i.NextRun = r.run(store.Time(r.Next).In(zone), store.Time(r.NextDue).In(zone), RunDue)
	}
	if r.LastID != "" {
		i.LastRun = Run{
			Schedule: r.Schedule.Name, Queue: r.Schedule.Queue, ID: r.LastID, Nominal: store.Time(r.LastNominal),
			Cause: r.LastCause,
		}
	}
	return i
}
