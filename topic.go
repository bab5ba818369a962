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
// id, and has its own consumers, retries and dead letters: a queue is what other systems call a consumer group. Until
// then it is one message, which can be cancelled and rescheduled. A Topic is returned by Client.Topic, and its methods
// are safe for concurrent use.
//
// Workers that handle or forward a subscribed queue distribute the topic's messages, and any number of them may race;
// a queue that is only used by Receive needs such a worker on some machine. Within one Redis or embedded store, each
// queue receives a message exactly once. In a Cluster, and for a message with more than store.MaxFollowUpQueues copies
// or whose copies have more than store.MaxFollowUpBytes, it does so while the queue remembers the id, for a day.
type Topic struct {
	client  *Client
	topic   *topic.Topic
	queue   *Queue // its messages until they are distributed
	history *Queue
	invalid error
}

const (
	// MaxTopicName is the maximum length of a topic's name, in bytes.
	MaxTopicName = store.MaxQueueName - len(reserved.History)
	// MaxSubscriptions is the maximum number of queues that are subscribed to a topic.
	MaxSubscriptions = topic.MaxSubscriptions
	// MaxHistory is the largest TopicConfig.HistoryCount.
	MaxHistory = topic.MaxHistory
)

// Topic returns the topic with the given name. It need not exist. If the name is not allowed, every method of the Topic
// returns ErrInvalid.
func (c *Client) Topic(name string) *Topic {
	t := &Topic{client: c, topic: topic.New(c.store, name)}
	t.queue, t.history = c.Queue(t.topic.Queue), c.Queue(t.topic.History)
	switch {
	case name == "":
		t.invalid = store.Invalid("topic name is empty: give a name of 1 to %d bytes", MaxTopicName)
	case len(name) > MaxTopicName:
		t.invalid = store.Invalid("topic name is %d bytes long: the limit is %d", len(name), MaxTopicName)
	default:
		t.invalid = store.CheckQueue(name)
	}
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
	if t.invalid != nil {
		return "", t.invalid
	}
	t.dropSometimes()
	return t.queue.Send(ctx, payload, opts...)
}

// PublishMessage sends a message to the topic; see Queue.SendMessage.
func (t *Topic) PublishMessage(ctx context.Context, o Outgoing) (SendResult, error) {
	if t.invalid != nil {
		return SendResult{}, t.invalid
	}
	t.dropSometimes()
	return t.queue.SendMessage(ctx, o)
}

// PublishBatch sends any number of messages; see Queue.SendBatch.
func (t *Topic) PublishBatch(ctx context.Context, msgs []Outgoing) ([]SendResult, error) {
	if t.invalid != nil {
		return nil, t.invalid
	}
	t.dropSometimes()
	return t.queue.SendBatch(ctx, msgs)
}

// Cancel removes a message that is not distributed yet; see Queue.Cancel.
func (t *Topic) Cancel(ctx context.Context, id string, opts ...CancelOption) (State, error) {
	if t.invalid != nil {
		return StateNone, t.invalid
	}
	return t.queue.Cancel(ctx, id, opts...)
}

// Reschedule changes the due time of a message that is not distributed yet; see Queue.Reschedule.
func (t *Topic) Reschedule(ctx context.Context, id string, when When) error {
	if t.invalid != nil {
		return t.invalid
	}
	return t.queue.Reschedule(ctx, id, when)
}

// Get returns a message that is not distributed yet; see Queue.Get.
func (t *Topic) Get(ctx context.Context, id string) (*Info, error) {
	if t.invalid != nil {
		return nil, t.invalid
	}
	return t.queue.Get(ctx, id)
}

// TopicConfig is how a topic deals with its messages. The zero value is valid.
type TopicConfig struct {
	// DropUnsubscribed makes messages dead that are due while no queue is subscribed. The topic's queue keeps the last
	// 1,000 of them as dead messages, which can be listed and replayed, and counts those before in Stats.Dropped.
	// Programs that publish do that, about every ten seconds, and Subscribe does. By default all messages are kept,
	// ready, for the first subscription.
	DropUnsubscribed bool `json:"drop_unsubscribed,omitempty"`
	// HistoryAge and HistoryCount are for how long after their due time, and up to which number, distributed messages
	// are retained; the number is exceeded by a few thousand at times. Zero sets no limit, and the zero value of both
	// retains none. A retained message takes as much memory as in a queue. Under an id that the history has already,
	// none is added.
	HistoryAge   time.Duration `json:"history_age,omitempty"`
	HistoryCount int64         `json:"history_count,omitempty"`
}

// Version returns a text that is different for another configuration.
func (c TopicConfig) Version() string { return topic.Config(c).Version() }

// Configure replaces the topic's configuration. Workers follow with their next messages.
func (t *Topic) Configure(ctx context.Context, cfg TopicConfig) error {
	return t.ConfigureIf(ctx, cfg, nil)
}

// ConfigureIf is Configure on a condition: allow is called with the Version of the configuration that would be
// replaced, or "" if the topic does not exist. If it returns false, ConfigureIf returns ErrConflict and changes
// nothing. If another program changes the topic between the call of allow and the change, allow is called again. An
// allow of nil allows it always.
func (t *Topic) ConfigureIf(ctx context.Context, cfg TopicConfig, allow func(version string) bool) error {
	if err := cmp.Or(t.invalid, t.queue.old, topic.Config(cfg).Check()); err != nil {
		return err
	}
	return t.call(func() error { return t.topic.Configure(ctx, topic.Config(cfg), allow) })
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

// Delete removes the topic with its subscriptions, those to other topics included, its history and the messages that
// are not distributed yet. What queues have received stays there.
func (t *Topic) Delete(ctx context.Context) error {
	return t.call(func() error { return t.topic.Delete(ctx) })
}

// call makes calls to the store.
func (t *Topic) call(f func() error) error {
	if t.invalid != nil {
		return t.invalid
	}
	if err := t.client.begin(); err != nil {
		return err
	}
	defer t.client.calls.Done()
	return f()
}

// dropEvery is how often a process that publishes to a topic drops messages that are due while nobody is subscribed.
const dropEvery = 10 * time.Second

// dropSometimes drops messages, in the background, if the topic has no subscriptions and is configured so.
func (t *Topic) dropSometimes() {
	if t.queue.invalid != nil {
		return
	}
	now, last := time.Now(), t.queue.dropped.Load()
	if now.UnixNano()-last < int64(dropEvery) || !t.queue.dropped.CompareAndSwap(last, now.UnixNano()) ||
		t.client.begin() != nil {
		return
	}
	go func() {
		defer t.client.calls.Done()
		ctx, cancel := context.WithTimeout(t.client.ending, callTimeout)
		defer cancel()
		if err := t.topic.DropReady(ctx); err != nil && ctx.Err() == nil {
			t.client.log.Warn("later: messages of a topic without subscriptions cannot be dropped", "topic", t.topic.Name,
				"error", err)
		}
	}()
}
