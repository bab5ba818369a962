package later

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// claimCounter counts the claims of a store.
type claimCounter struct {
	store.Store
	mu     sync.Mutex
	claims int
	most   int // messages that one asked for, apart from those that no handler was free for
}

func (c *claimCounter) Claim(ctx context.Context, queue string, req store.ClaimRequest) (store.Claim, error) {
	c.mu.Lock()
	c.claims++
	c.most = max(c.most, req.Max-req.Ahead)
	c.mu.Unlock()
	return c.Store.Claim(ctx, queue, req)
}

func (c *claimCounter) count() (claims, most int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.claims, c.most
}

// starts are the handler calls of workers.
type starts struct {
	mu           sync.Mutex
	at           []time.Duration
	running, top int
}

func (s *starts) begin(since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = append(s.at, time.Since(since))
	s.running++
	s.top = max(s.top, s.running)
}

// result returns when handlers were called, in order, and how many ran at once, and forgets both.
func (s *starts) result() (at []time.Duration, top int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, top = s.at, s.top
	s.at, s.top = nil, s.running
	slices.Sort(at)
	return at, top
}

func (s *starts) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
}

// A hundred idle workers start the messages of a rate at exactly the times that it allows, each once, with at most two
// claims for each message and one for each worker at its start.
func TestWorkersStartAtTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &claimCounter{Store: memstore.New()}
		c := newClientOn(t, s)
		q := c.Queue("mail")
		if err := q.SetFlow(t.Context(), Flow{Rate: Rate{N: 10, Per: time.Second, Burst: 3}}); err != nil {
			t.Fatal(err)
		}
		const workers, messages = 100, 40
		var got starts
		begin := time.Now()
		for range workers {
			w := NewWorker(c, WorkerConfig{Concurrency: 4, Unlisted: true})
			w.Handle("mail", func(context.Context, *Message) error { got.begin(begin); return nil })
			go w.Run(t.Context())
		}
		synctest.Wait()
		before, _ := s.count()
		out := make([]Outgoing, messages)
		if _, err := q.SendBatch(t.Context(), out); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		starts, _ := got.result()
		if len(starts) != messages {
			t.Fatalf("%d handler calls for %d messages", len(starts), messages)
		}
		for i, at := range starts {
			if want := time.Duration(max(0, i-2)) * 100 * time.Millisecond; at < want || at > want+2*time.Millisecond {
				t.Errorf("message %d started after %v, want %v", i, at, want)
			}
		}
		if claims, _ := s.count(); claims-before > 2*messages+workers {
			t.Errorf("%d claims for %d messages and %d workers", claims-before, messages, workers)
		}
	})
}

// Workers of one queue together run as many handlers as its concurrency allows, claim no message without a free
// handler, and follow a change while they run.
func TestWorkersKeepTheConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &claimCounter{Store: memstore.New()}
		c := newClientOn(t, s)
		q := c.Queue("q")
		var got starts
		run := func() {
			w := NewWorker(c, WorkerConfig{Concurrency: 8, Unlisted: true})
			w.Handle("q", func(context.Context, *Message) error {
				got.begin(time.Now())
				time.Sleep(10 * time.Millisecond)
				got.end()
				return nil
			})
			go w.Run(t.Context())
		}
		handle := func(n int, took time.Duration) (calls, top int) {
			t.Helper()
			begin := time.Now()
			if _, err := q.SendBatch(t.Context(), make([]Outgoing, n)); err != nil {
				t.Fatal(err)
			}
			for {
				stats, err := q.Stats(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if stats.Ready+stats.Leased == 0 {
					break
				}
				time.Sleep(time.Millisecond)
			}
			if d := time.Since(begin); d > took {
				t.Errorf("%d messages took %v, want at most %v", n, d, took)
			}
			all, top := got.result()
			return len(all), top
		}
		set := func(f Flow) {
			t.Helper()
			if err := q.SetFlow(t.Context(), f); err != nil {
				t.Fatal(err)
			}
		}
		set(Flow{Concurrency: 3})
		run()
		run()
		if calls, top := handle(60, 250*time.Millisecond); calls != 60 || top != 3 {
			t.Errorf("%d calls, %d at once, want 60 and 3", calls, top)
		}
		if _, most := s.count(); most > 8 {
			t.Errorf("a claim asked for %d messages with 8 handlers", most)
		}
		set(Flow{Concurrency: 10})
		if _, top := handle(60, 100*time.Millisecond); top != 10 {
			t.Errorf("%d handlers at once, want 10", top)
		}
		set(Flow{})
		if _, top := handle(64, 50*time.Millisecond); top != 16 {
			t.Errorf("%d handlers at once without a limit, want 16", top)
		}
	})
}

