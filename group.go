package later

import (
	"context"
	"errors"

	"github.com/laterq/later/store"
)

// Group puts the message in a group of its queue, such as all reminders of one order, so that CancelGroup,
// RescheduleGroup and ListGroup find it without its id. A name has 1 to store.MaxGroup bytes of UTF-8 without
// control characters. A message is in one group at most, from its send until it is gone, and takes the group along
// when it is forwarded, copied or distributed by a topic. Messages without a group cost nothing more.
func Group(name string) SendOption {
	return sendOption(func(o *Outgoing) error {
		if o.Group != "" {
			return twice("group")
		}
		o.Group = name
		return store.CheckGroup(name)
	})
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

// CancelGroup cancels all messages of a group, whatever their states, and counts them. Leased messages are treated
// as by Cancel. Each message is cancelled in one atomic step, but the group is not: a message that is sent to it
// meanwhile may stay, and so may one whose id was used before. A group without messages is no error.
//
// The cost depends on the size of the group, not on that of the queue. When a call to the store fails, CancelGroup
// returns its error and what was cancelled before; call it again to cancel the rest.
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
		results, err := q.client.store.Reschedule(ctx, q.name, ids, when.due)
		for i, one := range results {
			switch {
			case one == nil:
				count.Rescheduled++
				q.event(ctx, EventRescheduled, ids[i])
			case errors.Is(one, ErrLeased):
				count.Leased++
			case errors.Is(one, ErrDead):
				count.Dead++
			case err == nil && !errors.Is(one, ErrNotFound): // else it has gone meanwhile
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
	if err := q.begin(); err != nil {
		return store.Page{}, err
	}
	defer q.client.calls.Done()
	return q.client.store.List(ctx, q.name, req)
}

// pageIDs returns the ids of the messages of a page.
func pageIDs(page store.Page) []string {
	ids := make([]string, len(page.Messages))
	for i := range page.Messages {
		ids[i] = page.Messages[i].ID
	}
	return ids
}
