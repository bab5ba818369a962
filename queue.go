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
	"github.com/laterq/later/internal/version"
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
	q.sends = batch.NewSends(q.store, c.confirming, cfg)
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

// Edit changes a scheduled or ready message in place: change gets it as it was sent and sets what is to be different.
//
//	err := q.Edit(ctx, id, func(m *later.Outgoing) error {
//		m.Payload = []byte("new text")
//		return nil
//	})
//
// The message keeps its id, its failed attempts and, unless change sets When, its due time. Nothing that others do
// between the read and the write is lost: if the message changed, change is called again with what it is now. An error
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
	m, err := o.prepare()
	if err != nil {
		return err
	}
	m.OnDuplicate.Unchanged = info
	results, err := q.store(ctx, []store.Outgoing{m})
	switch {
	case err != nil:
		return err
	case results[0].Err != nil: // ErrConflict if it has changed, and ErrNotFound if it is no longer there
		return q.errorOf(id, results[0].Err)
	}
	q.event(ctx, EventEdited, id)
	return nil
}

// SetDeadRetentionIf is SetDeadRetention on a condition: allow is called with the Version of the Retention that would
// be replaced, or "" if the queue does not exist. If it returns false, SetDeadRetentionIf returns ErrConflict and
// changes nothing. If the retention is replaced between the call of allow and the change, allow is called
// again. An allow of nil allows it always.
func (q *Queue) SetDeadRetentionIf(ctx context.Context, r Retention, allow func(version string) bool) error {
	if err := cmp.Or(r.Check(), q.old); err != nil {
		return err
	}
	if err := q.begin(); err != nil {
		return err
	}
	defer q.client.calls.Done()
	return version.Replace("retention of queue", q.name, func() error {
		if allow == nil {
			return q.client.store.SetDeadRetention(ctx, q.name, r, nil)
		}
		stats, err := q.client.store.Stats(ctx, q.name)
		if err != nil {
			return err
		}
		current := ""
		if stats.Exists {
			current = stats.DeadRetention.Version()
		}
		if !allow(current) {
			return version.ErrOther
		}
		return q.client.store.SetDeadRetention(ctx, q.name, r, &stats.DeadRetention)
	})
}
