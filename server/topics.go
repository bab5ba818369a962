package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/inspect"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/internal/topic"
	"github.com/laterq/later/internal/view"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

func registerTopics(s *Server) {
	const one = "/v1/topics/{topic}"
	const tag = "topics"
	route(s, access.Look, on("GET /v1/topics", tag, "listTopics", "List topics with their counts",
		s.fewReads), s.listTopics)
	route(s, access.Look, on("GET "+one, tag, "getTopic",
		"Get a topic with its subscriptions and their counts", fails(http.StatusNotFound)), s.getTopic)
	route(s, access.Operate, on("PUT "+one, tag, "configureTopic", "Configure a topic",
		fails(http.StatusConflict, http.StatusPreconditionFailed),
		says("The body replaces the configuration; what it leaves out is set to the default. A topic that does not "+
			"exist is created.")), s.configureTopic)
	route(s, access.Administer, on("DELETE "+one, tag, "deleteTopic",
		"Delete a topic with its subscriptions, its history and the messages that are not distributed yet",
		fails(http.StatusNotFound),
		says("What queues have received stays there.")), s.deleteTopic)
	route(s, access.Send, on("POST "+topicSends, tag, "publishMessage", "Publish a message", s.oneMessage), s.publish)
	route(s, access.Send, on("POST "+topicSends+"/batch", tag, "publishMessages", "Publish several messages",
		s.manyMessages), s.publishBatch)
	route(s, access.Look, on("GET "+one+"/history", tag, "listHistory",
		"List the messages that a topic retains", fails(http.StatusNotFound), s.fewReads), s.topicHistory)
}

// TopicPath is the topic of a path.
type TopicPath struct {
	Topic string `path:"topic" maxLength:"114" doc:"The name of the topic; its messages that are not distributed yet are in the queue topic:NAME"`
}

type listTopicsInput struct {
	Prefix string `query:"prefix" maxLength:"114" doc:"Only topics whose names begin with this"`
	PageQuery
}

// ListedTopic is a topic in a list.
type ListedTopic struct {
	Topic     string `json:"topic"`
	Scheduled int64  `json:"scheduled"`
	Ready     int64  `json:"ready"`
	Leased    int64  `json:"leased"`
	Dead      int64  `json:"dead"`
	History   int64  `json:"history" doc:"The number of messages that it retains"`
	wire.TopicConfig
	Queues []string `json:"queues" doc:"The queues that are subscribed"`
}

func (s *Server) listTopics(ctx context.Context, in *listTopicsInput) (*output[Page[ListedTopic]], error) {
	names, err := s.client.Topics(ctx)
	if err != nil {
		return nil, err
	}
	see := visible(ctx)
	out := &output[Page[ListedTopic]]{}
	names, out.Body.Next = in.names(names, in.Prefix, func(name string) bool { return see(reserved.Topic + name) })
	out.Body.Items = make([]ListedTopic, len(names))
	for i, name := range names {
		topic, err := view.Topic(ctx, s.client, name, false, visible(ctx))
		if err != nil {
			return nil, err
		}
		listed := ListedTopic{Topic: name, Scheduled: topic.Scheduled, Ready: topic.Ready, Leased: topic.Leased,
			Dead: topic.Dead, History: topic.History, TopicConfig: topic.TopicConfig, Queues: []string{}}
		for _, subscription := range topic.Subscriptions {
			listed.Queues = append(listed.Queues, subscription.Queue)
		}
		out.Body.Items[i] = listed
	}
	return out, nil
}

// visible returns a function that reports whether the sender of a request may look at a queue.
func visible(ctx context.Context) func(queue string) bool {
	return func(queue string) bool { return may(ctx, access.Look, queue) == nil }
}

func (s *Server) getTopic(ctx context.Context, in *TopicPath) (*tagged[wire.Topic], error) {
	if err := s.topicExists(ctx, in.Topic); err != nil {
		return nil, err
	}
	topic, err := view.Topic(ctx, s.client, in.Topic, true, visible(ctx))
	cfg := later.TopicConfig{DropUnsubscribed: topic.DropUnsubscribed, HistoryAge: time.Duration(topic.HistoryAge),
		HistoryCount: topic.HistoryCount}
	return &tagged[wire.Topic]{etagOf(cfg.Version()), topic}, err
}

// topicExists returns an ErrNotFound unless a topic exists.
func (s *Server) topicExists(ctx context.Context, name string) error {
	t := s.client.Topic(name)
	if _, err := t.Config(ctx); err != nil { // also if the name is not allowed
		return err
	}
	stats, err := t.Queue().Stats(ctx)
	if err == nil && !stats.Exists {
		err = fmt.Errorf("topic %q: %w", name, store.ErrNotFound)
	}
	return err
}

