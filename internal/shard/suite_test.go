package shard_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/laterq/later/internal/shardtest"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store/storetest"
)

// inMemory is a store in memory with a clock that tests move.
func inMemory(t *testing.T) shardtest.Engine {
	clock := memstore.NewManualClock(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))
	s := memstore.New(memstore.WithClock(clock))
	t.Cleanup(func() { s.Close() })
	return shardtest.Engine{Harness: storetest.Harness{Store: s, Peer: s, Exact: true,
		Advance: func(_ testing.TB, _ string, d time.Duration) { clock.Advance(d) }}}
}

func TestConformance(t *testing.T) {
	for _, n := range []int{1, 3, 16} {
		t.Run(fmt.Sprint(n), func(t *testing.T) { shardtest.Run(t, n, inMemory) })
	}
}

func TestStateMachineWhileTheNumberOfShardsChanges(t *testing.T) {
	shardtest.RunStateMachine(t, inMemory)
}

func TestKeysWhileTheNumberOfShardsChanges(t *testing.T) {
	histories := 20
	if os.Getenv("LATER_LONG") != "" {
		histories = 200
	}
	shardtest.RunKeys(t, histories, inMemory)
}
