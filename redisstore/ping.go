package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/store"
)

var _ store.Pinger = (*Store)(nil)

// Ping implements store.Pinger. In a Cluster it asks every primary, since each of them has some of the queues. The
// first call also checks that the server is one that Later can use.
func (s *Store) Ping(ctx context.Context) error {
	if s.closing.Err() != nil {
		return store.ErrClosed
	}
	if !s.preflightDone.Load() {
		if err := s.preflight(ctx); err != nil {
			return s.pingError(ctx, err)
		}
	}
	var err error
	if cluster, ok := s.rdb.(*redis.ClusterClient); ok {
		err = cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			if err := node.Ping(ctx).Err(); err != nil {
				return fmt.Errorf("node %s: %w", node.Options().Addr, err)
			}
			return nil
		})
	} else {
		err = s.rdb.Ping(ctx).Err()
	}
	return s.pingError(ctx, err)
}

func (s *Store) pingError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	kind, _ := classify(err)
	cause := context.Cause(ctx)
	if deadline, ok := ctx.Deadline(); cause == nil && ok && !time.Now().Before(deadline) {
		cause = context.DeadlineExceeded // the connection has the same deadline, and was first
	}
	if cause != nil {
		return fmt.Errorf("%w: %w", cause, wrap(kind, err))
	}
	return wrap(kind, err)
}
