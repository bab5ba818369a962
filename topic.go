package later

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/laterq/later/internal/reserved"
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
	name    string
	queue   *Queue // its messages until they are distributed
	history *Queue
	invalid error
}

// The names of a topic's queues and of their properties.
const (
	subscriptionPrefix = "subscription:" // of a property of the topic's queue, before a subscribed queue's name
	topicConfigName    = "topic"         // of the property with the TopicConfig
	topicVersionName   = "topic-version" // of a property that changes with the configuration and the subscriptions
	linkValue          = "1"             // of a subscribed queue's property with the name of the topic's queue
	topicChanged       = "changed"       // of a property of reserved.TopicIndex that changes with every subscription
)

const (
	// MaxTopicName is the maximum length of a topic's name, in bytes.
	MaxTopicName = store.MaxQueueName - len(reserved.History)
	// MaxSubscriptions is the maximum number of queues that are subscribed to a topic.
	MaxSubscriptions = 400
	// MaxHistory is the largest TopicConfig.HistoryCount.
	MaxHistory = 100_000_000
)

// Topic returns the topic with the given name. It need not exist. If the name is not allowed, every method of the Topic
// returns ErrInvalid.
func (c *Client) Topic(name string) *Topic {
	t := &Topic{client: c, name: name, queue: c.Queue(reserved.Topic + name), history: c.Queue(reserved.History + name)}
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
func (t *Topic) Name() string { return t.name }

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

// keptUnsubscribed is the number of dead messages that a topic keeps with DropUnsubscribed.
const keptUnsubscribed = 1000

func (c TopicConfig) retains() bool { return c.HistoryAge > 0 || c.HistoryCount > 0 }

func (c TopicConfig) check() error {
	if c.HistoryAge < 0 || c.HistoryAge > store.MaxDelay {
		return store.Invalid("history's age is %v: give up to %v, or 0 for none", c.HistoryAge, store.MaxDelay)
	}
	if c.HistoryCount < 0 || c.HistoryCount > MaxHistory {
		return store.Invalid("history's number of messages is %d: give up to %d, or 0 for none", c.HistoryCount, MaxHistory)
	}
	return nil
}

// Configure replaces the topic's configuration. Workers follow with their next messages.
func (t *Topic) Configure(ctx context.Context, cfg TopicConfig) error {
	return t.ConfigureIf(ctx, cfg, nil)
}

// Config returns the topic's configuration.
func (t *Topic) Config(ctx context.Context) (cfg TopicConfig, err error) {
	err = t.call(func() error {
		state, err := t.load(ctx)
		cfg = state.cfg
		return err
	})
	return cfg, err
}

// topicState is what a topic's queue has in its properties.
type topicState struct {
	cfg           TopicConfig
	subscriptions []subscription // by name of the queue
	version       string
}

// unchanged returns a condition that is met while the topic's queue has these properties.
func (s *topicState) unchanged() *store.Condition {
	return &store.Condition{Property: topicVersionName, Value: s.version}
}

// subscribed returns the subscription of a queue, or nil.
func (s *topicState) subscribed(queue string) *subscription {
	for i := range s.subscriptions {
		if s.subscriptions[i].queue == queue {
			return &s.subscriptions[i]
		}
	}
	return nil
}

// change sets a property of the topic's queue, or removes it if the value is empty. Whoever works with properties that
// were read before is refused from then on. The condition may be nil.
func (t *Topic) change(ctx context.Context, name, value string, condition *store.Condition) error {
	set := map[string]string{name: value, topicVersionName: store.NewID()}
	return t.client.store.SetProperties(ctx, t.queue.name, set, condition)
}

// load reads the topic's configuration and subscriptions.
func (t *Topic) load(ctx context.Context) (state topicState, err error) {
	all, err := t.client.store.Properties(ctx, t.queue.name)
	if err != nil {
		return state, err
	}
	for name, value := range all {
		queue, ok := strings.CutPrefix(name, subscriptionPrefix)
		switch {
		case name == topicVersionName:
			state.version = value
		case name == topicConfigName:
			err = json.Unmarshal([]byte(value), &state.cfg)
		case ok:
			s := subscription{queue: queue}
			if err = json.Unmarshal([]byte(value), &s); err == nil {
				s.filter, err = parseFilter(s.Where)
			}
			state.subscriptions = append(state.subscriptions, s)
		}
		if err != nil {
			return state, fmt.Errorf("%w: property %q of queue %q has the value %q: %w", ErrCorrupt, name, t.queue.name, value,
				err)
		}
	}
	slices.SortFunc(state.subscriptions, func(a, b subscription) int { return cmp.Compare(a.queue, b.queue) })
	return state, nil
}

// receives reports whether a queue receives the topic's messages: it is subscribed, or the history.
func (t *Topic) receives(state *topicState, queue string) bool {
	return state.subscribed(queue) != nil || queue == t.history.name && state.cfg.retains()
}

// relink is called when a queue lacks the property that names the topic. It reports whether the queue receives the
// topic's messages nevertheless, because the property was lost or the history is an older one, and sets it then.
func (t *Topic) relink(ctx context.Context, queue string) (bool, error) {
	state, err := t.load(ctx)
	if err != nil || !t.receives(&state, queue) {
		return false, err
	}
	if err := t.link(ctx, queue, linkValue); err != nil {
		return false, err
	}
	// An Unsubscribe changes the list before it removes the property. So one that the list does not show yet will remove
	// the property.
	if state, err = t.load(ctx); err != nil || t.receives(&state, queue) {
		return err == nil, err
	}
	if state.version == "" && queue == t.history.name { // the topic was deleted, and this call made its history again
		return false, t.client.store.Delete(ctx, queue)
	}
	return false, t.link(ctx, queue, "")
}

// topicsChanged has workers look for subscriptions.
func (c *Client) topicsChanged(ctx context.Context) error {
	return c.store.SetProperties(ctx, reserved.TopicIndex, map[string]string{topicChanged: store.NewID()}, nil)
}

// Delete removes the topic with its subscriptions, those to other topics included, its history and the messages that
// are not distributed yet. What queues have received stays there.
func (t *Topic) Delete(ctx context.Context) error {
	return t.call(func() error {
		state, err := t.load(ctx)
		if err != nil {
			return err
		}
		if err := t.queue.delete(ctx); err != nil { // ends its subscriptions to other topics too
			return err
		}
		for _, s := range state.subscriptions {
			if err := t.link(ctx, s.queue, ""); err != nil {
				return err
			}
		}
		return errors.Join(t.client.store.Delete(ctx, t.history.name), t.client.topicsChanged(ctx))
	})
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
