package benchmark

import (
	"context"
	"time"

	"github.com/laterq/later"
)

// Later returns a Queue for a queue of Later, with a default worker.
func Later(c *later.Client, name string) *LaterQueue {
	return LaterWorker(c, name, later.WorkerConfig{})
}

// LaterWorker returns a Queue for a queue of Later, with the given worker configuration except for its Concurrency.
func LaterWorker(c *later.Client, name string, worker later.WorkerConfig) *LaterQueue {
	return &LaterQueue{client: c, queue: c.Queue(name), worker: worker}
}

// LaterQueue is a BatchQueue of Later.
type LaterQueue struct {
	client *later.Client
	queue  *later.Queue
	worker later.WorkerConfig
	key    func(number int) string // nil for messages without a key
	urgent func(number int) bool   // whether a message is urgent, or else of low urgency; nil for normal messages
}

// Queue returns the queue of Later.
func (q *LaterQueue) Queue() *later.Queue { return q.queue }

// WithKeys returns the queue for messages whose keys depend on their numbers.
func (q *LaterQueue) WithKeys(key func(number int) string) *LaterQueue {
	keyed := *q
	keyed.key = key
	return &keyed
}

// WithUrgency returns the queue for messages that are urgent, or else of low urgency, which depends on their numbers.
func (q *LaterQueue) WithUrgency(urgent func(number int) bool) *LaterQueue {
	with := *q
	with.urgent = urgent
	return &with
}

func (q *LaterQueue) urgencyOf(payload []byte) later.Urgency {
	switch {
	case q.urgent == nil:
		return later.UrgencyNormal
	case q.urgent(NumberOf(payload)):
		return later.UrgencyHigh
	}
	return later.UrgencyLow
}

func (q *LaterQueue) keyOf(payload []byte) string {
	if q.key == nil {
		return ""
	}
	return q.key(NumberOf(payload))
}

func (q *LaterQueue) Send(ctx context.Context, payload []byte, due time.Time) (string, error) {
	var opts []later.SendOption
	if !due.IsZero() {
		opts = append(opts, later.At(due))
	}
	if key := q.keyOf(payload); key != "" {
		opts = append(opts, later.Key(key))
	}
	switch q.urgencyOf(payload) {
	case later.UrgencyHigh:
		opts = append(opts, later.Urgent())
	case later.UrgencyLow:
		opts = append(opts, later.Background())
	}
	return q.queue.Send(ctx, payload, opts...)
}

func (q *LaterQueue) SendBatch(ctx context.Context, msgs []Outgoing) error {
	batch := make([]later.Outgoing, len(msgs))
	for i, m := range msgs {
		batch[i].Payload, batch[i].Key, batch[i].Urgency = m.Payload, q.keyOf(m.Payload), q.urgencyOf(m.Payload)
		if !m.Due.IsZero() {
			batch[i].When = later.At(m.Due)
		}
	}
	_, err := q.queue.SendBatch(ctx, batch)
	return err
}

// Claim claims a message that is due, and returns a function that acks it.
func (q *LaterQueue) Claim(ctx context.Context) (ack func(ctx context.Context) error, err error) {
	got, err := q.queue.Receive(ctx, 1)
	if err != nil {
		return nil, err
	}
	return got[0].Ack, nil
}

func (q *LaterQueue) Cancel(ctx context.Context, id string) error {
	_, err := q.queue.Cancel(ctx, id)
	return err
}

func (q *LaterQueue) Work(ctx context.Context, handlers int, handle func(payload []byte)) error {
	config := q.worker
	config.Concurrency = handlers
	w := later.NewWorker(q.client, config)
	w.Handle(q.queue.Name(), func(_ context.Context, m *later.Message) error {
		handle(m.Payload)
		return nil
	})
	return w.Run(ctx)
}

func (q *LaterQueue) Left(ctx context.Context) (int, error) {
	s, err := q.queue.Stats(ctx)
	return int(s.Scheduled + s.Ready + s.Leased + s.Dead), err
}

// NameOf returns the name of a queue returned by Later or LaterWorker.
func NameOf(q Queue) string { return q.(*LaterQueue).queue.Name() }
