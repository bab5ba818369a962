package later

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/laterq/later/internal/pauses"
	"github.com/laterq/later/internal/topic"
	"github.com/laterq/later/internal/undo"
	"github.com/laterq/later/internal/version"
	"github.com/laterq/later/store"
)

// begin checks the ids and registers a call to the store. The caller calls calls.Done when the call
// returns.
func (q *Queue) begin(ids ...string) error {
	if q.invalid != nil {
		return q.invalid
	}
	for i, id := range ids {
		err := store.CheckSentID(id)
		switch {
		case err != nil && len(ids) > 1:
			return fmt.Errorf("id %d of %d: %w", i, len(ids), err)
		case err != nil:
			return err
		}
	}
	return q.client.begin()
}

// beginChange is begin for a call that changes the queue's messages.
func (q *Queue) beginChange(ids ...string) error {
	if err := q.checkChange(); err != nil {
		return err
	}
	return q.begin(ids...)
}

func (q *Queue) errorOf(id string, err error) error {
	return fmt.Errorf("message %q of queue %q: %w", id, q.name, err)
}

// Cancel removes a message, whatever its state, and returns the state it was in.
//
// A leased message is not delivered again. Its handler's context ends with ErrCancelled at the worker's
// next look at the store: within a second, or later if the worker cannot reach the store. The handler may
// finish before that. The holder of a received message learns of the cancel when it settles or extends the
// message. Cancel returns ErrNotFound when no live message has the id.
//
// The id may be sent again at once, unless KeepID says otherwise.
func (q *Queue) Cancel(ctx context.Context, id string, opts ...CancelOption) (State, error) {
	results, err := q.CancelBatch(ctx, []string{id}, opts...)
	if err != nil {
		return "", err
	}
	return results[0].State, results[0].Err
}

// CancelOption is an option of Cancel and CancelBatch.
type CancelOption func(*store.CancelRequest)

// KeepID starts the dedup window of a cancelled message, as an ack does: until it ends, a send with the same id is a
// duplicate. So a producer or a relay that repeats its send later does not bring a cancelled message back. KeepID has
// no effect on a message that was sent without DedupWindow.
func KeepID() CancelOption { return func(r *store.CancelRequest) { r.KeepIDs = true } }

// CancelResult is the result for one id of a CancelBatch.
type CancelResult struct {
	ID    string
	State State // the state it was in
	Err   error // ErrNotFound when no live message has the id
}

// CancelBatch cancels any number of messages and returns a result for each id, in order. Messages are
// cancelled in calls of up to store.MaxBatch ids. When a call fails, CancelBatch returns its error and the
// results so far. If an id is not allowed, it returns an ErrInvalid that names its index, and cancels
// nothing.
func (q *Queue) CancelBatch(ctx context.Context, ids []string, opts ...CancelOption) ([]CancelResult, error) {
	if err := q.beginChange(ids...); err != nil {
		return nil, err
	}
	defer q.client.calls.Done()
	var req store.CancelRequest
	for _, option := range opts {
		option(&req)
	}
	results := make([]CancelResult, 0, len(ids))
	for part := range slices.Chunk(ids, store.MaxBatch) {
		req.IDs = part
		answers, err := undo.Cancel(ctx, q.client.store, q.name, req)
		if err != nil {
			return results, err
		}
		for i, a := range answers {
			if a.Err != nil {
				a.Err = q.errorOf(part[i], a.Err)
			} else {
				q.event(ctx, EventCancelled, part[i])
			}
			results = append(results, CancelResult{part[i], a.State, a.Err})
		}
	}
	return results, nil
}

// Reschedule changes the due time of a scheduled or ready message and keeps its attempts. It returns
// ErrNotFound when no live message has the id, ErrLeased when a worker holds it, and ErrDead when it is
// dead (see Replay).
func (q *Queue) Reschedule(ctx context.Context, id string, when When) error {
	results, err := q.RescheduleBatch(ctx, []string{id}, when)
	if err != nil {
		return err
	}
	return results[0]
}

