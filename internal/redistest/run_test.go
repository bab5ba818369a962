package redistest

import (
	"context"
	"fmt"
	"testing"
)

// TestAClusterWithReplicasOutlivesANode: the replica takes over, and the data with it.
func TestAClusterWithReplicasOutlivesANode(t *testing.T) {
	t.Parallel()
	c, err := RunCluster(1, "--cluster-node-timeout", "1000")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Remove)
	if len(c.Nodes) != 2*clusterNodes {
		t.Fatalf("%d nodes; want %d", len(c.Nodes), 2*clusterNodes)
	}
	node := c.Node(t, "key")
	primary := node.Client(t)
	set(t, primary, "key")
	if n, err := primary.Wait(t.Context(), 1, startLimit).Result(); n != 1 || err != nil {
		t.Fatalf("WAIT = %d, %v", n, err)
	}
	node.Kill()
	rdb := c.Client(t)
	err = eventually("the promotion of the replica", func(ctx context.Context) error {
		rdb.ReloadState(ctx) // by itself it asks every minute only
		return rdb.Get(ctx, "key").Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Relaunch(); err != nil {
		t.Fatal(err)
	}
	err = eventually("the node's becoming a replica", func(ctx context.Context) error {
		role, err := node.Client(t).Do(ctx, "ROLE").Slice()
		if err == nil && role[0] != "slave" {
			err = fmt.Errorf("it is a %v", role[0])
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
