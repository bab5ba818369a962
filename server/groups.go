package server

import (
	"context"
	"net/http"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

func registerGroups(s *Server) {
	const one = "/v1/queues/{queue}/groups/{group}"
	const tag = "groups"
	route(s, access.Operate, on("PATCH "+one, tag, "rescheduleGroup",
		"Change the due time of the messages of a group", fails(http.StatusNotFound),
		says("Leased and dead messages are left as they are. After an error some may have been changed; repeat it.")),
		s.rescheduleGroup)
	route(s, access.Operate, on("DELETE "+one, tag, "cancelGroup",
		"Cancel the messages of a group, whatever their states", fails(http.StatusNotFound),
		says("After an error some may have been cancelled; repeat it.")), s.cancelGroup)
}

// GroupPath is a group of a path.
type GroupPath struct {
	QueuePath
	Group string `path:"group" maxLength:"128" doc:"The name of the group"`
}

type rescheduleGroupInput struct {
	GroupPath
	Body Due
}

func (s *Server) rescheduleGroup(ctx context.Context, in *rescheduleGroupInput) (
	*output[wire.RescheduledGroup], error,
) {
	due, err := in.Body.when()
	switch {
	case err != nil:
		return nil, err
	case !in.Body.given():
		return nil, field("in", store.Invalid("is missing: give in or at"))
	}
	n, err := s.client.Queue(in.Queue).RescheduleGroup(ctx, in.Group, due)
	found := n.Rescheduled + n.Leased + n.Dead
	err = s.changedPart(ctx, "group", "rescheduled", in.Queue, in.Group, n.Rescheduled, found, err)
	return outputOf(wire.RescheduledGroup{Queue: in.Queue, Group: in.Group, Due: dueAt(due),
		Rescheduled: n.Rescheduled, Leased: n.Leased, Dead: n.Dead}), err
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

func (s *Server) cancelGroup(ctx context.Context, in *cancelGroupInput) (*output[wire.CancelledGroup], error) {
	n, err := s.client.Queue(in.Queue).CancelGroup(ctx, in.Group, in.options()...)
	err = s.changedPart(ctx, "group", "cancelled", in.Queue, in.Group, n.Total(), n.Total(), err)
	return outputOf(wire.CancelledGroup{Queue: in.Queue, Group: in.Group, Cancelled: n.Total(),
		Scheduled: n.Scheduled, Ready: n.Ready, Leased: n.Leased, Dead: n.Dead}), err
}