type configureTopicInput struct {
	TopicPath
	Preconditions
	Body struct {
		DropUnsubscribed bool     `json:"drop_unsubscribed,omitempty" doc:"Make messages dead that are due while no queue is subscribed, and keep the last 1,000 of them. Default: they wait for the first subscription"`
		HistoryAge       Duration `json:"history_age,omitempty" doc:"Retain distributed messages for so long after they were due. Default: no limit, and no history if there is no history_count either"`
		HistoryCount     int64    `json:"history_count,omitempty" minimum:"0" maximum:"100000000" doc:"Retain so many distributed messages. Default: no limit, and no history if there is no history_age either"`
	} `required:"false"`
}

func (s *Server) configureTopic(ctx context.Context, in *configureTopicInput) (*tagged[wire.ConfiguredTopic], error) {
	age, err := in.Body.HistoryAge.parse("history_age", true)
	if err != nil {
		return nil, err
	}
	cfg := later.TopicConfig{DropUnsubscribed: in.Body.DropUnsubscribed, HistoryAge: age,
		HistoryCount: in.Body.HistoryCount}
	err = s.client.Topic(in.Topic).Configure(ctx, cfg, in.condition())
	err = s.done(ctx, in.refused(err), "topic configured", slog.String("topic", in.Topic),
		slog.Bool("drop_unsubscribed", cfg.DropUnsubscribed), slog.Duration("history_age", age),
		slog.Int64("history_count", cfg.HistoryCount))
	return &tagged[wire.ConfiguredTopic]{etagOf(cfg.Version()),
		wire.ConfiguredTopic{Topic: in.Topic, TopicConfig: view.TopicConfig(cfg)}}, err
}

// deleteTopic ends the subscriptions of queues, so it needs the right for these too.
func (s *Server) deleteTopic(ctx context.Context, in *TopicPath) (*output[wire.DeletedTopic], error) {
	if err := s.topicExists(ctx, in.Topic); err != nil {
		return nil, err
	}
	t := s.client.Topic(in.Topic)
	subscriptions, err := t.Subscriptions(ctx)
	if err != nil {
		return nil, err
	}
	for _, subscription := range subscriptions {
		if err := may(ctx, access.Administer, subscription.Queue); err != nil {
			return nil, err
		}
	}
	err = s.done(ctx, t.Delete(ctx), "topic deleted", slog.String("topic", in.Topic))
	return outputOf(wire.DeletedTopic{Topic: in.Topic, Deleted: true}), err
}

type publishInput struct {
	TopicPath
	IdempotencyKey
	Body Outgoing
}

func (s *Server) publish(ctx context.Context, in *publishInput) (*output[Sent], error) {
	return s.sendBody(ctx, s.topicTarget(in.Topic), &in.Body, in.IdempotencyKey)
}

type publishBatchInput struct {
	TopicPath
	IdempotencyKey
	Body Batch
}

func (s *Server) publishBatch(ctx context.Context, in *publishBatchInput) (*output[BatchResults], error) {
	return s.sendBodies(ctx, s.topicTarget(in.Topic), &in.Body, in.IdempotencyKey)
}

type historyInput struct {
	TopicPath
	DueAfter  time.Time `query:"due_after" doc:"Only those due at this time or later"`
	DueBefore time.Time `query:"due_before" doc:"Only those due before this time"`
	PageQuery
}

func (s *Server) topicHistory(ctx context.Context, in *historyInput) (*output[MessagePage], error) {
	if err := s.topicExists(ctx, in.Topic); err != nil {
		return nil, err
	}
	f := inspect.Filter{State: later.StateReady, From: in.DueAfter, To: in.DueBefore}
	out, err := s.messagePage(ctx, reserved.History+in.Topic, f, in.PageQuery, in.Limit, 0)
	return outputOf(out), err
}

func registerSubscriptions(s *Server) {
	const one = "/v1/topics/{topic}/subscriptions/{queue}"
	const tag = "topics"
	route(s, access.Look, on("GET "+one, tag, "getSubscription",
		"Get the subscription of a queue, with its counts", fails(http.StatusNotFound)), s.getSubscription)
	route(s, access.Operate, on("PUT "+one, tag, "putSubscription",
		"Have a queue receive the messages of a topic", fails(http.StatusConflict, http.StatusPreconditionFailed),
		says("It replaces the subscription of the queue if there is one. The topic and the queue need not exist. "+
			"With from or from_id the queue first receives what the history has from there on.")), s.subscribe)
	route(s, access.Operate, on("DELETE "+one, tag, "deleteSubscription", "End the subscription of a queue",
		fails(http.StatusNotFound),
		says("What the queue has received stays there.")), s.unsubscribe)
	route(s, access.Operate, on("POST /v1/topics/{topic}/rewind", tag, "rewindTopic",
		"Have a subscribed queue receive again what a topic retains",
		fails(http.StatusNotFound, http.StatusConflict), answers(http.StatusOK),
		says("Messages that the queue has or remembers, and those that do not match its filter, are left out.")),
		s.rewind)
}

