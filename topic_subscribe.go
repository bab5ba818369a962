package later

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/store"
)

// Subscription is a queue that receives a topic's messages.
type Subscription struct {
	Queue string
	// Where is the filter of the subscription, "" for none; see Where.
	Where string
	// CatchingUp is set while Subscribe with From sends history. If that was interrupted, it stays set until the queue
	// is subscribed again; until then the queue remembers what it receives for a day.
	CatchingUp bool
}

// subscription is the value of the property of a subscription.
type subscription struct {
	Where string `json:"where,omitempty"`
	// CatchingUp is set while the queue is sent history. What it receives meanwhile is remembered, so that it does not
	// come again.
	CatchingUp bool `json:"catching_up,omitempty"`

	queue  string
	filter filter
}

// SubscribeOption changes a subscription. Subscribe returns ErrInvalid for an option that is nil or not allowed.
type SubscribeOption interface {
	applySubscribe(*subscribeOptions) error
}

type subscribeOptions struct {
	where string
	from  HistoryStart
}

type where string

// Where has the queue receive only messages whose headers match a filter, a list of conditions that must all hold:
//
//	region=eu, priority!=low, kind in (order, refund), kind notin (test), trace, !debug
//
// A name alone means that there is such a header, and with ! that there is none. Names and values are quoted in Go
// syntax if they are empty or contain anything but letters, digits and . _ - / : @. Like Kubernetes' label selectors,
// != and notin also match messages without the header.
func Where(filter string) SubscribeOption { return where(filter) }

func (w where) applySubscribe(o *subscribeOptions) error {
	_, err := parseFilter(string(w))
	o.where = string(w)
	return err
}

// Subscribe subscribes a queue to the topic, or replaces its subscription. The queue receives every message that is
// published after Subscribe has returned, and of those before the ones that are not distributed yet. With From,
// Subscribe returns when the queue has received the history, and the queue receives each message once.
//
// A topic can be subscribed to another one by the name of its queue, "topic:NAME". Subscribe returns ErrInvalid if
// messages would come back to the topic; the text shows the circle. It returns ErrTooLarge if MaxSubscriptions queues
// are subscribed already, and ErrNotFound for From or FromID if the topic retains no history or not that message.
func (t *Topic) Subscribe(ctx context.Context, queue string, opts ...SubscribeOption) error {
	return t.SubscribeIf(ctx, queue, nil, opts...)
}