// RescheduleBatch reschedules any number of messages and returns the error of each, in order: nil or one that
// Reschedule returns. Messages are rescheduled in calls of up to store.MaxBatch ids. When a call fails, RescheduleBatch
// returns its error and the results so far. If an id is not allowed, it returns an ErrInvalid that names its index, and
// changes nothing.
func (q *Queue) RescheduleBatch(ctx context.Context, ids []string, when When) ([]error, error) {
	if err := when.check(); err != nil {
		return nil, err
	}
	if err := q.beginChange(ids...); err != nil {
		return nil, err
	}
	defer q.client.calls.Done()
	results := make([]error, 0, len(ids))
	for part := range slices.Chunk(ids, store.MaxBatch) {
		answers, err := undo.Reschedule(ctx, q.client.store, q.name, part, when.due)
		if err != nil {
			return results, err
		}
		for i, err := range answers {
			if err != nil {
				err = q.errorOf(part[i], err)
			} else {
				q.event(ctx, EventRescheduled, part[i])
			}
			results = append(results, err)
		}
	}
	return results, nil
}

// RunNow makes a message due at once. It returns the same errors as Reschedule.
func (q *Queue) RunNow(ctx context.Context, id string) error {
	return q.Reschedule(ctx, id, In(0))
}

// Get returns a live message. It returns ErrNotFound when no live message has the id.
func (q *Queue) Get(ctx context.Context, id string) (*Info, error) {
	if err := q.begin(id); err != nil {
		return nil, err
	}
	defer q.client.calls.Done()
	infos, err := q.client.store.Get(ctx, q.name, []string{id})
	if err != nil {
		return nil, err
	}
	if infos[0] == nil {
		return nil, q.errorOf(id, ErrNotFound)
	}
	return InfoOf(q.name, *infos[0]), nil
}

// ListOptions selects the messages to list.
type ListOptions struct {
	// State is scheduled, ready, leased or dead. It is required unless Group is set.
	State State
	// Group selects the messages of a group in any state, in place of State. From and To are then not allowed.
	Group string
	// From and To limit the due time (for dead messages, the time of death) to [From, To). Default: no limit.
	From, To time.Time
	// Limit is the maximum number of messages in a page, 1 to store.MaxBatch; a page may be shorter. Default:
	// 100.
	Limit int
	// Cursor is Page.Next of the previous page. Default: the first page.
	Cursor string
}

func (o ListOptions) request() (store.ListRequest, error) {
	req := store.ListRequest{State: o.State, Group: o.Group, From: o.From, To: o.To, Cursor: o.Cursor, Limit: o.Limit}
	if err := req.Check(); err != nil {
		return req, err
	}
	if req.Limit == 0 {
		req.Limit = 100
	}
	if req.Limit < 1 || req.Limit > store.MaxBatch {
		return req, store.Invalid("limit is %d: must be 1 to %d, or 0 for 100", o.Limit, store.MaxBatch)
	}
	return req, nil
}

// List returns a page of the messages in one state or in one group. Scheduled and ready messages are ordered by due
// time, dead messages by time of death, leased messages by lease, and the messages of a group by id. A message that
// stays in the state or group during the listing appears exactly once (listed as leased, at least once); other messages
// may or may not appear.
func (q *Queue) List(ctx context.Context, o ListOptions) (Page, error) {
	req, err := o.request()
	if err != nil {
		return Page{}, err
	}
	page, err := q.list(ctx, req)
	if err != nil {
		return Page{}, err
	}
	messages := make([]*Info, len(page.Messages))
	for i := range messages {
		messages[i] = InfoOf(q.name, page.Messages[i])
	}
	return Page{messages, page.Next}, nil
}

// All returns an iterator over all messages that List returns page by page, starting at o.Cursor. o.Limit
// is the page size. Iteration ends after an error.
func (q *Queue) All(ctx context.Context, o ListOptions) iter.Seq2[*Info, error] {
	return func(yield func(*Info, error) bool) {
		for {
			page, err := q.List(ctx, o)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, info := range page.Messages {
				if !yield(info, nil) {
					return
				}
			}
			if page.Next == "" {
				return
			}
			o.Cursor = page.Next
		}
	}
}

// Stats returns the number of messages in each state. All counts are zero for a queue that never had a
// message.
func (q *Queue) Stats(ctx context.Context) (Stats, error) {
	return calledOn(q, func() (Stats, error) { return q.client.store.Stats(ctx, q.name) })
}