// SubscriptionPath is a subscription of a path.
type SubscriptionPath struct {
	TopicPath
	QueuePath
}

// Start is a place in a topic's history.
type Start struct {
	From   *time.Time `json:"from,omitempty" doc:"From this due time on"`
	FromID string     `json:"from_id,omitempty" maxLength:"128" doc:"From the message with this id on"`
}

// history returns the place, and reports whether it is given.
func (p *Start) history() (start later.HistoryStart, given bool, err error) {
	switch {
	case p.From != nil && p.FromID != "":
		return start, true, field("from", store.Invalid("from and from_id are both given: give one of them"))
	case p.From != nil && p.From.Before(time.UnixMilli(0)):
		return start, true, field("from", store.Invalid("is %s: give a time from 1970 on", p.From.Format(time.RFC3339)))
	case p.From != nil:
		return later.From(*p.From), true, nil
	case p.FromID != "":
		return later.FromID(p.FromID), true, field("from_id", store.CheckID(p.FromID))
	}
	return start, false, nil
}

func (s *Server) getSubscription(ctx context.Context, in *SubscriptionPath) (*tagged[wire.Subscription], error) {
	all, err := s.client.Topic(in.Topic).Subscriptions(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(one later.Subscription) bool { return one.Queue == in.Queue })
	if i < 0 {
		return nil, fmt.Errorf("queue %q is not subscribed to topic %q: %w", in.Queue, in.Topic, store.ErrNotFound)
	}
	stats, err := s.client.Queue(in.Queue).Stats(ctx)
	if err != nil {
		return nil, err
	}
	return &tagged[wire.Subscription]{etagOf(all[i].Version()),
		wire.Subscription{Stats: wire.NewStats(in.Queue, stats), Where: all[i].Where}}, nil
}

type subscribeInput struct {
	SubscriptionPath
	Preconditions
	Body struct {
		Where string `json:"where,omitempty" maxLength:"2048" doc:"Only messages whose headers match, such as region=eu, kind in (a, b), !debug"`
		Start
	} `required:"false"`
}

func (s *Server) subscribe(ctx context.Context, in *subscribeInput) (*tagged[wire.Subscribed], error) {
	if err := field("where", topic.CheckFilter(in.Body.Where)); err != nil {
		return nil, err
	}
	if in.Body.Where != "" && hides(ctx) { // the number of received messages would tell headers
		return nil, field("where", errHiddenSearch)
	}
	var opts []later.SubscribeOption
	if in.Body.Where != "" {
		opts = append(opts, later.Where(in.Body.Where))
	}
	start, given, err := in.Body.history()
	if err != nil {
		return nil, err
	}
	if given {
		opts = append(opts, start)
	}
	err = s.client.Topic(in.Topic).Subscribe(ctx, in.Queue, append(opts, later.Condition(in.condition()))...)
	err = s.done(ctx, in.refused(err), "queue subscribed", slog.String("topic", in.Topic),
		slog.String("queue", in.Queue), slog.String("where", in.Body.Where))
	return &tagged[wire.Subscribed]{etagOf(later.Subscription{Where: in.Body.Where}.Version()),
		wire.Subscribed{Topic: in.Topic, Queue: in.Queue, Subscribed: true, Where: in.Body.Where}}, err
}

func (s *Server) unsubscribe(ctx context.Context, in *SubscriptionPath) (*output[wire.Subscribed], error) {
	err := s.done(ctx, s.client.Topic(in.Topic).Unsubscribe(ctx, in.Queue), "queue unsubscribed",
		slog.String("topic", in.Topic), slog.String("queue", in.Queue))
	return outputOf(wire.Subscribed{Topic: in.Topic, Queue: in.Queue}), err
}

type rewindInput struct {
	TopicPath
	Body struct {
		Queue string `json:"queue" minLength:"1" maxLength:"128" doc:"The subscribed queue"`
		Start
	}
}

func (s *Server) rewind(ctx context.Context, in *rewindInput) (*output[wire.Rewound], error) {
	if err := may(ctx, access.Operate, in.Body.Queue); err != nil {
		return nil, field("queue", err)
	}
	start, given, err := in.Body.history()
	switch {
	case err != nil:
		return nil, err
	case !given:
		return nil, field("from", store.Invalid("is missing: give from or from_id"))
	}
	rewound, err := s.client.Topic(in.Topic).Rewind(ctx, in.Body.Queue, start)
	if rewound.Sent > 0 {
		s.Changed(ctx, "topic rewound", slog.String("topic", in.Topic), slog.String("queue", in.Body.Queue),
			slog.Int("count", rewound.Sent))
	}
	return outputOf(wire.Rewound{Topic: in.Topic, Queue: in.Body.Queue, Sent: rewound.Sent,
		Kept: rewound.Kept}), err
}
