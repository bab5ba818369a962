package metrics

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/laterq/later"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/recurrence"
	"github.com/laterq/later/store"
)

func TestCountersOfAWorkersMessages(t *testing.T) {
	m := New(Config{})
	c := newClient(t, memstore.New(), later.WithObserver(m.Observe))
	q := c.Queue("mail")
	payloads := []string{"ack", "ack", "nack", "bury", "snooze"}
	for _, payload := range payloads {
		if _, err := q.Send(t.Context(), []byte(payload)); err != nil {
			t.Fatal(err)
		}
	}
	send(t, q, later.WithID("a"), later.In(23*time.Hour))
	if _, err := q.Send(t.Context(), nil, later.WithID("a")); !errors.Is(err, later.ErrDuplicate) {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var handled atomic.Int64
	w := later.NewWorker(c, later.WorkerConfig{Backoff: later.ConstantBackoff(30 * time.Minute)})
	w.Handle("mail", func(ctx context.Context, m *later.Message) error {
		if handled.Add(1) == int64(len(payloads)) {
			stop()
		}
		switch string(m.Payload) {
		case "nack":
			return errors.New("451 try again")
		case "bury":
			return later.Bury(errors.New("550 no such user"))
		case "snooze":
			return later.Snooze(30 * time.Minute)
		}
		return nil
	})
	if err := w.Run(ctx); err != nil {
		t.Fatal(err)
	}
	scrape(t, m.Handler(c)).want(t, scraped{
		`later_messages_sent_total{queue="mail"}`:                         6,
		`later_messages_settled_total{outcome="acked",queue="mail"}`:      2,
		`later_messages_settled_total{outcome="nacked",queue="mail"}`:     1,
		`later_messages_settled_total{outcome="buried",queue="mail"}`:     1,
		`later_messages_settled_total{outcome="snoozed",queue="mail"}`:    1,
		`later_messages_settled_total{outcome="forwarded",queue="mail"}`:  0,
		`later_messages_settled_total{outcome="released",queue="mail"}`:   0,
		`later_messages_settled_total{outcome="lease_lost",queue="mail"}`: 0,
		`later_messages_settled_total{outcome="cancelled",queue="mail"}`:  0,
		`later_messages_settled_total{outcome="unsettled",queue="mail"}`:  0,
		`later_messages_died_total{queue="mail"}`:                         1,
		`later_lateness_seconds{queue="mail"}`:                            5,
		`later_processing_seconds{queue="mail"}`:                          5,
		`later_queue_messages{queue="mail",state="dead"}`:                 1,
		`later_queue_messages{queue="mail",state="scheduled"}`:            3,
		`later_queue_due_messages{queue="mail",within="1h"}`:              2,
		`later_queue_due_messages{queue="mail",within="1d"}`:              3,
		`later_up`: 1,
	})
}

func TestLatenessOfReceivedMessagesCountsAtTheClaim(t *testing.T) {
	m := New(Config{})
	c := newClient(t, memstore.New(), later.WithObserver(m.Observe))
	q := c.Queue("q")
	for range 3 {
		send(t, q)
	}
	// A handler that receives: its context has another message.
	ctx := later.ContextWithMessage(t.Context(), &later.Message{ID: "handled", Queue: "q"})
	got, err := q.Receive(ctx, 3)
	if err != nil || len(got) != 3 {
		t.Fatalf("received %d, %v", len(got), err)
	}
	if err := got[0].Ack(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Cancel(t.Context(), got[1].ID); err != nil {
		t.Fatal(err)
	}
	if err := got[1].Extend(t.Context(), time.Minute); !errors.Is(err, later.ErrCancelled) {
		t.Fatal(err)
	}
	if err := got[1].Ack(t.Context()); !errors.Is(err, later.ErrLeaseLost) {
		t.Fatal(err)
	}
	scrape(t, m.Handler(c)).want(t, scraped{
		`later_lateness_seconds{queue="q"}`:                            3,
		`later_processing_seconds{queue="q"}`:                          0,
		`later_messages_settled_total{outcome="acked",queue="q"}`:      1,
		`later_messages_settled_total{outcome="lease_lost",queue="q"}`: 1,
		`later_queue_messages{queue="q",state="leased"}`:               1,
	})
}

func TestMessageThatWasCancelledInItsHandlerIsNoLostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Config{})
		s := memstore.New()
		c := newClient(t, s, later.WithObserver(m.Observe))
		send(t, c.Queue("q"), later.WithID("a"))
		w := later.NewWorker(c, later.WorkerConfig{})
		ctx, stop := context.WithCancel(t.Context())
		w.Handle("q", func(handling context.Context, _ *later.Message) error {
			if _, err := c.Queue("q").Cancel(ctx, "a"); err != nil {
				t.Error(err)
			}
			<-handling.Done()
			stop()
			return nil
		})
		if err := w.Run(ctx); err != nil {
			t.Fatal(err)
		}
		scrape(t, m.Handler(c)).want(t, scraped{
			`later_messages_settled_total{outcome="cancelled",queue="q"}`:  1,
			`later_messages_settled_total{outcome="lease_lost",queue="q"}`: 0,
		})
		c.Close()
	})
}

func TestRunsOfSchedulesAreCountedByQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(Config{})
		c := newClient(t, memstore.New(), later.WithObserver(m.Observe))
		every := recurrence.Spec{Every: time.Minute}
		_, err := c.Schedules().Put(t.Context(), later.Schedule{Name: "tick", Queue: "q", When: every})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10*time.Minute + 30*time.Second)
		w := later.NewWorker(c, later.WorkerConfig{})
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		w.Handle("q", func(ctx context.Context, _ *later.Message) error {
			<-ctx.Done()
			return nil
		})
		if err := w.Run(ctx); err != nil {
			t.Fatal(err)
		}
		scrape(t, m.Handler(c)).want(t, scraped{
			`later_messages_sent_total{queue="q"}`:    1,
			`later_schedule_fired_total{queue="q"}`:   1,
			`later_schedule_missed_total{queue="q"}`:  9,
			`later_schedule_skipped_total{queue="q"}`: 1,
		})
		c.Close()
	})
}

func TestCountersOfQueuesBeyondTheLimitAreOther(t *testing.T) {
	if err := store.CheckQueue(otherQueue); err == nil {
		t.Errorf("a queue may have the name %s", otherQueue)
	}
	m := New(Config{MaxQueues: 3})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 1000 {
				m.Observe(later.Event{Kind: later.EventSent, Queue: fmt.Sprint("q", (n+i)%100)})
			}
		})
	}
	all.Wait()
	if n := testutil.CollectAndCount(m, "later_messages_sent_total"); n != 4 {
		t.Errorf("there are %d series of sent messages; want those of 3 queues and of the others", n)
	}
	// Each of 8 goroutines sends 10 to each of 100 queues.
	if n := testutil.ToFloat64(m.sent.WithLabelValues(otherQueue)); n != 97*80 {
		t.Errorf("%v messages were sent to other queues; want %d", n, 97*80)
	}
}

func BenchmarkObserve(b *testing.B) {
	ctx := later.ContextWithMessage(context.Background(), &later.Message{ID: "a", Queue: "mail"})
	for _, e := range []later.Event{
		{Kind: later.EventSent},
		{Kind: later.EventClaimed, Lateness: time.Millisecond},
		{Kind: later.EventStarted, Lateness: time.Millisecond},
		{Kind: later.EventAcked, Lateness: time.Millisecond, Duration: 20 * time.Millisecond},
		{Kind: later.EventLeaseLost, Err: fmt.Errorf("message %q: %w", "a", later.ErrCancelled)},
	} {
		e.Queue, e.ID, e.Context = "mail", "a", ctx
		for name, cfg := range map[string]Config{"": {}, "/native": {NativeHistograms: true}} {
			m := New(cfg)
			b.Run(string(e.Kind)+name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					m.Observe(e)
				}
			})
		}
	}
}

func TestObserveDoesNotAllocate(t *testing.T) {
	m := New(Config{MaxQueues: 1})
	ctx := later.ContextWithMessage(context.Background(), &later.Message{ID: "a", Queue: "mail"})
	for _, queue := range []string{"mail", "of the others"} {
		for _, kind := range []later.EventKind{later.EventSent, later.EventClaimed, later.EventStarted,
			later.EventAcked} {
			e := later.Event{Kind: kind, Queue: queue, ID: "a", Context: ctx, Lateness: 1, Duration: 1}
			m.Observe(e)
			if n := testing.AllocsPerRun(100, func() { m.Observe(e) }); n != 0 {
				t.Errorf("event %s of queue %q allocates %v times", kind, queue, n)
			}
		}
	}
}
