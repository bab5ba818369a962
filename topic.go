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
	topicPrefix        = store.TopicPrefix
	historyPrefix      = store.HistoryPrefix // of the queue with its history
	subscriptionPrefix = "subscription:"     // of a property of the topic's queue, before a subscribed queue's name
	topicConfigName    = "topic"             // of the property with the TopicConfig
	topicVersionName   = "topic-version"     // of a property that changes with the configuration and the subscriptions
	linkValue          = "1"                 // of a subscribed queue's property with the name of the topic's queue
	// topicIndex is a queue whose property topicChanged changes with every subscription.
	topicIndex   = topicPrefix
	topicChanged = "changed"
)

const (
	// MaxTopicName is the maximum length of a topic's name, in bytes.
	MaxTopicName = store.MaxQueueName - len(historyPrefix)
	// MaxSubscriptions is the maximum number of queues that are subscribed to a topic.
	MaxSubscriptions = 400
	// MaxHistory is the largest TopicConfig.HistoryCount.
	MaxHistory = 100_000_000
)

// Topic returns the topic with the given name. It need not exist. If the name is not allowed, every method of the Topic
// returns ErrInvalid.
func (c *Client) Topic(name string) *Topic {
	t := &Topic{client: c, name: name, queue: c.Queue(topicPrefix + name), history: c.Queue(historyPrefix + name)}
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
	if strings.HasPrefix(queue, topicPrefix) || strings.HasPrefix(queue, historyPrefix) {
		return store.Invalid("queue %q belongs to a topic: subscribe another queue to the topic and use that one", queue)
	}
	if queue == schedulesQueue {
		return errSchedulesQueue
	}
	if err := checkWorkerQueue(queue); err != nil {
		return err
	}
	return store.CheckQueue(queue)
}

// Topics returns the names of all topics, sorted. A topic exists from its first message, subscription or configuration
// until it is deleted.
func (c *Client) Topics(ctx context.Context) ([]string, error) {
	queues, err := c.Queues(ctx)
	var names []string
	for _, queue := range queues {
		if name, ok := strings.CutPrefix(queue, topicPrefix); ok && name != "" {
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
	if err := cmp.Or(t.invalid, t.queue.old, cfg.check()); err != nil {
		return err
	}
	text, err := json.Marshal(cfg)
	if err != nil {
		return err
	}
	return t.call(func() error {
		if err := t.change(ctx, topicConfigName, string(text)); err != nil {
			return err
		}
		if cfg.DropUnsubscribed {
			err := t.client.store.SetDeadRetention(ctx, t.queue.name, store.Retention{MaxCount: keptUnsubscribed})
			if err != nil {
				return err
			}
		}
		return t.client.topicsChanged(ctx)
	})
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
// were read before is refused from then on.
func (t *Topic) change(ctx context.Context, name, value string) error {
	set := map[string]string{name: value, topicVersionName: store.NewID()}
	return t.client.store.SetProperties(ctx, t.queue.name, set)
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
	var o subscribeOptions
	for i, opt := range opts {
		if opt == nil {
			return nilOption(i)
		}
		if err := opt.applySubscribe(&o); err != nil {
			return err
		}
	}
	if err := cmp.Or(t.queue.old, store.CheckNewQueue(queue)); err != nil {
		return err
	}
	if err := checkWorkerQueue(queue); err != nil {
		return err
	}
	if queue == topicIndex || queue == schedulesQueue || strings.HasPrefix(queue, historyPrefix) {
		return store.Invalid("queue %q is one of Later's own: subscribe another one", queue)
	}
	return t.call(func() error {
		state, err := t.load(ctx)
		if err != nil {
			return err
		}
		var from time.Time
		if o.from.set() {
			if from, err = t.resolve(ctx, state.cfg, o.from); err != nil {
				return err
			}
		}
		if state.subscribed(queue) == nil && len(state.subscriptions) >= MaxSubscriptions {
			return store.TooLarge("topic %q has %d subscriptions, which is the limit: unsubscribe one first", t.name,
				len(state.subscriptions))
		}
		if err := t.checkCircle(ctx, queue); err != nil {
			return err
		}
		if len(state.subscriptions) == 0 && state.cfg.DropUnsubscribed {
			if err := t.dropReady(ctx); err != nil {
				return err
			}
		}
		s := subscription{Where: o.where, CatchingUp: o.from.set(), queue: queue}
		if err := t.set(ctx, s); err != nil {
			return err
		}
		if !s.CatchingUp {
			return nil
		}
		if _, err := t.resend(ctx, queue, from, time.Time{}); err != nil {
			return fmt.Errorf("queue %q is subscribed, but did not receive all of the history: %w", queue, err)
		}
		s.CatchingUp = false
		return t.set(ctx, s)
	})
}

// set stores a subscription. The subscribed queue's own property comes first: workers find the topic by it, and it does
// no harm alone.
func (t *Topic) set(ctx context.Context, s subscription) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := t.link(ctx, s.queue, linkValue); err != nil {
		return err
	}
	if err := t.change(ctx, subscriptionPrefix+s.queue, string(text)); err != nil {
		return err
	}
	return t.client.topicsChanged(ctx)
}

// link sets the property of a queue that names the topic, or removes it if the value is empty. Copies that are sent one
// by one reach the queue only while it has the property; see linked.
func (t *Topic) link(ctx context.Context, queue, value string) error {
	return t.client.store.SetProperties(ctx, queue, map[string]string{t.queue.name: value})
}

// linked returns a condition that is met while a queue has the property that names the topic.
func (t *Topic) linked() *store.Condition {
	return &store.Condition{Property: t.queue.name, Value: linkValue}
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
	return c.store.SetProperties(ctx, topicIndex, map[string]string{topicChanged: store.NewID()})
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
		name, isTopic := strings.CutPrefix(queue, topicPrefix)
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
		if err := t.change(ctx, subscriptionPrefix+queue, ""); err != nil {
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
