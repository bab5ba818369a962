package benchmark

import (
	"context"
	"time"

	"github.com/laterq/later"
)

// Later returns a Queue for a queue of Later, with a default worker.
func Later(c *later.Client, name string) BatchQueue {
	return LaterWorker(c, name, later.WorkerConfig{})
}

// LaterWorker returns a Queue for a queue of Later, with the given worker configuration except for its Concurrency.
func LaterWorker(c *later.Client, name string, worker later.WorkerConfig) BatchQueue {
	return &laterQueue{client: c, queue: c.Queue(name), worker: worker}
}

type laterQueue struct {
	client *later.Client
	queue  *later.Queue
	worker later.WorkerConfig
}

func (q *laterQueue) Send(ctx context.Context, payload []byte, due time.Time) (string, error) {
	if due.IsZero() {
		return q.queue.Send(ctx, payload)
	}
	return q.queue.Send(ctx, payload, later.At(due))
}

func (q *laterQueue) SendBatch(ctx context.Context, msgs []Outgoing) error {
	batch := make([]later.Outgoing, len(msgs))
	for i, m := range msgs {
		batch[i].Payload = m.Payload
		if !m.Due.IsZero() {
			batch[i].When = later.At(m.Due)
		}
	}
	_, err := q.queue.SendBatch(ctx, batch)
	return err
}

// Claim claims a message that is due, and returns a function that acks it.
func (q *laterQueue) Claim(ctx context.Context) (ack func(ctx context.Context) error, err error) {
	got, err := q.queue.Receive(ctx, 1)
	if err != nil {
		return nil, err
	}
	return got[0].Ack, nil
}

func (q *laterQueue) Cancel(ctx context.Context, id string) error {
	_, err := q.queue.Cancel(ctx, id)
	return err
}

func (q *laterQueue) Work(ctx context.Context, handlers int, handle func(payload []byte)) error {
	config := q.worker
	config.Concurrency = handlers
	w := later.NewWorker(q.client, config)
	w.Handle(q.queue.Name(), func(_ context.Context, m *later.Message) error {
		handle(m.Payload)
		return nil
	})
	return w.Run(ctx)
}

func (q *laterQueue) Left(ctx context.Context) (int, error) {
	s, err := q.queue.Stats(ctx)
	return int(s.Scheduled + s.Ready + s.Leased + s.Dead), err
}

// NameOf returns the name of a queue returned by Later or LaterWorker.
func NameOf(q Queue) string { return q.(*laterQueue).queue.Name() }
