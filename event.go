package later

import (
	"context"
	"time"

	"github.com/laterq/later/store"
)

// Event reports to an observer what happened to one message, or to a queue. See WithObserver, and Client.Watch for the
// events of all processes.
type Event struct {
	Kind  EventKind
	Queue string
	ID    string // "" for EventPaused, EventResumed, EventReplayed and EventPurged
	// Context has the values of the call that caused the event, for example of a trace: of Send or SendBatch for
	// EventSent and EventDuplicate, of Receive or of the settle for the events of a Delivery, of the handler for
	// those of a worker, and of the call, such as Cancel, for the others. It is never nil. It may have ended, and is
	// not for calls or for keeping: it holds its message in memory.
	Context context.Context
	// Time is when the event happened, on this process's clock.
	Time time.Time
	// Attempt is the number of the attempt. It is 0 when unknown: for EventSent, EventDuplicate, EventExpired,
	// EventDropped, EventCancelled, EventRescheduled and EventEdited, and for an EventDied that does not follow a nack
	// or bury.
	Attempt int
	// Lateness is set for EventClaimed and all later events of the message. It is final from EventStarted on. It
	// is 0 for a Delivery of a receipt.
	Lateness time.Duration
	// Duration is how long the handler ran. It is set for the events after its run.
	Duration time.Duration
	// Err is the reason for a nack, bury or give back, or the cause of a lost lease or of a settle that was given up.
	Err error
	// Headers are headers of the message, as far as WithEventHeaders asks for them and this process has the message: for
	// the events of its sends and of its holding. They are not to be changed.
	Headers map[string]string
	// Count is the number of messages of an EventReplayed or EventPurged, and of runs of an EventRunMissed or
	// EventRunSkipped. It is 0 for the other kinds.
	Count int
	// Schedule is the name of the schedule for an EventSent of one of its runs, EventRunMissed and EventRunSkipped, and
	// "" otherwise.
	Schedule string
}

// EventKind is the kind of an Event. The names of kinds never change; new kinds may be added.
type EventKind = store.EventKind

// The kinds of events.
const (
	EventSent      EventKind = "sent"
	EventDuplicate EventKind = "duplicate"  // sent again while the id was live or within its dedup window
	EventClaimed   EventKind = "claimed"    // claimed by a worker or Receive
	EventStarted   EventKind = "started"    // a worker is about to call the handler
	EventAcked     EventKind = "acked"      // done and removed
	EventForwarded EventKind = "forwarded"  // moved to a destination; it ends the message in this queue
	EventNacked    EventKind = "nacked"     // the attempt failed
	EventSnoozed   EventKind = "snoozed"    // delivered again later; not an attempt
	EventGivenBack EventKind = "given_back" // delivered again later, to another version; not an attempt
	EventBuried    EventKind = "buried"     // moved to dead by Bury, or since it was given back for too long
	EventReleased  EventKind = "released"   // returned to the queue; not an attempt
	EventExpired   EventKind = "expired"    // not delivered before its expiry; moved to dead
	EventLeaseLost EventKind = "lease_lost" // no longer held here; Err is ErrCancelled if the message was cancelled
	EventUnsettled EventKind = "unsettled"  // the settle could not be stored in time; the message will be delivered again
	// EventDied is a move to dead, for any reason. It follows EventNacked, EventBuried or EventExpired, and
	// comes alone when the last lease expired or the stored bytes cannot be read.
	EventDied EventKind = "died"
	// EventDropped is the end of a dead message that exceeded the queue's Retention. The worker or Receive whose
	// claim removed it reports it, like an EventDied of an expired lease.
	EventDropped EventKind = "dropped"

	EventCancelled   EventKind = "cancelled"   // removed by id
	EventRescheduled EventKind = "rescheduled" // given a new due time, also by RunNow
	EventEdited      EventKind = "edited"      // changed by Edit
	EventPaused      EventKind = "paused"      // the queue; there is no id
	EventResumed     EventKind = "resumed"     // the queue
	EventReplayed    EventKind = "replayed"    // Count dead messages are live again
	EventPurged      EventKind = "purged"      // Count messages were removed
	// EventRunMissed and EventRunSkipped are Count runs of a schedule, whose name is the ID, that were not sent to the
	// queue: because no worker was there in time, or because the run before was unfinished. See Schedule.
	EventRunMissed  EventKind = "run_missed"
	EventRunSkipped EventKind = "run_skipped"
	// EventMissed comes only from a Watch: it has missed events. See WatchEvent.Missed.
	EventMissed EventKind = "missed"
)

// eventHeaders are the names of the headers that events carry; all if there are none.
type eventHeaders struct {
	names []string
}

// of returns those of a message's headers that its events carry. h may be nil: events carry none.
func (h *eventHeaders) of(headers map[string]string) map[string]string {
	switch {
	case h == nil || len(headers) == 0:
		return nil
	case len(h.names) == 0:
		return headers
	}
	var chosen map[string]string
	for _, name := range h.names {
		if value, ok := headers[name]; ok {
			if chosen == nil {
				chosen = map[string]string{}
			}
			chosen[name] = value
		}
	}
	return chosen
}
