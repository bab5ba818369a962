// Package forward moves the messages of a queue to a destination when they are due: to another queue, to a key of
// Redis, or to code of the program. It imports package store and internal packages of workers. Start reading at
// Forward; custom.go calls code of the program.
package forward

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/internal/event"
	"github.com/laterq/later/internal/pump"
	"github.com/laterq/later/store"
)

// Route is how messages get from a queue to a destination.
type Route int

// The routes. The first two move a message exactly once.
const (
	RouteStep    Route = iota // the store moves them in one step
	RouteLinked               // they are sent to a queue with their acks
	RouteSend                 // they are sent to a queue, then acked
	RouteDeliver              // they are delivered, then acked
)

// Exact reports whether a message gets there exactly once.
func (r Route) Exact() bool { return r <= RouteLinked }

// FindRoute returns how messages get from a queue of a store to a target, which is in the store at if that is not nil,
// and why they cannot get there exactly once.
func FindRoute(s store.Store, queue string, to store.Target, at store.Store) (r Route, why string, err error) {
	other := at != nil
	if other {
		s = at
	}
	isQueue := to.Kind == store.TargetQueue
	if isQueue && !other && to.Name == queue {
		return r, "", store.Invalid("destination of queue %q is the queue itself: give another one", queue)
	}
	direct := false
	f, ok := s.(store.Forwarder)
	if ok {
		direct, err = f.ForwardsTo(queue, to)
	}
	switch {
	case !isQueue && (!ok || errors.Is(err, store.ErrUnsupported)):
		return r, "", fmt.Errorf("destination %q needs Redis, and this store has only queues: give it the client of a Redis "+
			"with At: %w", to, store.ErrUnsupported)
	case err != nil && !(other && isQueue):
		return r, "", err
	}
	switch {
	case other && isQueue:
		return RouteSend, "they are in different stores", nil
	case other:
		return RouteDeliver, "they are in different stores", nil
	case direct:
		return RouteStep, "", nil
	case isQueue && store.Linked(s, queue, to.Name):
		return RouteLinked, "", nil
	case isQueue:
		return RouteSend, "they are in different slots of the Cluster", nil
	}
	return RouteDeliver, "they are in different slots of the Cluster: give the destination the hash tag {" + queue + "}",
		nil
}

// Forward moves the messages of a queue to a target by a route. It is the Work of its Batch, unless the store moves
// them in one step.
type Forward struct {
	*pump.Batch
	To    store.Target
	At    store.Store // of the target
	Route Route

	InOrder bool        // the events of messages must come in the order of the messages
	IDs     func() bool // reports whether events need the ids of messages
	Moved   func(store.Forwarded)
	more    bool // more messages were ready after the last step
}

// Run moves messages until ctx ends.
func (f *Forward) Run(ctx context.Context) {
	wait := func(ctx context.Context) error { return f.WaitFor(ctx, f.Queue.Name) }
	loop := pump.Loop{Env: f.Env, Ready: f.Await, Once: f.Once, Wait: wait, Outage: f.Outage}
	if f.Route == RouteStep {
		loop.Once = f.step
	}
	loop.Run(ctx)
}

// step has the store move a batch, or two if more messages are ready: the second call is there when the first returns.
// The store executes them one after the other, so the order holds. An observer gets events in that order too, so with
// one there is a single call.
func (f *Forward) step(context.Context) (more bool, err error) {
	second := make(chan error, 1)
	both := f.more && !f.InOrder
	if both {
		go func() {
			var err error
			more, err = f.move()
			second <- err
		}()
	}
	first, err := f.move()
	if both {
		err = errors.Join(err, <-second)
	}
	f.more = first || more
	return f.more, err
}

// move has the store move a batch, and reports whether more messages are ready.
func (f *Forward) move() (more bool, err error) {
	defer f.BeginClaim()()
	ctx, cancel := context.WithTimeout(f.Calling, calls.Timeout)
	defer cancel()
	call := f.Watch.Begin(false, time.Since(f.Begun))
	forwarded, err := f.Store.(store.Forwarder).Forward(ctx, f.Queue.Name,
		store.ForwardRequest{To: f.To, Max: store.MaxBatch, IDs: f.IDs()})
	call.End()
	if err != nil {
		return false, err
	}
	f.Claimed()
	f.Reports.FoundDead(store.Claim{Died: forwarded.Died, Expired: forwarded.Expired, Dropped: forwarded.Dropped})
	f.Moved(forwarded)
	return forwarded.More, nil
}

// Do implements pump.Work.
func (f *Forward) Do(ctx context.Context, claim store.Claim, settlements []store.Settlement) (err error) {
	switch f.Route {
	case RouteLinked:
		for i := range claim.Messages {
			m := &claim.Messages[i]
			out := store.Outgoing{Message: m.Message, Due: store.Due{At: m.Due}}
			settlements[i].Then = []store.FollowUp{{Queue: f.To.Name, Message: out}}
		}
	case RouteSend:
		err = pump.Send(ctx, f.At, f.To.Name, claim.Messages, nil)
	case RouteDeliver:
		calling, cancel := context.WithTimeout(ctx, calls.Timeout)
		err = f.At.(store.Forwarder).Deliver(calling, f.To, claim.Messages)
		cancel()
	}
	if err != nil {
		for i := range settlements {
			settlements[i].Action = store.Release
		}
	}
	return err
}

// Acked implements pump.Work.
func (f *Forward) Acked(m *store.Claimed, _ *store.Settlement) {
	f.Reports.Event(event.Forwarded, m.ID)
}

// Settled implements pump.Work.
func (f *Forward) Settled(*store.Claimed, *store.Settlement, store.State) {}

// Refused implements pump.Work.
func (f *Forward) Refused(error, []store.Settlement) pump.Answer { return pump.GiveUp }
