package inspect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later"
	_ "github.com/laterq/later/diskstore"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

func TestExplanationIsOneSentence(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2030, 12, 23, 10, 0, 0, 0, berlin) // a Monday
	due := func(d time.Duration) Explanation { return Explanation{Reason: WhyScheduled, Due: now.Add(d)} }
	day := 24 * time.Hour
	for _, c := range []struct {
		e    Explanation
		want string
	}{
		{due(700 * time.Millisecond), "due in 700 ms"},
		{due(12*time.Second + 1), "due in 12 s"},
		{due(time.Minute), "due today at 10:01"},
		{due(90 * time.Second), "due today at 10:01:30"},
		{due(14 * time.Hour), "due tomorrow at 00:00"},
		{due(23 * time.Hour), "due tomorrow at 09:00"},
		{due(4 * day), "due on Friday at 10:00"},
		{due(7 * day), "due on 30 December at 10:00"},
		{due(9 * day), "due on 1 January 2031 at 10:00"},
		{Explanation{Reason: WhyScheduled, Due: now.Add(5 * time.Second), Attempts: 1}, "due in 5 s, after 1 failed attempt"},
		{Explanation{Reason: WhyScheduled, Due: now.Add(5 * time.Second), Attempts: 3, Paused: true},
			"due in 5 s, after 3 failed attempts, and its queue is paused"},
		{Explanation{Reason: WhyPaused, Paused: true}, "its queue is paused"},
		{Explanation{Reason: WhyNoWorker}, "no worker is running for queue orders"},
		{Explanation{Reason: WhyWaiting, Workers: 2}, "all workers of queue orders are paused or draining"},
		{Explanation{Reason: WhyWaiting, Running: 1}, "it is due, and no worker has claimed it yet"},
		{Explanation{Reason: WhyWaiting, Running: 1, Before: 1}, "1 message is before it"},
		{Explanation{Reason: WhyWaiting, Running: 1, Before: 12}, "12 messages are before it"},
		{Explanation{Reason: WhyLeased, Worker: "w", HeldSince: now.Add(-12 * time.Second)}, "worker w has held it for 12 s"},
		{Explanation{Reason: WhyLeased, Worker: "w", HeldSince: now.Add(-125 * time.Minute)},
			"worker w has held it for 2 h 5 min"},
		{Explanation{Reason: WhyLeased, LeaseDeadline: now.Add(28 * time.Second)},
			"it is held under a lease that ends in 28 s unless it is extended"},
		{Explanation{Reason: WhyFollows}, "it follows a message that is held"},
		{Explanation{Reason: WhyFollows, Worker: "w", HeldSince: now.Add(-3 * day)},
			"it follows a message that worker w has held for 3 d"},
		{Explanation{Reason: WhyDead, DeadReason: later.DeadFailed, DiedAt: now.Add(-day)},
			"died yesterday at 10:00: its last attempt failed"},
		{Explanation{Reason: WhyDead, DeadReason: later.DeadLeaseExpired, DiedAt: now.Add(-30 * time.Second)},
			"died 30 s ago: the worker of its last attempt died or stalled"},
		{Explanation{Reason: WhyDead, DeadReason: later.DeadExpired, DiedAt: now.Add(-400 * day)},
			"died on 18 November 2029 at 10:00: it was not delivered before its expiry"},
	} {
		c.e.Queue, c.e.Now = "orders", now
		if got := c.e.Text(berlin); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// explained returns the explanation of a message.
func explained(t *testing.T, c *later.Client, q *later.Queue, id string, want Why) Explanation {
	t.Helper()
	e, err := Explain(t.Context(), c, q.Name(), id)
	if err != nil || e.Reason != want || e.Queue != q.Name() || e.ID != id || e.Now.IsZero() {
		t.Fatalf("message %s: %+v, %v; want %s", id, e, err, want)
	}
	return e
}

func TestExplainFindsEachReason(t *testing.T) {
	onEachStore(t, func(t *testing.T, c *later.Client) {
		q := c.Queue("q")
		mustSend(t, q, "", later.WithID("scheduled"), later.In(time.Hour))
		if e := explained(t, c, q, "scheduled", WhyScheduled); e.Due.Sub(e.Now) < 59*time.Minute || e.Paused {
			t.Errorf("%+v", e)
		}
		mustSend(t, q, "", later.WithID("dead"))
		if err := mustReceive(t, q, 1)[0].Bury(t.Context(), errors.New("x")); err != nil {
			t.Fatal(err)
		}
		if e := explained(t, c, q, "dead", WhyDead); e.DeadReason != later.DeadBuried || e.DiedAt.IsZero() {
			t.Errorf("%+v", e)
		}
		mustSend(t, q, "", later.WithID("held"))
		held := mustReceive(t, q, 1)[0]
		if e := explained(t, c, q, "held", WhyLeased); e.Worker != "" || !e.LeaseDeadline.After(e.Now) {
			t.Errorf("%+v", e)
		}
		mustSend(t, q, "", later.WithID("held"), later.OnDuplicate(later.Follow()))
		explained(t, c, q, "held", WhyFollows)
		if err := held.Ack(t.Context()); err != nil {
			t.Fatal(err)
		}
		explained(t, c, q, "held", WhyNoWorker)
		if err := q.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		explained(t, c, q, "held", WhyPaused)
		if e := explained(t, c, q, "scheduled", WhyScheduled); !e.Paused {
			t.Errorf("%+v", e)
		}
		_, err := Explain(t.Context(), c, q.Name(), "none")
		wantError(t, err, later.ErrNotFound)
	})
}

func TestExplainRefusesAnIDThatNoMessageCanHave(t *testing.T) {
	c := newClientOn(t, memstore.New())
	for _, id := range []string{"", strings.Repeat("x", store.MaxID+1), "a\xff", "a\n"} {
		if _, err := Explain(t.Context(), c, "q", id); !errors.Is(err, later.ErrInvalid) || store.FieldOf(err) != "id" {
			t.Errorf("id %.10q: %v, about %q", id, err, store.FieldOf(err))
		}
	}
	if _, err := Explain(t.Context(), c, "q", "a"); !errors.Is(err, later.ErrNotFound) {
		t.Error(err)
	}
}

func TestExplainNamesTheWorker(t *testing.T) {
	inBubble(t, func(t *testing.T, c *later.Client) {
		w := later.NewWorker(c, later.WorkerConfig{Name: "w", Concurrency: 1, MaxPrefetch: -1})
		release := make(chan struct{})
		w.Handle("q", func(context.Context, *later.Message) error {
			<-release
			return nil
		})
		q := c.Queue("q")
		for i := range 4 {
			mustSend(t, q, "", later.WithID(fmt.Sprint(i)), later.At(time.Now().Add(time.Duration(i)*time.Second)))
		}
		stop := start(t, w)
		time.Sleep(30 * time.Second) // until a heartbeat has reported the held messages
		synctest.Wait()
		if e := explained(t, c, q, "0", WhyLeased); e.Text(time.UTC) != "worker w has held it for 30 s" {
			t.Errorf("%s: %+v", e.Text(time.UTC), e)
		}
		if e := explained(t, c, q, "3", WhyWaiting); e.Before != 2 || e.Workers != 1 || e.Running != 1 {
			t.Errorf("%+v", e)
		}
		if _, err := c.ControlWorkers(t.Context(), later.CommandPause, "w"); err != nil {
			t.Fatal(err)
		}
		if e := explained(t, c, q, "3", WhyWaiting); e.Running != 0 || e.Workers != 1 {
			t.Errorf("%+v", e)
		}
		close(release)
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestExplainOfTheEarliestDueTimeCountsNoneBefore(t *testing.T) {
	inBubble(t, func(t *testing.T, c *later.Client) {
		w := later.NewWorker(c, later.WorkerConfig{Concurrency: 1, MaxPrefetch: -1})
		started := make(chan struct{})
		release := make(chan struct{})
		w.Handle("q", func(_ context.Context, m *later.Message) error {
			if m.ID == "first" {
				close(started)
				<-release
			}
			return nil
		})
		q := c.Queue("q")
		mustSend(t, q, "", later.WithID("first"), later.At(time.UnixMilli(1)))
		mustSend(t, q, "", later.WithID("second"), later.At(time.UnixMilli(1)))
		stop := start(t, w)
		<-started
		synctest.Wait() // until the worker's first heartbeat is stored
		if e := explained(t, c, q, "second", WhyWaiting); e.Before != 0 {
			t.Errorf("%+v", e)
		}
		close(release)
		wantNoError(t, stop())
	})
}

func TestExplanationOfAHeartbeatAheadOfTheStoreIsNotNegative(t *testing.T) {
	now := time.Unix(1e9, 0)
	e := Explanation{Reason: WhyLeased, Worker: "w", HeldSince: now.Add(time.Second), Now: now}
	if got := e.Text(time.UTC); got != "worker w has held it for 0 ms" {
		t.Error(got)
	}
}

// A program that receives for a worker, such as one that uses the HTTP API, is a worker.
func TestExplainKnowsProgramsThatReceiveForAWorker(t *testing.T) {
	inBubble(t, func(t *testing.T, c *later.Client) {
		q := c.Queue("mail")
		receive := func() []*later.Delivery {
			t.Helper()
			got, _, err := c.ReceiveFor(t.Context(), later.RemoteWorker{ID: "http-w", Name: "w"}, 1,
				[]later.ReceiveQueue{{Name: "mail"}}, later.Lease(10*time.Minute), later.NoWait())
			wantNoError(t, err)
			return got
		}
		receive()
		time.Sleep(5 * time.Minute) // until it is listed no longer
		id := mustSend(t, q, "")
		explained(t, c, q, id, WhyNoWorker)
		got := receive()
		if len(got) != 1 {
			t.Fatal(got)
		}
		time.Sleep(time.Minute)
		if e := explained(t, c, q, id, WhyLeased); e.Worker != "w" {
			t.Errorf("%+v", e)
		}
		wantNoError(t, got[0].Ack(t.Context()))
	})
}
