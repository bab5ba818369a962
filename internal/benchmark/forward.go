package benchmark

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

// Forwarded returns a Queue for a queue of Later whose messages a worker forwards to a list of the same Redis. One
// goroutine pops them from there with BLPOP and LPOP and handles them.
func (r *Redis) Forwarded(c *later.Client, name string) BatchQueue {
	return &forwarded{laterQueue{client: c, queue: c.Queue(name)}, r.rdb, "{" + name + "}:list"}
}

type forwarded struct {
	laterQueue
	rdb redis.UniversalClient
	key string
}

// Work implements Queue. Calls of handle are one after the other.
func (q *forwarded) Work(ctx context.Context, _ int, handle func(payload []byte)) error {
	working, stop := context.WithCancel(ctx)
	defer stop()
	moved := make(chan error, 1)
	go func() { moved <- q.forward(working) }()
	err := q.pop(ctx, handle)
	stop()
	return errors.Join(err, <-moved)
}

func (q *forwarded) forward(ctx context.Context) error {
	w := later.NewWorker(q.client, later.WorkerConfig{Logger: slog.New(slog.DiscardHandler)})
	w.Forward(q.queue.Name(), later.ToList(q.key).ExactlyOnce())
	return w.Run(ctx)
}

// pop handles what arrives in the list until ctx is done.
func (q *forwarded) pop(ctx context.Context, handle func(payload []byte)) error {
	for ctx.Err() == nil {
		payloads, err := q.rdb.LPopCount(ctx, q.key, store.MaxBatch).Result()
		if errors.Is(err, redis.Nil) {
			var first []string // the key and a payload
			if first, err = q.rdb.BLPop(ctx, time.Second, q.key).Result(); err == nil {
				payloads = first[1:]
			}
		}
		if err != nil && !errors.Is(err, redis.Nil) && ctx.Err() == nil {
			return err
		}
		for _, p := range payloads {
			handle([]byte(p))
		}
	}
	return nil
}

// Moved is the result of Move.
type Moved struct {
	Messages   int
	Took, Bare time.Duration // of the worker, and of a script that moves the same payloads from a sorted set to a list
}

// bareMove moves members of a sorted set that are due to a list, as programs without Later do.
var bareMove = redis.NewScript(`
local due = redis.call('ZRANGE', KEYS[1], '-inf', ARGV[1], 'BYSCORE', 'LIMIT', 0, ARGV[2])
if #due == 0 then return 0 end
redis.call('RPUSH', KEYS[2], unpack(due))
redis.call('ZREM', KEYS[1], unpack(due))
return #due`)

// Move measures how long a worker takes to move messages that are due to a list, and how long the bare script takes.
// It deletes the lists.
func (r *Redis) Move(ctx context.Context, c *later.Client, name string, messages, size int) (m Moved, err error) {
	q := r.Forwarded(c, name).(*forwarded)
	set, list := q.key+":set", q.key+":bare"
	defer func() {
		err = errors.Join(err, r.rdb.Unlink(context.WithoutCancel(ctx), q.key, set, list).Err())
	}()
	m.Messages = messages
	if err := r.fillSet(ctx, set, messages, size); err != nil {
		return m, err
	}
	begin := time.Now()
	for left := messages; left > 0; {
		n, err := bareMove.Run(ctx, r.rdb, []string{set, list}, time.Now().UnixMilli(), store.MaxBatch).Int()
		if err == nil && n == 0 {
			err = errors.New("the sorted set is empty too early")
		}
		if err != nil {
			return m, err
		}
		left -= n
	}
	m.Bare = time.Since(begin)
	if err := r.rdb.Unlink(ctx, list).Err(); err != nil {
		return m, err
	}

	if err := Fill(ctx, q, messages, size, AtOnce); err != nil {
		return m, err
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	begin = time.Now()
	ended := make(chan error, 1)
	go func() { ended <- q.forward(working) }()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for n := int64(0); n < int64(messages) && err == nil; {
		select {
		case <-tick.C:
			n, err = r.rdb.LLen(ctx, q.key).Result()
		case err = <-ended:
			return m, fmt.Errorf("the worker ended: %w", err)
		}
	}
	m.Took = time.Since(begin)
	stop()
	return m, errors.Join(err, <-ended)
}

// fillSet adds payloads that are due to a sorted set.
func (r *Redis) fillSet(ctx context.Context, key string, messages, size int) error {
	now := float64(time.Now().UnixMilli())
	for i := 0; i < messages; i += store.MaxBatch {
		var members []redis.Z
		for k := i; k < min(i+store.MaxBatch, messages); k++ {
			payload := append(strconv.AppendInt(nil, int64(k), 10), make([]byte, size)...)
			members = append(members, redis.Z{Score: now, Member: payload[:size]})
		}
		if err := r.rdb.ZAdd(ctx, key, members...).Err(); err != nil {
			return err
		}
	}
	return nil
}
