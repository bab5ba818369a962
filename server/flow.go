package server

import (
	"context"
	"log/slog"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

func (s *Server) flow(ctx context.Context, in *QueuePath) (*tagged[wire.Flow], error) {
	stats, err := s.existing(ctx, in.Queue)
	return taggedFlow(stats.Flow.Flow), err
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
	flow, q := in.Body.Flow(), s.client.Queue(in.Queue)
	var undo *undoable
	if err := q.SetFlow(ctx, flow, func(version string) bool {
		undo = s.flowUndo(ctx, q, flow, version)
		return in.allow(version)
	}); err != nil {
		return nil, in.refused(err)
	}
	s.changed(ctx, undo, "limits of queue set", slog.String("queue", in.Queue),
		slog.Int("concurrency", flow.Concurrency), slog.String("rate", flow.Rate.String()),
		slog.String("order", string(flow.Key.Order)), slog.Bool("urgency", flow.Urgency))
	return taggedFlow(flow), nil
}

type listKeysInput struct {
	QueuePath
	PageQuery
	Overridden bool `query:"overridden" doc:"The keys with limits of their own, instead of the keys that wait"`
	Halted     bool `query:"halted" doc:"The keys that a dead message halts, instead of the keys that wait"`
}

func (s *Server) listKeys(ctx context.Context, in *listKeysInput) (*output[Page[wire.Key]], error) {
	if in.Cursor != "" && store.CheckKey(in.Cursor) != nil {
		return nil, field("query.cursor", store.Invalid("is %.80q: give the next of the page before", in.Cursor))
	}
	keys, err := s.client.Queue(in.Queue).Keys(ctx, later.KeysRequest{Overridden: in.Overridden, Halted: in.Halted,
		After: in.Cursor, Limit: in.Limit})
	if err = s.foundSome(ctx, in.Queue, len(keys), err); err != nil {
		return nil, err
	}
	page := pageOf(keys, func(k later.KeyState) wire.Key { return wire.NewKey(&k) })
	if len(keys) > 0 { // a page may have fewer keys although more follow
		page.Next = keys[len(keys)-1].Key
	}
	return outputOf(page), nil
}

// KeyPath is a key of a path.
type KeyPath struct {
	QueuePath
	Key string `path:"key" maxLength:"64" doc:"The key of messages"`
}

func (s *Server) getKey(ctx context.Context, in *KeyPath) (*output[wire.Key], error) {
	keys, err := s.client.Queue(in.Queue).Keys(ctx, later.KeysRequest{Key: in.Key, Limit: 1})
	if err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		if err := s.queueExists(ctx, in.Queue); err != nil {
			return nil, err
		}
		return nil, store.NotFair(in.Queue)
	}
	return outputOf(wire.NewKey(&keys[0])), nil
}

func (s *Server) resumeKey(ctx context.Context, in *KeyPath) (*output[wire.Key], error) {
	if err := s.client.Queue(in.Queue).ResumeKey(ctx, in.Key); err != nil {
		return nil, err
	}
	s.Changed(ctx, "key resumed", slog.String("queue", in.Queue), slog.String("key", in.Key))
	return s.getKey(ctx, in)
}

type setKeyFlowInput struct {
	KeyPath
	Body wire.KeyOverride
}

func (s *Server) setKeyFlow(ctx context.Context, in *setKeyFlowInput) (*output[wire.Key], error) {
	if err := s.queueExists(ctx, in.Queue); err != nil {
		return nil, err
	}
	if err := s.client.Queue(in.Queue).SetKeyFlow(ctx, in.Key, in.Body.KeyOverride()); err != nil {
		return nil, err
	}
	s.Changed(ctx, "limits of key set", slog.String("queue", in.Queue), slog.String("key", in.Key))
	return s.getKey(ctx, &in.KeyPath)
}
