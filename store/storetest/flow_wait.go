package storetest

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laterq/later/store"
)

// line is consumers that wait for one message each, and count their claims.
type line struct {
	received chan store.Claimed
	claims   atomic.Int64
}

// line starts n consumers and returns when they sleep.
func (e *env) line(n int) *line {
	e.Helper()
	l := &line{received: make(chan store.Claimed, n)}
	ctx, leave := context.WithCancel(e.Context())
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			for {
				l.claims.Add(1)
				c, err := e.Store.Claim(context.WithoutCancel(ctx), e.queue, store.ClaimRequest{Max: 1, Lease: held})
				if err == nil && len(c.Messages) == 1 {
					l.received <- c.Messages[0]
					return
				}
				if err == nil {
					err = e.Store.Wait(ctx, e.queue)
				}
				if err != nil {
					return
				}
			}
		})
	}
	e.Cleanup(func() { leave(); all.Wait() })
	e.asleep(n)
	return l
}

// next returns a message that one of the consumers received.
func (l *line) next(e *env) store.Claimed {
	e.Helper()
	limit := wakeTimeout
	if e.Asleep == nil {
		limit = hangTimeout
	}
	select {
	case c := <-l.received:
		return c
	case <-time.After(limit):
		e.Fatalf("after %v all waiters still sleep", limit)
		return store.Claimed{}
	}
}

// wakesBehind lets a limit of another queue, with a leased message, hold back a consumer. It checks that act, on that
// queue, lets the consumer receive a message.
func (e *env) wakesBehind(
	limit store.Flow, want string, act func(f *env, held store.Claimed), with ...func(*store.Outgoing),
) {
	e.Helper()
	f := e.other()
	f.limit(limit)
	f.send(message("a", with...), message("b", append(with, delay(time.Millisecond))...))
	a := f.claimOne("a", time.Hour)
	f.pass(time.Millisecond)
	f.wakes(want, func() { act(f, a) })
}

func (e *env) wakesFor(want string, act func(f *env, held store.Claimed)) {
	e.Helper()
	e.wakesBehind(concurrency(1), want, act)
}

// limitWaitRules are the rules of waiting that hold for limits of the queue and, with messages of one key, for limits
// of keys. of tells them apart.
func limitWaitRules(
	of string, concurrency func(int) store.Flow, rate func(int, time.Duration, int) store.Flow,
	with ...func(*store.Outgoing),
) []rule {
	return []rule{
		{"wait ends at the time at which the rate" + of + " allows a start", func(e *env) {
			e.limit(rate(3, time.Second, 1)) // 333333 1/3 µs
			e.send(many(5, with...)...)
			e.takes(1)
			e.wakes("m00001", func() {
				e.advance(333 * time.Millisecond)
				e.full()
				e.asleep(1)
				e.advance(time.Millisecond)
			})
			e.wakes("m00002", func() { e.advance(time.Second) })
		}},
		{"wait ends when another process settles a message" + of + " in any way", func(e *env) {
			for name, s := range endings {
				want := "b"
				if name == "release" {
					want = "a"
				}
				e.wakesBehind(concurrency(1), want, func(f *env, a store.Claimed) {
					s.Receipt = a.Receipt
					f.ok(f.trySettle(s)[0].Err)
				}, with...)
			}
		}},
		{"wait ends when the holder of a cancelled or purged message" + of + " learns of it", func(e *env) {
			extend := func(f *env, a store.Claimed) {
				r, err := f.Peer.Extend(f.Context(), f.queue, []store.Extension{{Lease: a.Receipt.Lease, For: held}})
				f.ok(err)
				f.is(r[0].Err, store.ErrLeaseLost)
			}
			settle := func(f *env, a store.Claimed) { f.is(f.trySettle(ackOf(a))[0].Err, store.ErrLeaseLost) }
			for _, learn := range []func(f *env, a store.Claimed){extend, settle} {
				e.wakesBehind(concurrency(1), "b", func(f *env, a store.Claimed) {
					f.cancel("a", store.StateLeased)
					learn(f, a)
				}, with...)
				e.wakesBehind(concurrency(1), "c", func(f *env, a store.Claimed) {
					f.purge(store.Selection{})
					f.send(message("c", with...))
					learn(f, a)
				}, with...)
			}
		}},
		{"one slot" + of + " wakes one waiter", func(e *env) {
			const n = 8
			e.limit(concurrency(1))
			e.send(many(n+1, with...)...)
			c := e.claimOne("m00000", held)
			e.sort()
			l := e.line(n)
			for left := n - 1; left >= 0; left-- {
				e.ack(c)
				c = l.next(e)
				e.asleep(left)
			}
			if claims := l.claims.Load(); e.Asleep != nil && claims > 3*n {
				e.Fatalf("%d waiters claimed %d times for %d messages", n, claims, n)
			}
		}},
	}
}

