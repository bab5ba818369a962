package schedule

import (
	"maps"
	"strconv"
	"time"

	"github.com/laterq/later/store"
)

// Run is one run of a schedule: a message in its queue, or one that is to come.
type Run struct {
	Schedule string
	// Queue is the queue that receives the message.
	Queue string
	// ID is the id of the message. It derives from the schedule's name, its generation and Nominal. It is empty for a
	// run of Schedule.Next.
	ID string
	// Nominal is the time that the rule of the schedule says. For RunTriggered it is when the run was triggered.
	Nominal time.Time
	// Due is when the run is due: Nominal and the jitter.
	Due   time.Time
	Cause RunCause
}

// RunCause says why a run is sent.
type RunCause string

// Why runs are sent.
const (
	RunDue        RunCause = "due"        // its time has come
	RunMissed     RunCause = "missed"     // it was missed, and is made up for; see MissedPolicy
	RunBuffered   RunCause = "buffered"   // the run before it has ended; see UnfinishedBuffer
	RunTriggered  RunCause = "triggered"  // Schedules.Trigger
	RunBackfilled RunCause = "backfilled" // Schedules.Backfill
)

// The headers of a run's message; see RunOf.
const (
	NameHeader    = "schedule"
	nominalHeader = "schedule-nominal"
	causeHeader   = "schedule-cause"
)

// nominalLayout is RFC 3339 in UTC with milliseconds.
const nominalLayout = "2006-01-02T15:04:05.000Z"

// RunOf returns the run of a schedule that a message is, and reports whether it is one.
func RunOf(queue, id string, headers map[string]string, due time.Time) (Run, bool) {
	name := headers[NameHeader]
	nominal, err := time.Parse(time.RFC3339, headers[nominalHeader])
	if name == "" || err != nil {
		return Run{}, false
	}
	cause := RunCause(headers[causeHeader])
	if cause == "" {
		cause = RunDue
	}
	return Run{Schedule: name, Queue: queue, ID: id, Nominal: nominal, Due: due, Cause: cause}, true
}

// runID returns the id of a run.
func runID(name string, nominal time.Time, generation string) string {
	return name + "@" + nominal.UTC().Format(nominalLayout) + "~" + generation
}

// Run returns the run at a nominal time.
func (r *Record) Run(nominal, due time.Time, cause RunCause) Run {
	id := runID(r.Schedule.Name, nominal, strconv.FormatInt(r.Generation, 36))
	return Run{Schedule: r.Schedule.Name, Queue: r.Schedule.Queue, ID: id, Nominal: nominal, Due: due, Cause: cause}
}

// Message returns the message of a run.
func (r *Record) Message(run Run) store.Outgoing {
	headers := map[string]string{NameHeader: r.Schedule.Name, nominalHeader: run.Nominal.UTC().Format(nominalLayout)}
	if run.Cause != RunDue {
		headers[causeHeader] = string(run.Cause)
	}
	maps.Copy(headers, r.Schedule.Headers)
	m := store.Outgoing{Message: r.Schedule.message(), Due: store.Due{At: run.Due}, Relayed: true}
	m.ID, m.Headers = run.ID, headers
	return m
}
