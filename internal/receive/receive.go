// Package receive claims messages for one call of Receive, from one queue or from several by weight, and settles and
// extends the messages. It imports packages store, internal/calls and internal/fleet. Start reading at
// Receiver.Receive; held.go has a message until it is settled.
package receive

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/internal/fleet"
	"github.com/laterq/later/store"
)

// Queue is a queue that messages are received from.
type Queue struct {
	Name   string
	Weight int // its share of the messages when several of the queues have some
}

// Claim is the claimed messages of a queue, under one lease.
type Claim struct {
	store.Claim
	Queue    string
	Deadline time.Time // a time on this process's clock before which the lease does not end
}

// Receiver is one call of Receive.
type Receiver struct {
	Store     store.Store
	Log       *slog.Logger
	Queues    []Queue
	Max       int // messages in all
	Lease     time.Duration
	NoWait    bool
	Worker    *fleet.Remote // receives the messages; nil for this process
	Go        func(func())  // starts a goroutine that the client waits for
	FoundDead func(ctx context.Context, queue string, c store.Claim)

	woken chan int      // has the index of each queue whose Wait has returned
	gone  chan struct{} // closed when Receive returns, which receives from woken
	fails chan error    // has the error of a Wait that failed
}

// Receive claims up to Max messages. It blocks until a queue has one, unless NoWait is set, or ctx ends: then it
// returns the cause of ctx and holds nothing.
func (r *Receiver) Receive(ctx context.Context) ([]Claim, error) {
	r.woken, r.gone, r.fails = make(chan int), make(chan struct{}), make(chan error, 1)
	defer close(r.gone)
	look := make([]int, len(r.Queues))
	for i := range look {
		look[i] = i
	}
	for ctx.Err() == nil {
		if r.Worker != nil {
			if ended, err := r.Worker.Poll(ctx); ended || err != nil {
				return nil, err
			}
		}
		if r.Worker == nil || !r.Worker.Paused() {
			got, again, err := r.claim(ctx, look)
			if len(got) > 0 || err != nil {
				return got, err
			}
			for _, i := range look {
				if !r.NoWait && !slices.Contains(again, i) {
					r.wait(ctx, i)
				}
			}
			look = again
			if len(look) > 0 {
				continue // the claims used up their bound on housekeeping
			}
		}
		if r.NoWait {
			return nil, nil
		}
		var err error
		if look, err = r.next(ctx, look); err != nil {
			return nil, err
		}
	}
	return nil, context.Cause(ctx)
}

// wait waits for messages of a queue in a goroutine.
func (r *Receiver) wait(ctx context.Context, i int) {
	queue := r.Queues[i].Name
	r.Go(func() {
		if err := r.Store.Wait(ctx, queue); err != nil {
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
			calls.PassOn(ctx, r.Store, r.Log, queue)
		}
	})
}

// next waits for the end of a Wait, and returns the queues to look at next: the one that it was for, and others.
func (r *Receiver) next(ctx context.Context, others []int) (look []int, err error) {
	var worker <-chan struct{}
	if r.Worker != nil {
		var stop func()
		worker, stop = r.Worker.Changed(ctx)
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

// claim claims messages of some of the queues, at most once of each. again is the queues that may have messages
// although none were claimed.
func (r *Receiver) claim(ctx context.Context, from []int) (got []Claim, again []int, err error) {
	todo := slices.Clone(from)
	rand.Shuffle(len(todo), func(i, j int) { todo[i], todo[j] = todo[j], todo[i] })
	var left []int // the queues with a share of 0
	for n := r.Max; n > 0 && len(todo) > 0; {
		share := r.share(n, todo)
		i := todo[0]
		todo = todo[1:]
		if share == 0 {
			left = append(left, i)
			continue
		}
		claim, err := r.claimOnce(ctx, r.Queues[i].Name, share)
		switch {
		case err != nil && len(got) > 0 && ctx.Err() == nil:
			return got, nil, nil // the next call has the error
		case err != nil:
			for _, c := range got {
				r.release(c.Queue, c.Messages)
			}
			return nil, nil, err
		case len(claim.Messages) > 0:
			got = append(got, claim)
		case claim.More:
			again = append(again, i)
		}
		n -= len(claim.Messages)
		if len(claim.Messages) < share { // the rest is for all others
			todo, left = append(todo, left...), nil
		}
	}
	return got, again, nil
}

// share returns how many of n messages the first of some queues gets: on average the part that its weight is of the sum
// of their weights, and all if there is no other.
func (r *Receiver) share(n int, todo []int) int {
	weight, all := r.Queues[todo[0]].Weight, 0
	for _, i := range todo {
		all += r.Queues[i].Weight
	}
	share, rest := n*weight/all, n*weight%all
	if rand.IntN(all) < rest {
		share++
	}
	return share
}

// claimOnce makes one claim. The call does not end with ctx, because the messages that it claims would then be held and
// not delivered. If ctx ends first, they are released.
func (r *Receiver) claimOnce(ctx context.Context, queue string, n int) (Claim, error) {
	type reply struct {
		claim store.Claim
		err   error
	}
	replies := make(chan reply)
	gone := make(chan struct{})
	deadline := time.Now().Add(r.Lease)
	r.Go(func() {
		claiming := calls.Limit(context.WithoutCancel(ctx), min(calls.Timeout, r.Lease))
		defer claiming.End()
		claim, err := r.Store.Claim(claiming, queue, store.ClaimRequest{Max: n, Lease: r.Lease})
		select {
		case replies <- reply{claim, err}:
		case <-gone:
			r.FoundDead(ctx, queue, claim)
			r.release(queue, claim.Messages)
		}
	})
	select {
	case reply := <-replies:
		r.FoundDead(ctx, queue, reply.claim)
		return Claim{reply.claim, queue, deadline}, reply.err
	case <-ctx.Done():
		close(gone)
		return Claim{}, context.Cause(ctx)
	}
}

// release releases messages that will not be handled. If that fails, they are delivered again after their lease.
func (r *Receiver) release(queue string, msgs []store.Claimed) {
	if len(msgs) == 0 {
		return
	}
	settlements := make([]store.Settlement, len(msgs))
	for i := range msgs {
		settlements[i] = store.Settlement{Receipt: msgs[i].Receipt, Action: store.Release}
	}
	ctx, cancel := context.WithTimeout(context.Background(), calls.Timeout)
	defer cancel()
	if _, err := r.Store.Settle(ctx, queue, settlements); err != nil {
		r.Log.Warn("later: messages for a cancelled Receive could not be released; they return when their lease ends",
			"queue", queue, "messages", len(msgs), "error", err)
	}
}
