package later

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"

	"github.com/laterq/later/internal/fleet"
	"github.com/laterq/later/store"
)

// MaxReceiveQueues is the maximum number of queues of one Client.Receive.
const MaxReceiveQueues = 16

// ReceiveQueue is one of several queues that messages are received from.
type ReceiveQueue struct {
	Name string
	// Weight is the queue's share of the messages when several of the queues have some, 1 to 1000, as in QueueConfig.
	// Default: 1.
	Weight int
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
	return r.receive(ctx)
}

// receiver is one Receive from several queues.
type receiver struct {
	client  *Client
	queues  []*Queue
	weights []int
	max     int
	options receiveOptions
	worker  *fleet.Remote // whose messages they are, or nil

	woken chan int      // has the index of each queue whose Wait has returned
	gone  chan struct{} // closed when nobody receives from woken
	fails chan error    // has the error of a Wait that failed
}

func (c *Client) newReceiver(n int, queues []ReceiveQueue, opts []ReceiveOption) (*receiver, error) {
	r := &receiver{client: c, max: n, woken: make(chan int), gone: make(chan struct{}), fails: make(chan error, 1)}
	if n < 1 || n > store.MaxBatch {
		return nil, store.Invalid("n is %d: receive 1 to %d messages at a time", n, store.MaxBatch)
	}
	if len(queues) < 1 || len(queues) > MaxReceiveQueues {
		return nil, store.Invalid("there are %d queues: give 1 to %d", len(queues), MaxReceiveQueues)
	}
	for i, from := range queues {
		q := c.Queue(from.Name)
		if err := cmp.Or(q.invalid, q.checkChange()); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(queues[:i], func(other ReceiveQueue) bool { return other.Name == from.Name }) {
			return nil, store.Invalid("queue %q is given twice: give it once", from.Name)
		}
		if from.Weight < 0 || from.Weight > maxWeight {
			return nil, store.Invalid("weight of queue %q is %d: give 1 to %d, or 0 for 1", from.Name, from.Weight, maxWeight)
		}
		r.queues, r.weights = append(r.queues, q), append(r.weights, cmp.Or(from.Weight, 1))
	}
	for i, opt := range opts {
		if opt == nil {
			return nil, nilOption(i)
		}
		if err := opt.applyReceive(&r.options); err != nil {
			return nil, err
		}
	}
	r.options.lease = cmp.Or(r.options.lease, defaultLease)
	return r, nil
}

func (r *receiver) receive(ctx context.Context) ([]*Delivery, error) {
	if err := r.client.beginLoop(); err != nil {
		return nil, err
	}
	defer r.client.loops.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer close(r.gone)
	defer context.AfterFunc(r.client.ending, func() { cancel(errClientClosed) })()

	for look := r.all(); ctx.Err() == nil; {
		if r.worker != nil {
			if ended, err := r.worker.Poll(ctx); ended || err != nil {
				return nil, err
			}
		}
		var err error
		if paused := r.worker != nil && r.worker.Paused(); !paused {
			var got []*Delivery
			var again []int
			if got, again, err = r.claim(ctx, look); len(got) > 0 || err != nil {
				return got, err
			}
			for _, i := range look {
				if !r.options.noWait && !slices.Contains(again, i) {
					r.wait(ctx, i)
				}
			}
			look = again
			if len(look) > 0 {
				continue // the claims used up their bound on housekeeping
			}
		}
		if r.options.noWait {
			return nil, nil
		}
		if look, err = r.next(ctx, look); err != nil {
			return nil, err
		}
	}
	return nil, context.Cause(ctx)
}

func (r *receiver) all() []int {
	all := make([]int, len(r.queues))
	for i := range all {
		all[i] = i
	}
	return all
}

// wait waits for messages of a queue in a goroutine.
func (r *receiver) wait(ctx context.Context, i int) {
	q := r.queues[i]
	r.client.loops.Go(func() {
		err := r.client.store.Wait(ctx, q.name)
		if err != nil {
			if ctx.Err() == nil {
				select {
				case r.fails <- err:
				default:
				}
			}
			return
		}
		select {
		case r.woken <- i:
		case <-r.gone:
			// The message that ended this Wait may have been meant for a caller that would claim.
			if notifier, ok := r.client.store.(store.Notifier); ok {
				calling, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
				defer cancel()
				if err := notifier.Notify(calling, q.name); err != nil {
					r.client.log.Debug("later: a wake-up was not passed on", "queue", q.name, "error", err)
				}
			}
		}
	})
}

// next returns the queues to look at next: those of whom a Wait has ended, and others.
func (r *receiver) next(ctx context.Context, others []int) (look []int, err error) {
	var worker <-chan struct{}
	if r.worker != nil {
		var stop func()
		worker, stop = r.worker.Changed(ctx)
		defer stop()
	}
	select {
	case i := <-r.woken:
		return append(others, i), nil
	case err := <-r.fails:
		return nil, err
	case <-worker:
		return others, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// claim claims messages of some of the queues, at most once of each. again are those that may have messages although
// none were claimed.
func (r *receiver) claim(ctx context.Context, from []int) (got []*Delivery, again []int, err error) {
	todo := slices.Clone(from)
	rand.Shuffle(len(todo), func(i, j int) { todo[i], todo[j] = todo[j], todo[i] })
	var left []int // whose share was 0
	for n := r.max; n > 0 && len(todo) > 0; {
		share := r.share(n, todo)
		i := todo[0]
		todo = todo[1:]
		if share == 0 {
			left = append(left, i)
			continue
		}
		claimed, more, err := r.queues[i].receiveOnce(ctx, store.ClaimRequest{Max: share, Lease: r.options.lease})
		switch {
		case err != nil && len(got) > 0 && ctx.Err() == nil:
			return got, nil, nil // the next call has the error
		case err != nil:
			r.release(got)
			return nil, nil, err
		case len(claimed) == 0 && more:
			again = append(again, i)
		}
		got = append(got, claimed...)
		n -= len(claimed)
		if len(claimed) < share { // the rest is for all others
			todo, left = append(todo, left...), nil
		}
	}
	return got, again, nil
}

// share returns how many of n messages the first of some queues gets: on average the part that its weight is of theirs,
// and all if there is no other.
func (r *receiver) share(n int, todo []int) int {
	weight, all := r.weights[todo[0]], 0
	for _, i := range todo {
		all += r.weights[i]
	}
	share, rest := n*weight/all, n*weight%all
	if rand.IntN(all) < rest {
		share++
	}
	return share
}

// release releases messages that were claimed for a caller who is gone.
func (r *receiver) release(got []*Delivery) {
	for _, q := range r.queues {
		var claimed []store.Claimed
		for _, d := range got {
			if d.queue == q {
				claimed = append(claimed, store.Claimed{Receipt: d.receipt})
			}
		}
		q.release(claimed)
	}
}