var flowWaitRules = append(limitWaitRules("", concurrency, rate), []rule{
	{"wait ends when a lease ends, while the concurrency is reached", func(e *env) {
		e.limit(concurrency(2))
		e.send(many(4)...)
		e.claimOne("m00000", time.Hour)
		c := e.claimOne("m00001", short)
		e.wakes("m00002", func() { e.advance(short) }) // the first message is due when its lease ends
		e.equal("due", e.live("m00001", store.StateReady).Due.After(c.Due), true)
	}},
	{"wait ends when the limit is raised, changed or removed", func(e *env) {
		for _, flow := range []store.Flow{concurrency(2), rate(1, time.Hour, 1), {}} {
			e.wakesFor("b", func(f *env, _ store.Claimed) { f.limit(flow) })
		}
		e.limit(rate(1, time.Hour, 1))
		e.send(many(5)...)
		e.takes(1)
		e.wakes("m00001", func() { e.limit(rate(1, time.Hour, 2)) })
		e.wakes("m00002", func() {
			e.limit(rate(10, time.Second, 1))
			e.advance(100 * time.Millisecond)
		})
	}},
	{"wait ends for a limited message that is sent or due", func(e *env) {
		e.limit(concurrency(3))
		e.wakes("a", func() { e.send(message("a")) })
		e.send(message("b", delay(soon)))
		e.wakes("b", func() { e.pass(soon) })
	}},
	{"a concurrency that is raised wakes a waiter for each slot", func(e *env) {
		e.limit(concurrency(1))
		e.send(many(6)...)
		e.claimOne("m00000", held)
		l := e.line(5)
		e.limit(concurrency(4))
		for range 3 {
			l.next(e)
		}
		e.asleep(2)
		e.counted(4)
		e.limit(store.Flow{})
		l.next(e)
		l.next(e)
	}},
	{"a waiter that leaves passes the slot on", func(e *env) {
		e.limit(concurrency(1))
		for i := range 20 {
			e.send(message("held"), message("m"))
			c := e.claimOne("held", held)
			leaving, leave := context.WithCancel(e.Context())
			leaver := e.consumer(leaving)
			e.asleep(1)
			stayer := e.consumer(e.timeoutContext())
			e.asleep(2)
			left := make(chan struct{})
			go func() {
				defer close(left)
				for range i % 10 * 10 { // so that it leaves before, while and after it is notified
					runtime.Gosched()
				}
				leave()
			}()
			e.ack(c)
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
	{"no wake-up is lost while many consumers share a concurrency", func(e *env) {
		const n, most = 200, 3
		e.limit(concurrency(most))
		e.send(many(n)...)
		e.consumeAll(n, func(c store.Claimed, s store.Store) error {
			settled, err := s.Settle(e.Context(), e.queue, []store.Settlement{ackOf(c)})
			if err == nil {
				err = settled[0].Err
			}
			return err
		})
		e.counted(0)
		e.count(0, 0, 0, 0)
	}},
	{"no wake-up is lost while many consumers share a rate", func(e *env) {
		const n = 40
		e.limit(rate(100, time.Second, 2))
		e.send(many(n)...)
		stop := make(chan struct{})
		var ticking sync.WaitGroup
		ticking.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
					e.pass(7 * time.Millisecond)
				}
			}
		})
		defer ticking.Wait()
		defer close(stop)
		e.consumeAll(n, func(store.Claimed, store.Store) error { return nil })
	}},
}...)

// consumeAll has consumers in both processes receive n messages and call act with each.
func (e *env) consumeAll(n int64, act func(c store.Claimed, s store.Store) error) {
	e.Helper()
	ctx, done := context.WithCancel(e.timeoutContext())
	defer done()
	var received atomic.Int64
	e.concurrently(func(worker int, s store.Store) error {
		for {
			c, err := e.receive(ctx, s)
			switch {
			case err != nil && received.Load() == n:
				return nil
			case err != nil:
				return fmt.Errorf("%d of %d messages are received: %w", received.Load(), n, err)
			}
			if err := act(c, s); err != nil {
				return err
			}
			if received.Add(1) == n {
				done()
			}
		}
	})
}
