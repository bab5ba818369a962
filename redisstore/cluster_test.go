package redisstore

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// The node does not come back; its replica takes over.
func TestClusterCallSurvivesNodeFailure(t *testing.T) {
	t.Parallel()
	c, err := redistest.RunCluster(1, "--cluster-node-timeout", "1000")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Remove)
	s := newStore(t, c.Client(t))
	send(t, s, "q", "before", store.Due{})
	node := c.Node(t, DefaultPrefix+"{q}:messages")
	rdb := redis.NewClient(node.Options())
	defer rdb.Close()
	if n, err := rdb.Wait(t.Context(), 1, time.Minute).Result(); n != 1 || err != nil {
		t.Fatalf("WAIT returned %d, %v", n, err)
	}
	node.Kill()
	for try := 1; ; try++ { // an election may need a second attempt
		_, err := s.Send(t.Context(), "q", []store.Outgoing{{Message: store.Message{ID: "after"}}})
		if err == nil {
			break
		}
		if try == 2 {
			t.Fatal(err)
		}
	}
	if got := claim(t, s, "q", 10, time.Minute); len(got.Messages) < 1 ||
		got.Messages[len(got.Messages)-1].ID != "after" {
		t.Errorf("claimed %v, want the message sent after the failure", got.Messages)
	}
}
