package later

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/laterq/later/internal/batch"
	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/internal/report"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/internal/undo"
	"github.com/laterq/later/store"
)

// callTimeout limits a call to a store that does not answer.
const callTimeout = calls.Timeout

// Queue is a named set of messages, returned by Client.Queue. Its methods are safe for concurrent use.
type Queue struct {
	client  *Client
	name    string
	invalid error // why the name is not allowed
	old     error // why the name is not allowed for a new queue; it may exist
	kept    error // why its messages may not be changed like others

	defaults *Outgoing // for sends; nil if there are none
	activity *report.Queue
	dropped  *atomic.Int64 // when messages of an unsubscribed topic were dropped, in ns since 1970

	sends   *batch.Sends
	settles *batch.Batcher[store.Settlement, store.SettleResult]
}

func newQueue(c *Client, name string) *Queue {
	// Calls in flight refer to q, so that it is in use until they return.
	q := &Queue{
		client: c, name: name, old: store.CheckNewQueue(name), kept: checkUse(name, reserved.Change), defaults: c.defaults,
		dropped: new(atomic.Int64), activity: c.reporter.Of(name),
	}
	cfg := batch.Config{Timeout: callTimeout, Closed: errClientClosed}
	var prompt batch.SendFunc
	if p, ok := c.store.(store.PromptSender); ok {
		prompt = func(ctx context.Context, msgs []store.Outgoing) ([]store.SendResult, error) {
			return q.counted(p.SendPromptly(ctx, q.name, msgs))
		}
	}
	q.sends = batch.NewSends(q.store, prompt, c.confirming, cfg)
	q.settles = batch.NewSettles(func(ctx context.Context, items []store.Settlement) ([]store.SettleResult, error) {
		return c.store.Settle(ctx, q.name, items)
	}, cfg)
	return q
}

// checkUse returns an ErrInvalid if a queue of Later's own may not be used so.
func checkUse(queue string, use reserved.Use) error {
	if why := reserved.Check(queue, use); why != "" {
		return store.Invalid("%s", why)
	}
	return nil
}

// checkChange returns an ErrInvalid if the queue's messages may not be changed like others.
func (q *Queue) checkChange() error { return q.kept }

// checkSend returns an ErrInvalid if no messages may be sent to the queue.
func (q *Queue) checkSend() error { return cmp.Or(q.invalid, q.old, q.kept) }

// Name returns the queue's name.
func (q *Queue) Name() string { return q.name }

// calledOn makes a call for the queue, and returns its result; see begin.
func calledOn[T any](q *Queue, f func() (T, error)) (result T, err error) {
	if q.invalid != nil {
		return result, q.invalid
	}
	return called(q.client, f)
}

// called makes a call to the client's store, and returns its result.
func called[T any](c *Client, f func() (T, error)) (result T, err error) {
	if err := c.begin(); err != nil {
		return result, err
	}
	defer c.calls.Done()
	return f()
}

