package later

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/laterq/later/memstore"
)

// oneVersion returns a condition that only a version meets, and counts the times that it was asked.
func oneVersion(version string, asked *int) func(string) bool {
	return func(v string) bool {
		*asked++
		return v == version
	}
}

// TestConditionHoldsUntilTheChange makes another change between the check and the change.
func TestConditionHoldsUntilTheChange(t *testing.T) {
	const queue = "q"
	cfg := TopicConfig{HistoryCount: 1}
	for name, test := range map[string]struct {
		call, of string // the other change comes before this call
		version  string // that the condition wants
		begin    func(ctx context.Context, c *Client) error
		other    func(ctx context.Context, c *Client) error
		try      func(ctx context.Context, c *Client, allow func(string) bool) error
		allowed  bool // the other change is to something else
		check    func(t *testing.T, c *Client)
	}{
		"configuration that changes": {
			call: "set", of: topicOrders, version: TopicConfig{}.Version(),
			begin: func(ctx context.Context, c *Client) error { return c.Topic("orders").Subscribe(ctx, queue) },
			other: func(ctx context.Context, c *Client) error { return c.Topic("orders").Configure(ctx, cfg) },
			try: func(ctx context.Context, c *Client, allow func(string) bool) error {
				return c.Topic("orders").Configure(ctx, TopicConfig{HistoryCount: 2}, allow)
			},
			check: func(t *testing.T, c *Client) {
				if got, err := c.Topic("orders").Config(t.Context()); err != nil || got != cfg {
					t.Errorf("%+v, %v", got, err)
				}
			},
		},
		"configuration of a topic that begins to exist": {
			call: "set", of: topicOrders, version: "",
			other: func(ctx context.Context, c *Client) error { return c.Topic("orders").Configure(ctx, cfg) },
			try: func(ctx context.Context, c *Client, allow func(string) bool) error {
				return c.Topic("orders").Configure(ctx, TopicConfig{HistoryCount: 2}, allow)
			},
			check: func(t *testing.T, c *Client) {
				if got, err := c.Topic("orders").Config(t.Context()); err != nil || got != cfg {
					t.Errorf("%+v, %v", got, err)
				}
			},
		},
		"configuration while a queue is subscribed": {
			call: "set", of: topicOrders, version: TopicConfig{}.Version(), allowed: true,
			begin: func(ctx context.Context, c *Client) error { return c.Topic("orders").Configure(ctx, TopicConfig{}) },
			other: func(ctx context.Context, c *Client) error { return c.Topic("orders").Subscribe(ctx, queue) },
			try: func(ctx context.Context, c *Client, allow func(string) bool) error {
				return c.Topic("orders").Configure(ctx, cfg, allow)
			},
			check: func(t *testing.T, c *Client) {
				all, err := c.Topic("orders").Subscriptions(t.Context())
				if got, cfgErr := c.Topic("orders").Config(t.Context()); got != cfg || len(all) != 1 {
					t.Errorf("%+v, %+v, %v", got, all, errors.Join(err, cfgErr))
				}
			},
		},
		"subscription that changes": {
			call: "set", of: topicOrders, version: Subscription{}.Version(),
			begin: func(ctx context.Context, c *Client) error { return c.Topic("orders").Subscribe(ctx, queue) },
			other: func(ctx context.Context, c *Client) error {
				return c.Topic("orders").Subscribe(ctx, queue, Where("theirs"))
			},
			try: func(ctx context.Context, c *Client, allow func(string) bool) error {
				return c.Topic("orders").Subscribe(ctx, queue, Condition(allow), Where("mine"))
			},
			check: func(t *testing.T, c *Client) {
				all, err := c.Topic("orders").Subscriptions(t.Context())
				if err != nil || len(all) != 1 || all[0].Where != "theirs" {
					t.Errorf("%+v, %v", all, err)
				}
			},
		},
		"subscription that ends": {
			call: "set", of: queue, version: Subscription{}.Version(),
			begin: func(ctx context.Context, c *Client) error { return c.Topic("orders").Subscribe(ctx, queue) },
			other: func(ctx context.Context, c *Client) error { return c.Topic("orders").Unsubscribe(ctx, queue) },
			try: func(ctx context.Context, c *Client, allow func(string) bool) error {
				return c.Topic("orders").Subscribe(ctx, queue, Condition(allow), Where("mine"))
			},
			check: func(t *testing.T, c *Client) {
				all, err := c.Topic("orders").Subscriptions(t.Context())
				left, propertiesErr := c.store.Properties(t.Context(), queue)
				if err = errors.Join(err, propertiesErr); err != nil || len(all) != 0 || len(left) != 0 {
					t.Errorf("%+v, %q, %v", all, left, err)
				}
			},
		},
		"retention": {
			call: "retain", of: queue, version: Retention{}.Version(),
			begin: func(ctx context.Context, c *Client) error { return c.Queue(queue).Pause(ctx) },
			other: func(ctx context.Context, c *Client) error {
				return c.Queue(queue).SetDeadRetention(ctx, Retention{MaxAge: time.Hour})
			},
			try: func(ctx context.Context, c *Client, allow func(string) bool) error {
				return c.Queue(queue).SetDeadRetention(ctx, Retention{MaxCount: 1}, allow)
			},
			check: func(t *testing.T, c *Client) {
				if got := mustStats(t, c.Queue(queue)).DeadRetention; got != (Retention{MaxAge: time.Hour}) {
					t.Errorf("%+v", got)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &interleaved{Store: memstore.New(), steps: map[string]func(){}}
			c, others := newClientOn(t, s), newClientOn(t, s.Store)
			if test.begin != nil {
				if err := test.begin(t.Context(), others); err != nil {
					t.Fatal(err)
				}
			}
			s.before(test.call, test.of, func() {
				if err := test.other(t.Context(), others); err != nil {
					t.Error(err)
				}
			})
			asked := 0
			err := test.try(t.Context(), c, oneVersion(test.version, &asked))
			if test.allowed != (err == nil) || !test.allowed && !errors.Is(err, ErrConflict) || asked != 2 {
				t.Errorf("%v, and the condition was asked %d times", err, asked)
			}
			test.check(t, others)
		})
	}
}

func TestTopicThatOnlyHasMessagesExistsForACondition(t *testing.T) {
	topic := newClientOn(t, memstore.New()).Topic("orders")
	publish(t, topic, "1")
	asked := 0
	if err := topic.Configure(t.Context(), TopicConfig{}, oneVersion("", &asked)); !errors.Is(err, ErrConflict) {
		t.Error(err)
	}
	if err := topic.Configure(t.Context(), TopicConfig{}, oneVersion(TopicConfig{}.Version(), &asked)); err != nil {
		t.Error(err)
	}
}
