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

// TestIdleWorkersStartMessagesExactlyAtTheRate has many workers wait for few messages. Each message starts at its time,
// and the others do not claim for it.
func TestIdleWorkersStartMessagesExactlyAtTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers, n = 100, 50
		s := limited(t, store.Flow{Rate: store.Rate{N: 3, Per: time.Second}}, n)
		ctx, end := context.WithCancel(t.Context())
		defer end()
		var mu sync.Mutex
		var starts []time.Time
		var claims int
		var all sync.WaitGroup
		for range workers {
			all.Go(func() {
				for ctx.Err() == nil {
					c, err := claimOne(ctx, s)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					claims++
					if len(c.Messages) > 0 {
						starts = append(starts, c.Now)
					}
					if len(starts) == n {
						end()
					}
					mu.Unlock()
					if !c.More {
						_ = s.Wait(ctx, "q")
					}
				}
			})
		}
		all.Wait()
		for i, at := range starts[1:] {
			if after := at.Sub(starts[i]); after < time.Second/3 || after > time.Second/3+time.Microsecond {
				t.Errorf("message %d started after %v", i+1, after)
			}
		}
		if claims > workers+n*22/10 {
			t.Errorf("%d workers claimed %d times for %d messages", workers, claims, n)
		}
	})
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
