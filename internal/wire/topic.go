package wire

import (
	"time"

	"github.com/laterq/later/store"
)

// TopicConfig is how a topic deals with its messages.
type TopicConfig struct {
	DropUnsubscribed bool     `json:"drop_unsubscribed"`
	HistoryAge       Duration `json:"history_age,omitempty"`
	HistoryCount     int64    `json:"history_count,omitempty"`
}

// NewTopicConfig returns the JSON of a topic's configuration.
func NewTopicConfig(drop bool, historyAge time.Duration, historyCount int64) TopicConfig {
	return TopicConfig{DropUnsubscribed: drop, HistoryAge: Duration(historyAge), HistoryCount: historyCount}
}

// Topic is a topic with its subscriptions and the counts of the messages that are not distributed yet.
type Topic struct {
	Topic     string `json:"topic"`
	Scheduled int64  `json:"scheduled"`
	Ready     int64  `json:"ready"`
	Leased    int64  `json:"leased"`
	Dead      int64  `json:"dead"`
	History   int64  `json:"history"`
	TopicConfig
	Subscriptions []Subscription `json:"subscriptions"`
}

// NewTopic returns the JSON of a topic, from the counts of its queue and of its history.
func NewTopic(name string, queue, history store.Stats, cfg TopicConfig, subscriptions []Subscription) Topic {
	return Topic{
		Topic: name, Scheduled: queue.Scheduled, Ready: queue.Ready, Leased: queue.Leased, Dead: queue.Dead,
		History: history.Ready, TopicConfig: cfg, Subscriptions: append([]Subscription{}, subscriptions...),
	}
}

// Subscription is a subscribed queue with its counts.
type Subscription struct {
	Stats
	Where string `json:"where,omitempty"`
}

// Subscribed is a queue that was subscribed to a topic or unsubscribed from it.
type Subscribed struct {
	Topic      string `json:"topic"`
	Queue      string `json:"queue"`
	Subscribed bool   `json:"subscribed"`
	Where      string `json:"where,omitempty"`
}

// Rewound is how many messages of a topic's history a subscribed queue was sent again, and how many it was not.
type Rewound struct {
	Topic string `json:"topic"`
	Queue string `json:"queue"`
	Sent  int    `json:"sent"`
	Kept  int    `json:"kept"`
}

// ConfiguredTopic is a topic with its configuration.
type ConfiguredTopic struct {
	Topic string `json:"topic"`
	TopicConfig
}

// DeletedTopic is a topic that was deleted.
type DeletedTopic struct {
	Topic   string `json:"topic"`
	Deleted bool   `json:"deleted"`
}
