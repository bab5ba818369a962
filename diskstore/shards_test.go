package diskstore

import (
	"flag"
	"os"
	"testing"

	"github.com/laterq/later/internal/shardtest"
)

// sharded is an engine whose queues get shards.
func sharded(t *testing.T) shardtest.Engine { return shardtest.Engine{Harness: openMemory(t)} }

func TestConformanceOfShards(t *testing.T) { shardtest.Run(t, 3, sharded) }

func TestStateMachineOfShards(t *testing.T) {
	if os.Getenv("LATER_LONG") == "" {
		f := flag.Lookup("rapid.checks")
		defer f.Value.Set(f.Value.String())
		f.Value.Set("25") // memory runs the same histories, 100 of them
	}
	shardtest.RunStateMachine(t, sharded)
}

func TestKeysWhileTheNumberOfShardsChanges(t *testing.T) { shardtest.RunKeys(t, 2, sharded) }