// Histogram counts the scheduled and ready messages due in each of a number of equal parts of [from, to).
// buckets is 1 to store.MaxBuckets, and a part is at least a millisecond long.
func (q *Queue) Histogram(ctx context.Context, from, to time.Time, buckets int) ([]int64, error) {
	if err := store.CheckHistogram(from, to, buckets); err != nil {
		return nil, err
	}
	return q.HistogramAt(ctx, store.HistogramBounds(from, to, buckets))
}

// HistogramAt counts the scheduled and ready messages due in parts of any length: from each of bounds until before the
// next one. There are 2 to store.MaxBuckets+1 bounds, each at least a millisecond after the one before.
func (q *Queue) HistogramAt(ctx context.Context, bounds []time.Time) ([]int64, error) {
	if err := store.CheckBounds(bounds); err != nil {
		return nil, err
	}
	return calledOn(q, func() ([]int64, error) { return q.client.store.Histogram(ctx, q.name, bounds) })
}

// Replay makes dead messages live again with no attempts, and returns their number. They fall due at when.
// Without ids, Replay replays all messages that are dead when it begins. It ignores ids of messages that
// are not dead. Replay works in many small steps; when one fails, the earlier steps remain done and are
// counted.
func (q *Queue) Replay(ctx context.Context, when When, ids ...string) (int, error) {
	if err := when.check(); err != nil {
		return 0, err
	}
	return q.bulk(ctx, EventReplayed, StateDead, ids, func(sel store.Selection) (store.Bulk, error) {
		return q.client.store.Replay(ctx, q.name, sel, when.due)
	})
}

// PurgeDead removes dead messages and returns their number. Without ids, it removes all messages that are dead when it
// begins. It ignores ids of messages that are not dead. Like Replay, it works in many small steps. Keys go on that
// these messages have halted (see OrderHalt), and an EventKeyResumed names each.
func (q *Queue) PurgeDead(ctx context.Context, ids ...string) (int, error) {
	return q.bulk(ctx, EventPurged, StateDead, ids, func(sel store.Selection) (store.Bulk, error) {
		return q.client.store.Purge(ctx, q.name, sel)
	})
}

