package shard

import (
	"testing"

	"github.com/laterq/later/store"
)

// The wanted values are from the tests of Guava's Hashing.consistentHash, which is the same function.
func TestOfIsTheJumpHash(t *testing.T) {
	want := []int{0, 55, 62, 8, 45, 59, 86, 97, 82, 59, 73, 37, 17, 56, 86, 21, 90, 37, 38, 83}
	for slot, shard := range want {
		if got := Of(slot, 100); got != shard {
			t.Errorf("the shard of slot %d is %d, want %d", slot, got, shard)
		}
	}
}

func TestANewShardTakesItsPartAndNoOtherSlotMoves(t *testing.T) {
	for n := 1; n < 64; n++ {
		counts, moved := make([]int, n+1), 0
		for slot := range store.Slots {
			before, after := Of(slot, n), Of(slot, n+1)
			if counts[after]++; before != after {
				moved++
				if after != n {
					t.Fatalf("from %d shards to %d slot %d moves from %d to %d", n, n+1, slot, before, after)
				}
			}
		}
		for shard, got := range counts {
			if mean := store.Slots / (n + 1); got < mean/2 || got > mean*2 {
				t.Errorf("shard %d of %d has %d of %d slots", shard, n+1, got, store.Slots)
			}
		}
		if moved != counts[n] {
			t.Errorf("from %d shards to %d %d slots move, and the new shard has %d", n, n+1, moved, counts[n])
		}
	}
}
