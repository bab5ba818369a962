package server

import (
	"context"
	"log/slog"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/wire"
)

func (s *Server) flow(ctx context.Context, in *QueuePath) (*tagged[wire.Flow], error) {
	stats, err := s.client.Queue(in.Queue).Stats(ctx)
	if err == nil && !stats.Exists {
		err = s.queueExists(ctx, in.Queue)
	}
	if err != nil {
		return nil, err
	}
	return taggedFlow(stats.Flow.Flow), nil
}

func taggedFlow(f later.Flow) *tagged[wire.Flow] {
	f = f.Normal()
	return &tagged[wire.Flow]{ETag: etagOf(f.Version()), Body: wire.NewFlow(f)}
}

type setFlowInput struct {
	QueuePath
	Preconditions
	Body wire.Flow
}

func (s *Server) setFlow(ctx context.Context, in *setFlowInput) (*tagged[wire.Flow], error) {
	flow := in.Body.Flow()
	if err := s.client.Queue(in.Queue).SetFlowIf(ctx, flow, in.condition()); err != nil {
		return nil, in.refused(err)
	}
	s.Changed(ctx, "limits of queue set", slog.String("queue", in.Queue), slog.Int("concurrency", flow.Concurrency),
		slog.String("rate", flow.Rate.String()))
	return taggedFlow(flow), nil
}
