package inspect

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/outcome"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// Explain says which limit a message waits for.
func TestExplainNamesTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClientOn(t, memstore.New())
		q := c.Queue("q")
		hold := make(chan struct{})
		w := later.NewWorker(c, later.WorkerConfig{})
		w.Handle("q", func(context.Context, *later.Message) error { <-hold; return nil })
		go w.Run(t.Context())
		defer close(hold)
		explain := func(f later.Flow) Explanation {
			t.Helper()
			wantNoError(t, q.SetFlow(t.Context(), f))
			for _, id := range []string{"a", "b", "c"} {
				if _, err := q.Send(t.Context(), nil, later.WithID(id)); err != nil && !errors.Is(err, later.ErrDuplicate) {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Millisecond)
			}
			e, err := Explain(t.Context(), c, q.Name(), "c")
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
		e := explain(later.Flow{Concurrency: 1})
		if want := "its queue has 1 of 1 messages in flight, and 1 message waits before it"; e.Reason != WhyLimited ||
			e.Text(time.UTC) != want {
			t.Errorf("explanation %q: %q, want %q", e.Reason, e.Text(time.UTC), want)
		}
		e = explain(later.Flow{Concurrency: 5, Rate: later.Rate{N: 1, Per: time.Minute}})
		if got := e.Text(time.UTC); e.Reason != WhyLimited ||
			!strings.HasPrefix(got, "its queue may start 1/1m, the next message in ") {
			t.Errorf("explanation %q: %q", e.Reason, got)
		}
	})
}

// Explain says which limit of its key a message waits for, or that it waits for a turn.
func TestExplainNamesTheKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClientOn(t, memstore.New())
		q := c.Queue("q")
		wantNoError(t, q.SetFlow(t.Context(), later.Flow{Key: later.KeyFlow{Concurrency: 1}}))
		hold := make(chan struct{})
		w := later.NewWorker(c, later.WorkerConfig{Concurrency: 1})
		w.Handle("q", func(context.Context, *later.Message) error { <-hold; return nil })
		go w.Run(t.Context())
		defer close(hold)
		for _, id := range []string{"a", "b", "c"} {
			if _, err := q.Send(t.Context(), nil, later.WithID(id), later.Key("k")); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		sort := func() {
			t.Helper()
			claim := store.ClaimRequest{Max: 1, Ahead: 1, Lease: time.Second}
			if _, err := c.Store().Claim(t.Context(), "q", claim); err != nil {
				t.Fatal(err)
			}
		}
		sort()
		explain := func(why Why, want string) {
			t.Helper()
			e, err := Explain(t.Context(), c, q.Name(), "c")
			if got := e.Text(time.UTC); err != nil || e.Reason != why || !strings.HasPrefix(got, want) || e.Key == nil {
				t.Errorf("%v: %q, %v; want %v: %q", e.Reason, got, err, why, want)
			}
		}
		explain(WhyLimited, "its key k has 1 of 1 messages in flight")
		one, rate := 5, later.Rate{N: 1, Per: time.Minute}
		if err := q.SetKeyFlow(t.Context(), "k", later.KeyOverride{Concurrency: &one, Rate: &rate}); err != nil {
			t.Fatal(err)
		}
		if got, err := q.Receive(t.Context(), 1); err != nil || len(got) != 1 {
			t.Fatalf("received %d, %v", len(got), err)
		}
		explain(WhyLimited, "its key k may start 1/1m, the next message ")
		if err := q.SetKeyFlow(t.Context(), "k", later.KeyOverride{}); err != nil {
			t.Fatal(err)
		}
		wantNoError(t, q.SetFlow(t.Context(), later.Flow{Fair: true}))
		if _, err := q.Send(t.Context(), nil, later.Key("other")); err != nil {
			t.Fatal(err)
		}
		sort()
		explain(WhyWaiting, "it waits for a turn of its key k: 2 keys wait, and 1 message of this one")
	})
}

