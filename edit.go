package later

import (
	"context"
	"errors"
	"fmt"

	"github.com/laterq/later/store"
)

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
