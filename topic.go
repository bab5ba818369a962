package later

import (
	"cmp"
	"context"
	"time"

	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/internal/topic"
	"github.com/laterq/later/store"
)

// Topic distributes messages to queues. Each queue that is subscribed when a message is due receives it under the same
// id. The queue has its own consumers, retries and dead letters, like a consumer group of other systems. Until it is
// due, a message can be cancelled and rescheduled as one. A Topic is returned by Client.Topic, and its methods are safe
// for concurrent use.
//
// Workers that handle or forward a subscribed queue distribute the topic's messages, and any number of them may race; a
// queue that is only used by Receive needs such a worker on some machine. Within one Redis or embedded store, each
// queue receives a message exactly once. In a Cluster, and for a message with more than store.MaxFollowUpQueues copies
// or with copies of more than store.MaxFollowUpBytes, it does so while the queue remembers the id, for a day.
type Topic struct {
	client  *Client
	topic   *topic.Topic
	queue   *Queue // its messages until they are distributed
	history *Queue
}

// Topic returns the topic with the given name. It need not exist. If the name is not allowed, every method of the Topic
// returns ErrInvalid.
func (c *Client) Topic(name string) *Topic {
	t := &Topic{client: c, topic: topic.New(c.store, name)}
	invalid := store.CheckQueue(name)
	switch {
	case name == "":
		invalid = store.Invalid("topic name is empty: give a name of 1 to %d bytes", topic.MaxName)
	case len(name) > topic.MaxName:
		invalid = store.Invalid("topic name is %d bytes long: the limit is %d", len(name), topic.MaxName)
	}
	if invalid != nil {
		t.queue = &Queue{client: c, name: t.topic.Queue, invalid: invalid}
		t.history = t.queue
		return t
	}
	t.queue, t.history = c.Queue(t.topic.Queue), c.Queue(t.topic.History)
	return t
}

// checkOwnQueue returns an ErrInvalid unless a worker can have messages of a queue for itself.
func checkOwnQueue(queue string) error {
	return cmp.Or(checkUse(queue, reserved.Handle), store.CheckQueue(queue))
}

// Topics returns the names of all topics, sorted. A topic exists from its first message, subscription or configuration
// until it is deleted.
func (c *Client) Topics(ctx context.Context) ([]string, error) {
	queues, err := c.Queues(ctx)
	var names []string
	for _, queue := range queues {
		if name, ok := reserved.CutTopic(queue); ok {
			names = append(names, name)
		}
	}
	return names, err
}

// Name returns the topic's name.
func (t *Topic) Name() string { return t.topic.Name }

// Queue returns the queue with the messages that are not distributed yet: its Get, List, Cancel, Reschedule and so on
// deal with one message, whatever the number of subscriptions.
func (t *Topic) Queue() *Queue { return t.queue }

// Publish sends a message to the topic and returns its id. It takes the options of Queue.Send and returns its errors.
func (t *Topic) Publish(ctx context.Context, payload []byte, opts ...SendOption) (string, error) {
	t.dropSometimes()
	return t.queue.Send(ctx, payload, opts...)
}

// PublishMessage sends a message to the topic; see Queue.SendMessage.
func (t *Topic) PublishMessage(ctx context.Context, o Outgoing) (SendResult, error) {
	t.dropSometimes()
	return t.queue.SendMessage(ctx, o)
}

// PublishBatch sends any number of messages; see Queue.SendBatch.
func (t *Topic) PublishBatch(ctx context.Context, msgs []Outgoing) ([]SendResult, error) {
	t.dropSometimes()
	return t.queue.SendBatch(ctx, msgs)
}

// TopicConfig is how a topic deals with its messages. The zero value is valid.
type TopicConfig struct {
	// DropUnsubscribed makes messages dead that are due while no queue is subscribed. The topic's queue keeps the last
	// 1,000 of them as dead messages, which can be listed and replayed, and counts older ones in Stats.Dropped.
	// Programs that publish do that, about every ten seconds, and Subscribe does. By default all messages are kept,
	// ready, for the first subscription.
	DropUnsubscribed bool `json:"drop_unsubscribed,omitempty"`
	// HistoryAge and HistoryCount limit the distributed messages that are retained, by the time since they were due and
	// by number; the number is exceeded by a few thousand at times. Zero sets no limit, and the zero value of both
	// retains none. A retained message takes as much memory as in a queue. A message with an id that is already in the
	// history is not added again.
	HistoryAge   time.Duration `json:"history_age,omitempty"`
	HistoryCount int64         `json:"history_count,omitempty"`
}

// Version returns a text that is different for another configuration.
func (c TopicConfig) Version() string { return topic.Config(c).Version() }

// Configure replaces the topic's configuration. Workers follow with their next messages. Conditions get the Version of
// the configuration that is replaced, or "" if the topic does not exist.
func (t *Topic) Configure(ctx context.Context, cfg TopicConfig, conditions ...Condition) error {
	if err := cmp.Or(t.queue.invalid, t.queue.old, topic.Config(cfg).Check()); err != nil {
		return err
	}
	return t.call(func() error { return t.topic.Configure(ctx, topic.Config(cfg), allOf(conditions)) })
}

// Config returns the topic's configuration.
func (t *Topic) Config(ctx context.Context) (cfg TopicConfig, err error) {
	err = t.call(func() error {
		state, err := t.topic.Load(ctx)
		cfg = TopicConfig(state.Config)
		return err
	})
	return cfg, err
}