// notifiable is a store with a Notify that is recorded.
type notifiable struct {
	store.Store
	notified chan string
}

func (n *notifiable) Notify(_ context.Context, queue string) error { n.notified <- queue; return nil }

// A worker that is woken for a queue while handlers of another one have its slots passes the wake-up on.
func TestWorkerWithoutASlotPassesOnAWakeUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &notifiable{memstore.New(), make(chan string, 10)}
		c := newClientOn(t, s)
		done := make(chan struct{})
		w := NewWorker(c, WorkerConfig{Concurrency: 1, Unlisted: true})
		w.Handle("long", func(context.Context, *Message) error { <-done; return nil })
		w.Handle("short", func(context.Context, *Message) error { return nil })
		start(t, w)
		synctest.Wait() // both queues wait in the store
		send := func(queue string) {
			t.Helper()
			if _, err := c.Queue(queue).Send(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		send("long")
		send("short")
		if n := len(s.notified); n != 1 || <-s.notified != "short" {
			t.Errorf("%d wake-ups were passed on, want that of queue short", n)
		}
		close(done)
		synctest.Wait()
		send("short")
		if len(s.notified) > 0 {
			t.Error("a worker with a free slot passes a wake-up on")
		}
		if stats, err := c.Queue("short").Stats(t.Context()); err != nil || stats.Ready+stats.Leased > 0 {
			t.Errorf("%+v, %v", stats, err)
		}
	})
}

func TestFlowIsSetOnACondition(t *testing.T) {
	c := newClientOn(t, memstore.New())
	q := c.Queue("q")
	state, err := q.Flow(t.Context())
	if err != nil || state.Flow != (Flow{}) {
		t.Errorf("flow of a queue that does not exist = %+v, %v", state, err)
	}
	var versions []string
	allow := func(ok bool) func(string) bool {
		return func(version string) bool { versions = append(versions, version); return ok }
	}
	first, second := Flow{Concurrency: 1}, Flow{Rate: Rate{N: 1, Per: time.Second}}
	if err := q.SetFlow(t.Context(), first, allow(false)); !errors.Is(err, ErrConflict) {
		t.Errorf("refused change = %v", err)
	}
	if err := q.SetFlow(t.Context(), first, allow(true)); err != nil {
		t.Error(err)
	}
	if err := q.SetFlow(t.Context(), second, allow(true)); err != nil {
		t.Error(err)
	}
	if want := []string{"", "", first.Version()}; !slices.Equal(versions, want) {
		t.Errorf("versions %q, want %q", versions, want)
	}
	if state, err = q.Flow(t.Context()); err != nil || state.Flow != second.Normal() {
		t.Errorf("flow = %+v, %v", state, err)
	}
}

func TestFlowsAreChecked(t *testing.T) {
	c := newClientOn(t, memstore.New())
	for _, f := range []Flow{
		{Concurrency: -1}, {Concurrency: 1_000_001}, {Rate: Rate{N: 1}}, {Rate: Rate{Per: time.Second}},
		{Rate: Rate{N: 1_000_001, Per: time.Hour}}, {Rate: Rate{N: 2_000, Per: time.Millisecond}},
	} {
		if err := c.Queue("q").SetFlow(t.Context(), f); !errors.Is(err, ErrInvalid) {
			t.Errorf("SetFlow(%+v) = %v", f, err)
		}
	}
	if err := c.Queue("topic:a").SetFlow(t.Context(), Flow{Concurrency: 1}); !errors.Is(err, ErrInvalid) {
		t.Errorf("limit of a topic's queue = %v", err)
	}
	if names, err := c.Queues(t.Context()); err != nil || len(names) > 0 {
		t.Errorf("refused calls created %v, %v", names, err)
	}
}
