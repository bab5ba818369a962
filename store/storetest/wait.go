package storetest

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/laterq/later/store"
)

// soon is the delay of the rules that wait. Engines with timers on the system clock really wait that long.
const soon = 30 * time.Millisecond

// pass moves the clock by d if it can be moved. Otherwise real time passes. Moving the clock may wake waiters, so for
// no time it does nothing.
func (e *env) pass(d time.Duration) {
	e.Helper()
	if e.Advance != nil && d > 0 {
		e.Advance(e.T, e.queue, d)
	}
}

// receive waits for one message and claims it, as a worker does. When ctx ends it waits no more, but still claims if it
// was notified.
func (e *env) receive(ctx context.Context, s store.Store) (store.Claimed, error) {
	for {
		c, err := s.Claim(context.WithoutCancel(ctx), e.queue, store.ClaimRequest{Max: 1, Lease: held})
		if err != nil {
			return store.Claimed{}, err
		}
		if len(c.Messages) == 1 {
			if m := c.Messages[0]; m.Due.After(c.Now) {
				return m, errors.New("message " + m.ID + " was claimed early")
			}
			return c.Messages[0], nil
		}
		if err := s.Wait(ctx, e.queue); err != nil {
			return store.Claimed{}, err
		}
	}
}

// asleep returns when so many calls of Wait sleep.
func (e *env) asleep(n int) {
	e.Helper()
	for ctx := e.timeoutContext(); e.Asleep != nil && e.Asleep(e.queue) != n; runtime.Gosched() {
		if ctx.Err() != nil {
			e.Fatalf("%d calls of Wait sleep, want %d", e.Asleep(e.queue), n)
		}
	}
}

// received is the result of a consumer's receive.
type received struct {
	store.Claimed
	err error
}

// consumer starts a consumer of one message.
func (e *env) consumer(ctx context.Context) <-chan received {
	c := make(chan received, 1)
	go func() {
		m, err := e.receive(ctx, e.Store)
		c <- received{m, err}
	}()
	return c
}

// soonReceived returns the messages that a consumer receives after its sleep: soon, and the message with the id.
func (e *env) soonReceived(id string, consumer <-chan received) store.Claimed {
	e.Helper()
	limit := wakeTimeout
	if e.Asleep == nil {
		limit = hangTimeout
	}
	select {
	case r := <-consumer:
		e.ok(r.err)
		e.equal("received", r.ID, id)
		return r.Claimed
	case <-time.After(limit):
		e.Fatalf("%v after message %q became ready, the waiter still sleeps", limit, id)
		return store.Claimed{}
	}
}

// wakes calls act and checks that a consumer that slept before then receives the message with the id.
func (e *env) wakes(id string, act func()) store.Claimed {
	e.Helper()
	consumer := e.consumer(e.timeoutContext())
	e.asleep(1)
	act()
	return e.soonReceived(id, consumer)
}

