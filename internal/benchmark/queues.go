package benchmark

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laterq/later"
)

// Queues are many queues of Later that one worker serves. As a Queue, it sends each message to a random one of them.
type Queues struct {
	client *later.Client
	names  []string

	mu     sync.RWMutex // held for reading while a handler runs
	handle func(payload []byte)
}

// LaterQueues returns n queues whose names begin with prefix.
func LaterQueues(c *later.Client, prefix string, n int) *Queues {
	q := &Queues{client: c, names: make([]string, n)}
	for i := range q.names {
		q.names[i] = prefix + "-" + strconv.Itoa(i)
	}
	return q
}

// Run runs the worker until ctx is done. Its handlers do nothing until Work is called.
func (q *Queues) Run(ctx context.Context, handlers int) error {
	w := later.NewWorker(q.client, later.WorkerConfig{Concurrency: handlers})
	for _, name := range q.names {
		w.Handle(name, func(_ context.Context, m *later.Message) error {
			q.mu.RLock()
			defer q.mu.RUnlock()
			if q.handle != nil {
				q.handle(m.Payload)
			}
			return nil
		})
	}
	return w.Run(ctx)
}

// Send implements Queue.
func (q *Queues) Send(ctx context.Context, payload []byte, due time.Time) (string, error) {
	return q.client.Queue(q.names[rand.IntN(len(q.names))]).Send(ctx, payload, later.At(due))
}

// Work implements Queue: it makes the worker, which Run has started, call handle. No call is under way when it returns.
func (q *Queues) Work(ctx context.Context, _ int, handle func(payload []byte)) error {
	q.setHandle(handle)
	<-ctx.Done()
	q.setHandle(nil)
	return nil
}

func (q *Queues) setHandle(handle func(payload []byte)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.handle = handle
}

// Left implements Queue.
func (q *Queues) Left(ctx context.Context) (int, error) {
	var left atomic.Int64
	err := q.each(ctx, func(ctx context.Context, queue *later.Queue) error {
		s, err := queue.Stats(ctx)
		left.Add(s.Scheduled + s.Ready + s.Leased + s.Dead)
		return err
	})
	return int(left.Load()), err
}

// Delete deletes the queues.
func (q *Queues) Delete(ctx context.Context) error {
	return q.each(ctx, func(ctx context.Context, queue *later.Queue) error { return queue.Delete(ctx) })
}

// each calls f for each queue, from several goroutines.
func (q *Queues) each(ctx context.Context, f func(context.Context, *later.Queue) error) error {
	var next atomic.Int64
	return inParallel(ctx, fillers, func(ctx context.Context) error {
		for ctx.Err() == nil {
			i := int(next.Add(1)) - 1
			if i >= len(q.names) {
				return nil
			}
			if err := f(ctx, q.client.Queue(q.names[i])); err != nil {
				return err
			}
		}
		return context.Cause(ctx)
	})
}