// Delete removes the topic with its subscriptions, including its subscriptions to other topics, its history and the
// messages that are not distributed yet. Messages that queues have received stay there.
func (t *Topic) Delete(ctx context.Context) error {
	return t.call(func() error { return t.topic.Delete(ctx) })
}

// call makes calls to the store.
func (t *Topic) call(f func() error) error {
	if t.queue.invalid != nil {
		return t.queue.invalid
	}
	return t.client.call(f)
}

// dropEvery is how often a process that publishes to a topic drops messages that are due without a subscription.
const dropEvery = 10 * time.Second

// dropSometimes drops messages in the background, if the topic has DropUnsubscribed and lacks subscriptions.
func (t *Topic) dropSometimes() {
	if t.queue.invalid != nil {
		return
	}
	now, last := time.Now(), t.queue.dropped.Load()
	if now.UnixNano()-last < int64(dropEvery) || !t.queue.dropped.CompareAndSwap(last, now.UnixNano()) {
		return
	}
	t.client.inBackground(func(ctx context.Context) {
		if err := t.topic.DropReady(ctx); err != nil && ctx.Err() == nil {
			t.client.log.Warn("later: messages of a topic without subscriptions cannot be dropped", "topic", t.topic.Name,
				"error", err)
		}
	})
}

// Subscription is a queue that receives a topic's messages.
type Subscription struct {
	Queue string
	// Where is the filter of the subscription, "" for none; see Where.
	Where string
	// CatchingUp is set while Subscribe with From sends history. If that was interrupted, it stays set until the queue
	// is subscribed again; until then the queue remembers the ids of received messages for a day.
	CatchingUp bool
}

// Version returns a text that is different for another filter.
func (s Subscription) Version() string { return (&topic.Subscription{Where: s.Where}).Version() }

// SubscribeOption changes a subscription. Subscribe returns ErrInvalid for an option that is nil or not allowed.
type SubscribeOption interface {
	applySubscribe(*subscribeOptions) error
}

type subscribeOptions struct {
	where      string
	from       HistoryStart
	conditions []Condition
}

func (c Condition) applySubscribe(o *subscribeOptions) error {
	o.conditions = append(o.conditions, c)
	return nil
}

type where string

// Where limits the subscription to messages with headers that match a filter, a list of conditions that must all hold:
//
//	region=eu, priority!=low, kind in (order, refund), kind notin (test), trace, !debug
//
// A name alone matches messages with that header, and ! with a name matches messages without it. Names and values are
// quoted in Go syntax if they are empty or contain anything but letters, digits and . _ - / : @. Like Kubernetes' label
// selectors, != and notin also match messages without the header.
func Where(filter string) SubscribeOption { return where(filter) }

func (w where) applySubscribe(o *subscribeOptions) error {
	o.where = string(w)
	return topic.CheckFilter(o.where)
}

// Subscribe subscribes a queue to the topic, or replaces its subscription. The queue receives every message that is
// published after Subscribe has returned, and earlier messages that are not distributed yet. With From, Subscribe
// returns when the queue has received the history, and the queue receives each message once.
//
// A topic can be subscribed to another one by the name of its queue, "topic:NAME". Subscribe returns ErrInvalid if
// messages would come back to the topic; the text shows the circle. It returns ErrTooLarge if 400 queues
// are subscribed already, and ErrNotFound for From or FromID if the topic retains no history or not that message.
//
// A Condition is an option, too. It gets the Version of the Subscription that is replaced, or "" if the queue is not
// subscribed.
func (t *Topic) Subscribe(ctx context.Context, queue string, opts ...SubscribeOption) error {
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
	return t.call(func() error { return t.topic.Subscribe(ctx, queue, o.where, o.from.place, allOf(o.conditions)) })
}

// Unsubscribe ends the subscription of a queue. The queue receives nothing of the topic once Unsubscribe has returned.
// Messages that it has received stay there. Unsubscribe returns ErrNotFound if the queue is not subscribed.
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

// History returns a page of the messages that the topic retains, in order of due time; see TopicConfig. They are in the
// queue "topic-history:NAME", which is never claimed from, and are all ready: the state of the options is not used.
func (t *Topic) History(ctx context.Context, o ListOptions) (Page, error) {
	o.State = StateReady
	return t.history.List(ctx, o)
}

// HistoryStart is a place in a topic's history. As a SubscribeOption it delivers the history from that place on to the
// queue.
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
	return HistoryStart{place: topic.Start{ID: id}, bad: store.CheckSentID(id)}
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

// Rewind delivers the history from a place on, up to now, to a subscribed queue again. Messages that the queue still
// has, dead ones included, are left alone, and so are messages with ids that it remembers. The others start without
// failed attempts, and no longer expire. Rewind returns ErrNotFound if the queue is not subscribed or the topic retains
// no history, or not the message of FromID.
func (t *Topic) Rewind(ctx context.Context, queue string, from HistoryStart) (r Rewound, err error) {
	if from.bad != nil {
		return r, cmp.Or(t.queue.invalid, from.bad)
	}
	err = t.call(func() error {
		sent, err := t.topic.Rewind(ctx, queue, from.place)
		r = Rewound(sent)
		return err
	})
	return r, err
}
