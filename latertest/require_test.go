package latertest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/latertest"
	"github.com/laterq/later/memstore"
)

var start = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

func TestRequireScheduledReturnsTheMessageThatMatches(t *testing.T) {
	lt := latertest.NewAt(t, start)
	q := lt.Client().Queue("orders")
	if err := q.SetFlow(t.Context(), later.Flow{Urgency: true}); err != nil {
		t.Fatal(err)
	}
	send(t, q, `{"order": 7, "total": 10}`, later.WithID("a"), later.In(time.Hour), later.Kind("order.cancel"),
		later.Header("customer", "ann"), later.Key("ann"), later.Urgent())
	send(t, q, `{"order": 8}`, later.WithID("b"), later.Kind("order.cancel"))
	for name, want := range map[string][]latertest.Match{
		"id":       {latertest.ID("a")},
		"payload":  {latertest.Payload(`{"order": 7, "total": 10}`)},
		"bytes":    {latertest.Payload([]byte(`{"order": 7, "total": 10}`))},
		"JSON":     {latertest.JSON(map[string]int{"total": 10, "order": 7})},
		"header":   {latertest.Header("customer", "ann")},
		"key":      {latertest.Key("ann")},
		"urgency":  {latertest.Urgency(later.UrgencyHigh)},
		"in":       {latertest.In(time.Hour)},
		"at":       {latertest.At(start.Add(time.Hour - time.Microsecond))},
		"before":   {latertest.Before(start.Add(2 * time.Hour)), latertest.In(time.Hour)},
		"where":    {latertest.Where("without a kind", func(i *later.Info) bool { return i.ID == "a" })},
		"together": {latertest.Kind("order.cancel"), latertest.ID("a"), latertest.In(time.Hour)},
	} {
		if info := latertest.RequireScheduled(t, q, want...); info.ID != "a" {
			t.Errorf("%s: found %q", name, info.ID)
		}
	}
	latertest.RequireScheduled(t, q, latertest.In(0), latertest.ID("b"))
	latertest.RequireNone(t, q, latertest.Kind("order.*"))
	latertest.RequireNone(t, q, latertest.Kind(""))
	latertest.RequireNone(t, q, latertest.Header("client", ""))
	latertest.RequireNone(t, q, latertest.JSON(7))
	if all := latertest.Scheduled(t, q, latertest.Kind("order.cancel")); len(all) != 2 || all[0].ID != "b" {
		t.Errorf("Scheduled: %+v", all)
	}
	lt.Advance(20 * time.Minute)
	latertest.RequireScheduled(t, q, latertest.In(40*time.Minute))
}

func TestFailuresListWhatIsScheduled(t *testing.T) {
	lt := latertest.NewAt(t, start)
	q := lt.Client().Queue("orders")
	wantFailure(t, func(tb latertest.TB) { latertest.RequireScheduled(tb, q) },
		`queue "orders" has no scheduled message.`)
	send(t, q, "order 7", later.WithID("seven"), later.In(30*time.Minute), later.Kind("cancel"), later.Header("a", "b"),
		later.Key("k"))
	send(t, q, "order 8", later.WithID("eight"))
	want := []latertest.Match{latertest.Payload("order 7"), latertest.In(time.Hour), latertest.Kind("cancel")}
	wantFailure(t, func(tb latertest.TB) { latertest.RequireScheduled(tb, q, want...) },
		`queue "orders" has no scheduled message with payload "order 7", due in 1h0m0s, kind "cancel".`,
		`At 2030-01-02T03:04:05Z queue "orders" has 1 scheduled, 1 ready, 0 leased and 0 dead messages:
  scheduled "seven", due in 30m0s (2030-01-02T03:34:05Z), kind "cancel", header "a": "b", key "k", `+
			`payload "order 7" (different: due)
  ready "eight", due in 0s (2030-01-02T03:04:05Z), payload "order 8" (different: payload, due, kind)`)
	wantFailure(t, func(tb latertest.TB) { latertest.RequireScheduled(tb, q) },
		`has 2 scheduled messages, and should have one: add conditions, or use Scheduled.`)
	wantFailure(t, func(tb latertest.TB) { latertest.RequireNone(tb, q, latertest.Kind("cancel")) },
		`queue "orders" has 1 scheduled message with kind "cancel", and should have none.`, `scheduled "seven"`)
	wantFailure(t, func(tb latertest.TB) { latertest.RequireDead(tb, q) }, `queue "orders" has no dead message.`)
	wantFailure(t, func(tb latertest.TB) { latertest.RequireScheduled(tb, q, latertest.JSON(func() {})) },
		"a value that has no JSON")
	for i := range 30 {
		send(t, q, strings.Repeat("x", 300), later.WithID(fmt.Sprintf("more-%02d", i)))
	}
	text := failure(func(tb latertest.TB) { latertest.RequireNone(tb, q) })
	if !strings.Contains(text, "and 12 more") || strings.Contains(text, strings.Repeat("x", 250)) {
		t.Errorf("a long list: %s", text)
	}
}