// A dead message halts its key. Explain says so, and ResumeKey, Replay and PurgeDead let it go on.
func TestAHaltedKeyGoesOn(t *testing.T) {
	var resumed []string
	c := newClientOn(t, memstore.New(), later.WithObserver(func(e later.Event) {
		if e.Kind == later.EventKeyResumed {
			resumed = append(resumed, e.ID)
		}
	}))
	q, ctx := c.Queue("accounts"), t.Context()
	wantNoError(t, q.SetFlow(ctx, later.Flow{Key: later.KeyFlow{Order: later.OrderHalt}}))
	for _, id := range []string{"1", "2", "3", "4"} {
		wantNoError(t, second(q.Send(ctx, nil, later.WithID(id), later.Key("a"))))
	}
	receive := func() *later.Delivery {
		t.Helper()
		got, err := q.Receive(ctx, 5)
		if err != nil || len(got) != 1 {
			t.Fatalf("received %v, %v; want one message", got, err)
		}
		return got[0]
	}
	halts := func(id string) {
		t.Helper()
		keys, err := q.Keys(ctx, later.KeysRequest{Halted: true})
		if err != nil || len(keys) != 1 || keys[0].Key != "a" || !keys[0].Halted || keys[0].Holder != id {
			t.Errorf("halted keys are %+v, %v; want a, halted by %s", keys, err, id)
		}
		if got, err := q.Receive(ctx, 5, later.NoWait()); err != nil || len(got) > 0 {
			t.Errorf("received %v, %v of a halted key", got, err)
		}
	}
	first := receive()
	if first.Fence == 0 {
		t.Error("the delivery has no fence")
	}
	wantNoError(t, first.Bury(ctx, errors.New("bad")))
	halts("1")
	if e, err := Explain(ctx, c, q.Name(), "1"); err != nil ||
		!strings.HasSuffix(e.Text(time.UTC), "; it halts its key a") {
		t.Errorf("explanation is %q, %v", e.Text(time.UTC), err)
	}

	wantNoError(t, second(q.Replay(ctx, later.In(0), "1")))
	again := receive()
	if again.ID != "1" || again.Fence <= first.Fence {
		t.Errorf("%s with fence %d is received after the replay", again.ID, again.Fence)
	}
	wantNoError(t, again.Nack(ctx, time.Minute, errors.New("once more")))
	e, err := Explain(ctx, c, q.Name(), "1")
	if text := e.Text(time.UTC); err != nil || !strings.HasSuffix(text, ", and its key a waits for it") {
		t.Errorf("explanation is %q, %v", text, err)
	}
	wantNoError(t, second(q.Cancel(ctx, "1")))

	wantNoError(t, receive().Bury(ctx, errors.New("bad")))
	halts("2")
	wantNoError(t, q.ResumeKey(ctx, "a"))
	if err := q.ResumeKey(ctx, "a"); !errors.Is(err, later.ErrNotFound) ||
		err.Error() != `key "a" of queue "accounts" is not halted: not found` {
		t.Errorf("a second ResumeKey returns %v", err)
	}
	wantNoError(t, receive().Bury(ctx, errors.New("bad")))
	halts("3")
	wantNoError(t, second(q.PurgeDead(ctx)))
	if got := receive(); got.ID != "4" {
		t.Errorf("%s is received after the purge", got.ID)
	}
	if !slices.Equal(resumed, []string{"a", "a"}) {
		t.Errorf("events name the keys %v that go on", resumed)
	}
}

// Explain names the message or the worker that a key waits for.
func TestExplainNamesTheHolderOfAKey(t *testing.T) {
	c := newClientOn(t, memstore.New())
	q, ctx := c.Queue("accounts"), t.Context()
	wantNoError(t, q.SetFlow(ctx, later.Flow{Key: later.KeyFlow{Order: later.OrderContinue}}))
	for _, id := range []string{"1", "2", "3"} {
		wantNoError(t, second(q.Send(ctx, nil, later.WithID(id), later.Key("a"))))
	}
	held, done := make(chan struct{}), make(chan error)
	w := later.NewWorker(c, later.WorkerConfig{Name: "w1"})
	w.Handle("accounts", func(ctx context.Context, m *later.Message) error {
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
			e, err := Explain(ctx, c, q.Name(), "2")
			if err != nil || time.Now().After(deadline) {
				t.Fatalf("explanation is %q, %v; want %q", text, err, has)
			}
			text = e.Text(time.UTC)
		}
	}
	explain("its key a has 1 of 1 messages in flight")
	done <- later.RetryIn(time.Hour)
	explain("its key a waits for message 1, which has started and is not done, and 2 of its messages wait")
	wantNoError(t, stop())
}

// explainAll gives a queue a flow and a message that keeps its only handler busy, sends a message with each of some
// options, with the ids m0, m1 and so on, and compares their explanations.
func explainAll(t *testing.T, f later.Flow, options [][]later.SendOption, reason Why, want map[string]string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newClientOn(t, memstore.New())
		q := c.Queue("q")
		wantNoError(t, q.SetFlow(t.Context(), f))
		hold := make(chan struct{})
		w := later.NewWorker(c, later.WorkerConfig{Name: "w", Concurrency: 1})
		w.Handle("q", func(context.Context, *later.Message) error { <-hold; return nil })
		go w.Run(t.Context())
		defer close(hold)
		mustSend(t, q, "")
		synctest.Wait()
		for i, o := range options {
			time.Sleep(time.Millisecond)
			mustSend(t, q, "", append(o, later.WithID(fmt.Sprint("m", i)))...)
		}
		claim := store.ClaimRequest{Max: 1, Ahead: 1, Lease: time.Second} // sorts
		if _, err := c.Store().Claim(t.Context(), "q", claim); err != nil {
			t.Fatal(err)
		}
		if _, err := c.ReportWorkers(t.Context(), 0); err != nil { // so that they have told their messages
			t.Fatal(err)
		}
		for id, text := range want {
			e, err := Explain(t.Context(), c, q.Name(), id)
			got := regexp.MustCompile(` for \d+ ms`).ReplaceAllString(e.Text(time.UTC), "")
			if err != nil || e.Reason != reason || got != text {
				t.Errorf("%s: %v, %q, %v; want %q", id, e.Reason, got, err, text)
			}
		}
	})
}

