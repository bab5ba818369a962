package diskstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

// patience bounds a test that hangs; none measures time with it.
const patience = 20 * time.Second

// steppedClock is a machine's clock that is set, while alarms run by the time that passed.
type steppedClock struct {
	*manualClock
	passing *manualClock
	set     chan struct{} // has a token for each alarm
}

func newSteppedClock() *steppedClock {
	return &steppedClock{manualClock: newManualClock(), passing: newManualClock(), set: make(chan struct{}, 100)}
}

func (c *steppedClock) Alarm(t time.Time) (<-chan time.Time, func()) {
	defer func() { c.set <- struct{}{} }()
	return c.passing.Alarm(c.passing.Now().Add(t.Sub(c.Now())))
}

// pass moves both clocks by a duration.
func (c *steppedClock) pass(d time.Duration) {
	c.manualClock.Advance(d)
	c.passing.Advance(d)
}

func TestWaitSeesWithinSecondsThatTheClockWasSet(t *testing.T) {
	clock := newSteppedClock()
	s := openOn(t, vfs.NewMem(), clock)
	defer s.Close()
	if _, err := s.Send(t.Context(), "q", outgoing(1, store.Due{Delay: time.Hour})); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	waited := make(chan error, 1)
	go func() { waited <- s.Wait(ctx, "q") }()
	<-clock.set
	for range 3 { // nothing happens, and no call is made
		clock.pass(checkEvery)
		<-clock.set
	}
	clock.Advance(2 * time.Hour) // by NTP, or the machine slept: no alarm rings
	clock.pass(checkEvery)
	if err := <-waited; err != nil {
		t.Errorf("%v after the message fell due wait gives %v", checkEvery, err)
	}
}

func TestWaitersThatHaveLeftLeaveNothing(t *testing.T) {
	s := openOn(t, vfs.NewMem(), newManualClock())
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range 300 {
		all.Go(func() { s.Wait(ctx, fmt.Sprint("queue", i%100)) })
	}
	for s.waiters.Load() < 300 {
		runtime.Gosched()
	}
	cancel()
	all.Wait()
	if n := len(s.notifiers); n > 0 || s.waiters.Load() != 0 {
		t.Errorf("%d bells and %d waiters are kept with nobody waiting", n, s.waiters.Load())
	}
}

// consume claims one message after the other, waiting for each, and acks it.
func consume(ctx context.Context, s *Store, claims *atomic.Int64, got chan<- string) error {
	for {
		c, err := s.Claim(context.WithoutCancel(ctx), "q", store.ClaimRequest{Max: 1, Lease: time.Hour})
		if err != nil {
			return err
		}
		claims.Add(1)
		for _, m := range c.Messages {
			if _, err := s.Settle(context.WithoutCancel(ctx), "q",
				[]store.Settlement{{Receipt: m.Receipt, Action: store.Ack}}); err != nil {
				return err
			}
			got <- m.ID
		}
		if len(c.Messages) > 0 {
			continue
		}
		if err := s.Wait(ctx, "q"); err != nil {
			return err
		}
	}
}

func TestOneMessageWakesOneOfManyWaiters(t *testing.T) {
	const waiters, messages = 1000, 100
	clock := newManualClock()
	s := openOn(t, vfs.NewMem(), clock)
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var claims atomic.Int64
	var all sync.WaitGroup
	got := make(chan string)
	for range waiters {
		all.Go(func() {
			if err := consume(ctx, s, &claims, got); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	allWait := func() {
		for s.waiters.Load() < waiters {
			runtime.Gosched()
		}
	}
	allWait()
	for _, delay := range []time.Duration{0, time.Minute} {
		before := claims.Load()
		for i := range messages {
			m := store.Outgoing{Message: store.Message{ID: strconv.Itoa(i)}, Due: store.Due{Delay: delay}}
			if _, err := s.Send(t.Context(), "q", []store.Outgoing{m}); err != nil {
				t.Fatal(err)
			}
			clock.Advance(delay + time.Millisecond)
			<-got
			allWait()
		}
		// One claim for each message and one that finds nothing more; one on top where the claim of the next message's
		// waiter is behind that of the one before.
		if n := claims.Load() - before; n > 3*messages {
			t.Errorf("delay %v: %d messages took %d claims of %d waiters", delay, messages, n, waiters)
		}
	}
	cancel()
	all.Wait()
}

// The clock stands still, so that its regular checks wake no waiter, and a waiter that leaves does not claim later.
func TestNoWakeUpIsLostWithAWaiterThatLeaves(t *testing.T) {
	for name, f := range map[string]store.Flow{"plain queue": {}, "limited queue": {Concurrency: 1}} {
		t.Run(name, func(t *testing.T) { leaveAndStay(t, f) })
	}
}

func leaveAndStay(t *testing.T, f store.Flow) {
	const leaving, rounds = 3, 500
	s := openOn(t, vfs.NewMem(), newManualClock())
	defer s.Close()
	limit(t, s, f)
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	var all sync.WaitGroup
	got := make(chan store.Receipt, 1)
	var last store.Receipt // of the message that is leased
	begin := func(ctx context.Context) {
		before := s.waiters.Load()
		all.Go(func() {
			if s.Wait(ctx, "q") != nil {
				return
			}
			c, err := s.Claim(context.WithoutCancel(ctx), "q", store.ClaimRequest{Max: 1, Lease: time.Hour})
			if err != nil {
				t.Error(err)
			}
			for _, m := range c.Messages {
				got <- m.Receipt
			}
		})
		for s.waiters.Load() == before {
			runtime.Gosched()
		}
	}
	for i := range rounds {
		var leave []context.CancelFunc
		for range leaving {
			short, stop := context.WithCancel(ctx)
			leave = append(leave, stop)
			begin(short)
		}
		stays, stop := context.WithCancel(ctx)
		begin(stays)
		all.Go(func() {
			for _, stop := range leave {
				for range rand.IntN(20) {
					runtime.Gosched()
				}
				stop()
			}
		})
		send(t, s, strconv.Itoa(i))
		if i > 0 {
			ack := store.Settlement{Receipt: last, Action: store.Ack}
			if _, err := s.Settle(t.Context(), "q", []store.Settlement{ack}); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case last = <-got:
		case <-ctx.Done():
			t.Fatalf("message %d is ready, and who waits is not told", i)
		}
		stop()
		all.Wait()
	}
}

// One claim for a burst leaves messages, and wakes the next waiter, and so on until all wait or all is gone.
func TestBurstWakesAsManyWaitersAsItHasMessages(t *testing.T) {
	const consumers = 20
	s := openOn(t, vfs.NewMem(), newManualClock())
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got := make(chan string)
	var all sync.WaitGroup
	for range consumers {
		all.Go(func() {
			if err := s.Wait(ctx, "q"); err != nil {
				t.Error(err)
				return
			}
			c, err := s.Claim(ctx, "q", store.ClaimRequest{Max: 1, Lease: time.Hour})
			if err != nil || len(c.Messages) != 1 {
				t.Errorf("a waiter that was woken gets %v, %v", c.Messages, err)
				return
			}
			got <- c.Messages[0].ID
		})
	}
	for s.waiters.Load() < consumers {
		runtime.Gosched()
	}
	if _, err := s.Send(t.Context(), "q", outgoing(consumers, store.Due{})); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for range consumers {
		select {
		case id := <-got:
			seen[id] = true
		case <-ctx.Done():
			t.Fatalf("%d of %d messages were received", len(seen), consumers)
		}
	}
	all.Wait()
}
