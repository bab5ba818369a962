// Package schedule sends messages to queues again and again. A schedule is a message in a queue of its own: its payload
// is a Record, and it is due when its next step is. Each step sends the runs that are due and replaces the record, in
// one step of the store.
//
// It works on a store, and imports package recurrence, which says when a rule runs, and the packages below internal/
// that have loops and the JSON of messages. Start reading at Record; step.go decides which runs are sent, missed or
// skipped, sender.go makes the steps of a worker, and book.go stores schedules.
package schedule

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/internal/version"
	"github.com/laterq/later/recurrence"
	"github.com/laterq/later/store"
)

// Schedule sends a message to a queue again and again: each time that its rule says is a run, and each run is a
// message of its own. Book.Put stores it.
type Schedule struct {
	// Name identifies the schedule in the store, up to MaxName bytes.
	Name string
	// Queue is the queue that receives the messages.
	Queue string
	// When says when the schedule runs.
	When recurrence.Spec

	// Payload, Headers and the options up to DedupWindow apply to each message, like the fields of an Outgoing; any
	// queue takes the Urgency. The defaults and middleware of sends apply too, from the
	// client of the worker that sends the run. The whole schedule, with a list of times, has up to 1,008 KiB as JSON.
	Payload     []byte
	Headers     map[string]string
	MaxAttempts int
	Timeout     time.Duration
	ExpireAfter time.Duration
	Group       string
	Key         string
	Urgency     store.Urgency
	// DedupWindow is how long the id of a run is refused after its ack, so that a Backfill does not run it again.
	// Default: 24 hours, and no less.
	DedupWindow time.Duration

	// Missed is the treatment of runs that are late by more than a minute, because no worker was there. Default:
	// MissedOne.
	Missed MissedPolicy
	// MissedWithin is the greatest age of a missed run that is made up for, up to store.MaxDelay. 0 is the default,
	// which follows the rule: the longest distance between its next runs, but an hour to 31 days. For MissedAll it is
	// MissedMax times that distance, within the same limits. See Info.MadeUpWithin.
	MissedWithin time.Duration
	// MissedMax is the number of missed runs that MissedAll makes up for, the latest ones, up to MaxRuns. Default: 100.
	MissedMax int

	// Unfinished is the treatment of a run that is due while the one before is still scheduled, ready or leased, for
	// example because it is retried. Default: UnfinishedSkip.
	Unfinished UnfinishedPolicy

	// Set names the schedules that are applied together, up to MaxSet bytes; see Book.Apply.
	Set string
}

// MissedPolicy is the treatment of the missed runs of a schedule.
type MissedPolicy string

// Policies for missed runs.
const (
	MissedNone MissedPolicy = "none"
	MissedOne  MissedPolicy = "one"
	MissedAll  MissedPolicy = "all"
)

// UnfinishedPolicy is the treatment of a run of a schedule that is due while the one before is unfinished.
type UnfinishedPolicy string

// Policies for a run while the one before is unfinished.
const (
	UnfinishedSkip   UnfinishedPolicy = "skip"
	UnfinishedAllow  UnfinishedPolicy = "allow"
	UnfinishedBuffer UnfinishedPolicy = "buffer"
)

const (
	// MaxName is the maximum length of a schedule's name, in bytes.
	MaxName = 80
	// MaxSet is the maximum length of the name of a set of schedules, in bytes.
	MaxSet = 80
	// MaxRuns is the maximum number of runs of one call, and of Schedule.MissedMax.
	MaxRuns = 10_000
)

const (
	missedAfter      = time.Minute // Quartz' default misfire threshold
	minMissedWithin  = time.Hour
	maxMissedWithin  = 31 * 24 * time.Hour
	missedMax        = 100
	minRunWindow     = 24 * time.Hour
	maxScheduleBytes = store.MaxPayload - maxStateBytes
)

// normalize sets the defaults and whole milliseconds.
func (s *Schedule) normalize() {
	s.Missed = cmp.Or(s.Missed, MissedOne)
	s.MissedWithin = wholeMillis(s.MissedWithin)
	s.MissedMax = cmp.Or(s.MissedMax, missedMax)
	s.Unfinished = cmp.Or(s.Unfinished, UnfinishedSkip)
	s.DedupWindow = max(wholeMillis(s.DedupWindow), minRunWindow)
	s.Timeout, s.ExpireAfter = wholeMillis(s.Timeout), wholeMillis(s.ExpireAfter)
	if len(s.Headers) == 0 {
		s.Headers = nil
	}
}

func wholeMillis(d time.Duration) time.Duration {
	if d <= 0 {
		return d
	}
	return time.Duration(store.Millis(d)) * time.Millisecond
}

// Check returns the ErrInvalid or ErrTooLarge with which Book.Put refuses the schedule, or nil.
func (s *Schedule) Check() error {
	normal := *s
	normal.normalize()
	return normal.checkNormal()
}

// checkNormal is Check for a schedule with its defaults.
func (s *Schedule) checkNormal() error {
	if err := checkName(s.Name); err != nil {
		return err
	}
	if err := s.checkFields(); err != nil {
		return fmt.Errorf("schedule %q: %w", s.Name, err)
	}
	return nil
}