func TestMistakesFailTheTest(t *testing.T) {
	nothing := func(context.Context, *later.Message) error { return nil }
	for want, f := range map[string]func(*latertest.Harness){
		"time does not go back": func(lt *latertest.Harness) { lt.Advance(-1) },
		"MoveClock by -1ns":     func(lt *latertest.Harness) { lt.MoveClock(-1) },
		"is nil: give a function": func(lt *latertest.Harness) {
			lt.Handle("q", nil)
		},
		"queue name": func(lt *latertest.Harness) { lt.Handle("", nothing) },
		"has a handler already": func(lt *latertest.Harness) {
			lt.Handle("q", nothing)
			lt.Handle("q", nothing)
		},
		"give each queue one handler": func(lt *latertest.Harness) {
			lt.Handle("q", nothing)
			w := later.NewWorker(lt.Client(), later.WorkerConfig{})
			w.Handle("q", nothing)
			lt.Start(w)
		},
		"queue \"q\" has a handler already": func(lt *latertest.Harness) {
			w := later.NewWorker(lt.Client(), later.WorkerConfig{})
			w.Handle("q", nothing)
			lt.Start(w)
			lt.Handle("q", nothing)
		},
		"Concurrency is -1": func(lt *latertest.Harness) {
			w := later.NewWorker(lt.Client(), later.WorkerConfig{Concurrency: -1})
			w.Handle("q", nothing)
			lt.Start(w)
			lt.Run() // does not wait for it
		},
		"called while it runs": func(lt *latertest.Harness) {
			lt.Handle("q", func(context.Context, *later.Message) error {
				lt.Advance(time.Hour)
				return nil
			})
			if _, err := lt.Client().Queue("q").Send(t.Context(), nil); err != nil {
				t.Error(err)
			}
			lt.Run()
		},
	} {
		wantFailure(t, func(tb latertest.TB) { f(latertest.New(tb)) }, want)
	}
	wantFailure(t, func(tb latertest.TB) { latertest.New(tb, nil) }, "option 1 is nil")
	wantFailure(t, func(tb latertest.TB) {
		latertest.RequireNone(tb, latertest.New(tb).Client().Queue("{}"))
	}, "read queue")
}

// TestEndlessHandlersFailTheTest snoozes without a delay.
func TestEndlessHandlersFailTheTest(t *testing.T) {
	latertest.SetMaxResults(t, 1000)
	wantFailure(t, func(tb latertest.TB) {
		lt := latertest.New(tb)
		lt.Handle("q", func(context.Context, *later.Message) error { return later.Snooze(0) })
		if _, err := lt.Client().Queue("q").Send(t.Context(), nil); err != nil {
			t.Error(err)
		}
		lt.Run()
	}, "more than 1000 messages were handled")
}

func TestInlineHandlersSettleAsWorkersDo(t *testing.T) {
	lt := latertest.New(t)
	q := lt.Client().Queue("q")
	lt.Handle("q", func(ctx context.Context, m *later.Message) error {
		if later.MessageFromContext(ctx) != m {
			t.Error("the context has another message")
		}
		switch string(m.Payload) {
		case "cancels itself":
			_, err := q.Cancel(ctx, m.ID)
			return err
		case "follows up":
			return later.Then("", nil)
		case "resets":
			if m.Attempt == 1 {
				return errors.New("once")
			}
			return later.Snooze(time.Hour, later.ResetAttempts)
		}
		return nil
	})
	send(t, q, "cancels itself")
	lt.Run()
	latertest.RequireNone(t, q)
	send(t, q, "follows up", later.MaxAttempts(1))
	lt.Run()
	if dead := latertest.RequireDead(t, q); !strings.Contains(dead.LastError, "queue name") {
		t.Errorf("dead with %q", dead.LastError)
	}
	send(t, q, "resets")
	lt.Advance(time.Second)
	if info := latertest.RequireScheduled(t, q, latertest.In(time.Hour)); info.Attempts != 0 {
		t.Errorf("%d attempts after a reset", info.Attempts)
	}
}

// TestAssertionsWorkOnAnyStore uses a client that is not a harness's.
func TestAssertionsWorkOnAnyStore(t *testing.T) {
	s := memstore.New()
	defer s.Close()
	c, err := later.New(s)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	latertest.RequireNone(t, c.Queue("q"))
	send(t, c.Queue("q"), "a", later.At(start))
	latertest.RequireScheduled(t, c.Queue("q"), latertest.Payload("a"), latertest.At(start))
}
