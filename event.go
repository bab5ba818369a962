package later

import "time"

// Event tells an observer (see WithObserver) what happened to one message.
type Event struct {
	Kind  EventKind
	Queue string
	ID    string
	// Time is this process's clock.
	Time time.Time
	// Attempt is 0 where it is not known: for EventSent, EventDuplicate, EventExpired, and EventDied when it
	// does not follow a nack or bury.
	Attempt int
	// Lateness is set for EventClaimed and all that follow for the message; it is final from EventStarted on.
	Lateness time.Duration
	// Duration is how long the handler ran, for the events that follow its run.
	Duration time.Duration
	// Err is why: of a nack, a bury, a lost lease or a settle that was given up.
	Err error
}

// EventKind is the kind of an Event. Kinds never change their names; more may be added.
type EventKind string

// The kinds of events.
const (
	EventSent      EventKind = "sent"
	EventDuplicate EventKind = "duplicate"  // Send or SendBatch met a living or remembered id
	EventClaimed   EventKind = "claimed"    // taken by a worker or Receive
	EventStarted   EventKind = "started"    // a worker's handler begins
	EventAcked     EventKind = "acked"      // done
	EventNacked    EventKind = "nacked"     // the attempt failed
	EventSnoozed   EventKind = "snoozed"    // again later, not an attempt
	EventBuried    EventKind = "buried"     // set aside by Bury
	EventReleased  EventKind = "released"   // given back unhandled, not an attempt
	EventExpired   EventKind = "expired"    // not delivered in time: moved to dead
	EventLeaseLost EventKind = "lease_lost" // the message is no longer ours; Err is ErrCancelled if it was cancelled
	EventUnsettled EventKind = "unsettled"  // the store could not be told in time; the message will come again
	// EventDied: moved to dead, for any reason. It follows EventNacked, EventBuried or EventExpired, and comes
	// alone for a message whose last holder never came back or whose bytes cannot be read.
	EventDied EventKind = "died"
)
