package wire

import (
	"encoding/json"
	"slices"

	"github.com/laterq/later/internal/message"
	"github.com/laterq/later/store"
)

// The JSON of results that programs print and serve. Names are in snake case. Times are RFC 3339 in UTC with
// milliseconds; durations are texts such as 1h30m0s. A field that is always known is always there; others are left out
// if they are not set.

// Info is a live message as it is now.
type Info struct {
	ID    string      `json:"id"`
	Queue string      `json:"queue"`
	State store.State `json:"state"`
	Due   string      `json:"due,omitempty"`
	message.Content
	Attempts      int              `json:"attempts"`
	Delivered     bool             `json:"delivered"`
	SentAt        string           `json:"sent_at,omitempty"`
	LeaseDeadline string           `json:"lease_deadline,omitempty"`
	Follows       bool             `json:"follows,omitempty"`
	LastError     string           `json:"last_error,omitempty"`
	Failures      []FailedAttempt  `json:"failures,omitempty"`
	DeadReason    store.DeadReason `json:"dead_reason,omitempty"`
	DiedAt        string           `json:"died_at,omitempty"`
	RawBase64     []byte           `json:"raw_base64,omitempty"`
	// PayloadBytes is the length of a payload that a list shows the beginning of.
	PayloadBytes int `json:"payload_bytes,omitempty"`
}

// NewInfo returns the JSON of a message of a queue.
func NewInfo(queue string, i *store.Info) Info {
	shown := Info{
		ID: i.ID, Queue: queue, State: i.State, Due: FormatTime(i.Due), Attempts: i.Attempts, Delivered: i.Delivered,
		SentAt: FormatTime(i.SentAt), LeaseDeadline: FormatTime(i.LeaseDeadline), Follows: i.Follows,
		LastError: i.LastError, Failures: NewFailures(i.Failures), DeadReason: i.DeadReason,
		DiedAt:    FormatTime(i.DiedAt),
		RawBase64: i.Raw, Content: message.ShownContent(&i.Message),
	}
	if i.Raw != nil { // its payload is not known
		shown.Payload = message.Payload{}
	}
	return shown
}

// Delivery is a message as a worker receives it.
type Delivery struct {
	ID    string `json:"id"`
	Queue string `json:"queue"`
	message.Payload
	Headers map[string]string `json:"headers,omitempty"`
	message.Handled
	Due         string   `json:"due"`
	Lateness    Duration `json:"lateness"`
	Attempt     int      `json:"attempt"`
	MaxAttempts int      `json:"max_attempts"`
	SentAt      string   `json:"sent_at,omitempty"`
	Fence       int64    `json:"fence,omitempty"`
}

// Sent is a message that was sent.
type Sent struct {
	ID    string `json:"id"`
	Queue string `json:"queue"`
	// Outcome is sent, replaced, debounced or follows, if the send had a mode for duplicates.
	Outcome string `json:"outcome,omitempty"`
}

// Rescheduled is a message that has a new due time.
type Rescheduled struct {
	ID    string `json:"id"`
	Queue string `json:"queue"`
	Due   string `json:"due"`
}

// Edited is a message that was changed.
type Edited struct {
	ID    string `json:"id"`
	Queue string `json:"queue"`
}

// RescheduledGroup counts the messages of a group that were rescheduled, and the messages that were left as they were.
type RescheduledGroup struct {
	Queue       string `json:"queue"`
	Group       string `json:"group"`
	Due         string `json:"due"`
	Rescheduled int    `json:"rescheduled"`
	Leased      int    `json:"leased"`
	Dead        int    `json:"dead"`
}

// CancelledGroup counts the messages of a group that were cancelled, by the state that they were in.
type CancelledGroup struct {
	Queue     string `json:"queue"`
	Group     string `json:"group"`
	Cancelled int    `json:"cancelled"`
	Scheduled int    `json:"scheduled"`
	Ready     int    `json:"ready"`
	Leased    int    `json:"leased"`
	Dead      int    `json:"dead"`
}

// SentSeries counts the messages of a series by the outcome of their send.
type SentSeries struct {
	Queue      string `json:"queue"`
	Series     string `json:"series"`
	Until      string `json:"until"`
	Sent       int    `json:"sent"`
	Skipped    int    `json:"skipped"`
	Duplicates int    `json:"duplicates"`
}

