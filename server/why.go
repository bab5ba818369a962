package server

import (
	"context"
	"net/http"
	"time"

	"github.com/laterq/later/internal/view"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

func registerWhy(s *Server) {
	route(s, access.Get, on("GET /v1/queues/{queue}/messages/{id}/why", "messages", "explainMessage",
		"Explain why a message has not been handled yet", fails(http.StatusNotFound)), s.explain)
}

type whyInput struct {
	MessagePath
	TimeZone string `query:"time_zone" maxLength:"64" doc:"Of the times of day in the text. Default: UTC" example:"Europe/Berlin"`
}

func (s *Server) explain(ctx context.Context, in *whyInput) (*output[wire.Explanation], error) {
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
	return outputOf(view.Explanation(e, zone)), nil
}
