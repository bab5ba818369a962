// Package topic distributes messages to subscribed queues. A topic's messages are in a queue of its own until they are
// due; the properties of that queue are its configuration and its subscriptions.
//
// It works on a store, and imports the packages below internal/ that have loops and leases. Start reading at Topic;
// subscribe.go and filter.go have subscriptions, history.go the messages that a topic retains, find.go how a worker
// finds the topics of its queues, and distribute.go the fan-out.
package topic

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
	"github.com/laterq/later/internal/version"
	"github.com/laterq/later/store"
)

// Topic is a topic in a store.
type Topic struct {
	Store store.Store
	Name  string
	// Queue has the messages that are not distributed yet, and History those that the topic retains.
	Queue, History string
}

// New returns the topic with the given name, which need not exist.
func New(s store.Store, name string) *Topic {
	return &Topic{Store: s, Name: name, Queue: reserved.Topic + name, History: reserved.History + name}
}

// The names of a topic's queues and of their properties.
const (
	subscriptionPrefix = "subscription:" // of a property of the topic's queue, before a subscribed queue's name
	configProperty     = "topic"         // of the property with the Config
	versionProperty    = "topic-version" // of a property that changes with the configuration and the subscriptions
	linkValue          = "1"             // of a subscribed queue's property with the name of the topic's queue
	changedProperty    = "changed"       // of a property of reserved.TopicIndex that changes with every subscription
)

// MaxName is the maximum length of a topic's name, in bytes.
const MaxName = store.MaxQueueName - len(reserved.History)

// MaxSubscriptions is the maximum number of queues that are subscribed to a topic.
const MaxSubscriptions = 400

// MaxHistory is the largest Config.HistoryCount.
const MaxHistory = 100_000_000

// Config is how a topic deals with its messages, as it is stored.
type Config struct {
	DropUnsubscribed bool          `json:"drop_unsubscribed,omitempty"`
	HistoryAge       time.Duration `json:"history_age,omitempty"`
	HistoryCount     int64         `json:"history_count,omitempty"`
}

// keptUnsubscribed is the number of dead messages that a topic keeps with DropUnsubscribed.
const keptUnsubscribed = 1000

// Retains reports whether the topic has a history.
func (c Config) Retains() bool { return c.HistoryAge > 0 || c.HistoryCount > 0 }

// Check returns an ErrInvalid unless the configuration is allowed.
func (c Config) Check() error {
	if c.HistoryAge < 0 || c.HistoryAge > store.MaxDelay {
		return store.Invalid("history's age is %v: give up to %v, or 0 for none", c.HistoryAge, store.MaxDelay)
	}
	if c.HistoryCount < 0 || c.HistoryCount > MaxHistory {
		return store.Invalid("history's number of messages is %d: give up to %d, or 0 for none", c.HistoryCount, MaxHistory)
	}
	return nil
}

// Version returns a text that is different for another configuration.
func (c Config) Version() string {
	text, _ := json.Marshal(c) // never fails
	return version.Of(text)
}

// State is the properties of a topic's queue.
type State struct {
	Config        Config
	Subscriptions []Subscription // by name of the queue
	Version       string
}

// Unchanged returns a condition that is met while the topic's queue has these properties.
func (s *State) Unchanged() *store.Condition {
	return &store.Condition{Property: versionProperty, Value: s.Version}
}

// Subscribed returns the subscription of a queue, or nil.
func (s *State) Subscribed(queue string) *Subscription {
	for i := range s.Subscriptions {
		if s.Subscriptions[i].Queue == queue {
			return &s.Subscriptions[i]
		}
	}
	return nil
}

// change sets a property of the topic's queue, or removes it if the value is empty. Whoever works with properties that
// were read before is refused from then on. The condition may be nil.
func (t *Topic) change(ctx context.Context, name, value string, condition *store.Condition) error {
	set := map[string]string{name: value, versionProperty: store.NewID()}
	return t.Store.SetProperties(ctx, t.Queue, set, condition)
}

// Load reads the topic's configuration and subscriptions.
func (t *Topic) Load(ctx context.Context) (state State, err error) {
	all, err := t.Store.Properties(ctx, t.Queue)
	if err != nil {
		return state, err
	}
	for name, value := range all {
		queue, ok := strings.CutPrefix(name, subscriptionPrefix)
		switch {
		case name == versionProperty:
			state.Version = value
		case name == configProperty:
			err = json.Unmarshal([]byte(value), &state.Config)
		case ok:
			s := Subscription{Queue: queue}
			if err = json.Unmarshal([]byte(value), &s); err == nil {
				s.Filter, err = ParseFilter(s.Where)
			}
			state.Subscriptions = append(state.Subscriptions, s)
		}
		if err != nil {
			return state, fmt.Errorf("%w: property %q of queue %q has the value %q: %w", store.ErrCorrupt, name, t.Queue, value,
				err)
		}
	}
	slices.SortFunc(state.Subscriptions, func(a, b Subscription) int { return cmp.Compare(a.Queue, b.Queue) })
	return state, nil
}

