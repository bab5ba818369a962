package later

import (
	"encoding/json"
	"time"

	"github.com/laterq/later/internal/schedule"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/recurrence"
	"github.com/laterq/later/store"
)

// Schedule sends a message to a queue again and again: each time that its rule says is a run, and each run is a
// message of its own. Schedules.Put stores it.
type Schedule struct {
	// Name identifies the schedule in the store, up to MaxScheduleName bytes.
	Name string
	// Queue is the queue that receives the messages.
	Queue string
	// When says when the schedule runs.
	When recurrence.Spec

	// Payload, Headers, MaxAttempts, Timeout, ExpireAfter and Group apply to each message; see Outgoing. The defaults
	// and middleware of sends apply too, from the client of the worker that sends the run. The whole schedule, with a
	// list of times, has up to 1,008 KiB as JSON.
	Payload     []byte
	Headers     map[string]string
	MaxAttempts int
	Timeout     time.Duration
	ExpireAfter time.Duration
	Group       string
	// DedupWindow is how long the id of a run is refused after its ack, so that a Backfill does not run it again.
	// Default: 24 hours, and no less.
	DedupWindow time.Duration

	// Missed is the treatment of runs that are late by more than a minute, because no worker was there. Default:
	// MissedOne.
	Missed MissedPolicy
	// MissedWithin is the greatest age of a missed run that is made up for, up to store.MaxDelay. 0 is the default,
	// which follows the rule: the longest distance between its next runs, but an hour to 31 days. For MissedAll it is
	// MissedMax times that distance, within the same limits. See ScheduleInfo.MadeUpWithin.
	MissedWithin time.Duration
	// MissedMax is the number of missed runs that MissedAll makes up for, the latest ones, up to MaxRuns. Default: 100.
	MissedMax int

	// Unfinished is the treatment of a run that is due while the one before is still scheduled, ready or leased, for
	// example because it is retried. Default: UnfinishedSkip.
	Unfinished UnfinishedPolicy

	// Set names the schedules that are applied together, up to MaxScheduleSet bytes; see Schedules.Apply.
	Set string
}

// MissedPolicy is the treatment of the missed runs of a schedule. A run that is late by up to a minute is
// not missed: it is sent.
type MissedPolicy = schedule.MissedPolicy

// Policies for missed runs. Runs that are not made up for are counted in ScheduleInfo.MissedRuns.
const (
	MissedNone = schedule.MissedNone // they are left out
	MissedOne  = schedule.MissedOne  // the latest is sent, unless another run has fallen due since
	MissedAll  = schedule.MissedAll  // they are sent, in order
)

// UnfinishedPolicy is the treatment of a run of a schedule that is due while the one before is unfinished.
type UnfinishedPolicy = schedule.UnfinishedPolicy

// Policies for a run while the one before is unfinished.
const (
	UnfinishedSkip  = schedule.UnfinishedSkip  // it is left out, and counted in ScheduleInfo.SkippedRuns
	UnfinishedAllow = schedule.UnfinishedAllow // it is sent: runs can overlap
	// UnfinishedBuffer keeps one run, which is sent within a second after the one before has ended. Further ones are
	// skipped.
	UnfinishedBuffer = schedule.UnfinishedBuffer
)

const (
	// MaxScheduleName is the maximum length of a schedule's name, in bytes. The ids of its messages are longer.
	MaxScheduleName = schedule.MaxName
	// MaxScheduleSet is the maximum length of the name of a set of schedules, in bytes.
	MaxScheduleSet = schedule.MaxSet
	// MaxRuns is the maximum number of runs that one call of Next, Upcoming or Backfill returns or sends, and that
	// Schedule.MissedMax allows.
	MaxRuns = schedule.MaxRuns
)

// stored returns the schedule as internal/schedule knows it.
func (s *Schedule) stored() *schedule.Schedule { return (*schedule.Schedule)(s) }

// Check returns the ErrInvalid or ErrTooLarge that Put would return for the schedule, or nil.
func (s *Schedule) Check() error { return s.stored().Check() }

// Version returns a text that is different for a schedule with other fields. It does not depend on runs and pauses.
func (s Schedule) Version() string { return s.stored().Version() }

// Next returns the first n runs later than after, without a store. Rules that count from the creation of the schedule
// count from after. n is 1 to MaxRuns; there are fewer runs if the rule ends.
func (s *Schedule) Next(after time.Time, n int) ([]Run, error) { return s.stored().Next(after, n) }

// MarshalJSON returns the JSON of the schedule, as in a file for Apply and in the store. The fields of When are next to
// its own.
func (s Schedule) MarshalJSON() ([]byte, error) { return s.stored().MarshalJSON() }

