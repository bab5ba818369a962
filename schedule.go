package later

import "github.com/laterq/later/internal/schedule"

// Schedule sends a message to a queue again and again: each time that its rule says is a run, and each run is a
// message of its own. Schedules.Put stores it.
//
// Name identifies it in the store, up to 80 bytes. Queue is the queue that receives the messages, and When says when.
// Payload, Headers and the other fields that an Outgoing has, too, apply to each message; DedupWindow is 24 hours by
// default, and no less. Missed, MissedWithin and MissedMax say what becomes of runs that are late by more than a minute
// because no worker was there, and Unfinished what becomes of a run while the one before is unfinished. Set names the
// schedules that are applied together; see Schedules.Apply.
type Schedule = schedule.Schedule

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

// ScheduleInfo is a schedule as it is stored, with its state. Its method NextRuns returns the runs to come.
type ScheduleInfo = schedule.Info

// RunState is the state of a run: the State of its message if that is live, or else RunPlanned or RunPast.
type RunState = schedule.RunState

const (
	RunPlanned = schedule.RunPlanned // it is to come
	RunPast    = schedule.RunPast    // its time is over, and its message is not live: done, missed or skipped
)

// ScheduledRun is a run of a schedule, past or to come.
type ScheduledRun = schedule.ScheduledRun
