package schedule

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/laterq/later/recurrence"
	"github.com/laterq/later/store"
)

// Group is the group of all schedules, by which they are listed in order of name.
const Group = "schedules"

// maxPauseNote is the maximum length of the note of a pause, in bytes.
const maxPauseNote = 1024

// maxStateBytes is more than the JSON of a schedule's state takes: the note of a pause and the last id grow sixfold if
// all of their characters are escaped.
const maxStateBytes = 16 << 10

// recordVersion is the version of the records that this code writes. Records of later versions are left alone. Versions
// before 3 had text in the field "payload", and version 1 stored the default of MissedWithin, which was an hour.
const recordVersion = 3

// missedWithin1 is the default of MissedWithin in records of version 1.
const missedWithin1 = time.Hour

// Record is a schedule as it is stored: a line with the JSON of its state, and that of the Schedule.
type Record struct {
	State
	Schedule   Schedule
	definition []byte           // the JSON of Schedule, or nil
	compiled   *recurrence.Rule // of Schedule, or nil
}

// State is the state of a schedule. Times are milliseconds since 1970, 0 for none.
type State struct {
	Version int   `json:"v"`
	Created int64 `json:"created"`
	Changed int64 `json:"changed"`
	// Generation distinguishes the runs of a rule from the runs of an earlier one at the same times. It grows.
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

// Encode returns the payload of the record.
func (r *Record) Encode() []byte {
	r.Version = recordVersion
	state, err := json.Marshal(&r.State)
	if err == nil && r.definition == nil {
		r.definition, err = r.Schedule.MarshalJSON()
	}
	if err != nil {
		panic(fmt.Sprintf("later: a schedule that was checked has no JSON: %v", err))
	}
	return append(append(state, '\n'), r.definition...)
}

// errLaterVersion is the error of Decode for a record that a later version of this package wrote.
var errLaterVersion = fmt.Errorf("it was stored by a later version of this program: upgrade: %w", store.ErrUnsupported)

// Decode returns the record in a payload. It returns ErrCorrupt if it cannot be read. like may be an earlier
// record of the schedule, or nil; the common parts are not decoded again.
func Decode(name string, payload []byte, like *Record) (*Record, error) {
	r := new(Record)
	state, definition, _ := bytes.Cut(payload, []byte{'\n'})
	err := json.Unmarshal(state, &r.State)
	switch {
	case err == nil && r.Version > recordVersion:
		return nil, fmt.Errorf("schedule %q: %w", name, errLaterVersion)
	case err == nil && like != nil && bytes.Equal(definition, like.definition):
		r.Schedule, r.definition = like.Schedule, like.definition
		if r.Created == like.Created {
			r.compiled = like.compiled
		}
	case err == nil:
		if r.definition = definition; r.Version < recordVersion {
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
		return nil, fmt.Errorf("schedule %q cannot be read: %w: %w", name, store.ErrCorrupt, err)
	}
	return r, nil
}

// set replaces the schedule.
func (r *Record) set(s *Schedule) { r.Schedule, r.definition, r.compiled = *s, nil, nil }

// Rule returns the compiled rule of the schedule.
func (r *Record) Rule() (rule *recurrence.Rule, err error) {
	if r.compiled == nil {
		r.compiled, err = r.Schedule.rule(store.Time(r.Created))
	}
	return r.compiled, err
}

// Zone returns the zone of the schedule's rule, or UTC if this machine does not know it.
func (r *Record) Zone() *time.Location {
	if rule, err := r.Rule(); err == nil {
		return rule.Location()
	}
	return time.UTC
}

// restart sets the next run to the first one later than now, of a new generation.
func (r *Record) restart(now time.Time) error {
	r.Generation = max(r.Generation+1, now.UnixMilli())
	r.RunsBefore = r.Runs
	r.setNext(nil)
	return r.resume(now)
}

// resume sets the next run to the first one later than now, unless jitter delays an earlier one until then. A buffered
// run is skipped.
func (r *Record) resume(now time.Time) error {
	rule, err := r.Rule()
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
func (r *Record) outgoing(now time.Time) store.Outgoing {
	return store.Outgoing{
		Message: store.Message{
			ID: r.Schedule.Name, Payload: r.Encode(), Group: Group, MaxAttempts: store.MaxAttempts,
		},
		Due: store.Due{At: r.due(now)},
	}
}
