package redisstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// TestProbeTellsWhereGetAndListFind compares with calls on each queue: of any format, with messages in any state.
func TestProbeTellsWhereGetAndListFind(t *testing.T) {
	server := redistest.Start(t)
	s := newStore(t, server.Client(t))
	testProbe(t, s, server.Client(t))
	cluster := redistest.StartCluster(t)
	testProbe(t, newStore(t, cluster.Client(t)), cluster.Client(t))
}

func testProbe(t *testing.T, s *Store, rdb redis.UniversalClient) {
	t.Helper()
	ctx := t.Context()
	queues := []string{"none", "plain", "far", "leased", "dead", "limited", "signed", "newer", "broken", "torn"}
	want := []bool{true, false, true, true, true, true, true, true, true, true}
	send := func(queue string, due time.Duration) {
		t.Helper()
		m := store.Outgoing{Message: store.Message{ID: "id", Group: "group"}, Due: store.Due{Delay: due}}
		if queue == "plain" {
			m.ID, m.Group = "other", "others"
		}
		if _, err := s.Send(ctx, queue, []store.Outgoing{m}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.SetFlow(ctx, "limited", store.Flow{Concurrency: 1}, nil); err != nil {
		t.Fatal(err)
	}
	for _, queue := range []string{"plain", "leased", "dead", "limited", "newer", "torn"} {
		send(queue, 0)
	}
	send("far", 100*24*time.Hour)
	for _, queue := range []string{"leased", "dead"} {
		claim, err := s.Claim(ctx, queue, store.ClaimRequest{Max: 1, Lease: time.Hour})
		if err != nil || len(claim.Messages) != 1 {
			t.Fatal(claim, err)
		}
		if queue == "dead" {
			_, err = s.Settle(ctx, queue, []store.Settlement{{Receipt: claim.Messages[0].Receipt, Action: store.Bury}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Retire(ctx, "signed", "text"); err != nil {
		t.Fatal(err)
	}
	setFormat(t, rdb, "newer", 99)
	for _, key := range [][2]string{{"broken", "meta"}, {"torn", "messages"}, {"torn", "groups"}} {
		if err := rdb.Set(ctx, s.keys.key(key[0], key[1]), "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for what, probe := range map[string][2][]string{
		"id": {{"unknown", "id"}}, "group": {nil, {"unknown", "group"}}, "both": {{"id"}, {"unknown"}}} {
		may, err := s.Probe(ctx, queues, probe[0], probe[1])
		if err != nil || fmt.Sprint(may) != fmt.Sprint(want) {
			t.Errorf("%s: %v, %v; want %v", what, may, err, want)
		}
	}
	many := make([]string, 2*probedTogether+1)
	for i := range many {
		many[i] = "plain"
	}
	many[2*probedTogether] = "far"
	may, err := s.Probe(ctx, many, []string{"id"}, nil)
	if err != nil || len(may) != len(many) || may[0] || !may[len(may)-1] {
		t.Errorf("%d results, %v", len(may), err)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.Probe(gone, many, []string{"id"}, nil); err == nil {
		t.Error("a probe goes on without its caller")
	}
}
