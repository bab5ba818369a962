package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

func registerGroups(s *Server) {
	const one = "/v1/queues/{queue}/groups/{group}"
	tags := []string{"groups"}
	route(s, access.Operate, huma.Operation{
		OperationID: "rescheduleGroup", Errors: []int{http.StatusNotFound},
		Method: http.MethodPatch, Path: one, Tags: tags, Summary: "Change the due time of the messages of a group",
		Description: "Leased and dead messages are left as they are. After an error some may have been changed; repeat it.",
	}, s.rescheduleGroup)
	route(s, access.Operate, huma.Operation{
		OperationID: "cancelGroup", Errors: []int{http.StatusNotFound},
		Method: http.MethodDelete, Path: one, Tags: tags, Summary: "Cancel the messages of a group, whatever their states",
		Description: "After an error some may have been cancelled; repeat it.",
	}, s.cancelGroup)
}

// GroupPath is a group of a path.
type GroupPath struct {
	QueuePath
	Group string `path:"group" maxLength:"128" doc:"The name of the group"`
}

func noGroup(p *GroupPath) error {
	return fmt.Errorf("no message of group %q in queue %q: %w", p.Group, p.Queue, store.ErrNotFound)
}

type rescheduleGroupInput struct {
	GroupPath
	Body struct {
		In Duration   `json:"in,omitempty" doc:"Due after this delay, by the store's clock"`
		At *time.Time `json:"at,omitempty" doc:"Due at this time"`
	}
}

type rescheduledGroupOutput struct{ Body wire.RescheduledGroup }

func (s *Server) rescheduleGroup(ctx context.Context, in *rescheduleGroupInput) (*rescheduledGroupOutput, error) {
	due, err := when(in.Body.In, in.Body.At)
	switch {
	case err != nil:
		return nil, err
	case in.Body.In == "" && in.Body.At == nil:
		return nil, field("in", store.Invalid("is missing: give in or at"))
	}
	n, err := s.client.Queue(in.Queue).RescheduleGroup(ctx, in.Group, due)
	if n.Rescheduled > 0 {
		s.Changed(ctx, "group rescheduled", slog.String("queue", in.Queue), slog.String("group", in.Group),
			slog.Int("count", n.Rescheduled))
	}
	if err == nil && n == (later.GroupReschedule{}) {
		err = noGroup(&in.GroupPath)
	}
	return &rescheduledGroupOutput{wire.RescheduledGroup{Queue: in.Queue, Group: in.Group, Due: dueAt(due),
		Rescheduled: n.Rescheduled, Leased: n.Leased, Dead: n.Dead}}, err
}

type cancelGroupInput struct {
	GroupPath
	KeepID
}

// KeepID selects the effect of a cancel on the ids of the messages.
type KeepID struct {
	Keep bool `query:"keep_id" doc:"Start the dedup windows of the messages, as an ack does"`
}

func (k KeepID) options() (opts []later.CancelOption) {
	if k.Keep {
		opts = append(opts, later.KeepID())
	}
	return opts
}

type cancelledGroupOutput struct{ Body wire.CancelledGroup }

func (s *Server) cancelGroup(ctx context.Context, in *cancelGroupInput) (*cancelledGroupOutput, error) {
	n, err := s.client.Queue(in.Queue).CancelGroup(ctx, in.Group, in.options()...)
	if n.Total() > 0 {
		s.Changed(ctx, "group cancelled", slog.String("queue", in.Queue), slog.String("group", in.Group),
			slog.Int("count", n.Total()))
	}
	if err == nil && n.Total() == 0 {
		err = noGroup(&in.GroupPath)
	}
	return &cancelledGroupOutput{wire.CancelledGroup{Queue: in.Queue, Group: in.Group, Cancelled: n.Total(),
		Scheduled: n.Scheduled, Ready: n.Ready, Leased: n.Leased, Dead: n.Dead}}, err
}
