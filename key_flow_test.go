package later

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// Workers of one queue run one message of each key at a time, as many keys at once as they have handlers, and call a
// handler once for each message.
func TestWorkersKeepTheLimitsOfKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &claimCounter{Store: memstore.New()}
		c := newClientOn(t, s)
		q := c.Queue("mail")
		if err := q.SetFlow(t.Context(), Flow{Key: KeyFlow{Concurrency: 1}}); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		running, calls := map[string]int{}, 0
		for range 2 {
			w := NewWorker(c, WorkerConfig{Concurrency: 8, Unlisted: true})
			w.Handle("mail", func(_ context.Context, m *Message) error {
				mu.Lock()
				running[m.Key]++
				calls++
				if running[m.Key] > 1 {
					t.Errorf("%d messages of key %s at once", running[m.Key], m.Key)
				}
				mu.Unlock()
				time.Sleep(10 * time.Millisecond)
				mu.Lock()
				running[m.Key]--
				mu.Unlock()
				return nil
			})
			go w.Run(t.Context())
		}
		synctest.Wait()
		before, _ := s.count()
		const keys, each = 5, 20
		var out []Outgoing
		for i := range keys * each {
			out = append(out, Outgoing{Key: fmt.Sprint("customer-", i%keys)})
		}
		begin := time.Now()
		if _, err := q.SendBatch(t.Context(), out); err != nil {
			t.Fatal(err)
		}
		for stats := (Stats{Ready: 1}); stats.Ready+stats.Leased > 0; {
			time.Sleep(time.Millisecond)
			var err error
			if stats, err = q.Stats(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if took := time.Since(begin); calls != keys*each || took > each*10*time.Millisecond+50*time.Millisecond {
			t.Errorf("%d calls of handlers in %v, want %d in %v", calls, took, keys*each, each*10*time.Millisecond)
		}
		if claims, _ := s.count(); claims-before > 2*keys*each {
			t.Errorf("%d claims for %d messages", claims-before, keys*each)
		}
	})
}

// A worker that is held back by the rate of a key starts its messages at exactly the times that the rate allows, and
// messages of other keys at once.
func TestWorkersStartAtTheRateOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClientOn(t, memstore.New())
		q := c.Queue("mail")
		if err := q.SetFlow(t.Context(), Flow{Key: KeyFlow{Rate: Rate{N: 10, Per: time.Second}}}); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		began, at := time.Now(), map[string][]time.Duration{}
		for range 10 {
			w := NewWorker(c, WorkerConfig{Concurrency: 4, Unlisted: true})
			w.Handle("mail", func(_ context.Context, m *Message) error {
				mu.Lock()
				defer mu.Unlock()
				at[m.Key] = append(at[m.Key], time.Since(began))
				return nil
			})
			go w.Run(t.Context())
		}
		synctest.Wait()
		for _, key := range []string{"a", "b", "", "a", "b", "", "a", "b", ""} {
			if _, err := q.Send(t.Context(), nil, Key(key)); key != "" && err != nil {
				t.Fatal(err)
			} else if key == "" {
				if _, err := q.Send(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(time.Second)
		mu.Lock()
		defer mu.Unlock()
		const tenth = 100 * time.Millisecond
		for key, want := range map[string]time.Duration{"a": tenth, "b": tenth, "": 0} {
			if len(at[key]) != 3 {
				t.Errorf("%d messages of key %q", len(at[key]), key)
			}
			for i, got := range at[key] {
				if d := got - time.Duration(i)*want; d < 0 || d > 2*time.Millisecond {
					t.Errorf("message %d of key %q started after %v", i, key, got)
				}
			}
		}
	})
}

// A message of a quiet customer does not wait for the thousand messages of a noisy one.
func TestKeysOfAQueueTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClientOn(t, memstore.New())
		q := c.Queue("mail")
		if err := q.SetFlow(t.Context(), Flow{Fair: true}); err != nil {
			t.Fatal(err)
		}
		if err := q.SetKeyFlow(t.Context(), "large", KeyOverride{Weight: new(int)}); err == nil {
			t.Error("a weight of 0 is accepted")
		}
		var out []Outgoing
		for range 1000 {
			out = append(out, Outgoing{Key: "noisy"})
		}
		out = append(out, Outgoing{Key: "quiet"})
		if _, err := q.SendBatch(t.Context(), out); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var order []string
		w := NewWorker(c, WorkerConfig{Concurrency: 1, Unlisted: true})
		w.Handle("mail", func(_ context.Context, m *Message) error {
			if order = append(order, m.Key); m.Key == "quiet" {
				cancel()
			}
			return nil
		})
		if err := w.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if i := slices.Index(order, "quiet"); i < 0 || i > 1 {
			t.Errorf("the quiet customer's message started after %d others", i)
		}
	})
}

