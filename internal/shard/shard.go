// Package shard gives queues shards. A shard of a queue is a queue of the engine, a sub-queue, which may be on a server
// of its own, and a Store over the engine has them look like one. The number of shards can change at any time:
// change.go has the phases of a change, move.go the moves of messages and keys, flow.go the shares of the limits, and
// directory.go the knowledge of processes.
//
// Start reading at Store. Of says in which shard a message is. model_test.go is a model of a change, key_test.go one of
// a key that moves with its order, and explore_test.go visits their histories. Of Later, the package imports the
// contract.
package shard

// Of returns the shard, 0 to n-1, of a slot of ids in a queue with n shards; see store.Slot. A queue with one more
// shard has 1/(n+1) of the slots in it, and the others where they were. It is the jump consistent hash of Lamping and
// Veach (https://arxiv.org/abs/1406.2294).
func Of(slot, n int) int {
	key, shard, next := uint64(slot), int64(0), int64(0)
	for next < int64(n) {
		shard = next
		key = key*2862933555777941757 + 1
		next = int64(float64(shard+1) * (float64(1<<31) / float64(key>>33+1)))
	}
	return int(shard)
}