// SubscribeIf is Subscribe on a condition: allow is called with the Version of the Subscription that would be replaced,
// or "" if the queue is not subscribed. If it returns false, SubscribeIf returns ErrConflict and changes nothing.
// Nobody can change the topic between the call of allow and the change: allow is then called again. An allow of nil
// allows it always.
func (t *Topic) SubscribeIf(
	ctx context.Context, queue string, allow func(version string) bool, opts ...SubscribeOption,
) error {
	var o subscribeOptions
	for i, opt := range opts {
		if opt == nil {
			return nilOption(i)
		}
		if err := opt.applySubscribe(&o); err != nil {
			return err
		}
	}
	if err := cmp.Or(t.queue.old, store.CheckNewQueue(queue), checkUse(queue, reserved.Subscribe)); err != nil {
		return err
	}
	return t.call(func() error {
		s := subscription{Where: o.where, CatchingUp: o.from.set(), queue: queue}
		var from time.Time
		err := replace("subscription of queue", queue, func() (err error) {
			from, err = t.trySubscribe(ctx, s, o.from, allow)
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
	})
}

// trySubscribe stores a subscription, and returns the due time of the history that its queue is still to be sent. It
// returns errOtherVersion if it is not allowed, and ErrConflict if somebody has changed the topic meanwhile.
func (t *Topic) trySubscribe(
	ctx context.Context, s subscription, start HistoryStart, allow func(version string) bool,
) (from time.Time, err error) {
	state, err := t.load(ctx)
	if err != nil {
		return from, err
	}
	former := state.subscribed(s.queue)
	var condition *store.Condition
	if allow != nil {
		condition = state.unchanged()
		switch {
		case former == nil && !allow(""):
			// An earlier attempt may have set the property that only a subscribed queue has.
			return from, cmp.Or(t.link(ctx, s.queue, ""), errOtherVersion)
		case former != nil && !allow(Subscription{Where: former.Where}.Version()):
			return from, errOtherVersion
		}
	}
	if start.set() {
		if from, err = t.resolve(ctx, state.cfg, start); err != nil {
			return from, err
		}
	}
	if former == nil && len(state.subscriptions) >= MaxSubscriptions {
		return from, store.TooLarge("topic %q has %d subscriptions, which is the limit: unsubscribe one first", t.name,
			len(state.subscriptions))
	}
	if err := t.checkCircle(ctx, s.queue); err != nil {
		return from, err
	}
	if len(state.subscriptions) == 0 && state.cfg.DropUnsubscribed {
		if err := t.dropReady(ctx); err != nil {
			return from, err
		}
	}
	return from, t.set(ctx, s, condition)
}

// set stores a subscription if a condition is met, which may be nil. The subscribed queue's own property comes first:
// workers find the topic by it, and it does no harm alone.
func (t *Topic) set(ctx context.Context, s subscription, condition *store.Condition) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := t.link(ctx, s.queue, linkValue); err != nil {
		return err
	}
	if err := t.change(ctx, subscriptionPrefix+s.queue, string(text), condition); err != nil {
		return err
	}
	return t.client.topicsChanged(ctx)
}

// link sets the property of a queue that names the topic, or removes it if the value is empty. Copies that are sent one
// by one reach the queue only while it has the property; see linked.
func (t *Topic) link(ctx context.Context, queue, value string) error {
	return t.client.store.SetProperties(ctx, queue, map[string]string{t.queue.name: value}, nil)
}

// linked returns a condition that is met while a queue has the property that names the topic.
func (t *Topic) linked() *store.Condition {
	return &store.Condition{Property: t.queue.name, Value: linkValue}
}

// checkCircle returns an ErrInvalid if messages that a queue receives would come back to the topic.
func (t *Topic) checkCircle(ctx context.Context, queue string) error {
	seen := map[string]bool{}
	var visit func(queue, path string) error
	visit = func(queue, path string) error {
		path += fmt.Sprintf(" → %q", queue)
		if queue == t.queue.name {
			return store.Invalid("messages would go in a circle, %s: leave out one of these subscriptions", path)
		}
		name, isTopic := strings.CutPrefix(queue, reserved.Topic)
		if !isTopic || seen[queue] {
			return nil
		}
		seen[queue] = true
		state, err := t.client.Topic(name).load(ctx)
		for _, s := range state.subscriptions {
			if err == nil {
				err = visit(s.queue, path)
			}
		}
		return err
	}
	return visit(queue, fmt.Sprintf("%q", t.queue.name))
}

// Unsubscribe ends the subscription of a queue, which receives nothing of the topic once Unsubscribe has returned. What
// it has received stays there. Unsubscribe returns ErrNotFound if the queue is not subscribed.
func (t *Topic) Unsubscribe(ctx context.Context, queue string) error {
	return t.call(func() error {
		state, err := t.load(ctx)
		if err != nil {
			return err
		}
		if state.subscribed(queue) == nil {
			// An earlier call may have failed halfway.
			return cmp.Or(t.link(ctx, queue, ""),
				fmt.Errorf("queue %q is not subscribed to topic %q: %w", queue, t.name, ErrNotFound))
		}
		if err := t.change(ctx, subscriptionPrefix+queue, "", nil); err != nil {
			return err
		}
		return errors.Join(t.link(ctx, queue, ""), t.client.topicsChanged(ctx))
	})
}

// Subscriptions returns the topic's subscriptions, sorted by queue.
func (t *Topic) Subscriptions(ctx context.Context) (all []Subscription, err error) {
	err = t.call(func() error {
		state, err := t.load(ctx)
		for _, s := range state.subscriptions {
			all = append(all, Subscription{Queue: s.queue, Where: s.Where, CatchingUp: s.CatchingUp})
		}
		return err
	})
	return all, err
}
