package redisstore

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// A primary that was frozen while its only replica was promoted has no replicas, as a server without any. It confirms
// no step of a move.
func TestAServerThatHasLostItsReplicaConfirmsNothing(t *testing.T) {
	primary := redistest.Start(t)
	replica := redistest.StartReplica(t, primary)
	s, ctx := newStore(t, primary.Client(t)), t.Context()
	name := store.SubQueue("q", "g1", "")
	if err := s.Create(ctx, name, store.Settings{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Outbox(ctx, name); err != nil {
		t.Fatal(err)
	}
	if err := replica.Client(t).Do(ctx, "REPLICAOF", "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	rdb := primary.Client(t)
	eventually(t, func() bool { return !strings.Contains(rdb.Info(ctx, "replication").Val(), "slave0:") })
	_, err := s.Outbox(ctx, name)
	if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "has 0 replicas, and had 1") {
		t.Errorf("without its replica: %v", err)
	}
	// It is a server of its own now.
	of := newStore(t, replica.Client(t))
	if _, err := of.Outbox(ctx, name); err != nil {
		t.Errorf("the promoted replica: %v", err)
	}
}

func TestReplicasAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c replicaCounts
		for i, step := range []struct {
			info replication
			wait time.Duration
			ok   bool
		}{
			{replication{"a", 2}, 0, true},
			{replication{"a", 1}, 0, false},
			{replication{"b", 0}, 0, true}, // another server
			{replication{"a", 2}, time.Hour, true},
			{replication{"a", 0}, time.Hour, false}, // it may have been frozen for so long
			{replication{"a", 1}, replicasRemembered - time.Second, false},
			{replication{"a", 0}, time.Second, true}, // it has lost them for good
			{replication{"a", 0}, 0, true},
			{replication{"a", 3}, 0, true},
			{replication{"a", 2}, time.Second, false},
			{replication{"", 1}, 0, true}, // some server of several
			{replication{"", 0}, 0, true},
		} {
			time.Sleep(step.wait)
			if err := c.check(step.info); (err == nil) != step.ok {
				t.Errorf("step %d: %v", i, err)
			}
		}
	})
}

// A SetFlow of a shard that is repeated writes, so that its wait covers what its first attempt wrote.
func TestARepeatedSetFlowOfAShardIsConfirmed(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client(t)
	s, ctx := newStore(t, rdb), t.Context()
	name := store.SubQueue("q", "g1", "")
	if err := s.Create(ctx, name, store.Settings{}); err != nil {
		t.Fatal(err)
	}
	ctx = store.WithRequest(ctx, store.Request{Session: "a", Number: 1})
	writes := func() string { return rdb.Info(ctx, "persistence").Val() }
	for range 2 {
		before := changes(writes())
		if err := s.SetFlow(ctx, name, store.Flow{Concurrency: 3}, nil); err != nil {
			t.Fatal(err)
		}
		if changes(writes()) == before {
			t.Error("the server has written nothing")
		}
	}
}

// changes returns the line of a reply to INFO that counts writes.
func changes(info string) string {
	for line := range strings.Lines(info) {
		if strings.HasPrefix(line, "rdb_changes_since_last_save:") {
			return line
		}
	}
	return ""
}
