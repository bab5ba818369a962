package later

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/laterq/later/internal/receive"
	"github.com/laterq/later/store"
)

const defaultLease = 30 * time.Second

// maxReceiveQueues is the maximum number of queues of one Client.Receive.
const maxReceiveQueues = 16

// ReceiveQueue is one of several queues that messages are received from.
type ReceiveQueue struct {
	Name string
	// Weight is the queue's share of the messages when several of the queues have some, 1 to 1000, as in QueueConfig.
	// Default: 1.
	Weight int
}

// Receive claims up to n ready messages, earliest due first.
//
// n is 1 to store.MaxBatch. Receive blocks until there is at least one message, unless NoWait says otherwise, or ctx
// ends; then it returns ctx's cause and has claimed nothing. The messages are held under one lease (see Lease), which
// only Delivery.Extend extends. A paused queue delivers no messages.
func (q *Queue) Receive(ctx context.Context, n int, opts ...ReceiveOption) ([]*Delivery, error) {
	if q.invalid != nil {
		return nil, q.invalid
	}
	return q.client.Receive(ctx, n, []ReceiveQueue{{Name: q.name}}, opts...)
}

// Receive claims up to n ready messages of several queues, as Queue.Receive does of one. It blocks until one of them
// has a message. The messages of a queue are claimed together, under a lease of their own, which Delivery.Extend
// extends. It may return fewer messages than n although a queue has more, so that no queue is claimed from twice.
func (c *Client) Receive(
	ctx context.Context, n int, queues []ReceiveQueue, opts ...ReceiveOption,
) ([]*Delivery, error) {
	r, err := c.newReceiver(n, queues, opts)
	if err != nil {
		return nil, err
	}
	return c.receive(ctx, r)
}

// newReceiver checks the arguments of a Receive.
func (c *Client) newReceiver(n int, queues []ReceiveQueue, opts []ReceiveOption) (*receive.Receiver, error) {
	if n < 1 || n > store.MaxBatch {
		return nil, store.Invalid("n is %d: receive 1 to %d messages at a time", n, store.MaxBatch)
	}
	if len(queues) < 1 || len(queues) > maxReceiveQueues {
		return nil, store.Invalid("there are %d queues: must be 1 to %d", len(queues), maxReceiveQueues)
	}
	from := make([]receive.Queue, len(queues))
	for i, q := range queues {
		used := c.Queue(q.Name)
		if err := cmp.Or(used.invalid, used.checkChange()); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(queues[:i], func(other ReceiveQueue) bool { return other.Name == q.Name }) {
			return nil, store.Invalid("queue %q is given twice: give it once", q.Name)
		}
		if q.Weight < 0 || q.Weight > maxWeight {
			return nil, store.Invalid("weight of queue %q is %d: must be 1 to %d, or 0 for 1", q.Name, q.Weight, maxWeight)
		}
		from[i] = receive.Queue{Name: q.Name, Weight: cmp.Or(q.Weight, 1)}
	}
	var o receiveOptions
	for i, opt := range opts {
		if opt == nil {
			return nil, nilOption(i)
		}
		if err := opt.applyReceive(&o); err != nil {
			return nil, err
		}
	}
	return &receive.Receiver{
		Store: c.store, Log: c.log, Queues: from, Max: n, Lease: cmp.Or(o.lease, defaultLease), NoWait: o.noWait,
		Go: c.loops.Go,
		FoundDead: func(ctx context.Context, queue string, claim store.Claim) {
			c.Queue(queue).observeDead(ctx, claim)
		},
	}, nil
}

// receive makes deliveries of the messages that r receives.
func (c *Client) receive(ctx context.Context, r *receive.Receiver) (got []*Delivery, err error) {
	if err := c.beginLoop(); err != nil {
		return nil, err
	}
	defer c.loops.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.ending, func() { cancel(errClientClosed) })()
	claims, err := r.Receive(ctx)
	for _, claim := range claims {
		q := c.Queue(claim.Queue)
		lease := receive.NewLease(claim)
		for i := range claim.Messages {
			c := &claim.Messages[i]
			d := newDelivery(q, newMessage(q.name, c, claim.Now), lease, c.Receipt, c.DedupWindow, c.Group != "")
			d.event(ctx, EventClaimed, nil)
			got = append(got, d)
		}
	}
	return got, err
}

// observeDead reports the messages that a claim moved to dead, and the dead ones that it dropped.
func (q *Queue) observeDead(ctx context.Context, claim store.Claim) {
	for _, id := range claim.Expired {
		q.event(ctx, EventExpired, id)
	}
	for _, id := range claim.Died {
		q.event(ctx, EventDied, id)
	}
	for _, id := range claim.Dropped {
		q.event(ctx, EventDropped, id)
	}
}
