package server

import (
	"context"
	"log/slog"

	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

func (s *Server) shards(ctx context.Context, in *QueuePath) (*output[wire.Shards], error) {
	shards, err := s.shardsOf(ctx, in.Queue)
	if err == nil && shards.Number == 1 && len(shards.Each) == 1 && !shards.Each[0].Stats.Exists {
		err = s.queueExists(ctx, in.Queue)
	}
	return s.shownShards(ctx, in.Queue, shards), err
}

type setShardsInput struct {
	QueuePath
	Body struct {
		Shards int `json:"shards" minimum:"1" maximum:"64" doc:"The new number of shards"`
	}
}

// setShards begins a change of the number of shards. The processes that use the queue move its messages.
func (s *Server) setShards(ctx context.Context, in *setShardsInput) (*output[wire.Shards], error) {
	before, err := s.shardsOf(ctx, in.Queue)
	if err == nil {
		err = store.SetShards(ctx, s.client.Store(), in.Queue, in.Body.Shards)
	}
	if err != nil {
		return nil, err
	}
	if before.Number != in.Body.Shards {
		s.Changed(ctx, "number of shards set", slog.String("queue", in.Queue), slog.Int("from", before.Number),
			slog.Int("to", in.Body.Shards))
	}
	shards, err := s.shardsOf(ctx, in.Queue)
	return s.shownShards(ctx, in.Queue, shards), err
}

func (s *Server) shardsOf(ctx context.Context, queue string) (store.Shards, error) {
	return s.client.Queue(queue).Shards(ctx)
}

// shownShards returns the shards of a queue. The errors of shards are shown as those of requests are.
func (s *Server) shownShards(ctx context.Context, queue string, shards store.Shards) *output[wire.Shards] {
	shown := wire.NewShards(queue, shards)
	for i := range shards.Each {
		if err := shards.Each[i].Err; err != nil {
			f := s.failure(ctx, err)
			shown.Each[i].Error = &wire.Error{Code: string(f.Code), Message: f.Detail}
		}
	}
	return outputOf(shown)
}
