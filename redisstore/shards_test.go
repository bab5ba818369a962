package redisstore

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/shardtest"
)

// sharded returns an engine whose queues get shards. Each sub-queue has a clock of its own, in its slot.
func sharded(scripts scripts, client func(t testing.TB) redis.UniversalClient) func(t *testing.T) shardtest.Engine {
	return func(t *testing.T) shardtest.Engine {
		h := harnessOf(scripts, client)(t)
		h.Back = false
		rdb := client(t)
		return shardtest.Engine{Harness: h, Sync: func(t testing.TB, queue, name string) {
			t.Helper()
			ctx := t.Context()
			tag, _ := keyParts(name)
			now, err := rdb.Get(ctx, DefaultPrefix+"{"+queue+"}:clock").Result()
			if err == nil {
				err = rdb.Set(ctx, DefaultPrefix+"{"+tag+"}:clock", now, 0).Err()
			}
			if err == nil { // waiters use their own clocks and must be notified
				err = wakeAll(ctx, rdb, name)
			}
			if err != nil && err != redis.Nil {
				t.Fatal(err)
			}
		}}
	}
}

func TestConformanceOfShards(t *testing.T) {
	for _, e := range engines[:2] {
		for _, n := range []int{1, 3, 16} {
			if n == 3 && e.name == "cluster" || long() {
				t.Run(fmt.Sprint(e.name, " ", n), func(t *testing.T) {
					shardtest.Run(t, n, sharded(frozenClockScripts, e.client))
				})
			}
		}
	}
}

func TestStateMachineOfShards(t *testing.T) {
	checks(t, 5)
	for _, e := range engines[:2] {
		if e.name == "cluster" || long() {
			t.Run(e.name, func(t *testing.T) { shardtest.RunStateMachine(t, sharded(packing, e.client)) })
		}
	}
}

// The test of the same rule in internal/shard runs with the race detector.
func TestKeysOnServersWhileTheNumberOfShardsChanges(t *testing.T) {
	histories := 1
	if long() {
		histories = 20
	}
	for _, e := range engines[:2] {
		t.Run(e.name, func(t *testing.T) { shardtest.RunKeys(t, histories, sharded(frozenClockScripts, e.client)) })
	}
}