// call is called for a call without a result.
func (c *Client) call(f func() error) error {
	_, err := called(c, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

// event reports an event of a message without a claim, or of the queue.
func (q *Queue) event(ctx context.Context, kind EventKind, id string) {
	if q.wantsEvents() {
		q.report(Event{Kind: kind, ID: id, Context: ctx})
	}
	q.activity.Count(kind, 1)
}

// sent reports a message that store has counted.
func (q *Queue) sent(ctx context.Context, m *store.Outgoing) { q.reportSend(ctx, EventSent, m) }

// duplicate reports and counts a message that was not sent.
func (q *Queue) duplicate(ctx context.Context, m *store.Outgoing) {
	q.reportSend(ctx, EventDuplicate, m)
	q.activity.Count(EventDuplicate, 1)
}

func (q *Queue) reportSend(ctx context.Context, kind EventKind, m *store.Outgoing) {
	if q.wantsEvents() {
		q.report(Event{Kind: kind, ID: m.ID, Context: ctx, Headers: q.client.eventHeaders.Of(m.Headers)})
	}
}

// bulkEvent reports a number of messages.
func (q *Queue) bulkEvent(ctx context.Context, kind EventKind, n int) {
	if n > 0 && q.wantsEvents() {
		q.report(Event{Kind: kind, Context: ctx, Count: n})
	}
	q.activity.Count(kind, n)
}

// wantsEvents reports whether there is an observer, or watchers of the queue.
func (q *Queue) wantsEvents() bool { return q.client.observe != nil || q.activity.WantsDetails() }

// report completes an event and passes it to the observer and to watchers. The caller counts it.
func (q *Queue) report(e Event) {
	e.Queue, e.Time = q.name, time.Now()
	if q.client.observe != nil {
		q.client.observe(e)
	}
	if q.activity.WantsDetails() {
		q.activity.Collect(report.Event{Kind: e.Kind, ID: e.ID, Time: e.Time, Attempt: e.Attempt, Lateness: e.Lateness,
			Duration: e.Duration, Count: e.Count, Headers: e.Headers}, e.Err)
	}
}

// editTries limits how often Edit begins again because the message has changed.
const editTries = 10

// Edit changes a scheduled or ready message in place: change gets the message as it was sent, and sets the fields to
// change.
//
//	err := q.Edit(ctx, id, func(m *later.Outgoing) error {
//		m.Payload = []byte("new text")
//		return nil
//	})
//
// The message keeps its id, its failed attempts and, unless change sets When, its due time. No change that others make
// between the read and the write is lost: if the message changed, change is called again with the new message. An error
// of change ends Edit and is returned. Middleware of sends and defaults are not applied.
//
// Edit returns ErrNotFound when no live message has the id, ErrLeased when a worker holds it, ErrDead when it is dead
// (see Replay), ErrConflict when it changes all the time, and ErrInvalid or ErrTooLarge for a message that Send would
// refuse, or with another id. Nothing was changed then.
func (q *Queue) Edit(ctx context.Context, id string, change func(m *Outgoing) error) error {
	if err := q.beginChange(id); err != nil {
		return err
	}
	defer q.client.calls.Done()
	for try := 1; ; try++ {
		err := q.editOnce(ctx, id, change)
		if !errors.Is(err, ErrConflict) || try == editTries {
			return err
		}
	}
}

func (q *Queue) editOnce(ctx context.Context, id string, change func(m *Outgoing) error) error {
	infos, err := q.client.store.Get(ctx, q.name, []string{id})
	if err != nil {
		return err
	}
	info := infos[0]
	switch {
	case info == nil:
		return q.errorOf(id, ErrNotFound)
	case info.State == StateLeased:
		return q.errorOf(id, ErrLeased)
	case info.State == StateDead:
		return q.errorOf(id, ErrDead)
	case info.Raw != nil:
		return q.errorOf(id, fmt.Errorf("it cannot be read, and an edit would replace it: %w", store.ErrCorrupt))
	}
	o := OutgoingOf(info.Message)
	o.Queue, o.OnDuplicate = q.name, Replace()
	if err := change(&o); err != nil {
		return err
	}
	if o.ID != id || o.Queue != q.name || o.OnDuplicate != Replace() || o.Durability != (Durability{}) ||
		o.Once != nil {
		return store.Invalid("edit of %q changes its id, queue, mode for duplicates, durability or once: send another "+
			"message", id)
	}
	m, err := o.prepare(new(store.IDs))
	if err != nil {
		return err
	}
	m.OnDuplicate.Unchanged = info
	m.Relayed = m.Urgency == info.Urgency // the queue has taken it before
	edited, err := undo.Edits(ctx, q.client.store, q.name, info, &m)
	if err != nil {
		return q.errorOf(id, err)
	}
	results, err := q.store(ctx, []store.Outgoing{m})
	switch {
	case err != nil:
		return err
	case results[0].Err != nil: // ErrConflict if it has changed, and ErrNotFound if it is no longer there
		return q.errorOf(id, results[0].Err)
	}
	edited()
	q.event(ctx, EventEdited, id)
	return nil
}

// Group puts the message in a group of its queue, such as all reminders of one order, so that CancelGroup,
// RescheduleGroup and ListGroup find it without its id. A name has 1 to store.MaxGroup bytes of UTF-8 without
// control characters. A message is in one group at most, from its send until it is gone, and takes the group along
// when it is forwarded, copied or distributed by a topic. Messages without a group cost nothing more.
func Group(name string) SendOption {
	return setOnce("group", name, store.CheckGroup(name), func(o *Outgoing) *string { return &o.Group })
}

// GroupCancel is the result of a CancelGroup: how many messages it cancelled, by the state that they were in.
type GroupCancel struct {
	Scheduled, Ready, Leased, Dead int
}

// Total returns how many messages were cancelled.
func (c GroupCancel) Total() int { return c.Scheduled + c.Ready + c.Leased + c.Dead }

func (c *GroupCancel) add(state State) {
	switch state {
	case StateScheduled:
		c.Scheduled++
	case StateReady:
		c.Ready++
	case StateLeased:
		c.Leased++
	case StateDead:
		c.Dead++
	}
}

// CancelGroup cancels all messages of a group, whatever their states, and counts them. Leased messages are treated as
// by Cancel. Each message is cancelled in one atomic step, but the group is not: a message that is sent to the group
// during the call may stay, also a message with an id that was used before. A group without messages is not an error.
//
// The cost depends on the size of the group, not on the size of the queue. When a call to the store fails, CancelGroup
// returns its error and the counts so far; call it again to cancel the rest.
func (q *Queue) CancelGroup(ctx context.Context, group string, opts ...CancelOption) (GroupCancel, error) {
	var count GroupCancel
	err := q.eachOfGroup(ctx, group, func(ids []string) error {
		results, err := q.CancelBatch(ctx, ids, opts...)
		for _, r := range results {
			if r.Err == nil {
				count.add(r.State)
			} else if err == nil && !errors.Is(r.Err, ErrNotFound) {
				err = r.Err
			}
		}
		return err
	})
	return count, err
}

// GroupReschedule is the result of a RescheduleGroup.
type GroupReschedule struct {
	Rescheduled int // messages with the new due time
	// Leased and Dead count the messages that were left as they were: a worker held them, or they were dead. See
	// Replay for these.
	Leased, Dead int
}

// RescheduleGroup changes the due time of all scheduled and ready messages of a group, and counts them. In(d) counts
// from the store's clock at each step of up to store.MaxBatch messages. Like CancelGroup, it is atomic for each
// message only, and after an error it can be called again.
func (q *Queue) RescheduleGroup(ctx context.Context, group string, when When) (GroupReschedule, error) {
	var count GroupReschedule
	if err := when.check(); err != nil {
		return count, err
	}
	err := q.eachOfGroup(ctx, group, func(ids []string) error {
		if err := q.beginChange(); err != nil {
			return err
		}
		defer q.client.calls.Done()
		results, err := undo.Reschedule(ctx, q.client.store, q.name, ids, when.due)
		for i, one := range results {
			switch {
			case one == nil:
				count.Rescheduled++
				q.event(ctx, EventRescheduled, ids[i])
			case errors.Is(one, ErrLeased):
				count.Leased++
			case errors.Is(one, ErrDead):
				count.Dead++
			case err == nil && !errors.Is(one, ErrNotFound): // else it was removed during the call
				err = q.errorOf(ids[i], one)
			}
		}
		return err
	})
	return count, err
}

// ListGroup returns a page of the messages of a group, in any state, in order of id. o.Limit and o.Cursor are as for
// List; the rest of o is left out. All with ListOptions.Group returns the whole group.
func (q *Queue) ListGroup(ctx context.Context, group string, o ListOptions) (Page, error) {
	if err := store.CheckGroup(group); err != nil {
		return Page{}, err
	}
	if o.Group != "" && o.Group != group {
		return Page{}, store.Invalid("groups %q and %q are both given: give one", group, o.Group)
	}
	o.Group = group
	return q.List(ctx, o)
}

// eachOfGroup calls f with the ids of a group, page by page, until it returns an error.
func (q *Queue) eachOfGroup(ctx context.Context, group string, f func(ids []string) error) error {
	if err := store.CheckGroup(group); err != nil {
		return err
	}
	for req := (store.ListRequest{Group: group, IDsOnly: true, Limit: store.MaxBatch}); ; {
		page, err := q.list(ctx, req)
		if err != nil {
			return err
		}
		if len(page.Messages) > 0 {
			if err := f(pageIDs(page)); err != nil {
				return err
			}
		}
		if req.Cursor = page.Next; req.Cursor == "" {
			return nil
		}
	}
}

// list makes one call.
func (q *Queue) list(ctx context.Context, req store.ListRequest) (store.Page, error) {
	return calledOn(q, func() (store.Page, error) { return q.client.store.List(ctx, q.name, req) })
}

// pageIDs returns the ids of the messages of a page.
func pageIDs(page store.Page) []string {
	ids := make([]string, len(page.Messages))
	for i := range page.Messages {
		ids[i] = page.Messages[i].ID
	}
	return ids
}
