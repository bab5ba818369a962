// Package shard says where the messages of a queue with several shards are. It imports package store. Start with Slot
// and Of. The move of messages to another number of shards is not built yet: model_test.go has its protocol, and
// explore_test.go visits its histories.
package shard

import (
	"hash/crc32"
	"strings"

	"github.com/laterq/later/store"
)

// Slots is the number of slots, into which ids are divided. It never changes, because ids have their slot.
const Slots = 1 << 12

// Slot returns the slot of an id, 0 to Slots-1. An id that Later makes carries it in its last 12 bits; see store.IDs.
// The slot of another id is the one that a key has which is its text up to the first slash, or all of it.
func Slot(id string) int {
	if _, ok := store.IDTime(id); ok {
		return digit(id[len(id)-2])<<6 | digit(id[len(id)-1])
	}
	name, _, _ := strings.Cut(id, "/")
	return int(crc32.ChecksumIEEE([]byte(name)) % Slots)
}

// digit returns the value of a character of an id that Later makes. The characters are in ASCII order.
func digit(c byte) int {
	switch {
	case c == '-':
		return 0
	case c <= '9':
		return int(c-'0') + 1
	case c <= 'Z':
		return int(c-'A') + 11
	case c == '_':
		return 37
	}
	return int(c-'a') + 38
}

// Of returns the shard of a slot in a queue with n shards, 0 to n-1. A queue with one more shard has 1/(n+1) of the
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