// SeriesMessage is a live message of a series.
type SeriesMessage struct {
	Queue  string      `json:"queue"`
	Series string      `json:"series"`
	ID     string      `json:"id"`
	State  store.State `json:"state"`
	Due    string      `json:"due,omitempty"`
	Until  string      `json:"until"`
	Offset Duration    `json:"offset"`
	Index  int         `json:"index"`
	Count  int         `json:"count"`
}

// MovedSeries counts the messages of a series that was moved, by their outcome.
type MovedSeries struct {
	Queue   string `json:"queue"`
	Series  string `json:"series"`
	Until   string `json:"until"`
	Moved   int    `json:"moved"`
	Skipped int    `json:"skipped"`
	Left    int    `json:"left"`
}

// CancelledSeries counts the messages of a series that were cancelled.
type CancelledSeries struct {
	Queue     string `json:"queue"`
	Series    string `json:"series"`
	Cancelled int    `json:"cancelled"`
}

// Cancelled is a message that was cancelled, and the state that it was in.
type Cancelled struct {
	ID    string      `json:"id"`
	Queue string      `json:"queue"`
	Was   store.State `json:"was"`
}

// Stats are the counts of a queue.
type Stats struct {
	QueueStats
	Now string `json:"now"`
}

// QueueStats is a Stats without the time at which it was read.
type QueueStats struct {
	Queue     string `json:"queue"`
	Scheduled int64  `json:"scheduled"`
	Ready     int64  `json:"ready"`
	Leased    int64  `json:"leased"`
	Dead      int64  `json:"dead"`
	NextDue   string `json:"next_due,omitempty"`
	Paused    bool   `json:"paused"`
	Retention
	Flow   *FlowState `json:"flow,omitempty"`
	Shards int        `json:"shards,omitempty" doc:"The number of shards of the queue, if it has several"`
}

// Retention is the limits of a queue's dead messages, if it has some, and the number of messages that were dropped
// because of them.
type Retention struct {
	MaxAge   Duration `json:"dead_max_age,omitempty"`
	MaxCount int64    `json:"dead_max_count,omitempty"`
	Dropped  int64    `json:"dead_dropped,omitempty"`
}

// NewRetention returns the JSON of a queue's retention.
func NewRetention(s store.Stats) Retention {
	return Retention{MaxAge: Duration(s.DeadRetention.MaxAge), MaxCount: s.DeadRetention.MaxCount,
		Dropped: s.Dropped}
}

// Retained is a queue with its retention.
type Retained struct {
	Queue string `json:"queue"`
	Retention
}

// NewStats returns the JSON of the counts of a queue.
func NewStats(queue string, s store.Stats) Stats {
	return Stats{Now: FormatTime(s.Now), QueueStats: QueueStats{
		Queue: queue, Scheduled: s.Scheduled, Ready: s.Ready, Leased: s.Leased, Dead: s.Dead,
		NextDue: FormatTime(s.NextDue), Paused: s.Paused,
		Retention: NewRetention(s), Flow: NewFlowState(s.Flow), Shards: s.Shards,
	}}
}

// Explanation is the reason why a message has not been handled yet, as a word and as a sentence, with the facts behind
// it.
type Explanation struct {
	Queue         string           `json:"queue"`
	ID            string           `json:"id"`
	Reason        string           `json:"reason" enum:"scheduled,paused,no_worker,limited,waiting,leased,follows,given_back,dead"`
	Text          string           `json:"text"`
	Due           string           `json:"due,omitempty"`
	Attempts      int              `json:"attempts"`
	Paused        bool             `json:"paused"`
	Before        int64            `json:"before,omitempty"`
	Workers       int              `json:"workers"`
	Running       int              `json:"running"`
	Handlers      int              `json:"handlers,omitempty" doc:"Of the running workers, if all are busy"`
	Busy          int              `json:"busy,omitempty"`
	Worker        string           `json:"worker,omitempty"`
	HeldSince     string           `json:"held_since,omitempty"`
	GivenBackAt   string           `json:"given_back_at,omitempty"`
	Error         string           `json:"error,omitempty"`
	LeaseDeadline string           `json:"lease_deadline,omitempty"`
	DeadReason    store.DeadReason `json:"dead_reason,omitempty"`
	DiedAt        string           `json:"died_at,omitempty"`
	Flow          *FlowState       `json:"flow,omitempty"`
	Shard         *int             `json:"shard,omitempty" doc:"From 0: the shard with a share of the limits that holds the message back"`
	Shards        int              `json:"shards,omitempty"`
	Moving        bool             `json:"moving,omitempty" doc:"Messages that are due have to move to another number of shards before it starts"`
	Key           *Key             `json:"key,omitempty"`
	Urgency       store.Urgency    `json:"urgency,omitempty" enum:"high,low"`
	Now           string           `json:"now"`
}