// receives reports whether a queue receives the topic's messages: it is subscribed, or the history.
func (t *Topic) receives(state *State, queue string) bool {
	return state.Subscribed(queue) != nil || queue == t.History && state.Config.Retains()
}

// relink is called when a queue lacks the property that names the topic. It reports whether the queue receives the
// topic's messages nevertheless, because the property was lost or the history is an older one, and sets it then.
func (t *Topic) relink(ctx context.Context, queue string) (bool, error) {
	state, err := t.Load(ctx)
	if err != nil || !t.receives(&state, queue) {
		return false, err
	}
	if err := t.link(ctx, queue, linkValue); err != nil {
		return false, err
	}
	// An Unsubscribe changes the list before it removes the property. So one that the list does not show yet will
	// remove the property.
	if state, err = t.Load(ctx); err != nil || t.receives(&state, queue) {
		return err == nil, err
	}
	if state.Version == "" && queue == t.History { // the topic was deleted, and this call made its history again
		return false, t.Store.Delete(ctx, queue)
	}
	return false, t.link(ctx, queue, "")
}

// Delete removes the topic with its subscriptions, those to other topics included, its history and the messages that
// are not distributed yet.
func (t *Topic) Delete(ctx context.Context) error {
	state, err := t.Load(ctx)
	if err != nil {
		return err
	}
	if err := DeleteQueue(ctx, t.Store, t.Queue); err != nil {
		return err
	}
	for _, s := range state.Subscriptions {
		if err := t.link(ctx, s.Queue, ""); err != nil {
			return err
		}
	}
	return errors.Join(t.Store.Delete(ctx, t.History), t.changed(ctx))
}

// changed has workers look for subscriptions.
func (t *Topic) changed(ctx context.Context) error { return changed(ctx, t.Store) }

func changed(ctx context.Context, s store.Store) error {
	return s.SetProperties(ctx, reserved.TopicIndex, map[string]string{changedProperty: store.NewID()}, nil)
}

// DeleteQueue deletes a queue, and ends its subscriptions.
func DeleteQueue(ctx context.Context, s store.Store, queue string) error {
	properties, err := s.Properties(ctx, queue)
	if err != nil {
		return err
	}
	subscribed := false
	for topic := range properties {
		if !strings.HasPrefix(topic, reserved.Topic) {
			continue
		}
		subscribed = true
		name := subscriptionPrefix + queue
		has, err := s.Properties(ctx, topic)
		if err == nil && has[name] != "" { // else the topic may be deleted
			err = New(s, strings.TrimPrefix(topic, reserved.Topic)).change(ctx, name, "", nil)
		}
		if err != nil {
			return err
		}
	}
	if err := s.Delete(ctx, queue); err != nil || !subscribed {
		return err
	}
	return changed(ctx, s)
}

// Configure replaces the topic's configuration. allow is called with the Version of the one that would be replaced, or
// "" if the topic does not exist, and may be nil. If it returns false, Configure returns ErrConflict.
func (t *Topic) Configure(ctx context.Context, cfg Config, allow func(version string) bool) error {
	text, err := json.Marshal(cfg)
	if err != nil {
		return err
	}
	err = version.Replace("topic", t.Name, func() error {
		condition, err := t.allowed(ctx, allow)
		if err != nil {
			return err
		}
		return t.change(ctx, configProperty, string(text), condition)
	})
	if err != nil {
		return err
	}
	if cfg.DropUnsubscribed {
		kept := store.Retention{MaxCount: keptUnsubscribed}
		if err := t.Store.SetDeadRetention(ctx, t.Queue, kept, nil); err != nil {
			return err
		}
	}
	return t.changed(ctx)
}

// allowed returns the condition of a change of the configuration, nil for none, or version.ErrOther.
func (t *Topic) allowed(ctx context.Context, allow func(version string) bool) (*store.Condition, error) {
	if allow == nil {
		return nil, nil
	}
	state, err := t.Load(ctx)
	if err != nil {
		return nil, err
	}
	exists := state.Version != ""
	if !exists { // unless it has messages
		stats, err := t.Store.Stats(ctx, t.Queue)
		if err != nil {
			return nil, err
		}
		exists = stats.Exists
	}
	current := ""
	if exists {
		current = state.Config.Version()
	}
	if !allow(current) {
		return nil, version.ErrOther
	}
	return state.Unchanged(), nil
}
