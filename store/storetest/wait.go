package storetest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/laterq/later/store"
)

// soon is the delay of the rules that wait. Engines whose timers use the system clock really wait that long.
const soon = 30 * time.Millisecond

// pass moves the clock by d if it can be moved. Otherwise real time passes.
func (e *env) pass(d time.Duration) {
	e.Helper()
	if e.Advance != nil {
		e.Advance(e.T, e.queue, d)
	}
}

// receive waits for one message and claims it, as a worker does.
func (e *env) receive(ctx context.Context, s store.Store) (store.Claimed, error) {
	for {
		c, err := s.Claim(ctx, e.queue, store.ClaimRequest{Max: 1, Lease: held})
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

// wakes calls act and checks that a waiting consumer then receives the message with the id.
func (e *env) wakes(id string, act func()) store.Claimed {
	e.Helper()
	ctx := e.timeoutContext()
	type result struct {
		store.Claimed
		err error
	}
	received := make(chan result, 1)
	started := make(chan struct{})
	go func() {
		close(started)
		c, err := e.receive(ctx, e.Store)
		received <- result{c, err}
	}()
	<-started
	act()
	r := <-received
	e.ok(r.err)
	e.equal("received", r.ID, id)
	return r.Claimed
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
		_, err = s.Cancel(ctx, q, []string{"m"})
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
		_, err = s.Histogram(ctx, q, time.UnixMilli(1), time.UnixMilli(2), 1)
		e.is(err, store.ErrClosed)
		e.is(s.SetPaused(ctx, q, true), store.ErrClosed)
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
