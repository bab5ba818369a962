package later

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/laterq/later/store"
)

// begin announces a call about messages that are looked up by id; the ids are checked. The caller says
// calls.Done when the call is back.
func (q *Queue) begin(ids ...string) error {
	if q.invalid != nil {
		return q.invalid
	}
	for i, id := range ids {
		err := checkID(id)
		switch {
		case err != nil && len(ids) > 1:
			return fmt.Errorf("id %d of %d: %w", i, len(ids), err)
		case err != nil:
			return err
		}
	}
	return q.client.begin()
}

// checkID refuses an id that no message can have.
func checkID(id string) error {
	if id == "" {
		return store.Invalid("id is empty: give the id of a message, as Send returned it")
	}
	return store.CheckID(id)
}

func (q *Queue) errorOf(id string, err error) error {
	return fmt.Errorf("message %q of queue %q: %w", id, q.name, err)
}

// Cancel removes a message, whatever its state, and tells the state it was in. A leased one is not delivered
// again, and the context of its handler ends with ErrCancelled as soon as its worker's next heartbeat; the
// handler may finish before. ErrNotFound when no living message has the id.
func (q *Queue) Cancel(ctx context.Context, id string) (State, error) {
	results, err := q.CancelBatch(ctx, []string{id})
	if err != nil {
		return StateNone, err
	}
	return results[0].State, results[0].Err
}

// CancelResult tells what became of one id of a CancelBatch.
type CancelResult struct {
	ID    string
	State State // the state it was in
	Err   error // ErrNotFound when no living message has the id
}

// CancelBatch cancels any number of messages, in calls of up to store.MaxBatch. There is a result for each
// id, in order. When a call fails its error is returned with the results so far. An id that is not allowed is
// ErrInvalid, which names its index, and nothing is cancelled.
func (q *Queue) CancelBatch(ctx context.Context, ids []string) ([]CancelResult, error) {
	if err := q.begin(ids...); err != nil {
		return nil, err
	}
	defer q.client.calls.Done()
	results := make([]CancelResult, 0, len(ids))
	for part := range slices.Chunk(ids, store.MaxBatch) {
		answers, err := q.client.store.Cancel(ctx, q.name, part)
		if err != nil {
			return results, err
		}
		for i, a := range answers {
			if a.Err != nil {
				a.Err = q.errorOf(part[i], a.Err)
			}
			results = append(results, CancelResult{part[i], a.State, a.Err})
		}
	}
	return results, nil
}

// Reschedule gives a scheduled or ready message a new due time; its attempts are kept. ErrNotFound when no
// living message has the id, ErrLeased when a worker holds it, ErrDead when it is dead (see Replay).
func (q *Queue) Reschedule(ctx context.Context, id string, when When) error {
	if err := when.check(); err != nil {
		return err
	}
	if err := q.begin(id); err != nil {
		return err
	}
	defer q.client.calls.Done()
	errs, err := q.client.store.Reschedule(ctx, q.name, []string{id}, when.due)
	if err != nil {
		return err
	}
	if errs[0] != nil {
		return q.errorOf(id, errs[0])
	}
	return nil
}

// RunNow makes a message due at once. Its errors are those of Reschedule.
func (q *Queue) RunNow(ctx context.Context, id string) error {
	return q.Reschedule(ctx, id, In(0))
}

// Get tells what is known of a living message; ErrNotFound when there is none of that id.
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
	return newInfo(q.name, *infos[0]), nil
}

// ListOptions says what to list.
type ListOptions struct {
	// State must be given.
	State State
	// From and To limit the due time (of dead messages: the time of death) to [From, To). Default: no limit.
	From, To time.Time
	// Limit is the number of messages of a page, 1 to store.MaxBatch; a page may be shorter. Default: 100.
	Limit int
	// Cursor is Page.Next of the page before. Default: the first page.
	Cursor string
}

func (o ListOptions) request() (store.ListRequest, error) {
	req := store.ListRequest{State: o.State, From: o.From, To: o.To, Cursor: o.Cursor, Limit: o.Limit}
	switch o.State {
	case StateScheduled, StateReady, StateLeased, StateDead:
	default:
		return req, store.Invalid("state is %q: give scheduled, ready, leased or dead", o.State)
	}
	if req.Limit == 0 {
		req.Limit = 100
	}
	if req.Limit < 1 || req.Limit > store.MaxBatch {
		return req, store.Invalid("limit is %d: give 1 to %d, or 0 for 100", o.Limit, store.MaxBatch)
	}
	return req, nil
}

// List gives a page of the messages in a state: scheduled and ready ones by due time, dead ones by time of
// death, leased ones by lease. A message that stays in the state during the listing appears exactly once
// (leased: at least once); others may or may not appear.
func (q *Queue) List(ctx context.Context, o ListOptions) (Page, error) {
	req, err := o.request()
	if err != nil {
		return Page{}, err
	}
	if err := q.begin(); err != nil {
		return Page{}, err
	}
	defer q.client.calls.Done()
	page, err := q.client.store.List(ctx, q.name, req)
	if err != nil {
		return Page{}, err
	}
	messages := make([]*Info, len(page.Messages))
	for i := range messages {
		messages[i] = newInfo(q.name, page.Messages[i])
	}
	return Page{messages, page.Next}, nil
}

