package topic

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/internal/version"
	"github.com/laterq/later/store"
)

// Subscription is a queue that receives a topic's messages, as the value of a property.
type Subscription struct {
	Where string `json:"where,omitempty"`
	// CatchingUp is set while the queue is sent history. Its messages until then are remembered, so that it does not
	// come again.
	CatchingUp bool `json:"catching_up,omitempty"`

	Queue  string `json:"-"`
	Filter Filter `json:"-"`
}

// Version returns the version of the subscription: a text that is different for another filter.
func (s *Subscription) Version() string { return version.Of([]byte(s.Where)) }

// Subscribe subscribes a queue, or replaces its subscription, from a place in the history on if there is one. allow is
// called with the Version of the Subscription that would be replaced, or "" if the queue is not subscribed, and may be
// nil. If it returns false, Subscribe returns ErrConflict.
func (t *Topic) Subscribe(
	ctx context.Context, queue, where string, start Start, allow func(version string) bool,
) error {
	s := Subscription{Where: where, CatchingUp: start.Set(), Queue: queue}
	var from time.Time
	err := version.Replace("subscription of queue", queue, func() (err error) {
		from, err = t.trySubscribe(ctx, s, start, allow)
		return err
	})
	if err != nil || !s.CatchingUp {
		return err
	}
	if _, err := t.resend(ctx, queue, from, time.Time{}); err != nil {
		return fmt.Errorf("queue %q is subscribed, but did not receive all of the history: %w", queue, err)
	}
	s.CatchingUp = false
	return t.set(ctx, s, nil)
}

// trySubscribe stores a subscription, and returns the due time of the history that its queue is still to be sent. It
// returns version.ErrOther if it is not allowed, and ErrConflict if the topic has changed since.
func (t *Topic) trySubscribe(
	ctx context.Context, s Subscription, start Start, allow func(version string) bool,
) (from time.Time, err error) {
	state, err := t.Load(ctx)
	if err != nil {
		return from, err
	}
	former := state.Subscribed(s.Queue)
	var condition *store.Condition
	if allow != nil {
		condition = state.Unchanged()
		switch {
		case former == nil && !allow(""):
			// An earlier attempt may have set the property that only a subscribed queue has.
			return from, cmp.Or(t.link(ctx, s.Queue, ""), version.ErrOther)
		case former != nil && !allow(former.Version()):
			return from, version.ErrOther
		}
	}
	if start.Set() {
		if from, err = t.resolve(ctx, state.Config, start); err != nil {
			return from, err
		}
	}
	if former == nil && len(state.Subscriptions) >= MaxSubscriptions {
		return from, store.TooLarge("topic %q has %d subscriptions, which is the limit: unsubscribe one first", t.Name,
			len(state.Subscriptions))
	}
	if err := t.checkCircle(ctx, s.Queue); err != nil {
		return from, err
	}
	if len(state.Subscriptions) == 0 && state.Config.DropUnsubscribed {
		if err := t.DropReady(ctx); err != nil {
			return from, err
		}
	}
	return from, t.set(ctx, s, condition)
}

// set stores a subscription if a condition is met, which may be nil. The subscribed queue's own property comes first:
// workers find the topic by it, and it does no harm alone.
func (t *Topic) set(ctx context.Context, s Subscription, condition *store.Condition) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := t.link(ctx, s.Queue, linkValue); err != nil {
		return err
	}
	if err := t.change(ctx, subscriptionPrefix+s.Queue, string(text), condition); err != nil {
		return err
	}
	return t.changed(ctx)
}

// link sets the property of a queue that names the topic, or removes it if the value is empty. Copies that are sent one
// by one reach the queue only while it has the property; see linked.
func (t *Topic) link(ctx context.Context, queue, value string) error {
	return t.Store.SetProperties(ctx, queue, map[string]string{t.Queue: value}, nil)
}

// linked returns a condition that is met while a queue has the property that names the topic.
func (t *Topic) linked() *store.Condition {
	return &store.Condition{Property: t.Queue, Value: linkValue}
}

// checkCircle returns an ErrInvalid if messages that a queue receives would come back to the topic.
func (t *Topic) checkCircle(ctx context.Context, queue string) error {
	seen := map[string]bool{}
	var visit func(queue, path string) error
	visit = func(queue, path string) error {
		path += fmt.Sprintf(" → %q", queue)
		if queue == t.Queue {
			return store.Invalid("messages would go in a circle, %s: leave out one of these subscriptions", path)
		}
		name, isTopic := strings.CutPrefix(queue, reserved.Topic)
		if !isTopic || seen[queue] {
			return nil
		}
		seen[queue] = true
		state, err := New(t.Store, name).Load(ctx)
		for _, s := range state.Subscriptions {
			if err == nil {
				err = visit(s.Queue, path)
			}
		}
		return err
	}
	return visit(queue, fmt.Sprintf("%q", t.Queue))
}

// Unsubscribe ends the subscription of a queue. It returns ErrNotFound if the queue is not subscribed.
func (t *Topic) Unsubscribe(ctx context.Context, queue string) error {
	state, err := t.Load(ctx)
	if err != nil {
		return err
	}
	if state.Subscribed(queue) == nil {
		properties, err := t.Store.Properties(ctx, queue)
		if _, linked := properties[t.Queue]; linked && err == nil { // an earlier call has failed halfway
			err = t.link(ctx, queue, "")
		}
		return cmp.Or(err, fmt.Errorf("queue %q is not subscribed to topic %q: %w", queue, t.Name, store.ErrNotFound))
	}
	if err := t.change(ctx, subscriptionPrefix+queue, "", nil); err != nil {
		return err
	}
	return errors.Join(t.link(ctx, queue, ""), t.changed(ctx))
}
