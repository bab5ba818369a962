package later

import (
	"cmp"
	"context"
	"time"

	"github.com/laterq/later/store"
)

// Shards describes the shards of a queue; see Queue.Shards.
type Shards = store.Shards

// Pauses between looks at a change of the number of shards.
const (
	minShardsPause = 10 * time.Millisecond
	maxShardsPause = time.Second
)

// SetShards divides the messages of the queue among n shards, 1 to store.MaxShards. For more than one it creates the
// queue if necessary. Each shard is a queue inside the store, and in a Redis Cluster the shards are on as many servers
// as possible. The queue can be used as before, also while its messages move.
//
// SetShards begins the change and returns when all messages are in their new shards. A leased message moves once it is
// settled. If ctx ends first, SetShards returns its cause, and the change goes on: any process that uses the queue
// moves its messages, and Shards shows how far it is. The same holds after an error of the store during the wait. A
// call with the number of shards that the queue has, or changes to, only waits.
//
// All messages of a key are in one shard, so that order and limits of keys hold. Therefore a message with a key and an
// id of your own needs an id that begins with the key and a slash. The limits of the queue are divided among the
// shards. In a queue in which keys take turns (see SetFlow) no message starts until the messages that are due within a
// minute have moved.
//
// It returns an ErrInvalid for another n, for queues of Later's own, for a queue with a limit that is smaller than n,
// and for one that has a message with a key and another id; an ErrConflict while the queue changes to another number of
// shards and for 7 minutes afterwards, or longer if shards with a slow rate go; and an ErrUnsupported in a store that
// gives queues one shard. Other errors are those of the store: the change may have begun.
func (q *Queue) SetShards(ctx context.Context, n int) error {
	if err := cmp.Or(store.CheckShards(q.name, n), q.old); err != nil {
		return err
	}
	if err := q.begin(); err != nil {
		return err
	}
	defer q.client.calls.Done()
	if err := store.SetShards(ctx, q.client.store, q.name, n); err != nil {
		return err
	}
	for pause := minShardsPause; ; pause = min(2*pause, maxShardsPause) {
		shards, err := store.ShardsOf(ctx, q.client.store, q.name)
		if err != nil {
			return err
		}
		if !shards.Moving || shards.Number != n { // a later change begins only when this one is over
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Shards returns the shards of the queue with their counts, and how far a change of their number is. A shard whose
// server does not answer has the error in Shard.Err. A queue whose number of shards was never changed has one, and so
// has a queue that does not exist.
func (q *Queue) Shards(ctx context.Context) (Shards, error) {
	if err := q.begin(); err != nil {
		return Shards{}, err
	}
	defer q.client.calls.Done()
	return store.ShardsOf(ctx, q.client.store, q.name)
}
