package later

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/internal/slots"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// freezing is a store with calls on some queues that do not return while they are frozen, like calls on a server that
// was stopped with SIGSTOP.
type freezing struct {
	store.Store
	late bool // the calls take effect, and only their replies are late

	mu     sync.Mutex
	frozen func(queue string) bool
	thawed chan struct{}
	asked  map[string][]int // by claims, by queue
}

func newFreezing() *freezing { return &freezing{Store: memstore.New(), asked: map[string][]int{}} }

func (f *freezing) freeze(frozen func(queue string) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.frozen, f.thawed = frozen, make(chan struct{})
}

func (f *freezing) thaw() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.frozen = nil
	close(f.thawed)
}

// await returns when the queue is not frozen, or ctx has ended.
func (f *freezing) await(ctx context.Context, queue string) error {
	f.mu.Lock()
	frozen, thawed := f.frozen != nil && f.frozen(queue), f.thawed
	f.mu.Unlock()
	if !frozen {
		return nil
	}
	select {
	case <-thawed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", store.ErrUnavailable, context.Cause(ctx))
	}
}

func (f *freezing) Claim(ctx context.Context, queue string, req store.ClaimRequest) (store.Claim, error) {
	f.mu.Lock()
	f.asked[queue] = append(f.asked[queue], req.Max)
	f.mu.Unlock()
	if f.late {
		claim, err := f.Store.Claim(ctx, queue, req)
		if late := f.await(ctx, queue); late != nil {
			err = late
		}
		return claim, err
	}
	if err := f.await(ctx, queue); err != nil {
		return store.Claim{}, err
	}
	return f.Store.Claim(ctx, queue, req)
}

func (f *freezing) Settle(ctx context.Context, queue string, s []store.Settlement) ([]store.SettleResult, error) {
	if err := f.await(ctx, queue); err != nil {
		return nil, err
	}
	return f.Store.Settle(ctx, queue, s)
}

func (f *freezing) Extend(ctx context.Context, queue string, e []store.Extension) ([]store.ExtendResult, error) {
	if err := f.await(ctx, queue); err != nil {
		return nil, err
	}
	return f.Store.Extend(ctx, queue, e)
}

func (f *freezing) claims(queue string) []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.asked[queue])
}

func TestClaimThatHangsDoesNotDelayOtherQueues(t *testing.T) {
	for _, c := range []struct {
		concurrency, frozen int
		when                string // the queues freeze
		priority            int    // of the queues that freeze
	}{
		{10, 1, "idle", 0}, {10, 1, "busy", 0}, {1, 1, "idle", 0}, {1, 1, "busy", 0}, {10, 40, "busy", 0},
		{2, 200, "idle", 0}, {1, 50, "idle", 0}, {1, 50, "before the start", 0}, {10, 200, "before the start", 0},
		{10, 1, "busy", 1}, {1, 1, "idle", 1}, {1, 1, "busy", 1}, {10, 40, "busy", 1}, {2, 200, "idle", 1},
		{1, 50, "before the start", 1},
	} {
		name := fmt.Sprintf("%d slots, %d queues of priority %d freeze %s", c.concurrency, c.frozen, c.priority, c.when)
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFreezing()
				client := newClientOn(t, f)
				cfg := WorkerConfig{Concurrency: c.concurrency, StarvationLimit: -1, Queues: map[string]QueueConfig{}}
				for i := range c.frozen {
					cfg.Queues[fmt.Sprint("frozen", i)] = QueueConfig{Priority: c.priority}
				}
				w := NewWorker(client, cfg)
				worst := time.Duration(0)
				var mu sync.Mutex
				w.Handle("healthy", func(_ context.Context, m *Message) error {
					mu.Lock()
					defer mu.Unlock()
					worst = max(worst, m.Lateness)
					return nil
				})
				frozen := func(queue string) bool { return strings.HasPrefix(queue, "frozen") }
				for i := range c.frozen {
					w.Handle(fmt.Sprint("frozen", i), ignore)
				}
				if c.when == "before the start" {
					f.freeze(frozen)
				}
				start(t, w)
				if c.when == "idle" {
					synctest.Wait()
					f.freeze(frozen)
				}
				for i := range 1000 { // for 50 s, so that claims also time out
					if c.when == "busy" && i == 100 {
						f.freeze(frozen)
					}
					time.Sleep(50 * time.Millisecond)
					mustSend(t, client.Queue("healthy"), "")
					mustSend(t, client.Queue(fmt.Sprint("frozen", i%c.frozen)), "")
				}
				time.Sleep(time.Second)
				wantCounts(t, client.Queue("healthy"), 0, 0, 0, 0)
				mu.Lock()
				if worst > 500*time.Millisecond {
					t.Errorf("a message of the healthy queue was %v late; want at most 0.5 s", worst)
				}
				mu.Unlock()
				f.thaw()
				time.Sleep(time.Minute)
				for i := range c.frozen {
					wantCounts(t, client.Queue(fmt.Sprint("frozen", i)), 0, 0, 0, 0)
				}
			})
		})
	}
}

