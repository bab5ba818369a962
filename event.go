package later

import (
	"context"
	"slices"
	"time"

	"github.com/laterq/later/internal/event"
	"github.com/laterq/later/internal/report"
	"github.com/laterq/later/store"
)

// Event reports to an observer a change of one message or of a queue. See WithObserver, and Client.Watch for the events
// of all processes.
type Event struct {
	Kind  EventKind
	Queue string
	ID    string // "" for EventPaused, EventResumed, EventReplayed and EventPurged; the key for EventKeyResumed
	// Context has the values of the call that caused the event, for example of a trace. The call is Send or SendBatch
	// for EventSent and EventDuplicate, Receive or the settle for events of a Delivery, the handler for events of a
	// worker, and the method itself, such as Cancel, for all other events. It is never nil. It may have ended. Do not
	// make calls with it or keep it: it holds its message in memory.
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
	// Headers are headers of the message, as far as WithEventHeaders asks for them and this process has the message:
	// for the events of its sends and of its holding. They are not to be changed.
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
	// EventDropped is the removal of a dead message that exceeded the queue's Retention. The worker or Receive that
	// removed it with a claim reports it, like an EventDied of an expired lease.
	EventDropped = event.Dropped

	EventCancelled   = event.Cancelled   // removed by id
	EventRescheduled = event.Rescheduled // given a new due time, also by RunNow
	EventEdited      = event.Edited      // changed by Edit
	EventPaused      = event.Paused      // the queue; ID is empty
	EventResumed     = event.Resumed     // the queue
	EventReplayed    = event.Replayed    // Count dead messages are live again
	EventPurged      = event.Purged      // Count messages were removed
	EventKeyResumed  = event.KeyResumed  // the halted key that ID names goes on, by ResumeKey or a purge
	// EventRunMissed and EventRunSkipped report Count runs of a schedule that were not sent to the queue: because no
	// worker was there in time, or because the run before was unfinished. The ID is the name of the schedule. See
	// Schedule.
	EventRunMissed  = event.RunMissed
	EventRunSkipped = event.RunSkipped
	// EventMissed comes only from a Watch: it has missed events. See WatchEvent.Missed.
	EventMissed = event.Missed
)

// WatchEvent is an Event of any process that uses the store, as a Watch receives it.
type WatchEvent struct {
	Kind  EventKind
	Queue string
	ID    string // "" for events of a queue
	// Time is when the event happened, on the clock of its process, in milliseconds.
	Time time.Time
	// Attempt, Lateness, Duration and Count are the same as in the Event. Durations are in microseconds.
	Attempt  int
	Lateness time.Duration
	Duration time.Duration
	Count    int
	// Error is the text of Event.Err, up to 300 bytes.
	Error string
	// Headers are the headers that the client of the process asks for; see WithEventHeaders.
	Headers map[string]string
	// Process is where the event happened.
	Process Process
	// Missed is set for EventMissed: how many events are missing before the next one. It is 0 if that is not known,
	// because the connection to the store was interrupted. An EventMissed has a Queue and a Process if they are known.
	Missed int
}

// Process is a program that uses the store. Its fields are Host, PID, and Name, which is that of the program's file.
type Process = report.Process

// Watch receives the events of some queues, whichever process they happen in. It is returned by Client.Watch. Call
// Close when done. Its methods are safe for concurrent use.
type Watch struct {
	client *Client
	watch  *report.Watch
}

// Watch starts to watch queues, which need not exist, or all queues if none is given. A watch of all queues includes
// queues that are created later, from the message that creates them on. In a Redis Cluster, and for a Redis user who
// may not listen to the pattern of all channels, it includes them within a few seconds. When Watch returns, the Watch
// receives all later events except EventStarted, from every process with a client that was not created WithoutActivity.
//
// A client notices a new watcher with its next report: at once if the queue was idle for a second or the Watch is its
// own, else within a second. From then on events arrive about 10 ms after they happened. Watching never slows the
// queue: a process sends up to 100 to 125 events of a queue every 10 ms. Further events, and events that this Watch
// does not read in time, are dropped and counted in an EventMissed. Events are best effort. The events of one process
// and queue arrive in the order in which its goroutines reported them, so the claim of a message can precede its
// EventSent.
//
// ctx limits the call and not the Watch. Watch returns ErrInvalid for a name that is not allowed, and ErrUnsupported if
// the server does not allow this program to listen to channels. The embedded store has the events of this process, and
// mem:// the events of the store of that name.
func (c *Client) Watch(ctx context.Context, queues ...string) (*Watch, error) {
	if err := c.begin(); err != nil {
		return nil, err
	}
	defer c.calls.Done()
	for _, name := range queues {
		if err := store.CheckQueue(name); err != nil {
			return nil, err
		}
	}
	watch, err := report.NewWatch(ctx, c.ending, c.store, queues, c.Queues)
	if err != nil {
		return nil, err
	}
	w := &Watch{c, watch}
	if err := c.addWatch(w); err != nil {
		w.Close()
		return nil, err
	}
	for _, q := range c.used() { // other clients learn of it from their next report
		if len(queues) == 0 || slices.Contains(queues, q.name) {
			q.activity.ExpectWatcher()
		}
	}
	return w, nil
}

// addWatch has Close of the client close w.
func (c *Client) addWatch(w *Watch) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return errClientClosed
	}
	if c.watches == nil {
		c.watches = map[*Watch]struct{}{}
	}
	c.watches[w] = struct{}{}
	return nil
}

// closeWatches closes the open watches.
func (c *Client) closeWatches() {
	c.mu.Lock()
	watches := c.watches
	c.watches = nil
	c.mu.Unlock()
	for w := range watches {
		w.Close()
	}
}

// Next returns the next event. It blocks until there is one or ctx ends; then it returns ctx's cause. After Close, of
// the Watch or of the client, it returns ErrClosed.
func (w *Watch) Next(ctx context.Context) (WatchEvent, error) {
	e, err := w.watch.Next(ctx)
	return WatchEvent(e), err
}

// Close ends the Watch. It leaves nothing in the store. If the process of a Watch dies, nothing remains there either,
// once the store notices that its connection is gone: at the latest when it cannot pass on the next events.
func (w *Watch) Close() error {
	c := w.client
	c.mu.Lock()
	delete(c.watches, w)
	c.mu.Unlock()
	return w.watch.Close(errWatchClosed)
}

var errWatchClosed error = &detail{"watch is closed", ErrClosed}
