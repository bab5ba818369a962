package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/store"
)

var _ store.Salter = (*Store)(nil)

// maxSalt bounds the search for a salt on a given server. Each server of a Cluster has at least one of 16,384 slots.
const maxSalt = 1 << 20

// Salts implements store.Salter. In a Cluster each new salt is a number that is on the primary with the fewest
// sub-queues of the queue.
func (s *Store) Salts(ctx context.Context, queue string, n int, former []string) ([]string, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	salts := slices.Clone(former[:min(n, len(former))])
	if len(salts) == 0 && n > 0 {
		salts = append(salts, "")
	}
	counts := map[string]int{} // by server
	if s.isCluster() {
		nodes, err := s.nodes(ctx)
		if err != nil {
			kind, _ := classify(err)
			return nil, fmt.Errorf("find the servers for queue %q: %w", queue, wrap(kind, err))
		}
		for _, node := range nodes {
			counts[node.Options().Addr] = 0
		}
	}
	for _, salt := range salts {
		server, err := s.serverOfSalt(ctx, queue, salt)
		if err != nil {
			return nil, err
		}
		counts[server]++
	}
	for next := 1; len(salts) < n; next++ {
		salt := strconv.Itoa(next)
		if slices.Contains(salts, salt) {
			continue
		}
		server, err := s.serverOfSalt(ctx, queue, salt)
		if err != nil {
			return nil, err
		}
		if counts[server] == fewest(counts) || next > maxSalt {
			salts = append(salts, salt)
			counts[server]++
			next = 0 // a smaller number may be on the server that comes next
		}
	}
	return salts, nil
}

func fewest(counts map[string]int) int {
	least := -1
	for _, n := range counts {
		if least < 0 || n < least {
			least = n
		}
	}
	return least
}

// serverOfSalt returns the address of the server of the sub-queues with a salt, "" if there is only one.
func (s *Store) serverOfSalt(ctx context.Context, queue, salt string) (string, error) {
	rdb, ok := s.rdb.(*redis.ClusterClient)
	if !ok {
		return "", nil
	}
	node, err := rdb.MasterForKey(ctx, s.keys.key(store.SubQueue(queue, "g", salt), "meta"))
	if err != nil {
		kind, _ := classify(err)
		return "", fmt.Errorf("find the server for queue %q: %w", queue, wrap(kind, err))
	}
	return node.Options().Addr, nil
}
