package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

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
	if err := field("where", later.CheckFilter(in.Body.Where)); err != nil {
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
	if err := s.client.Topic(in.Topic).SubscribeIf(ctx, in.Queue, in.condition(), opts...); err != nil {
		return nil, in.refused(err)
	}
	s.Changed(ctx, "queue subscribed", slog.String("topic", in.Topic), slog.String("queue", in.Queue),
		slog.String("where", in.Body.Where))
	return &tagged[wire.Subscribed]{etagOf(later.Subscription{Where: in.Body.Where}.Version()),
		wire.Subscribed{Topic: in.Topic, Queue: in.Queue, Subscribed: true, Where: in.Body.Where}}, nil
}

func (s *Server) unsubscribe(ctx context.Context, in *SubscriptionPath) (*output[wire.Subscribed], error) {
	if err := s.client.Topic(in.Topic).Unsubscribe(ctx, in.Queue); err != nil {
		return nil, err
	}
	s.Changed(ctx, "queue unsubscribed", slog.String("topic", in.Topic), slog.String("queue", in.Queue))
	return outputOf(wire.Subscribed{Topic: in.Topic, Queue: in.Queue}), nil
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
