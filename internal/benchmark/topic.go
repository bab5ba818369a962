package benchmark

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

// Distributed is the result of Distribute.
type Distributed struct {
	Messages, Queues int
	// Took is how long a worker takes to distribute the messages and to handle them in all queues, with handlers that do
	// nothing. Streamed is the same for a stream with as many consumer groups, with XREADGROUP and XACK. Both include the
	// sending; 0 where it was not measured.
	Took, Streamed time.Duration
}

// PerSecond returns the number of messages handled in a second, each counted once for each queue.
func (d Distributed) PerSecond(took time.Duration) float64 {
	if took == 0 {
		return 0
	}
	return float64(d.Messages*d.Queues) / took.Seconds()
}

// Distribute publishes messages to a topic to which n queues are subscribed, and handles them. It deletes topic and
// queues. r is the client's Redis, or nil, and then no stream is measured.
func Distribute(ctx context.Context, c *later.Client, r *Redis, name string, n, messages, size, handlers int) (
	d Distributed, err error,
) {
	d.Messages, d.Queues = messages, n
	if r != nil {
		if d.Streamed, err = r.stream(ctx, name+":stream", n, messages, size); err != nil {
			return d, err
		}
	}
	topic := c.Topic(name)
	queues := make([]string, n)
	defer func() {
		cleaning := context.WithoutCancel(ctx)
		err = errors.Join(err, topic.Delete(cleaning))
		for _, queue := range queues {
			err = errors.Join(err, c.Queue(queue).Delete(cleaning))
		}
	}()
	worker := later.NewWorker(c, later.WorkerConfig{Concurrency: handlers})
	var handled atomic.Int64
	all := make(chan struct{})
	for i := range queues {
		queues[i] = name + "-" + strconv.Itoa(i)
		if err := topic.Subscribe(ctx, queues[i]); err != nil {
			return d, err
		}
		worker.Handle(queues[i], func(context.Context, *later.Message) error {
			if handled.Add(1) == int64(messages*n) {
				close(all)
			}
			return nil
		})
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	begin := time.Now()
	go func() { ended <- worker.Run(working) }()
	err = inParts(messages, func(from, to int) error {
		batch := make([]later.Outgoing, to-from)
		for i := range batch {
			batch[i].Payload = make([]byte, size)
		}
		_, err := topic.PublishBatch(ctx, batch)
		return err
	})
	if err == nil {
		select {
		case <-all:
			d.Took = time.Since(begin)
		case err = <-ended:
			return d, fmt.Errorf("the worker ended: %w", err)
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	stop()
	return d, errors.Join(err, <-ended)
}

// inParts calls f for parts of n messages.
func inParts(n int, f func(from, to int) error) error {
	for from := 0; from < n; from += store.MaxBatch {
		if err := f(from, min(from+store.MaxBatch, n)); err != nil {
			return err
		}
	}
	return nil
}

// stream returns how long it takes to send messages to a stream and to receive and ack them in n consumer groups, all
// at the same time.
func (r *Redis) stream(ctx context.Context, key string, n, messages, size int) (took time.Duration, err error) {
	defer func() { err = errors.Join(err, r.rdb.Unlink(context.WithoutCancel(ctx), key).Err()) }()
	for i := range n {
		if err := r.rdb.XGroupCreateMkStream(ctx, key, strconv.Itoa(i), "0").Err(); err != nil {
			return 0, err
		}
	}
	begin := time.Now()
	sent := make(chan error, 1)
	go func() {
		payload := make([]byte, size)
		sent <- inParts(messages, func(from, to int) error {
			_, err := r.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
				for range to - from {
					p.XAdd(ctx, &redis.XAddArgs{Stream: key, Values: []any{"payload", payload}})
				}
				return nil
			})
			return err
		})
	}()
	var group atomic.Int64
	err = inParallel(ctx, n, func(ctx context.Context) error {
		name := strconv.FormatInt(group.Add(1)-1, 10)
		for left := messages; left > 0; {
			streams, err := r.rdb.XReadGroup(ctx, &redis.XReadGroupArgs{
				Group: name, Consumer: "bench", Streams: []string{key, ">"}, Count: store.MaxBatch, Block: time.Second,
			}).Result()
			if errors.Is(err, redis.Nil) {
				continue
			}
			if err != nil {
				return err
			}
			ids := make([]string, len(streams[0].Messages))
			for i, m := range streams[0].Messages {
				ids[i] = m.ID
			}
			if err := r.rdb.XAck(ctx, key, name, ids...).Err(); err != nil {
				return err
			}
			left -= len(ids)
		}
		return nil
	})
	took = time.Since(begin)
	return took, errors.Join(err, <-sent)
}