// unsortedStore says of its first claims that messages are left to sort.
type unsortedStore struct {
	store.Store
	mu    sync.Mutex
	left  int
	ahead int // claims that asked for no messages
}

func (s *unsortedStore) Claim(ctx context.Context, queue string, req store.ClaimRequest) (store.Claim, error) {
	c, err := s.Store.Claim(ctx, queue, req)
	s.mu.Lock()
	defer s.mu.Unlock()
	if req.Ahead == req.Max {
		s.ahead++
	}
	if s.left--; s.left > 0 {
		c.Unsorted, c.More = true, true
	}
	return c, err
}

// Claims go on to sort messages by key while no handler is free, and end when all are sorted.
func TestWorkerWithoutAFreeHandlerSortsMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &unsortedStore{Store: memstore.New(), left: 10}
		c := newClientOn(t, s)
		q := c.Queue("mail")
		if err := q.SetFlow(t.Context(), Flow{Fair: true}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := q.Send(t.Context(), nil, Key("a")); err != nil {
				t.Fatal(err)
			}
		}
		hold := make(chan struct{})
		w := NewWorker(c, WorkerConfig{Concurrency: 1, Unlisted: true})
		w.Handle("mail", func(context.Context, *Message) error { <-hold; return nil })
		go w.Run(t.Context())
		synctest.Wait()
		s.mu.Lock()
		if s.ahead != 9 || s.left != 0 {
			t.Errorf("%d claims without a free handler, %d left; want 9 and none", s.ahead, s.left)
		}
		s.mu.Unlock()
		close(hold)
		synctest.Wait()
		if stats, err := q.Stats(t.Context()); err != nil || stats.Ready+stats.Leased > 0 {
			t.Errorf("%+v, %v", stats, err)
		}
	})
}

// Claims go on to sort messages while the rate of the queue lets none start.
func TestWorkerHeldBackSortsMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &unsortedStore{Store: memstore.New(), left: 10}
		c := newClientOn(t, s)
		q := c.Queue("mail")
		if err := q.SetFlow(t.Context(), Flow{Fair: true, Rate: Rate{N: 1, Per: time.Hour}}); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			mustSend(t, q, "", Key("a"))
		}
		w := NewWorker(c, WorkerConfig{Concurrency: 4, Unlisted: true})
		w.Handle("mail", func(context.Context, *Message) error { return nil })
		go w.Run(t.Context())
		synctest.Wait()
		s.mu.Lock()
		if s.left != 0 {
			t.Errorf("%d claims are left to sort", s.left)
		}
		s.mu.Unlock()
		wantCounts(t, q, 0, 2, 0, 0)
	})
}

// A batch by key has messages of one key, and the results of a call settle its messages alone.
func TestBatchesByKeyDoNotMixKeys(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		var calls log[string]
		w := NewWorker(c, WorkerConfig{Concurrency: 1, Backoff: ConstantBackoff(time.Hour)})
		w.HandleBatch("q", func(_ context.Context, msgs []*Message) []error {
			errs, keys := make([]error, len(msgs)), ""
			for i, m := range msgs {
				keys += m.Key + " "
				if m.Key == "b" && i > 0 {
					errs[i] = fmt.Errorf("failed")
				}
			}
			if calls.add(keys); msgs[0].Key == "c" {
				panic("c")
			}
			return errs
		}, BatchConfig{Size: 10, ByKey: true})
		for i, key := range []string{"a", "b", "", "a", "b", "c", "a", "", "d"} {
			var options []SendOption
			if key != "" {
				options = append(options, Key(key))
			}
			mustSend(t, q, "", append(options, WithID(fmt.Sprint(i)))...)
		}
		start(t, w)
		synctest.Wait()
		if got, want := calls.list(), []string{"a a a ", "b b ", "  ", "c ", "d "}; !slices.Equal(got, want) {
			t.Errorf("calls with keys %q, want %q", got, want)
		}
		wantCounts(t, q, 2, 0, 0, 0) // the failed message of b, and c
	})
}
