package store

import (
	"context"
	"fmt"
	"time"

	"github.com/laterq/later/internal/reserved"
)

// Sharder is implemented by a Store that gives queues shards: by the store of a client, over an engine with SubQueues,
// and by a remote store.
//
// A queue with several shards keeps the contract of Store, but for this:
//
//   - A Claim takes messages of one shard. Each shard has its own order, pause, clock and Retention.MaxCount.
//   - All messages of a key are in one shard, where the order and the limits of the key hold: a message with a key and
//     an id that does not fit it (FitsKey) is refused with ErrInvalid, unless it is Relayed, restored or a follow-up.
//     Such a message is in the shard of its id, and starts under the limits of the key there. Each shard can have
//     MaxKeyFlows overrides.
//   - Concurrency, Rate.N and Rate.Burst of the Flow are divided among the shards: they are never exceeded, and shards
//     with little to do leave a part unused. New limits reach one shard after the other. While messages are leased from
//     before a lower Concurrency, the former one counts. Keys, and the messages without one, take turns in each shard.
//     A Forward takes a slot for as long as it lasts.
//   - No conditions (If) are checked: a call with one returns ErrUnsupported.
//   - Follow-ups and forwards to another shard are sent at least once, also if the Ack is then refused.
//   - A Claim that is not repeated under a Request waits 250 ms for a shard while others can be asked. It returns
//     messages of the others; messages that the first one still returns are released.
//   - A call with items of several shards has the error of a shard that does not answer in the results of its items,
//     unless none answers or a result cannot have an error.
//
// While the number of shards of a Fair queue changes, no message of it starts until all messages that have to move, and
// are dead, ready or due within a minute, are in their new shards, but for leased ones. When that minute is over, none
// starts until the messages that are due in the next minute have moved; usually they have by then. A key with leased
// messages waits for them in its new shard. A Claim returns nothing meanwhile, and a Wait lasts up to a tenth of a
// second longer.
type Sharder interface {
	// SetShards changes the number of shards of a queue to n, 1 to MaxShards. With more than one it creates the queue if
	// necessary. It returns when the change has begun: the processes that use the queue move its messages, which Shards
	// shows. If the queue has that many shards, or changes to them, it changes nothing.
	//
	// It returns ErrInvalid for another n, for a queue with a Concurrency, or a Rate whose N or Burst is smaller than n,
	// and for one with a message that does not fit its key; ErrConflict while the queue changes to another number; and
	// ErrUnsupported in a store that cannot give queues shards.
	SetShards(ctx context.Context, queue string, n int) error

	// Shards returns the shards of a queue.
	Shards(ctx context.Context, queue string) (Shards, error)
}

// MaxShards is the largest number of shards of a queue.
const MaxShards = 64

// Shards describes the shards of a queue.
type Shards struct {
	// Number is how many there are, 1 for a queue that was never changed. While the number changes, From is the one
	// before; else it is Number.
	Number, From int
	// Since is when the change began, zero if there is none.
	Since time.Time
	// Moving is set while messages are where they belonged before.
	Moving bool
	// Stopped is set while no message of a Fair queue starts, because messages that are due have to move first.
	Stopped bool
	Each    []Shard
}

// Shard is a shard of a queue. While the number of shards becomes smaller, the shards that go are listed too.
type Shard struct {
	Server string // "" if the store has only one
	Stats  Stats
	Err    error // why Stats is not known
	// Leaving is about how many messages belong elsewhere and still have to move; -1 if that is not known.
	Leaving int64
}

// SetShards calls Sharder.SetShards. A store that has no shards returns ErrUnsupported for more than one.
func SetShards(ctx context.Context, s Store, queue string, n int) error {
	if err := CheckShards(queue, n); err != nil {
		return err
	}
	if sharder, ok := s.(Sharder); ok {
		return sharder.SetShards(ctx, queue, n)
	}
	if n > 1 {
		return fmt.Errorf("queues of this store have one shard, and %d are asked for: %w", n, ErrUnsupported)
	}
	return nil
}

// ShardsOf calls Sharder.Shards. A queue of a store that has no shards is one.
func ShardsOf(ctx context.Context, s Store, queue string) (Shards, error) {
	if sharder, ok := s.(Sharder); ok {
		return sharder.Shards(ctx, queue)
	}
	stats, err := s.Stats(ctx, queue)
	return Shards{Number: 1, From: 1, Each: []Shard{{Stats: stats}}}, err
}

// CheckShards returns an ErrInvalid unless a queue can have n shards.
func CheckShards(queue string, n int) error {
	if n < 1 || n > MaxShards {
		return Field("shards", Invalid("number of shards is %d: must be 1 to %d", n, MaxShards))
	}
	if err := CheckNewQueue(queue); err != nil {
		return err
	}
	if prefix, _ := reserved.Cut(queue); prefix != "" {
		return Field("queue", Invalid("queue %q is one of Later's own, which have one shard", queue))
	}
	return nil
}