// All gives all messages that List would give page by page, from o.Cursor on; o.Limit is the length of the
// pages in which it asks for them. After an error it ends.
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

// Stats counts the queue's messages by state. A queue that never had a message is all zero.
func (q *Queue) Stats(ctx context.Context) (Stats, error) {
	if err := q.begin(); err != nil {
		return Stats{}, err
	}
	defer q.client.calls.Done()
	return q.client.store.Stats(ctx, q.name)
}

// Histogram counts the scheduled and ready messages that fall due in each of so many equal parts of
// [from, to): 1 to store.MaxBuckets parts of a millisecond at least.
func (q *Queue) Histogram(ctx context.Context, from, to time.Time, buckets int) ([]int64, error) {
	if err := store.CheckHistogram(from, to, buckets); err != nil {
		return nil, err
	}
	if err := q.begin(); err != nil {
		return nil, err
	}
	defer q.client.calls.Done()
	return q.client.store.Histogram(ctx, q.name, from, to, buckets)
}

// Replay makes dead messages live again, due as given, with their attempts back at zero, and tells how many.
// Without ids it replays all that are dead when it begins. Ids of messages that are not dead are passed over.
// It works in many small steps; when one fails, those before it stay done and are counted.
func (q *Queue) Replay(ctx context.Context, when When, ids ...string) (int, error) {
	if err := when.check(); err != nil {
		return 0, err
	}
	return q.bulk(StateDead, ids, func(sel store.Selection) (store.Bulk, error) {
		return q.client.store.Replay(ctx, q.name, sel, when.due)
	})
}

// PurgeDead removes dead messages and tells how many. Without ids it removes all that are dead when it
// begins. Ids of messages that are not dead are passed over. It works in many small steps, as Replay does.
func (q *Queue) PurgeDead(ctx context.Context, ids ...string) (int, error) {
	return q.bulk(StateDead, ids, func(sel store.Selection) (store.Bulk, error) {
		return q.client.store.Purge(ctx, q.name, sel)
	})
}

// Purge removes all messages in the given states (scheduled, ready, dead) and tells how many; without states
// all messages of the queue, leased ones too, whose holders learn of it as of a lost lease. Messages that come
// after it began may stay. It works in many small steps, as Replay does.
func (q *Queue) Purge(ctx context.Context, states ...State) (int, error) {
	for _, s := range states {
		switch s {
		case StateScheduled, StateReady, StateDead:
		default:
			return 0, store.Invalid("state is %q: purge scheduled, ready or dead ones, or everything by no state", s)
		}
	}
	if len(states) == 0 {
		states = []State{StateNone}
	}
	total := 0
	for _, s := range states {
		n, err := q.bulk(s, nil, func(sel store.Selection) (store.Bulk, error) {
			return q.client.store.Purge(ctx, q.name, sel)
		})
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// bulk repeats a bounded call until all is done, for ids in parts that fit into one call.
func (q *Queue) bulk(state State, ids []string, call func(store.Selection) (store.Bulk, error)) (int, error) {
	if err := q.begin(ids...); err != nil {
		return 0, err
	}
	defer q.client.calls.Done()
	parts := slices.Collect(slices.Chunk(ids, store.MaxBatch))
	if len(parts) == 0 {
		parts = [][]string{nil} // all
	}
	total := 0
	for _, part := range parts {
		sel := store.Selection{IDs: part, State: state}
		for more := true; more; {
			done, err := call(sel)
			total += done.Done
			if err != nil {
				return total, err
			}
			sel.Before, more = done.Before, done.More
		}
	}
	return total, nil
}

// Pause stops deliveries from the queue, for all processes, until Resume; it makes the queue if need be.
// Messages that are held may still be settled, and sending goes on.
func (q *Queue) Pause(ctx context.Context) error { return q.setPaused(ctx, true) }

// Resume lets deliveries from the queue go on. A queue that does not exist is not made by it.
func (q *Queue) Resume(ctx context.Context) error {
	if s, err := q.Stats(ctx); err != nil || !s.Exists {
		return err
	}
	return q.setPaused(ctx, false)
}

func (q *Queue) setPaused(ctx context.Context, paused bool) error {
	if err := q.begin(); err != nil {
		return err
	}
	defer q.client.calls.Done()
	return q.client.store.SetPaused(ctx, q.name, paused)
}

// Delete removes the queue with all its messages, remembered ids and settings. Deleting what does not exist
// is no error.
func (q *Queue) Delete(ctx context.Context) error {
	if err := q.begin(); err != nil {
		return err
	}
	defer q.client.calls.Done()
	return q.client.store.Delete(ctx, q.name)
}
