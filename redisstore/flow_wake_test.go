package redisstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// limitedWorkers are processes that work on a queue with a flow, each with one handler.
type limitedWorkers struct {
	*testing.T
	queue  string
	claims atomic.Int64
	mu     sync.Mutex
	starts []time.Time // by the engine's clock
	leased int
	most   int // messages leased at once
	// The first handlers wait until so many messages are leased together.
	together int
	met      sync.Once
	meeting  chan struct{}
	all      chan struct{} // closed after want starts
	want     int
}

// work claims and handles messages until ctx ends.
func (w *limitedWorkers) work(ctx context.Context, s *Store) {
	for ctx.Err() == nil {
		w.claims.Add(1)
		c, err := s.Claim(ctx, w.queue, store.ClaimRequest{Max: 1, Lease: time.Minute})
		if err != nil {
			if ctx.Err() == nil {
				w.Error(err)
			}
			return
		}
		if len(c.Messages) == 0 {
			if !c.More {
				s.Wait(ctx, w.queue)
			}
			continue
		}
		w.mu.Lock()
		w.leased++
		w.most = max(w.most, w.leased)
		w.starts = append(w.starts, c.Now)
		if len(w.starts) == w.want {
			close(w.all)
		}
		if w.leased == w.together {
			w.met.Do(func() { close(w.meeting) })
		}
		w.mu.Unlock()
		select {
		case <-w.meeting:
		case <-ctx.Done():
		}
		w.mu.Lock()
		w.leased--
		w.mu.Unlock()
		ack := settlements([]store.Receipt{c.Messages[0].Receipt}, store.Ack)
		if _, err := s.Settle(ctx, w.queue, ack); err != nil && ctx.Err() == nil {
			w.Error(err)
		}
	}
}

// runLimitedWorkers sends n messages while processes wait, and returns the workers after n starts.
func runLimitedWorkers(t *testing.T, queue string, f store.Flow, processes, n, together int) *limitedWorkers {
	t.Helper()
	rdb := redistest.Start(t).Client(t)
	sender := newStore(t, rdb)
	if err := sender.SetFlow(t.Context(), queue, f, nil); err != nil {
		t.Fatal(err)
	}
	w := &limitedWorkers{
		T: t, queue: queue, all: make(chan struct{}), want: n, together: together, meeting: make(chan struct{}),
	}
	ctx, cancel := context.WithCancel(t.Context())
	var working sync.WaitGroup
	t.Cleanup(working.Wait)
	t.Cleanup(cancel)
	var stores []*Store
	for range processes {
		s := newStore(t, rdb)
		stores = append(stores, s)
		working.Go(func() { w.work(ctx, s) })
	}
	for _, s := range stores {
		waiting(t, s, queue, 1)
	}
	w.claims.Store(0)
	msgs := make([]store.Outgoing, n)
	for i := range msgs {
		msgs[i].ID = fmt.Sprintf("%03d", i)
	}
	if _, err := sender.Send(t.Context(), queue, msgs); err != nil {
		t.Fatal(err)
	}
	select {
	case <-w.all:
	case <-time.After(time.Minute):
		t.Error("not all messages started")
	}
	return w
}

// A rate starts each message no earlier than it allows, and all of them, although every process waits.
func TestRateStartsAllMessagesOfWaitingProcesses(t *testing.T) {
	const n, processes = 40, 30
	interval := 20 * time.Millisecond
	w := runLimitedWorkers(t, "q", store.Flow{Rate: store.Rate{N: 50, Per: time.Second}}, processes, n, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.SortFunc(w.starts, time.Time.Compare)
	var late []time.Duration
	for i := 1; i < len(w.starts); i++ {
		gap := w.starts[i].Sub(w.starts[i-1])
		if gap < interval {
			t.Errorf("start %d is %v after the one before", i, gap)
		}
		late = append(late, gap-interval)
	}
	slices.Sort(late)
	t.Logf("lateness: median %v, p90 %v, longest %v; %d claims for %d messages", late[n/2], late[n*9/10], late[n-2],
		w.claims.Load(), n)
}

// A slot that becomes free wakes one process, and all slots are used.
func TestFreeSlotWakesOneProcess(t *testing.T) {
	const n, processes, concurrency = 60, 20, 3
	w := runLimitedWorkers(t, "q", store.Flow{Concurrency: concurrency}, processes, n, concurrency)
	w.mu.Lock()
	defer w.mu.Unlock()
	t.Logf("%d claims for %d messages", w.claims.Load(), n)
	if w.most != concurrency {
		t.Errorf("%d messages were leased at once, want %d", w.most, concurrency)
	}
}