var waitRules = []rule{
	{"wait returns if a message is already ready", func(e *env) {
		e.send(message("m"))
		e.ok(e.Store.Wait(e.timeoutContext(), e.queue))
	}},
	{"wait ends for the first message of a queue that did not exist", func(e *env) {
		e.ack(e.wakes("m", func() { e.send(message("m")) }))
	}},
	{"wait ends for a message sent by another process", func(e *env) {
		for range 5 {
			e.ack(e.wakes("m", func() {
				_, err := e.Peer.Send(e.Context(), e.queue, []store.Outgoing{message("m")})
				e.ok(err)
			}))
		}
	}},
	{"a patient wait ends as soon as any other", func(e *env) {
		for range 5 {
			consumer := e.consumer(store.Patient(e.timeoutContext()))
			e.asleep(1)
			_, err := e.Peer.Send(e.Context(), e.queue, []store.Outgoing{message("m")})
			e.ok(err)
			e.ack(e.soonReceived("m", consumer))
		}
	}},
	{"wait ends for a new earliest message", func(e *env) {
		e.send(message("far", delay(time.Hour)))
		for range 5 {
			e.ack(e.wakes("m", func() {
				_, err := e.Peer.Send(e.Context(), e.queue, []store.Outgoing{message("m", delay(soon))})
				e.ok(err)
				e.pass(soon)
			}))
		}
	}},
	{"wait ends at the due time", func(e *env) {
		e.send(message("m", delay(soon)))
		e.wakes("m", func() { e.pass(soon) })
	}},
	{"wait ends when a message is rescheduled to an earlier time", func(e *env) {
		e.send(message("m", delay(time.Hour)))
		e.wakes("m", func() { e.ok(e.tryReschedule("m", store.Due{Delay: soon})); e.pass(soon) })
	}},
	{"wait ends when a message is rescheduled to now", func(e *env) {
		e.send(message("m", delay(time.Hour)))
		e.wakes("m", func() { e.ok(e.tryReschedule("m", store.Due{})) })
	}},
	{"wait ends for a message that is released, snoozed or nacked", func(e *env) {
		for _, s := range []store.Settlement{
			{Action: store.Release}, {Action: store.Snooze}, {Action: store.Nack, Reason: "no"},
			{Action: store.Nack, Reason: "no", Delay: soon}, {Action: store.Snooze, Delay: soon},
		} {
			e.trySend(message("m"))
			s.Receipt = e.claimOne("m", held).Receipt
			c := e.wakes("m", func() {
				e.ok(e.trySettle(s)[0].Err)
				e.pass(s.Delay)
			})
			e.ack(c)
		}
	}},
	{"wait ends for an expired lease", func(e *env) {
		e.send(message("m"))
		e.claimOne("m", soon)
		e.equal("attempt", e.wakes("m", func() { e.pass(soon) }).Attempt, 2)
	}},
	{"wait ends for the lease that expires next, after another has ended", func(e *env) {
		e.send(message("first"), message("second"), message("third"))
		first, _ := e.claimOne("first", soon), e.claimOne("second", 2*soon)
		e.claimOne("third", held)
		e.ack(first)
		second := e.wakes("second", func() { e.pass(2 * soon) })
		e.equal("attempt", second.Attempt, 2)
	}},
	{"wait ends for each of two leases that expire", func(e *env) {
		e.send(message("first"), message("second"))
		e.claimOne("first", soon)
		e.claimOne("second", 3*soon)
		e.equal("attempt", e.wakes("first", func() { e.pass(soon) }).Attempt, 2)
		e.equal("attempt", e.wakes("second", func() { e.pass(2 * soon) }).Attempt, 2)
	}},
	{"a waiter that leaves passes its notification on", func(e *env) {
		for i := range 100 {
			leaving, leave := context.WithCancel(e.Context())
			leaver := e.consumer(leaving)
			e.asleep(1)
			stayer := e.consumer(e.timeoutContext())
			e.asleep(2)
			left := make(chan struct{})
			go func() {
				defer close(left)
				for range i % 20 * 5 { // so that it leaves before, while and after it is notified
					runtime.Gosched()
				}
				leave()
			}()
			e.send(message("m"))
			<-left
			if r := <-leaver; r.err == nil {
				e.ack(r.Claimed)
				e.send(message("m"))
			} else {
				e.is(r.err, context.Canceled)
			}
			e.ack(e.soonReceived("m", stayer))
		}
	}},
	{"wait ends for a replayed message", func(e *env) {
		e.sendDead("m")
		e.wakes("m", func() { e.equal("replayed", e.replay(allDead, store.Due{}), 1) })
	}},
	{"wait ends when a paused queue is resumed", func(e *env) {
		e.send(message("m"))
		e.ok(e.Peer.SetPaused(e.Context(), e.queue, true))
		e.wakes("m", func() { e.ok(e.Peer.SetPaused(e.Context(), e.queue, false)) })
	}},
	{"a burst ends all waits it has messages for", func(e *env) {
		const n = 8
		ctx := e.timeoutContext()
		received := make(chan string, n)
		var consumers sync.WaitGroup
		for i := range n {
			s := e.Store
			if i%2 == 1 {
				s = e.Peer
			}
			consumers.Go(func() {
				c, err := e.receive(ctx, s)
				if err != nil {
					e.Errorf("consumer %d: %v", i, err)
				}
				received <- c.ID
			})
		}
		e.send(many(n)...)
		consumers.Wait()
		close(received)
		var got []string
		for id := range received {
			got = append(got, id)
		}
		slices.Sort(got)
		var want []string
		for _, m := range many(n) {
			want = append(want, m.ID)
		}
		e.equal("received", got, want)
	}},
	{"wait returns the cause when its context ends", func(e *env) {
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(e.Context())
		ended := make(chan error, 1)
		e.send(message("far", delay(time.Hour)))
		go func() {
			for {
				if err := e.Store.Wait(ctx, e.queue); err != nil {
					ended <- err
					return
				}
			}
		}()
		cancel(cause)
		e.is(<-ended, cause)
	}},
	{"wait returns the cause of a context that has ended", func(e *env) {
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(e.Context())
		cancel(cause)
		e.is(e.Store.Wait(ctx, e.queue), cause)
	}},
}

