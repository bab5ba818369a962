package redistest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	clusterNodes = 3
	clusterSlots = 16384
	// clusterNodeTimeoutMillis is when a node that does not answer counts as failed. It is small, so that
	// tests see failures soon, yet above the stalls of a busy machine.
	clusterNodeTimeoutMillis = "5000"
)

// Cluster is a Redis Cluster of three primaries, each with a third of the slots, without replicas.
type Cluster struct {
	Nodes []*Server
}

// StartCluster runs a Cluster of the test's own and returns when all its nodes agree and serve. That takes
// about two seconds, which Redis waits before a new node writes. It is killed when the test ends.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	c, err := startCluster(config{cluster: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range c.Nodes {
		n.removeAfter(t)
	}
	return c
}

func startCluster(nodes config) (*Cluster, error) {
	c := &Cluster{}
	for range clusterNodes {
		n, err := start(nodes)
		if err != nil {
			c.remove()
			return nil, err
		}
		c.Nodes = append(c.Nodes, n)
	}
	if err := c.join(); err != nil {
		c.remove()
		return nil, err
	}
	return c, nil
}

// join gives each node its slots, introduces every node to every other, and waits until all agree.
func (c *Cluster) join() error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	var clients []*redis.Client
	for i, n := range c.Nodes {
		rdb := redis.NewClient(n.options())
		defer rdb.Close()
		clients = append(clients, rdb)
		first, last := i*clusterSlots/clusterNodes, (i+1)*clusterSlots/clusterNodes-1
		if err := rdb.ClusterAddSlotsRange(ctx, first, last).Err(); err != nil {
			return err
		}
		// Nodes with epochs of their own need no vote to settle who is who.
		if err := rdb.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
			return err
		}
	}
	for i, rdb := range clients {
		for _, n := range c.Nodes[:i] {
			if err := rdb.Do(ctx, "CLUSTER", "MEET", n.host, n.port, n.busPort).Err(); err != nil {
				return err
			}
		}
	}
	return eventually("a Cluster's agreement", func(ctx context.Context) error {
		for i, rdb := range clients {
			if err := agrees(ctx, rdb); err != nil {
				return fmt.Errorf("node %s: %w", c.Nodes[i].Addr(), err)
			}
		}
		return nil
	})
}

// agrees is nil when a node serves and knows the owner of every slot.
func agrees(ctx context.Context, rdb *redis.Client) error {
	info, err := rdb.ClusterInfo(ctx).Result()
	if err != nil {
		return err
	}
	if !strings.Contains(info, "cluster_state:ok") {
		return fmt.Errorf("state is not ok: %s", info)
	}
	shards, err := rdb.ClusterShards(ctx).Result()
	if err != nil {
		return err
	}
	known := 0
	for _, shard := range shards {
		for _, r := range shard.Slots {
			known += int(r.End-r.Start) + 1
		}
	}
	if known != clusterSlots || len(shards) != clusterNodes {
		return fmt.Errorf("knows %d slots of %d nodes", known, len(shards))
	}
	return nil
}

// Addrs are the host:port of all nodes.
func (c *Cluster) Addrs() []string {
	var addrs []string
	for _, n := range c.Nodes {
		addrs = append(addrs, n.Addr())
	}
	return addrs
}

// URL is the Cluster's address for later.Open.
func (c *Cluster) URL() string { return "redis+cluster://" + strings.Join(c.Addrs(), ",") }

// Client gives a client of the Cluster. It is closed when the test ends.
func (c *Cluster) Client(t testing.TB) *redis.ClusterClient {
	t.Helper()
	rdb := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:                    c.Addrs(),
		DialerRetries:            1,
		ContextTimeoutEnabled:    true,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

// Node gives the node that owns a key's slot now.
func (c *Cluster) Node(t testing.TB, key string) *Server {
	t.Helper()
	rdb := c.Client(t)
	owner, err := rdb.MasterForKey(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range c.Nodes {
		if n.Addr() == owner.Options().Addr {
			return n
		}
	}
	t.Fatalf("%s is no node of the Cluster", owner.Options().Addr)
	return nil
}

func (c *Cluster) remove() {
	for _, n := range c.Nodes {
		n.remove()
	}
}
