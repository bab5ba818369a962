// Package shard says in which shard of a queue a message is. It imports package store. Start with Of. The product does
// not use it yet: model_test.go has the protocol of a move to another number of shards, key_test.go that of a key that
// moves with its order, and explore_test.go visits their histories.
package shard

// Of returns the shard, 0 to n-1, of a slot of ids in a queue with n shards; see store.Slot. A queue with one more shard has 1/(n+1) of the
// slots in it, and the others where they were. It is the jump consistent hash of Lamping and Veach
// (https://arxiv.org/abs/1406.2294).
func Of(slot, n int) int {
	key, shard, next := uint64(slot), int64(0), int64(0)
	for next < int64(n) {
		shard = next
		key = key*2862933555777941757 + 1
		next = int64(float64(shard+1) * (float64(1<<31) / float64(key>>33+1)))
	}
	return int(shard)
}
