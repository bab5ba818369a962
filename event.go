package later

import "time"

// Event reports to an observer what happened to one message. See WithObserver.
type Event struct {
	Kind  EventKind
	Queue string
	ID    string
	// Time is when the event happened, on this process's clock.
	Time time.Time
	// Attempt is the number of the attempt. It is 0 when unknown: for EventSent, EventDuplicate and
	// EventExpired, and for an EventDied that does not follow a nack or bury.
	Attempt int
	// Lateness is set for EventClaimed and all later events of the message. It is final from EventStarted on.
	Lateness time.Duration
	// Duration is how long the handler ran. It is set for the events after its run.
	Duration time.Duration
	// Err is the reason for a nack or bury, or the cause of a lost lease or of a settle that was given up.
	Err error
}

// EventKind is the kind of an Event. The names of kinds never change; new kinds may be added.
type EventKind string

// The kinds of events.
const (
	EventSent      EventKind = "sent"
	EventDuplicate EventKind = "duplicate"  // sent again while the id was live or within its dedup window
	EventClaimed   EventKind = "claimed"    // claimed by a worker or Receive
	EventStarted   EventKind = "started"    // a worker is about to call the handler
	EventAcked     EventKind = "acked"      // done and removed
	EventNacked    EventKind = "nacked"     // the attempt failed
	EventSnoozed   EventKind = "snoozed"    // delivered again later; not an attempt
	EventBuried    EventKind = "buried"     // moved to dead by Bury
	EventReleased  EventKind = "released"   // returned to the queue; not an attempt
	EventExpired   EventKind = "expired"    // not delivered before its expiry; moved to dead
	EventLeaseLost EventKind = "lease_lost" // no longer held here; Err is ErrCancelled if the message was cancelled
	EventUnsettled EventKind = "unsettled"  // the settle could not be stored in time; the message will be delivered again
	// EventDied is a move to dead, for any reason. It follows EventNacked, EventBuried or EventExpired, and
	// comes alone when the last lease expired or the stored bytes cannot be read.
	EventDied EventKind = "died"
)