// UnmarshalJSON replaces the schedule by one that MarshalJSON returned or a user wrote. A payload that is a JSON
// value has its content type in Headers. A field that it does not know is an error.
func (s *Schedule) UnmarshalJSON(text []byte) error { return s.stored().UnmarshalJSON(text) }

// Run is one run of a schedule: a message in its queue, or one that is to come. Schedule is the name of the schedule,
// and Queue the queue that receives the message.
//
// ID is the id of the message. It derives from the schedule's name, its generation and Nominal, and is empty for a run
// of Schedule.Next. Nominal is the time that the rule says, or for RunTriggered when the run was triggered. Due is when
// the run is due: Nominal and the jitter. Cause says why the run is sent.
type Run = schedule.Run

// RunCause says why a run is sent.
type RunCause = schedule.RunCause

// Why runs are sent.
const (
	RunDue        = schedule.RunDue        // its time has come
	RunMissed     = schedule.RunMissed     // it was missed, and is made up for; see MissedPolicy
	RunBuffered   = schedule.RunBuffered   // the run before it has ended; see UnfinishedBuffer
	RunTriggered  = schedule.RunTriggered  // Schedules.Trigger
	RunBackfilled = schedule.RunBackfilled // Schedules.Backfill
)

// RunOf returns the run of a schedule that a message is, and reports whether it is one. Run.Due is when the message is
// due, which may have been rescheduled.
func RunOf(m *Message) (Run, bool) { return schedule.RunOf(m.Queue, m.ID, m.Headers, m.Due) }

// ScheduleInfo is a schedule as it is stored, with its state.
type ScheduleInfo struct {
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
	// Paused is set by Schedules.Pause, with its note and time.
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

	record *schedule.Record
}

// NextRuns returns up to n next runs, 1 to MaxRuns, as if all of them were sent. It uses no store. A schedule that is
// paused or has finished has none.
func (i *ScheduleInfo) NextRuns(n int) ([]Run, error) {
	if err := schedule.CheckCount(n); err != nil {
		return nil, err
	}
	if i.record == nil {
		return nil, store.Invalid("schedule %q was not returned by Get or List: use Schedule.Next", i.Name)
	}
	next, err := i.record.Upcoming()
	var runs []Run
	for run, ok := next(); ok && err == nil && len(runs) < n; run, ok = next() {
		runs = append(runs, run)
	}
	return runs, err
}

// newScheduleInfo returns the parts of a record that users see.
func newScheduleInfo(r *schedule.Record) *ScheduleInfo {
	i := &ScheduleInfo{
		Schedule: Schedule(r.Schedule), Created: store.Time(r.Created), Changed: store.Time(r.Changed), Generation: r.Generation,
		Finished: r.Next == 0 && r.Buffered == 0 && r.PausedAt == 0, Paused: r.PausedAt != 0, PauseNote: r.PauseNote,
		PausedAt: store.Time(r.PausedAt), Runs: r.Runs, MissedRuns: r.Missed, SkippedRuns: r.Skipped,
		TriggeredRuns: r.Triggered, LastMissed: store.Time(r.LastMissed), LastSkipped: store.Time(r.LastSkipped),
		Buffered: store.Time(r.Buffered), record: r,
	}
	if rule, err := r.Rule(); err == nil {
		i.MadeUpWithin = r.MissedWithin(rule, i.Changed)
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
func (i ScheduleInfo) MarshalJSON() ([]byte, error) {
	definition, err := i.Schedule.MarshalJSON()
	if err != nil {
		return nil, err
	}
	status, err := json.Marshal(wire.ScheduleStatus{
		Created: wire.FormatTime(i.Created), Changed: wire.FormatTime(i.Changed), Generation: i.Generation,
		NextRun: schedule.RunJSON(i.NextRun), LastRun: schedule.RunJSON(i.LastRun), Finished: i.Finished, Paused: i.Paused,
		PauseNote: i.PauseNote, PausedAt: wire.FormatTime(i.PausedAt), Runs: i.Runs, MissedRuns: i.MissedRuns,
		SkippedRuns: i.SkippedRuns, TriggeredRuns: i.TriggeredRuns, LastMissed: wire.FormatTime(i.LastMissed),
		LastSkipped: wire.FormatTime(i.LastSkipped), MadeUpWithin: i.MadeUpWithin.String(),
		Buffered: wire.FormatTime(i.Buffered),
	})
	return schedule.JoinObjects(definition, status), err
}

// RunState is the state of a run: the State of its message if that is live, or else RunPlanned or RunPast.
type RunState = schedule.RunState

const (
	RunPlanned = schedule.RunPlanned // it is to come
	RunPast    = schedule.RunPast    // its time is over, and its message is not live: done, missed or skipped
)

// ScheduledRun is a run of a schedule, past or to come.
type ScheduledRun = schedule.ScheduledRun
