package store

import (
	"context"
	"time"
)

// Limits of a Report.
const (
	MaxEventKinds = 32        // kinds in the counts of one Report
	MaxEventKind  = 32        // bytes of the name of a kind
	MaxEventBytes = 256 << 10 // bytes of Report.Events
)

// AllQueues stands for all queues in a call of Watch, also queues that are created later. No queue has this name.
const AllQueues = "{*}"

// WatchesAll reports whether the queues of a Watch stand for all queues.
func WatchesAll(queues []string) bool { return len(queues) == 1 && queues[0] == AllQueues }

// EventKind is the kind of an event, such as "sent": 1 to MaxEventKind lower-case letters and underscores. Engines give
// it no meaning.
type EventKind string

// Events is the part of a Store that reports the work of its processes. It is best effort: neither counts nor events
// are needed for anything else, and the content of a failed call may be lost.
type Events interface {
	// Report adds to the activity of queues and passes events on to their watchers. Results are in the order of
	// reports. Each report passes Report.Check.
	//
	// A queue that does not exist gets no counts; its watchers get the events all the same. Report does not wait for
	// watchers. It is executed at most once: an engine does not repeat it when the reply is lost.
	Report(ctx context.Context, reports []Report) ([]ReportResult, error)

	// Watch returns a Watcher of queues; Watcher.Add adds further ones. When it returns, the Watcher receives their
	// reports from then on. The queues need not exist. It returns ErrUnsupported if this process may not watch.
	//
	// If AllQueues is the only one, the Watcher receives the reports of all queues, and Add changes nothing; Add does
	// not take AllQueues. An engine that can watch only queues that it is told returns ErrUnsupported.
	Watch(ctx context.Context, queues []string) (Watcher, error)

	// Activity returns how many events of each kind were reported of a queue lately, by the engine's clock. There are
	// none for a queue that does not exist. An engine may lose them when its process ends.
	Activity(ctx context.Context, queue string) (Activity, error)
}

// Report is the report of a process about a queue. Either part may be empty.
type Report struct {
	Queue string
	// Counts is the number of events by kind, since the process's previous Report. Callers use a small fixed set of
	// kinds.
	Counts map[EventKind]int64
	// Events are passed to watchers as they are. Number is how many they are.
	Events []byte
	Number int
}

// Check returns an error unless r is within its limits.
func (r *Report) Check() error {
	if err := CheckQueue(r.Queue); err != nil {
		return err
	}
	if len(r.Counts) > MaxEventKinds {
		return Invalid("a report has %d kinds of events: the limit is %d", len(r.Counts), MaxEventKinds)
	}
	for kind, n := range r.Counts {
		if err := checkEventKind(kind); err != nil {
			return err
		}
		if n < 0 {
			return Invalid("number of %s events is %d: must be 0 or more", kind, n)
		}
	}
	if len(r.Events) > MaxEventBytes {
		return TooLarge("events of a report have %d bytes: the limit is %d", len(r.Events), MaxEventBytes)
	}
	if r.Number < 0 {
		return Invalid("number of events in a report is %d: must be 0 or more", r.Number)
	}
	return nil
}

func checkEventKind(kind EventKind) error {
	if kind == "" || len(kind) > MaxEventKind {
		return Invalid("kind of event %.40q has %d bytes: must have 1 to %d", kind, len(kind), MaxEventKind)
	}
	for _, c := range []byte(kind) {
		if (c < 'a' || c > 'z') && c != '_' {
			return Invalid("kind of event %q: give lower-case letters and underscores", kind)
		}
	}
	return nil
}

// ReportResult is the result of one Report.
type ReportResult struct {
	// Watchers is how many watchers the queue has at least: 0 if its events have no receiver.
	Watchers int
	// Err is why this Report was not executed, or not completely.
	Err error
}

// Watcher receives events. Its methods are safe for concurrent use.
type Watcher interface {
	// Add adds queues. Queues that are watched already are left alone. When Add returns nil, the Watcher receives the
	// reports of all of them from then on.
	Add(ctx context.Context, queues ...string) error

	// Next returns the next events, for each queue in the order of the reports. It blocks until there are some. When
	// ctx ends it returns the context's cause, and after the Watcher or the Store was closed ErrClosed.
	Next(ctx context.Context) (Reported, error)

	// Close ends the Watcher and frees its resources, in the store too. If its process dies, it leaves nothing in the
	// store either, after a minute at the most.
	Close() error
}

// Reported is a message to a Watcher: the Events of one Report.
type Reported struct {
	Queue  string // "" if there are no Events
	Events []byte
	// Missed is how many events were dropped before these, because the Watcher keeps a bounded number that Next has
	// not returned.
	Missed int
	// Gap is set if the connection to the store was interrupted before these events, so that an unknown number is
	// missing.
	Gap bool
}

// Activity is how many events happened to a queue lately.
type Activity struct {
	// Minute, Hour and Day begin at least as long ago as their names say. They overlap.
	Minute, Hour, Day ActivityWindow
	// Exists reports whether the queue exists.
	Exists bool
	// Now is the engine's clock, the end of all windows.
	Now time.Time
}

// ActivityWindow counts the events in a span of time.
type ActivityWindow struct {
	// From is when the window begins. The windows of an engine move in steps: of 10 seconds for the last minute, 5
	// minutes for the last hour, and an hour for the last day. So they last 60 to 70 seconds, 60 to 65 minutes and 24
	// to 25 hours.
	From   time.Time
	Counts map[EventKind]int64 // without counts of 0
	// Parts are the counts of each step: of the first one, which begins at From, to the current one. Their sum is
	// Counts. A part without events is empty or nil.
	Parts []map[EventKind]int64
	// Step is how long a part lasts. Parts begin at multiples of it since 1970.
	Step time.Duration
}
