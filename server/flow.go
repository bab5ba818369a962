package server

import (
	"context"
	"log/slog"

	"github.com/laterq/later/internal/wire"
)

func (s *Server) flow(ctx context.Context, in *QueuePath) (*tagged[wire.Flow], error) {
	if err := s.queueExists(ctx, in.Queue); err != nil {
		return nil, err
	}
	return s.flowNow(ctx, in.Queue)
}

// flowNow returns the limits of a queue, as a reply.
func (s *Server) flowNow(ctx context.Context, queue string) (*tagged[wire.Flow], error) {
	state, err := s.client.Queue(queue).Flow(ctx)
	if err != nil {
		return nil, err
	}
	return &tagged[wire.Flow]{ETag: etagOf(state.Version()), Body: wire.NewFlow(state.Flow)}, nil
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
	return s.flowNow(ctx, in.Queue)
}
