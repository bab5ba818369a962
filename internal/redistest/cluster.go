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
	// clusterNodeTimeoutMillis is when a node that does not reply is considered failed. It is short so that tests see
	// failures soon, yet longer than the stalls of a busy machine.
	clusterNodeTimeoutMillis = "5000"
)

// Cluster is a Redis Cluster of three primaries without replicas, each with a third of the slots.
type Cluster struct {
	Nodes []*Server
}

// StartCluster starts a Cluster for one test and returns when all its nodes agree and serve. That takes about two
// seconds, because Redis delays the writes of a new node. The Cluster is killed when the test ends.
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

// join assigns the slots, introduces the nodes to each other, and waits until all agree.
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
		// Nodes with distinct epochs need no vote to resolve conflicts.
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
	return eventually("agreement of the Cluster", func(ctx context.Context) error {
		for i, rdb := range clients {
			if err := agrees(ctx, rdb); err != nil {
				return fmt.Errorf("node %s: %w", c.Nodes[i].Addr(), err)
			}
		}
		return nil
	})
}

// agrees returns nil if a node serves and knows the owner of every slot.
func agrees(ctx context.Context, rdb *redis.Client) error {
	info, err := rdb.ClusterInfo(ctx).Result()
	if err != nil {
		return err
	}
	if !strings.Contains(info, "cluster_state:ok") {
		return fmt.Errorf("cluster state is not ok: %s", info)
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
		return fmt.Errorf("node knows %d slots of %d nodes", known, len(shards))
	}
	return nil
}

// Addrs returns the host:port of every node.
func (c *Cluster) Addrs() []string {
	var addrs []string
	for _, n := range c.Nodes {
		addrs = append(addrs, n.Addr())
	}
	return addrs
}

// URL returns the Cluster's URL for later.Open.
func (c *Cluster) URL() string { return "redis+cluster://" + strings.Join(c.Addrs(), ",") }

// Client returns a client of the Cluster. It is closed when the test ends.
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

// Node returns the node that currently owns a key's slot.
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
	t.Fatalf("%s is not a node of the Cluster", owner.Options().Addr)
	return nil
}

func (c *Cluster) remove() {
	for _, n := range c.Nodes {
		n.remove()
	}
}
