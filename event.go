package later

import (
	"context"
	"time"

	"github.com/laterq/later/internal/event"
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
	EventSent      = event.Sent
	EventDuplicate = event.Duplicate // sent again while the id was live or within its dedup window
	EventClaimed   = event.Claimed   // claimed by a worker or Receive
	EventStarted   = event.Started   // a worker is about to call the handler
	EventAcked     = event.Acked     // done and removed
	EventForwarded = event.Forwarded // moved to a destination; it ends the message in this queue
	EventNacked    = event.Nacked    // the attempt failed
	EventSnoozed   = event.Snoozed   // delivered again later; not an attempt
	EventGivenBack = event.GivenBack // delivered again later, to another version; not an attempt
	EventBuried    = event.Buried    // moved to dead by Bury, or since it was given back for too long
	EventReleased  = event.Released  // returned to the queue; not an attempt
	EventExpired   = event.Expired   // not delivered before its expiry; moved to dead
	EventLeaseLost = event.LeaseLost // no longer held here; Err is ErrCancelled if the message was cancelled
	EventUnsettled = event.Unsettled // the settle could not be stored in time; the message will be delivered again
	// EventDied is a move to dead, for any reason. It follows EventNacked, EventBuried or EventExpired, and
	// comes alone when the last lease expired or the stored bytes cannot be read.
	EventDied = event.Died
	// EventDropped is the end of a dead message that exceeded the queue's Retention. The worker or Receive whose
	// claim removed it reports it, like an EventDied of an expired lease.
	EventDropped = event.Dropped

	EventCancelled   = event.Cancelled   // removed by id
	EventRescheduled = event.Rescheduled // given a new due time, also by RunNow
	EventEdited      = event.Edited      // changed by Edit
	EventPaused      = event.Paused      // the queue; there is no id
	EventResumed     = event.Resumed     // the queue
	EventReplayed    = event.Replayed    // Count dead messages are live again
	EventPurged      = event.Purged      // Count messages were removed
	// EventRunMissed and EventRunSkipped are Count runs of a schedule, whose name is the ID, that were not sent to the
	// queue: because no worker was there in time, or because the run before was unfinished. See Schedule.
	EventRunMissed  = event.RunMissed
	EventRunSkipped = event.RunSkipped
	// EventMissed comes only from a Watch: it has missed events. See WatchEvent.Missed.
	EventMissed = event.Missed
)
