package later

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/memstore"
)

// Workers handle the messages of each key one at a time and in the order of the sends, although some fail and are
// retried later, while other keys go on. The fence of a key grows.
func TestWorkersKeepTheOrderOfKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClientOn(t, memstore.New())
		q := c.Queue("accounts")
		if err := q.SetFlow(t.Context(), Flow{Key: KeyFlow{Order: OrderContinue}}); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		started, fences, running := map[string][]string{}, map[string]int64{}, map[string]bool{}
		for range 3 {
			w := NewWorker(c, WorkerConfig{Concurrency: 4, Unlisted: true})
			w.Handle("accounts", func(_ context.Context, m *Message) error {
				mu.Lock()
				if running[m.Key] {
					t.Errorf("%s starts while another message of its key is handled", m.ID)
				}
				if m.Fence <= fences[m.Key] {
					t.Errorf("fence of %s is %d after %d", m.ID, m.Fence, fences[m.Key])
				}
				running[m.Key], fences[m.Key] = true, m.Fence
				started[m.Key] = append(started[m.Key], m.ID)
				mu.Unlock()
				time.Sleep(7 * time.Millisecond)
				mu.Lock()
				running[m.Key] = false
				mu.Unlock()
				if strings.HasSuffix(m.ID, "3") && m.Attempt < 3 {
					return errors.New("not yet")
				}
				return nil
			})
			go w.Run(t.Context())
		}
		synctest.Wait()
		want := map[string][]string{}
		for i := range 6 {
			for _, key := range []string{"a", "b"} {
				id := fmt.Sprintf("%s-%d%d", key, 9-i, i)
				if _, err := q.Send(t.Context(), nil, WithID(id), In(0), Key(key)); err != nil {
					t.Fatal(err)
				}
				for range map[bool]int{true: 3, false: 1}[i == 3] {
					want[key] = append(want[key], id)
				}
			}
		}
		for stats := (Stats{Ready: 1}); stats.Ready+stats.Scheduled+stats.Leased > 0; {
			time.Sleep(time.Second)
			var err error
			if stats, err = q.Stats(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		for key := range want {
			if !slices.Equal(started[key], want[key]) {
				t.Errorf("messages of key %s start in the order %v, want %v", key, started[key], want[key])
			}
		}
	})
}

// A dead message halts its key. Explain says so, and ResumeKey, Replay and PurgeDead let it go on.
func TestAHaltedKeyGoesOn(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var resumed []string
	c := newClientOn(t, memstore.New(), WithObserver(func(e Event) {
		if e.Kind == EventKeyResumed {
			resumed = append(resumed, e.ID)
		}
	}))
	q, ctx := c.Queue("accounts"), t.Context()
	must(q.SetFlow(ctx, Flow{Key: KeyFlow{Order: OrderHalt}}))
	for _, id := range []string{"1", "2", "3", "4"} {
		must(second(q.Send(ctx, nil, WithID(id), Key("a"))))
	}
	receive := func() *Delivery {
		t.Helper()
		got, err := q.Receive(ctx, 5)
		if err != nil || len(got) != 1 {
			t.Fatalf("received %v, %v; want one message", got, err)
		}
		return got[0]
	}
	halts := func(id string) {
		t.Helper()
		keys, err := q.Keys(ctx, KeysRequest{Halted: true})
		if err != nil || len(keys) != 1 || keys[0].Key != "a" || !keys[0].Halted || keys[0].Holder != id {
			t.Errorf("halted keys are %+v, %v; want a, halted by %s", keys, err, id)
		}
		if got, err := q.Receive(ctx, 5, NoWait()); err != nil || len(got) > 0 {
			t.Errorf("received %v, %v of a halted key", got, err)
		}
	}
	first := receive()
	if first.Fence == 0 {
		t.Error("the delivery has no fence")
	}
	must(first.Bury(ctx, errors.New("bad")))
	halts("1")
	if e, err := q.Explain(ctx, "1"); err != nil || !strings.HasSuffix(e.Text(time.UTC), "; it halts its key a") {
		t.Errorf("explanation is %q, %v", e.Text(time.UTC), err)
	}

	must(second(q.Replay(ctx, In(0), "1")))
	again := receive()
	if again.ID != "1" || again.Fence <= first.Fence {
		t.Errorf("%s with fence %d is received after the replay", again.ID, again.Fence)
	}
	must(again.Nack(ctx, time.Minute, errors.New("once more")))
	e, err := q.Explain(ctx, "1")
	if text := e.Text(time.UTC); err != nil || !strings.HasSuffix(text, ", and its key a waits for it") {
		t.Errorf("explanation is %q, %v", text, err)
	}
	must(second(q.Cancel(ctx, "1")))

	must(receive().Bury(ctx, errors.New("bad")))
	halts("2")
	must(q.ResumeKey(ctx, "a"))
	if err := q.ResumeKey(ctx, "a"); !errors.Is(err, ErrNotFound) ||
		err.Error() != `key "a" of queue "accounts" is not halted: not found` {
		t.Errorf("a second ResumeKey returns %v", err)
	}
	must(receive().Bury(ctx, errors.New("bad")))
	halts("3")
	must(second(q.PurgeDead(ctx)))
	if got := receive(); got.ID != "4" {
		t.Errorf("%s is received after the purge", got.ID)
	}
	if !slices.Equal(resumed, []string{"a", "a"}) {
		t.Errorf("events name the keys %v that go on", resumed)
	}
}

// Explain names the message or the worker that a key waits for.
func TestExplainNamesTheHolderOfAKey(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	c := newClientOn(t, memstore.New())
	q, ctx := c.Queue("accounts"), t.Context()
	must(q.SetFlow(ctx, Flow{Key: KeyFlow{Order: OrderContinue}}))
	for _, id := range []string{"1", "2", "3"} {
		must(second(q.Send(ctx, nil, WithID(id), Key("a"))))
	}
	held, done := make(chan struct{}), make(chan error)
	w := NewWorker(c, WorkerConfig{Name: "w1"})
	w.Handle("accounts", func(ctx context.Context, m *Message) error {
		if m.ID == "1" && m.Attempt == 1 {
			close(held)
			return <-done
		}
		return nil
	})
	stop := start(t, w)
	<-held
	var text string
	explain := func(has string) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); !strings.Contains(text, has); {
			e, err := q.Explain(ctx, "2")
			if err != nil || time.Now().After(deadline) {
				t.Fatalf("explanation is %q, %v; want %q", text, err, has)
			}
			text = e.Text(time.UTC)
		}
	}
	explain("its key a has 1 of 1 messages in flight")
	done <- RetryIn(time.Hour)
	explain("its key a waits for message 1, which has started and is not done, and 2 of its messages wait")
	must(stop())
}
