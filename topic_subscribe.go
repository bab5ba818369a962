package later

import (
	"cmp"
	"context"
	"time"

	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/internal/topic"
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

// Version returns a text that is different for another filter.
func (s Subscription) Version() string { return (&topic.Subscription{Where: s.Where}).Version() }

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
	o.where = string(w)
	return CheckFilter(o.where)
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
	return t.call(func() error { return t.topic.Subscribe(ctx, queue, o.where, o.from.place, allow) })
}

// CheckFilter returns the ErrInvalid or ErrTooLarge with which Subscribe refuses Where with a filter, or nil.
func CheckFilter(filter string) error {
	_, err := topic.ParseFilter(filter)
	return err
}

// Unsubscribe ends the subscription of a queue, which receives nothing of the topic once Unsubscribe has returned. What
// it has received stays there. Unsubscribe returns ErrNotFound if the queue is not subscribed.
func (t *Topic) Unsubscribe(ctx context.Context, queue string) error {
	return t.call(func() error { return t.topic.Unsubscribe(ctx, queue) })
}

// Subscriptions returns the topic's subscriptions, sorted by queue.
func (t *Topic) Subscriptions(ctx context.Context) (all []Subscription, err error) {
	err = t.call(func() error {
		state, err := t.topic.Load(ctx)
		for _, s := range state.Subscriptions {
			all = append(all, Subscription{Queue: s.Queue, Where: s.Where, CatchingUp: s.CatchingUp})
		}
		return err
	})
	return all, err
}

// HistoryOptions selects messages of a topic's history.
type HistoryOptions struct {
	// From and To limit the due time to [From, To). Default: no limit.
	From, To time.Time
	// Limit is the maximum number of messages in a page, 1 to store.MaxBatch. Default: 100.
	Limit int
	// Cursor is Page.Next of the previous page. Default: the first page.
	Cursor string
}

// History returns a page of the messages that the topic retains, in order of due time; see TopicConfig. They are in the
// queue "topic-history:NAME", from which nobody claims.
func (t *Topic) History(ctx context.Context, o HistoryOptions) (Page, error) {
	if t.invalid != nil {
		return Page{}, t.invalid
	}
	return t.history.List(ctx, ListOptions{
		State: StateReady, From: o.From, To: o.To, Limit: o.Limit, Cursor: o.Cursor,
	})
}

// HistoryStart is a place in a topic's history. It is also a SubscribeOption, with which the queue receives what the
// history has from there on.
type HistoryStart struct {
	place topic.Start
	bad   error
}

// From returns the HistoryStart at a due time.
func From(t time.Time) HistoryStart {
	if t.IsZero() {
		return HistoryStart{bad: store.Invalid("From has no time: give one from 1970 on, which for the whole history is " +
			"time.Unix(0, 0)")}
	}
	return HistoryStart{place: topic.Start{At: t}}
}

// FromID returns the HistoryStart at the due time of a message. Others that were due in the same millisecond are
// included.
func FromID(id string) HistoryStart {
	return HistoryStart{place: topic.Start{ID: id}, bad: checkID(id)}
}

func (h HistoryStart) applySubscribe(o *subscribeOptions) error {
	if o.from.place.Set() {
		return twice("start in the history")
	}
	o.from = h
	return h.bad
}

// Rewound is the result of a Rewind.
type Rewound struct {
	Sent int // messages that the queue receives again
	Kept int // messages that it has or remembers, and that do not match its filter
}

// Rewind has a subscribed queue receive again what the history has from a place on, up to now. Messages that it
// still has, dead ones included, are left alone, and so are those whose ids it remembers. The others start without
// failed attempts, and no longer expire. Rewind returns ErrNotFound if the queue is not subscribed or the topic retains
// no history, or not the message of FromID.
func (t *Topic) Rewind(ctx context.Context, queue string, from HistoryStart) (r Rewound, err error) {
	if from.bad != nil {
		return r, cmp.Or(t.invalid, from.bad)
	}
	err = t.call(func() error {
		sent, err := t.topic.Rewind(ctx, queue, from.place)
		r = Rewound(sent)
		return err
	})
	return r, err
}