func TestExplainTellsTheUrgency(t *testing.T) {
	options := [][]later.SendOption{{}, {later.Urgent()}, {later.Background()}, {later.Background(), later.Key("k")},
		{later.Key("other")}}
	explainAll(t, later.Flow{Urgency: true}, options, WhyWaiting, map[string]string{
		"m1": "the handler of w is busy, and 1 message was due before it, and its urgency is high: it goes " +
			"before the messages of lower urgency",
		"m2": "the handler of w is busy, and 2 messages were due before it, and its urgency is low: the messages of " +
			"higher urgency go first",
		"m3": "it waits for a turn of its key k: 5 keys wait, and 1 message of this one, and its urgency is low: the " +
			"messages of higher urgency go first",
		"m4": "it waits for a turn of its key other: 5 keys wait, and 1 message of this one, and messages of high " +
			"urgency go first",
	})
	explainAll(t, later.Flow{Urgency: true, Concurrency: 1}, options[:3], WhyLimited, map[string]string{
		"m1": "its queue has 1 of 1 messages in flight, and 1 message was due before it, and its urgency is high: it goes " +
			"before the messages of lower urgency",
		"m2": "its queue has 1 of 1 messages in flight, and 2 messages were due before it, and its urgency is low: the " +
			"messages of higher urgency go first",
	})
	options = [][]later.SendOption{{later.Key("k")}, {later.Urgent(), later.Key("k")}}
	halt := later.KeyFlow{Order: later.OrderHalt}
	explainAll(t, later.Flow{Urgency: true, Key: halt}, options, WhyWaiting, map[string]string{
		"m1": "it waits for a turn of its key k: 1 key waits, and 2 messages of this one; the messages of its key start " +
			"in order, and the urgency of the next one counts",
	})
}

// A mistyped kind shows wherever people look: in the message, its explanation, the workers and the events.
func TestUnknownKindIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var given []string
		c := newClientOn(t, memstore.New(), later.WithObserver(func(e later.Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.Kind == later.EventGivenBack {
				given = append(given, fmt.Sprint(e.ID, " ", e.Err))
			}
		}))
		q := c.Queue("q")
		mux := later.NewMux()
		mux.Handle("order.cancel", func(context.Context, *later.Message) error { return nil })
		w := later.NewWorker(c, later.WorkerConfig{Name: "w", Concurrency: 1})
		w.HandleMux("q", mux)
		stop := start(t, w)
		begin := time.Now()
		for i := range 3 {
			mustSend(t, q, "", later.WithID(fmt.Sprint(i)), later.Kind("order.cancle"))
		}
		synctest.Wait()
		const why = `kind "order.cancle" has no handler`
		mu.Lock()
		slices.Sort(given) // messages that are given back together have their events at the same time
		if !slices.Equal(given, []string{"0 " + why, "1 " + why, "2 " + why}) {
			t.Errorf("events: %q", given)
		}
		mu.Unlock()
		time.Sleep(20 * time.Minute)
		info, err := q.Get(t.Context(), "0")
		if err != nil || info.Attempts != 0 || info.LastError != why || info.Failures[0].Worker != "w" {
			t.Errorf("Get returned %+v, %v", info, err)
		}
		wantWhy := func(reason Why, text string) {
			t.Helper()
			e, err := Explain(t.Context(), c, q.Name(), "0")
			if err != nil || e.Reason != reason || !strings.Contains(e.Text(time.UTC), text) {
				t.Errorf("Explain returned %+v, %v: %q; want %s", e, err, e.Text(time.UTC), reason)
			}
			if reason == WhyGivenBack && (e.Error != why || e.Worker != "w" || !e.GivenBackAt.Equal(begin)) {
				t.Errorf("Explain returned %+v", e)
			}
		}
		wantWhy(WhyGivenBack, "workers have given it back for another version for 20 min")
		workers, err := c.ReportWorkers(t.Context(), time.Second)
		want := []later.GivenBack{{Queue: "q", Kind: "order.cancle", Error: why, Messages: 3}}
		if err != nil || len(workers) != 1 || !slices.Equal(workers[0].GivenBack, want) {
			t.Errorf("ReportWorkers returned %+v, %v; want %v", workers, err, want)
		}
		if err := q.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * outcome.MaxGiveBack)
		wantWhy(WhyPaused, "paused")
		if all, err := c.ReportWorkers(t.Context(), time.Second); err != nil || len(all) != 1 || len(all[0].GivenBack) != 0 {
			t.Errorf("after the last of them fell due ReportWorkers returned %+v, %v", all, err)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if err := q.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantWhy(WhyNoWorker, "no worker is running")
	})
}
