package redistest

import (
	"context"
	"fmt"
	"testing"
)

func TestClusterWithReplicasSurvivesLossOfANode(t *testing.T) {
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
	err = eventually("promotion of the replica", func(ctx context.Context) error {
		rdb.ReloadState(ctx) // otherwise it reloads only once a minute
		return rdb.Get(ctx, "key").Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Relaunch(); err != nil {
		t.Fatal(err)
	}
	err = eventually("demotion of the node", func(ctx context.Context) error {
		role, err := node.Client(t).Do(ctx, "ROLE").Slice()
		if err == nil && role[0] != "slave" {
			err = fmt.Errorf("its role is %v", role[0])
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