// closeRules close their store, so each has its own engine.
var closeRules = []rule{
	{"close ends every wait", func(e *env) {
		ended := make(chan error, 4)
		for range cap(ended) {
			go func() {
				for {
					if err := e.Store.Wait(e.Context(), e.queue); err != nil {
						ended <- err
						return
					}
				}
			}()
		}
		e.ok(e.Store.Close())
		for range cap(ended) {
			e.is(<-ended, store.ErrClosed)
		}
	}},
	{"every method is refused after close", func(e *env) {
		e.send(message("m"))
		e.ok(e.Store.Close())
		ctx, s, q := e.Context(), e.Store, e.queue
		_, err := s.Send(ctx, q, []store.Outgoing{message("n")})
		e.is(err, store.ErrClosed)
		_, err = s.Claim(ctx, q, store.ClaimRequest{Max: 1, Lease: held})
		e.is(err, store.ErrClosed)
		_, err = s.Settle(ctx, q, []store.Settlement{{Receipt: store.Receipt{Lease: "l", ID: "m"}, Action: store.Ack}})
		e.is(err, store.ErrClosed)
		_, err = s.Extend(ctx, q, []store.Extension{{Lease: "l", For: held}})
		e.is(err, store.ErrClosed)
		e.is(s.Wait(ctx, q), store.ErrClosed)
		_, err = s.Cancel(ctx, q, store.CancelRequest{IDs: []string{"m"}})
		e.is(err, store.ErrClosed)
		_, err = s.Reschedule(ctx, q, []string{"m"}, store.Due{})
		e.is(err, store.ErrClosed)
		_, err = s.Get(ctx, q, []string{"m"})
		e.is(err, store.ErrClosed)
		_, err = s.List(ctx, q, store.ListRequest{State: store.StateReady, Limit: 1})
		e.is(err, store.ErrClosed)
		_, err = s.Restore(ctx, q, []store.Info{newInfo("n", store.StateReady, time.UnixMilli(1))})
		e.is(err, store.ErrClosed)
		_, err = s.Remove(ctx, q, []store.Info{newInfo("m", store.StateReady, time.UnixMilli(1))})
		e.is(err, store.ErrClosed)
		_, err = s.Replay(ctx, q, allDead, store.Due{})
		e.is(err, store.ErrClosed)
		_, err = s.Purge(ctx, q, allDead)
		e.is(err, store.ErrClosed)
		_, err = s.Stats(ctx, q)
		e.is(err, store.ErrClosed)
		_, err = s.Histogram(ctx, q, []time.Time{time.UnixMilli(1), time.UnixMilli(2)})
		e.is(err, store.ErrClosed)
		e.is(s.SetPaused(ctx, q, true), store.ErrClosed)
		e.is(s.SetDeadRetention(ctx, q, store.Retention{}, nil), store.ErrClosed)
		e.is(s.SetFlow(ctx, q, store.Flow{}, nil), store.ErrClosed)
		e.is(s.SetProperties(ctx, q, map[string]string{"a": "1"}, nil), store.ErrClosed)
		_, err = s.Properties(ctx, q)
		e.is(err, store.ErrClosed)
		_, _, err = s.Queues(ctx, "")
		e.is(err, store.ErrClosed)
		e.is(s.Delete(ctx, q), store.ErrClosed)
	}},
	{"close may be repeated", func(e *env) {
		e.ok(e.Store.Close())
		if err := e.Store.Close(); err != nil {
			e.is(err, store.ErrClosed)
		}
	}},
}