func TestClaimThatHungIsFollowedBySmallOnesUntilOneSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFreezing()
		c := newClientOn(t, f)
		w := NewWorker(c, WorkerConfig{Concurrency: 8, Lease: time.Second})
		w.Handle("q", func(ctx context.Context, _ *Message) error { return sleep(ctx, 100*time.Millisecond) })
		backlog(t, c.Queue("q"), 100)
		f.freeze(func(string) bool { return true })
		start(t, w)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		small := f.claims("q")
		f.thaw()
		time.Sleep(10 * time.Second)
		after := f.claims("q")[len(small):]
		if len(small) < 5 || small[0] != 8 || slices.Max(small[1:]) != 1 || slices.Max(after) < 7 {
			t.Errorf("claims asked for %v while frozen, then for %v; want 8, ones, and again more", small, after)
		}
		wantCounts(t, c.Queue("q"), 0, 0, 0, 0)
	})
}

func TestClaimThatReturnsLateIsHandledOnceOrReleasedUncounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFreezing()
		f.late = true
		c := newClientOn(t, f)
		q, attempts := c.Queue("late"), log[int]{}
		var busy atomic.Bool
		busy.Store(true)
		w := NewWorker(c, WorkerConfig{Concurrency: 16})
		w.Handle("late", func(_ context.Context, m *Message) error { attempts.add(m.Attempt); return nil })
		w.Handle("other", func(ctx context.Context, _ *Message) error {
			for busy.Load() {
				if err := sleep(ctx, time.Second); err != nil {
					return err
				}
			}
			return nil
		})
		f.freeze(func(queue string) bool { return queue == "late" })
		backlog(t, q, 2) // a claim holds an eighth of the free slots and one more, so two at least
		start(t, w)
		time.Sleep(400 * time.Millisecond) // the longest patience with a claim
		wantCounts(t, q, 0, 0, 2, 0)
		backlog(t, c.Queue("other"), 16) // takes all slots
		time.Sleep(time.Second)
		f.thaw()
		synctest.Wait()
		wantCounts(t, q, 0, 0, 2, 0) // in the buffer, under their lease
		time.Sleep(slots.MaxBuffered)
		synctest.Wait()
		wantCounts(t, q, 0, 2, 0, 0) // other workers can claim them
		busy.Store(false)
		time.Sleep(10 * time.Second)
		wantCounts(t, q, 0, 0, 0, 0)
		if got := attempts.list(); !slices.Equal(got, []int{1, 1}) {
			t.Errorf("attempts %v; want each message handled once, and no attempt counted before", got)
		}
	})
}

func TestClaimOnASlowNetworkKeepsItsSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		c := newClientOn(t, f)
		f.set(nil, func(_ context.Context, call string) error {
			if call == "claim" {
				time.Sleep(300 * time.Millisecond)
			}
			return nil
		})
		var handled atomic.Int32
		w := NewWorker(c, WorkerConfig{Concurrency: 10})
		for _, name := range []string{"a", "b"} {
			w.Handle(name, func(ctx context.Context, _ *Message) error {
				handled.Add(1)
				return sleep(ctx, 300*time.Millisecond)
			})
			backlog(t, c.Queue(name), 1000)
		}
		start(t, w)
		time.Sleep(10 * time.Second) // the first claims are taken for hanging
		before := handled.Load()
		for range 200 {
			time.Sleep(100 * time.Millisecond)
			synctest.Wait() // until the handled messages are acked
			if a, b := mustStats(t, c.Queue("a")).Leased, mustStats(t, c.Queue("b")).Leased; a+b > 10 {
				t.Fatalf("%d messages are held with 10 slots", a+b)
			}
		}
		// Each slot alternates between a claim and a handler: 10 messages in 600 ms are 333 in 20 s.
		if n := handled.Load() - before; n < 250 {
			t.Errorf("%d messages in 20 s over a slow network, want 250", n)
		}
	})
}