// DeadErrors are dead messages with last errors of the same pattern.
type DeadErrors struct {
	Queue        string           `json:"queue,omitempty" doc:"The queue that was asked for, if it was one"`
	Pattern      string           `json:"pattern"`
	Count        int              `json:"count"`
	First        string           `json:"first" doc:"When the first of them died"`
	Last         string           `json:"last" doc:"When the last of them died"`
	Queues       []QueueCount     `json:"queues" doc:"The same count by queue, the largest first"`
	Hours        []int            `json:"hours" minItems:"24" maxItems:"24" doc:"How many died in each of 24 hours; the last one is not over"`
	ExampleQueue string           `json:"example_queue" doc:"The queue of the message that died last"`
	ExampleID    string           `json:"example_id"`
	Error        string           `json:"error"`
	Reason       store.DeadReason `json:"reason"`
}

// QueueCount is a number of messages of a queue.
type QueueCount struct {
	Queue string `json:"queue"`
	Count int    `json:"count"`
}

// Event is a change of a message or a queue.
type Event struct {
	Time     string          `json:"time,omitempty"`
	Kind     store.EventKind `json:"kind"`
	Queue    string          `json:"queue,omitempty"`
	ID       string          `json:"id,omitempty"`
	Attempt  int             `json:"attempt,omitempty"`
	Lateness Duration        `json:"lateness,omitempty"`
	Duration Duration        `json:"duration,omitempty"`
	Error    string          `json:"error,omitempty"`
	Count    int             `json:"count,omitempty"`
	Missed   int             `json:"missed,omitempty"`
	// Headers are some of the message's.
	Headers map[string]string `json:"headers,omitempty"`
	Process *Process          `json:"process,omitempty"`
}

// Process is where an event happened.
type Process struct {
	Host string `json:"host,omitempty"`
	PID  int    `json:"pid"`
	Name string `json:"name,omitempty"`
}

// Events are events of one queue in one process, as processes report them to watchers.
type Events struct {
	Process Process `json:"process"`
	Missed  int     `json:"missed,omitempty"`
	Events  []Event `json:"events,omitempty"` // without queue and process
}

// Activity counts the events of a queue by kind.
type Activity struct {
	Queue  string         `json:"queue"`
	Minute ActivityWindow `json:"minute"`
	Hour   ActivityWindow `json:"hour"`
	Day    ActivityWindow `json:"day"`
	Now    string         `json:"now"`
}

// ActivityWindow counts events since a time.
type ActivityWindow struct {
	From   string                      `json:"from"`
	Counts map[store.EventKind]int64   `json:"counts"`
	Step   Duration                    `json:"step" doc:"How long a part lasts"`
	Parts  []map[store.EventKind]int64 `json:"parts" doc:"The counts of each part, from from on; the current part, which goes on, is the last"`
}

// NewActivity returns the JSON of the activity of a queue.
func NewActivity(queue string, a store.Activity) Activity {
	window := func(w store.ActivityWindow) ActivityWindow {
		out := ActivityWindow{FormatTime(w.From), w.Counts, Duration(w.Step), slices.Clone(w.Parts)}
		for i, part := range out.Parts {
			if part == nil {
				out.Parts[i] = map[store.EventKind]int64{}
			}
		}
		return out
	}
	return Activity{Queue: queue, Minute: window(a.Minute), Hour: window(a.Hour), Day: window(a.Day),
		Now: FormatTime(a.Now)}
}

// ImportedQueue counts the messages of a queue in an import.
type ImportedQueue struct {
	Queue      string `json:"queue"`
	Imported   int64  `json:"imported"`
	Duplicates int64  `json:"duplicates"`
	Renamed    int64  `json:"renamed"`
	Limits     string `json:"limits,omitempty" enum:"set,same,kept" doc:"Whether the queue got the limits of the export, had the same, or kept others; none if the export has none for it"`
}

// Queue is the name of a queue.
type Queue struct {
	Queue string `json:"queue"`
}

// Paused is a queue that was paused or resumed.
type Paused struct {
	Queue  string `json:"queue"`
	Paused bool   `json:"paused"`
}