// Purge removes all messages in the given states (scheduled, ready or dead) and returns their number. Without states it
// removes all messages of the queue, leased messages included: their holders lose their leases. Messages that arrive
// after it began may remain. Like Replay, it works in many small steps. Halted keys go on, as with PurgeDead.
func (q *Queue) Purge(ctx context.Context, states ...State) (int, error) {
	if err := q.checkChange(); err != nil {
		return 0, err
	}
	for _, s := range states {
		switch s {
		case StateScheduled, StateReady, StateDead:
		default:
			return 0, store.Invalid("state is %q: purge scheduled, ready or dead ones, or everything by no state", s)
		}
	}
	if len(states) == 0 {
		states = []State{""}
	}
	total := 0
	for _, s := range states {
		n, err := q.bulk(ctx, EventPurged, s, nil, func(sel store.Selection) (store.Bulk, error) {
			return q.client.store.Purge(ctx, q.name, sel)
		})
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// bulk repeats a bounded call until it is done, with ids split into parts that fit into one call. It reports the number
// of messages as an event.
func (q *Queue) bulk(ctx context.Context, kind EventKind, state State, ids []string,
	call func(store.Selection) (store.Bulk, error)) (int, error) {
	if err := q.begin(ids...); err != nil {
		return 0, err
	}
	defer q.client.calls.Done()
	parts := slices.Collect(slices.Chunk(ids, store.MaxBatch))
	if len(parts) == 0 {
		parts = [][]string{nil} // all
	}
	total := 0
	defer func() { q.bulkEvent(ctx, kind, total) }()
	for _, part := range parts {
		sel := store.Selection{IDs: part, State: state}
		for more := true; more; {
			done, err := call(sel)
			total += done.Done
			q.keysResumed(ctx, done.Resumed)
			if err != nil {
				return total, err
			}
			sel.Before, more = done.Before, done.More
		}
	}
	return total, nil
}

// Pause stops deliveries from the queue, for all processes, until Resume. It creates the queue if
// necessary. Leased messages can still be settled, and messages can be sent. The queue keeps when it was paused and the
// machine and process that did, for inspect.Problems.
func (q *Queue) Pause(ctx context.Context) error { return q.setPaused(ctx, true) }

// Resume continues deliveries from the queue. It does not create the queue.
func (q *Queue) Resume(ctx context.Context) error {
	if s, err := q.Stats(ctx); err != nil || !s.Exists {
		return err
	}
	return q.setPaused(ctx, false)
}

func (q *Queue) setPaused(ctx context.Context, paused bool) error {
	if paused && q.old != nil {
		return q.old
	}
	if err := q.begin(); err != nil {
		return err
	}
	defer q.client.calls.Done()
	if err := pauses.Set(ctx, q.client.store, q.name, paused); err != nil {
		return err
	}
	kind := EventResumed
	if paused {
		kind = EventPaused
	}
	q.event(ctx, kind, "")
	return nil
}

// Activity is how many events of each kind happened to a queue lately, in all processes.
type Activity = store.Activity

// Activity returns how many events of each kind happened to the queue in the last minute, hour and day, in all
// processes: all kinds but EventStarted. The counts are the ones that processes have reported, which they do once a
// second. A process that is killed takes its last second with it, and a report that fails is not repeated. The
// embedded store keeps counts when it is closed, but not in a crash. A queue that does not exist has none.
func (q *Queue) Activity(ctx context.Context) (Activity, error) {
	return calledOn(q, func() (Activity, error) { return q.client.store.Activity(ctx, q.name) })
}

// SetDeadRetention limits the dead messages that the queue keeps, by age and by number; it replaces both limits. The
// zero Retention keeps all for ever, which is the default. It creates the queue if necessary. Stats returns the limits
// and the number of messages that were removed because of them.
//
// Claims of workers and Receive remove messages beyond the limits, the oldest first, 500 messages at a time, also
// on a paused queue. They report each as EventDropped. A queue without claims keeps its dead messages.
// Conditions get the Version of the Retention that is replaced, or "" if the queue does not exist.
func (q *Queue) SetDeadRetention(ctx context.Context, r Retention, conditions ...Condition) error {
	if err := cmp.Or(r.Check(), q.old); err != nil {
		return err
	}
	return q.replace(ctx, "retention", conditions, func(former *Stats) error {
		if former == nil {
			return q.client.store.SetDeadRetention(ctx, q.name, r, nil)
		}
		return q.client.store.SetDeadRetention(ctx, q.name, r, &former.DeadRetention)
	}, func(s *Stats) string { return s.DeadRetention.Version() })
}

// Condition decides about a change of settings. It is called with the version of the settings that are replaced. If it
// returns false, the call returns ErrConflict and changes nothing. If another program changes the settings between the
// condition and the change, the condition is called again. A Condition that is nil allows every change.
type Condition func(version string) bool

// allOf returns a condition that allows a change if all conditions do, or nil if there are none.
func allOf(conditions []Condition) Condition {
	conditions = slices.DeleteFunc(slices.Clone(conditions), func(c Condition) bool { return c == nil })
	if len(conditions) == 0 {
		return nil
	}
	return func(version string) bool {
		return !slices.ContainsFunc(conditions, func(c Condition) bool { return !c(version) })
	}
}

// replace replaces settings of the queue if the conditions allow it. versionOf returns the version of the settings in
// Stats. set replaces them, and returns ErrConflict if they are no longer those in former, unless that is nil.
func (q *Queue) replace(
	ctx context.Context, name string, conditions []Condition, set func(former *Stats) error, versionOf func(*Stats) string,
) error {
	if err := q.begin(); err != nil {
		return err
	}
	defer q.client.calls.Done()
	allow := allOf(conditions)
	return version.Replace(name+" of queue", q.name, func() error {
		if allow == nil {
			return set(nil)
		}
		stats, err := q.client.store.Stats(ctx, q.name)
		if err != nil {
			return err
		}
		current := ""
		if stats.Exists {
			current = versionOf(&stats)
		}
		if !allow(current) {
			return version.ErrOther
		}
		return set(&stats)
	})
}

// Delete removes the queue with its messages, dedup windows and settings, and ends its subscriptions. Deleting a
// queue that does not exist is not an error.
func (q *Queue) Delete(ctx context.Context) error {
	if err := q.begin(); err != nil {
		return err
	}
	defer q.client.calls.Done()
	return topic.DeleteQueue(ctx, q.client.store, q.name)
}

// Retention limits the dead messages that a queue keeps; see Queue.SetDeadRetention.
type Retention = store.Retention

// Stats counts the messages of a queue.
type Stats = store.Stats
