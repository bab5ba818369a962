//go:build unix

package chaos

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redistest"
)

// client returns a client that bypasses Later.
func (v *servers) client(ctx context.Context) (redis.UniversalClient, error) {
	if v.form == cluster {
		var addrs []string
		for _, n := range v.nodes {
			addrs = append(addrs, n.Addr())
		}
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs}), nil
	}
	primary, err := v.primary(ctx, -1)
	if err != nil {
		return nil, err
	}
	return redis.NewClient(v.nodes[primary].Options()), nil
}

// audit checks that each message is in exactly one location of Redis.
func (r *run) audit(ctx context.Context) error {
	rdb, err := r.servers.client(ctx)
	if err != nil {
		return err
	}
	defer rdb.Close()
	queues := append(slices.Clone(r.queues), r.lagQueue)
	if r.fault.load.sharded {
		queues = []string{r.lagQueue}
		if err := r.auditShards(ctx, rdb); err != nil {
			return err
		}
	}
	for _, queue := range queues {
		if _, err := r.locations(ctx, rdb, queue, redistest.Prefix(queue)); err != nil {
			return err
		}
	}
	return nil
}

// locations checks that each message is in one location of a queue whose keys begin with a prefix, and returns these.
func (r *run) locations(
	ctx context.Context, rdb redis.UniversalClient, queue, prefix string,
) (map[string]string, error) {
	return redistest.LocationsAt(ctx, rdb, prefix, func(id, text string) {
		r.result.violate("location", id, "%s of %s", text, queue)
	})
}
