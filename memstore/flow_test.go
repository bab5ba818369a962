package memstore

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/store"
)

// limited returns a store with a queue q that has a flow and n messages that are due.
func limited(t *testing.T, f store.Flow, n int, opts ...Option) *Store {
	t.Helper()
	s := New(opts...)
	t.Cleanup(func() { s.Close() })
	if err := s.SetFlow(t.Context(), "q", f, nil); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		m := store.Outgoing{Message: store.Message{ID: fmt.Sprint(i)}, Due: store.Due{At: time.UnixMilli(1)}}
		if _, err := s.Send(t.Context(), "q", []store.Outgoing{m}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func claimOne(ctx context.Context, s *Store) (store.Claim, error) {
	return s.Claim(context.WithoutCancel(ctx), "q", store.ClaimRequest{Max: 1, Lease: time.Hour})
}

// consume has workers handle n messages, each for as long as work, and then rest as long. It returns when each message
// was claimed and the number of claims.
func consume(t *testing.T, s *Store, workers, n int, work time.Duration) (starts []time.Time, claims int) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var mu sync.Mutex
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for ctx.Err() == nil {
				c, err := claimOne(ctx, s)
				mu.Lock()
				claims++
				if len(c.Messages) > 0 {
					starts = append(starts, c.Now)
				}
				if len(starts) == n || err != nil {
					end()
				}
				mu.Unlock()
				for _, m := range c.Messages {
					time.Sleep(work)
					acked, err := s.Settle(context.WithoutCancel(ctx), "q",
						[]store.Settlement{{Receipt: m.Receipt, Action: store.Ack}})
					if err != nil || acked[0].Err != nil {
						t.Errorf("ack: %+v, %v", acked, err)
					}
					time.Sleep(work)
				}
				if !c.More {
					_ = s.Wait(ctx, "q")
				}
			}
		})
	}
	all.Wait()
	return starts, claims
}

// TestIdleWorkersStartMessagesExactlyWhenALimitAllows has many workers wait for few messages. Each message starts at
// its time, and the others do not claim for it.
func TestIdleWorkersStartMessagesExactlyWhenALimitAllows(t *testing.T) {
	const workers, n = 100, 60
	for name, c := range map[string]struct {
		flow     store.Flow
		interval time.Duration // between two starts, rounded down to a microsecond
		atOnce   int
	}{
		"slow rate":   {store.Flow{Rate: store.Rate{N: 3, Per: time.Second}}, 333_333 * time.Microsecond, 1},
		"fast rate":   {store.Flow{Rate: store.Rate{N: 70, Per: time.Second}}, 14_285 * time.Microsecond, 1},
		"concurrency": {store.Flow{Concurrency: 3}, 50 * time.Millisecond, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := limited(t, c.flow, n)
				starts, claims := consume(t, s, workers, n, 50*time.Millisecond)
				for i, at := range starts[c.atOnce:] {
					if after := at.Sub(starts[i]); after < c.interval || after > c.interval+time.Microsecond {
						t.Errorf("message %d started after %v, want %v", i+1, after, c.interval)
					}
				}
				if claims > workers+n*22/10 {
					t.Errorf("%d workers claimed %d times for %d messages", workers, claims, n)
				}
			})
		})
	}
}

// waiters starts n calls of Wait and returns a channel that receives the time when each one ends.
func waiters(t *testing.T, s *Store, n int) <-chan time.Time {
	t.Helper()
	ended := make(chan time.Time, n)
	for range n {
		go func() {
			if err := s.Wait(context.Background(), "q"); err != nil {
				t.Error(err)
			}
			ended <- time.Now()
		}()
	}
	synctest.Wait()
	return ended
}

// TestAWaiterThatSeesAnotherOneWokenIsWokenForTheNextStart is about a waiter that looks while another one was woken and
// has not claimed yet.
func TestAWaiterThatSeesAnotherOneWokenIsWokenForTheNextStart(t *testing.T) {
	ack := func(s *Store, c store.Claim) {
		acked, err := s.Settle(context.Background(), "q",
			[]store.Settlement{{Receipt: c.Messages[0].Receipt, Action: store.Ack}})
		if err != nil || acked[0].Err != nil {
			t.Errorf("ack: %+v, %v", acked, err)
		}
	}
	for name, c := range map[string]struct {
		flow  store.Flow
		first func(s *Store, c store.Claim) // has one waiter woken
		then  func(s *Store, c store.Claim) // has the other one woken
		after time.Duration                 // since the first one
	}{
		"rate": {store.Flow{Rate: store.Rate{N: 50, Per: time.Second, Burst: 2}}, func(*Store, store.Claim) {},
			func(s *Store, _ store.Claim) { _, _ = claimOne(context.Background(), s) }, 20 * time.Millisecond},
		"slot": {store.Flow{Concurrency: 2}, ack, ack, 0},
		"no more limits": {store.Flow{Concurrency: 2}, ack,
			func(s *Store, _ store.Claim) { _ = s.SetFlow(context.Background(), "q", store.Flow{}, nil) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := limited(t, c.flow, 5)
				var claims []store.Claim
				for range 2 {
					claim, err := claimOne(t.Context(), s)
					if err != nil || len(claim.Messages) != 1 {
						t.Fatal(claim, err)
					}
					claims = append(claims, claim)
				}
				ended := waiters(t, s, 2)
				c.first(s, claims[0])
				first := <-ended
				synctest.Wait()
				c.then(s, claims[1])
				if after := (<-ended).Sub(first); after != c.after {
					t.Errorf("the second waiter was woken %v after the first, want %v", after, c.after)
				}
			})
		})
	}
}

// TestAWaiterThatWasWokenAndDoesNotClaimIsReplaced is about a process that has died: its slot is not lost.
func TestAWaiterThatWasWokenAndDoesNotClaimIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := limited(t, store.Flow{Concurrency: 1}, 1)
		begun := time.Now()
		for range 3 {
			if err := s.Wait(t.Context(), "q"); err != nil {
				t.Fatal(err)
			}
		}
		if after := time.Since(begun); after != 2*promise {
			t.Errorf("the third waiter was woken after %v, want %v", after, 2*promise)
		}
		if c, err := claimOne(t.Context(), s); err != nil || len(c.Messages) != 1 {
			t.Errorf("claim: %+v, %v", c, err)
		}
	})
}

// TestAClockThatIsSetBackDoesNotStallALimitedQueue sets it back by a day, with messages that were due long before.
func TestAClockThatIsSetBackDoesNotStallALimitedQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &setClock{}
		clock.ahead.Store(int64(48 * time.Hour))
		s := limited(t, store.Flow{Rate: store.Rate{N: 1, Per: time.Minute, Burst: 3}}, 10, WithClock(clock))
		begun, received := time.Now(), 0
		for received < 8 {
			c, err := claimOne(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			received += len(c.Messages)
			if received == 4 {
				clock.ahead.Store(int64(24 * time.Hour))
			}
			if !c.More && received < 8 {
				if err := s.Wait(t.Context(), "q"); err != nil {
					t.Fatal(err)
				}
			}
		}
		if after := time.Since(begun); after != 5*time.Minute {
			t.Errorf("8 messages started in %v, want 5m", after)
		}
	})
}
