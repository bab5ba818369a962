package schedule

import (
	"encoding/json"
	"time"

	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

// Info is a schedule as it is stored, with its state.
type Info struct {
	Schedule
	// Created is when the schedule was first stored, Changed when it was last changed, on the store's clock.
	Created, Changed time.Time
	// Generation grows when the rule changes. The ids of runs contain it, so that a new rule can run at the times of an
	// old one.
	Generation int64
	// NextRun is the next run: Nominal is zero if the schedule has finished or is paused.
	NextRun Run
	// LastRun is the last run that was sent, without Due. Nominal is zero if there was none.
	LastRun Run
	// Finished is set when the rule has reached its last time or MaxRuns.
	Finished bool
	// Paused is set by Book.Pause, with its note and time.
	Paused    bool
	PauseNote string
	PausedAt  time.Time
	// Runs counts the runs that were sent because of the rule, MissedRuns the runs that were missed and left out,
	// SkippedRuns the runs that were left out because the run before was unfinished, and TriggeredRuns the runs of
	// Schedules.Trigger.
	Runs, MissedRuns, SkippedRuns, TriggeredRuns int64
	// MadeUpWithin is the greatest age of a missed run that is made up for: MissedWithin or its default.
	MadeUpWithin time.Duration
	// LastMissed and LastSkipped are the nominal times of the last of MissedRuns and SkippedRuns, or zero. Schedules.
	// Backfill sends a run that was left out.
	LastMissed, LastSkipped time.Time
	// Buffered is the nominal time of the run that waits for the end of the one before, or zero.
	Buffered time.Time

	record *Record
}

// NextRuns returns up to n next runs, 1 to MaxRuns, as if all of them were sent. It uses no store. A schedule that is
// paused or has finished has none.
func (i *Info) NextRuns(n int) ([]Run, error) {
	if err := checkCount(n); err != nil {
		return nil, err
	}
	if i.record == nil {
		return nil, store.Invalid("schedule %q was not returned by Get or List: use Schedule.Next", i.Name)
	}
	return upcoming([]*Record{i.record}, n)
}

// newInfo returns the parts of a record that users see.
func newInfo(r *Record) *Info {
	i := &Info{
		Schedule: r.Schedule, Created: store.Time(r.Created), Changed: store.Time(r.Changed), Generation: r.Generation,
		Finished: r.Next == 0 && r.Buffered == 0 && r.PausedAt == 0, Paused: r.PausedAt != 0, PauseNote: r.PauseNote,
		PausedAt: store.Time(r.PausedAt), Runs: r.Runs, MissedRuns: r.Missed, SkippedRuns: r.Skipped,
		TriggeredRuns: r.Triggered, LastMissed: store.Time(r.LastMissed), LastSkipped: store.Time(r.LastSkipped),
		Buffered: store.Time(r.Buffered), record: r,
	}
	if rule, err := r.Rule(); err == nil {
		i.MadeUpWithin = r.missedWithin(rule, i.Changed)
	}
	if r.Next != 0 && !i.Paused {
		zone := r.Zone()
		i.NextRun = r.Run(store.Time(r.Next).In(zone), store.Time(r.NextDue).In(zone), RunDue)
	}
	if r.LastID != "" {
		i.LastRun = Run{
			Schedule: r.Schedule.Name, Queue: r.Schedule.Queue, ID: r.LastID, Nominal: store.Time(r.LastNominal),
			Cause: r.LastCause,
		}
	}
	return i
}

// MarshalJSON returns the JSON of the schedule with its status, as the later command prints it; see docs/cli.md.
func (i Info) MarshalJSON() ([]byte, error) {
	definition, err := i.Schedule.MarshalJSON()
	if err != nil {
		return nil, err
	}
	status, err := json.Marshal(wire.ScheduleStatus{
		Created: wire.FormatTime(i.Created), Changed: wire.FormatTime(i.Changed), Generation: i.Generation,
		NextRun: runJSON(i.NextRun), LastRun: runJSON(i.LastRun), Finished: i.Finished, Paused: i.Paused,
		PauseNote: i.PauseNote, PausedAt: wire.FormatTime(i.PausedAt), Runs: i.Runs, MissedRuns: i.MissedRuns,
		SkippedRuns: i.SkippedRuns, TriggeredRuns: i.TriggeredRuns, LastMissed: wire.FormatTime(i.LastMissed),
		LastSkipped: wire.FormatTime(i.LastSkipped), MadeUpWithin: i.MadeUpWithin.String(),
		Buffered: wire.FormatTime(i.Buffered),
	})
	return joinObjects(definition, status), err
}