// Pinged is a store that serves calls.
type Pinged struct {
	Store string   `json:"store"`
	Took  Duration `json:"took"`
}

// Deleted is a queue that was deleted.
type Deleted struct {
	Queue   string `json:"queue"`
	Deleted bool   `json:"deleted"`
}

// Changed is how many messages of a queue were replayed or purged; one of both is set.
type Changed struct {
	Queue    string `json:"queue"`
	Replayed *int   `json:"replayed,omitempty"`
	Purged   *int   `json:"purged,omitempty"`
	// Resumed lists the halted keys that go on because a purge has removed the messages that halted them.
	Resumed []string `json:"resumed,omitempty"`
}

// CheckResult is one result of the check of a store.
type CheckResult struct {
	Severity store.Severity `json:"severity"`
	Check    string         `json:"check"`
	Queue    string         `json:"queue,omitempty"`
	Text     string         `json:"text"`
	Advice   string         `json:"advice,omitempty"`
	Count    int64          `json:"count"`
	Repaired bool           `json:"repaired"`
}

// Run is a run of a schedule, or a time at which a recurrence rule runs. Due is later than Nominal by the jitter.
type Run struct {
	Schedule string `json:"schedule,omitempty"`
	ID       string `json:"id,omitempty"`
	Nominal  string `json:"nominal"`
	Due      string `json:"due,omitempty"`
	Local    string `json:"local,omitempty"` // Due in the time zone, with its offset from UTC
	TimeZone string `json:"time_zone,omitempty"`
	Cause    string `json:"cause,omitempty" enum:"due,missed,buffered,triggered,backfilled"`
}

// ScheduleStatus is the state of a schedule. In its JSON these fields are next to the fields of the schedule.
type ScheduleStatus struct {
	Created       string `json:"created"`
	Changed       string `json:"changed"`
	Generation    int64  `json:"generation"`
	NextRun       *Run   `json:"next_run,omitempty"`
	LastRun       *Run   `json:"last_run,omitempty"`
	Finished      bool   `json:"finished"`
	Paused        bool   `json:"paused"`
	PauseNote     string `json:"pause_note,omitempty"`
	PausedAt      string `json:"paused_at,omitempty"`
	Runs          int64  `json:"runs"`
	MissedRuns    int64  `json:"missed_runs"`
	SkippedRuns   int64  `json:"skipped_runs"`
	TriggeredRuns int64  `json:"triggered_runs"`
	MadeUpWithin  string `json:"made_up_within"`         // as missed_within
	LastMissed    string `json:"last_missed,omitempty"`  // nominal time
	LastSkipped   string `json:"last_skipped,omitempty"` // nominal time
	Buffered      string `json:"buffered,omitempty"`     // nominal time
}

// ScheduleResult is the effect of a change on a schedule: created, changed, unchanged, deleted, paused or resumed.
type ScheduleResult struct {
	Schedule string        `json:"schedule"`
	Result   string        `json:"result" enum:"created,changed,unchanged,deleted,paused,resumed"`
	DryRun   bool          `json:"dry_run,omitempty"`
	Fields   []FieldChange `json:"fields,omitempty"`
}

// FieldChange is a field of a schedule that differs. A value that is not there is left out.
type FieldChange struct {
	Name string          `json:"name"`
	Old  json.RawMessage `json:"old,omitempty"`
	New  json.RawMessage `json:"new,omitempty"`
}

// Backfilled is the result of a backfill.
type Backfilled struct {
	Schedule   string `json:"schedule"`
	Runs       int    `json:"runs"`
	Sent       int    `json:"sent"`
	Duplicates int    `json:"duplicates"`
	DryRun     bool   `json:"dry_run,omitempty"`
}

// Token is a new token and its entry in the configuration file of a server.
type Token struct {
	Token        string   `json:"token"`
	Name         string   `json:"name"`
	SHA256       string   `json:"sha256"`
	Role         string   `json:"role"`
	Queues       []string `json:"queues,omitempty"`
	HidePayloads bool     `json:"hide_payloads,omitempty"`
}

// Failure is an error that ended a request, or a part of it.
type Failure struct {
	Error Error `json:"error"`
}

// Error is the stable code of an error and its text.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// NewFailure returns the JSON of an error.
func NewFailure(err error) Failure {
	return Failure{Error{string(store.CodeOf(err)), err.Error()}}
}

// Note is a hint that is not an error.
type Note struct {
	Note string `json:"note"`
}
