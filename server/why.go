package server

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/laterq/later/internal/view"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

func registerWhy(s *Server) {
	route(s, access.Get, huma.Operation{
		OperationID: "explainMessage", Errors: []int{http.StatusNotFound},
		Method: http.MethodGet, Path: "/v1/queues/{queue}/messages/{id}/why", Tags: []string{"messages"},
		Summary: "Explain why a message has not been handled yet",
	}, s.explain)
}

type whyInput struct {
	MessagePath
	TimeZone string `query:"time_zone" maxLength:"64" doc:"Of the times of day in the text. Default: UTC" example:"Europe/Berlin"`
}

type whyOutput struct{ Body wire.Explanation }

func (s *Server) explain(ctx context.Context, in *whyInput) (*whyOutput, error) {
	zone, err := time.LoadLocation(in.TimeZone)
	if err != nil || in.TimeZone == "Local" {
		return nil, field("query.time_zone", store.Invalid("%q is no time zone: give one such as Europe/Berlin", in.TimeZone))
	}
	e, err := s.client.Queue(in.Queue).Explain(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if hides(ctx) {
		e.Error = ""
	}
	return &whyOutput{view.Explanation(e, zone)}, nil
}