func (s *Schedule) checkFields() error {
	if err := s.checkQueue(); err != nil {
		return err
	}
	if _, err := s.rule(time.Now()); err != nil {
		return err
	}
	if err := cmp.Or(store.CheckNew("schedule name", s.Name), store.CheckNew("set", s.Set)); err != nil {
		return err
	}
	if len(s.Set) > MaxSet || s.Set != "" && store.CheckID(s.Set) != nil {
		return store.Invalid("set is %q: give up to %d bytes of UTF-8 without control characters", s.Set, MaxSet)
	}
	switch s.Missed {
	case MissedNone, MissedOne, MissedAll:
	default:
		return store.Invalid("missed is %q: give %s, %s or %s", s.Missed, MissedNone, MissedOne, MissedAll)
	}
	switch s.Unfinished {
	case UnfinishedSkip, UnfinishedAllow, UnfinishedBuffer:
	default:
		return store.Invalid("unfinished is %q: give %s, %s or %s", s.Unfinished, UnfinishedSkip, UnfinishedAllow,
			UnfinishedBuffer)
	}
	switch {
	case s.MissedWithin < 0 || s.MissedWithin > store.MaxDelay:
		return store.Invalid("missed_within is %v: give up to %v, or 0 for a default that fits the rule", s.MissedWithin,
			store.MaxDelay)
	case s.MissedMax < 0 || s.MissedMax > MaxRuns:
		return store.Invalid("missed_max is %d: must be 1 to %d, or 0 for %d", s.MissedMax, MaxRuns, missedMax)
	case s.Missed == MissedAll && s.Unfinished != UnfinishedAllow:
		return store.Invalid("missed is %q and unfinished is %q: the first of several missed runs would keep the others "+
			"from being sent; set unfinished to %s", s.Missed, s.Unfinished, UnfinishedAllow)
	}
	for _, name := range []string{NameHeader, nominalHeader, causeHeader} {
		if _, taken := s.Headers[name]; taken {
			return store.Field("headers", store.Invalid("header %q is one that runs have: choose another name", name))
		}
	}
	definition, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if n := len(definition); n > maxScheduleBytes {
		return store.TooLarge("it has %d bytes as JSON: the limit is %d; keep large data elsewhere and send its address",
			n, maxScheduleBytes)
	}
	record := Record{Schedule: *s}
	m := record.Message(record.Run(parked, parked, RunBackfilled))
	return m.Check()
}

func (s *Schedule) checkQueue() error {
	switch {
	case s.Queue == reserved.TopicIndex:
		return store.Invalid("topic name is empty: give topic:NAME, or a queue")
	case strings.HasPrefix(s.Queue, reserved.Topic):
		return store.CheckNewQueue(s.Queue)
	}
	if why := reserved.Check(s.Queue, reserved.Handle); why != "" {
		return store.Invalid("%s", why)
	}
	return store.CheckNewQueue(s.Queue)
}

// Version returns a text that is different for a schedule with other fields.
func (s Schedule) Version() string {
	s.normalize()
	text, err := s.MarshalJSON()
	if err != nil {
		return "" // it is not allowed
	}
	return version.Of(text)
}

// equal reports whether both schedules are the same.
func (s *Schedule) equal(o *Schedule) bool { return sameJSON(s, o) }

func sameJSON(a, b any) bool {
	x, err := json.Marshal(a)
	y, failed := json.Marshal(b)
	return err == nil && failed == nil && bytes.Equal(x, y)
}

// checkName returns an ErrInvalid unless a schedule can have a name.
func checkName(name string) error {
	if name == "" {
		return store.Invalid("schedule name is empty: give a name of 1 to %d bytes", MaxName)
	}
	if len(name) > MaxName {
		return store.Invalid("schedule name is %d bytes long: the limit is %d", len(name), MaxName)
	}
	if err := store.CheckID(name); err != nil {
		return fmt.Errorf("schedule name: %w", err)
	}
	return nil
}

// rule returns the compiled rule of a schedule that was created at a time.
func (s *Schedule) rule(created time.Time) (*recurrence.Rule, error) {
	return recurrence.Compile(s.When, recurrence.Options{Name: s.Name, Created: created})
}

// Next returns the first n runs later than after, without a store. What is counted from the creation of the schedule
// is counted from after. n is 1 to MaxRuns; there are fewer runs if the rule ends.
func (s *Schedule) Next(after time.Time, n int) ([]Run, error) {
	if err := checkCount(n); err != nil {
		return nil, err
	}
	rule, err := s.rule(after)
	if err != nil {
		return nil, err
	}
	var runs []Run
	for next := range rule.After(after) {
		if len(runs) == n {
			break
		}
		runs = append(runs, Run{Schedule: s.Name, Queue: s.Queue, Nominal: next.Nominal, Due: next.Due, Cause: RunDue})
	}
	return runs, nil
}

// checkCount returns an ErrInvalid unless a number of runs is allowed.
func checkCount(n int) error {
	if n < 1 || n > MaxRuns {
		return store.Invalid("number of runs is %d: must be 1 to %d", n, MaxRuns)
	}
	return nil
}
