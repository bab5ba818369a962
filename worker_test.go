package later

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/internal/outcome"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

func ignore(context.Context, *Message) error { return nil }

func TestWorkerRunReturnsTheErrorsOfHandle(t *testing.T) {
	c := newClientOn(t, memstore.New())
	for text, handle := range map[string]func(*Worker){
		"holds a brace":         func(w *Worker) { w.Handle("{}", ignore) },
		"is nil":                func(w *Worker) { w.Handle("p", Handler[string](nil)) },
		"has a handler already": func(w *Worker) { w.Handle("q", ignore) },
	} {
		w := NewWorker(c, WorkerConfig{})
		w.Handle("q", ignore)
		handle(w)
		if err := w.Run(t.Context()); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), text) {
			t.Errorf("Run returned %v; want ErrInvalid with %q", err, text)
		}
	}
}

func TestWorkerRunRefusesAnInvalidConfiguration(t *testing.T) {
	c := newClientOn(t, memstore.New())
	queue := func(q QueueConfig) WorkerConfig { return WorkerConfig{Queues: map[string]QueueConfig{"q": q}} }
	for want, cfg := range map[string]WorkerConfig{
		"worker's Concurrency is -1":     {Concurrency: -1},
		"MaxPrefetch is 2001":            {MaxPrefetch: 2001},
		"Middleware 0 is nil":            {Middleware: []func(HandlerFunc) HandlerFunc{nil}},
		"worker's Lease is 1ms: give 10": {Lease: time.Millisecond},
		"worker's Timeout is -1s":        {Timeout: -time.Second},
		"worker's Timeout is 24h0m0.0":   {Timeout: store.MaxTimeout + 1},
		`"other", which has no handler`:  {Queues: map[string]QueueConfig{"other": {}}},
		`queue "q": Concurrency is -2`:   queue(QueueConfig{Concurrency: -2}),
		`queue "q": Weight is 1001`:      queue(QueueConfig{Weight: 1001}),
		`queue "q": Timeout is -1s`:      queue(QueueConfig{Timeout: -time.Second}),
		`worker's queue "q": Lease is 1`: queue(QueueConfig{Lease: 1}),
	} {
		w := NewWorker(c, cfg)
		w.Handle("q", ignore)
		err := w.Run(t.Context())
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v; want an ErrInvalid with %q", err, want)
		}
	}
	wantError(t, NewWorker(c, WorkerConfig{}).Run(t.Context()), ErrInvalid)
}

func TestWorkerRunRefusesAMiddlewareThatReturnsNoHandler(t *testing.T) {
	c := newClientOn(t, memstore.New())
	same := func(next HandlerFunc) HandlerFunc { return next }
	none := func(HandlerFunc) HandlerFunc { return nil }
	w := NewWorker(c, WorkerConfig{Middleware: []func(HandlerFunc) HandlerFunc{same, none, same}})
	w.Handle("q", ignore)
	err := w.Run(t.Context())
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), `Middleware 1 returned nil for queue "q"`) {
		t.Errorf("error is %v", err)
	}
}

func TestWorkerRunsMessagesWhenDueAndNotBefore(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q, begin := c.Queue("q"), time.Now()
		var runs log[time.Duration]
		w := NewWorker(c, WorkerConfig{})
		w.Handle("q", func(_ context.Context, m *Message) error {
			runs.add(time.Since(begin))
			if m.Lateness != 0 {
				t.Errorf("lateness is %v; want 0", m.Lateness)
			}
			return nil
		})
		start(t, w)
		synctest.Wait()
		var want []time.Duration
		for i := range 100 {
			want = append(want, time.Duration(i)*7*time.Second)
			mustSend(t, q, "", In(want[i]))
		}
		time.Sleep(time.Hour)
		if got := runs.list(); !slices.Equal(got, want) {
			t.Errorf("ran after %v", got)
		}
		wantCounts(t, q, 0, 0, 0, 0)
	})
}

func TestWorkerLatenessIncludesTheWaitForAHandler(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		var late log[time.Duration]
		w := NewWorker(c, WorkerConfig{Concurrency: 1})
		w.Handle("q", func(ctx context.Context, m *Message) error {
			late.add(m.Lateness)
			return sleep(ctx, time.Second)
		})
		for range 3 {
			mustSend(t, c.Queue("q"), "")
		}
		start(t, w)
		time.Sleep(time.Minute)
		if got, want := late.list(), []time.Duration{0, time.Second, 2 * time.Second}; !slices.Equal(got, want) {
			t.Errorf("late by %v, want %v", got, want)
		}
	})
}

func TestWorkerFailedMessageWaitsForTheBackoffAndDiesAfterItsLastAttempt(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q, begin := c.Queue("q"), time.Now()
		var runs log[time.Duration]
		w := NewWorker(c, WorkerConfig{Backoff: geometric(time.Second, 2, time.Hour)})
		w.Handle("q", func(_ context.Context, m *Message) error {
			runs.add(time.Since(begin))
			return errors.New("no luck")
		})
		start(t, w)
		mustSend(t, q, "", WithID("id"), MaxAttempts(4))
		time.Sleep(time.Hour)
		want := []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second}
		if got := runs.list(); !slices.Equal(got, want) {
			t.Errorf("ran after %v, want %v", got, want)
		}
		info, err := q.Get(t.Context(), "id")
		if err != nil || info.State != StateDead || info.DeadReason != DeadFailed || info.Attempts != 4 ||
			info.LastError != "no luck" {
			t.Errorf("Get returned %+v, %v", info, err)
		}
	})
}

func TestWorkerQueueCanHaveItsOwnBackoff(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		w := NewWorker(c, WorkerConfig{Queues: map[string]QueueConfig{"q": {Backoff: ConstantBackoff(time.Hour)}}})
		w.Handle("q", func(context.Context, *Message) error { return errors.New("no") })
		start(t, w)
		mustSend(t, q, "")
		synctest.Wait()
		if s := mustStats(t, q); s.NextDue.Sub(s.Now) != time.Hour {
			t.Errorf("due in %v", s.NextDue.Sub(s.Now))
		}
	})
}

func TestWorkerSnoozeDoesNotCountAsAnAttempt(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		var attempts log[int]
		w := NewWorker(c, WorkerConfig{})
		w.Handle("q", func(_ context.Context, m *Message) error {
			attempts.add(m.Attempt)
			if len(attempts.list()) < 5 {
				return Snooze(time.Minute)
			}
			return nil
		})
		start(t, w)
		mustSend(t, q, "", MaxAttempts(1))
		time.Sleep(time.Hour)
		if got := attempts.list(); !slices.Equal(got, []int{1, 1, 1, 1, 1}) {
			t.Errorf("attempts %v", got)
		}
		wantCounts(t, q, 0, 0, 0, 0)
	})
}

func TestWorkerMiddlewareWrapsFromTheOutsideIn(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		var order log[string]
		wrap := func(name string) func(HandlerFunc) HandlerFunc {
			return func(next HandlerFunc) HandlerFunc {
				return func(ctx context.Context, m *Message) error {
					order.add(name)
					defer order.add("/" + name)
					return next(ctx, m)
				}
			}
		}
		w := NewWorker(c, WorkerConfig{Middleware: []func(HandlerFunc) HandlerFunc{wrap("outer"), wrap("inner")}})
		w.Handle("q", func(ctx context.Context, m *Message) error {
			order.add("handler")
			derived, cancel := context.WithCancel(ctx)
			defer cancel()
			if MessageFromContext(derived) != m {
				t.Error("MessageFromContext did not return the message")
			}
			return nil
		})
		start(t, w)
		mustSend(t, c.Queue("q"), "")
		synctest.Wait()
		if got := order.list(); !slices.Equal(got, []string{"outer", "inner", "handler", "/inner", "/outer"}) {
			t.Errorf("order is %v", got)
		}
		if MessageFromContext(t.Context()) != nil {
			t.Error("MessageFromContext returned a message for an unrelated context")
		}
	})
}

func TestWorkerOnDeadThatIsTooSlowSkipsMessagesAndLogsHowMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text lockedBuffer
		c := newClientOn(t, memstore.New(), WithLogger(text.logger()))
		q, let := c.Queue("q"), make(chan struct{})
		var called atomic.Int32
		w := NewWorker(c, WorkerConfig{OnDead: func(context.Context, *Info) { called.Add(1); <-let }})
		w.Handle("q", func(context.Context, *Message) error { return Bury(nil) })
		w.Handle("other", func(context.Context, *Message) error { return Bury(nil) })
		start(t, w)
		mustSend(t, q, "") // waits in OnDead
		synctest.Wait()
		backlog(t, q, outcome.MaxDeadWaiting-10)
		synctest.Wait()
		backlog(t, c.Queue("other"), 17)
		synctest.Wait()
		wantCounts(t, q, 0, 0, 0, outcome.MaxDeadWaiting-9) // nothing waits for OnDead but OnDead
		close(let)
		synctest.Wait()
		if n := called.Load(); n != 1+outcome.MaxDeadWaiting {
			t.Errorf("OnDead was called %d times, want %d", n, 1+outcome.MaxDeadWaiting)
		}
		if !strings.Contains(text.String(), "was not called for some messages") ||
			!strings.Contains(text.String(), "messages=7 ") {
			t.Errorf("log %q; want 7 skipped messages", text.String())
		}
	})
}

func TestWorkerOnDeadIsCalledForEveryDeadReason(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		var dead log[Info]
		w := NewWorker(c, WorkerConfig{
			Concurrency: 1,
			OnDead: func(_ context.Context, info *Info) {
				dead.add(*info)
				panic("must not matter")
			},
		})
		w.Handle("q", func(_ context.Context, m *Message) error {
			if m.ID == "buried" {
				return Bury(errors.New("bad"))
			}
			return errors.New("no")
		})
		mustSend(t, q, "", WithID("expired"), ExpireAfter(time.Second))
		mustSend(t, q, "", WithID("crashed"), MaxAttempts(1))
		for _, d := range mustReceive(t, q, 2, Lease(2*time.Second)) {
			if d.ID == "expired" {
				d.Release(t.Context())
			}
		}
		time.Sleep(time.Minute)
		start(t, w)
		mustSend(t, q, "", WithID("failed"), MaxAttempts(1))
		mustSend(t, q, "", WithID("buried"))
		time.Sleep(time.Minute)
		got := map[string]DeadReason{}
		for _, info := range dead.list() {
			got[info.ID] = info.DeadReason
		}
		want := map[string]DeadReason{
			"expired": DeadExpired, "crashed": DeadLeaseExpired, "failed": DeadFailed, "buried": DeadBuried,
		}
		if len(got) != 4 || len(dead.list()) != 4 || got["expired"] != want["expired"] || got["crashed"] != want["crashed"] ||
			got["failed"] != want["failed"] || got["buried"] != want["buried"] {
			t.Errorf("OnDead was called for %v, want %v", got, want)
		}
	})
}

func TestWorkerReportsEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen events
		c := newClientOn(t, memstore.New(), WithObserver(seen.add))
		q := c.Queue("q")
		results := map[string]error{
			"ack": nil, "nack": errors.New("no"), "snooze": Snooze(time.Hour), "bury": Bury(errors.New("bad")),
		}
		w := NewWorker(c, WorkerConfig{Backoff: ConstantBackoff(time.Hour)})
		w.Handle("q", func(ctx context.Context, m *Message) error {
			sleep(ctx, time.Second)
			return results[m.ID]
		})
		for id := range results {
			mustSend(t, q, "", WithID(id))
		}
		start(t, w)
		time.Sleep(time.Minute)
		for id, end := range map[string][]EventKind{
			"ack": {EventAcked}, "nack": {EventNacked}, "snooze": {EventSnoozed}, "bury": {EventBuried, EventDied},
		} {
			want := append([]EventKind{EventSent, EventClaimed, EventStarted}, end...)
			if got := seen.kinds(id); !slices.Equal(got, want) {
				t.Errorf("%s: events %v, want %v", id, got, want)
			}
		}
		e := seen.of(EventNacked)[0]
		if e.Err != results["nack"] || e.Duration != time.Second || e.Attempt != 1 || e.Queue != "q" || e.Time.IsZero() {
			t.Errorf("event %+v", e)
		}
	})
}

func TestWorkerReportsDroppedDeadMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen events
		c := newClientOn(t, memstore.New(), WithObserver(seen.add))
		q := c.Queue("q")
		if err := q.SetDeadRetention(t.Context(), Retention{MaxCount: -1}); !errors.Is(err, ErrInvalid) {
			t.Errorf("SetDeadRetention of a negative count = %v", err)
		}
		if err := q.SetDeadRetention(t.Context(), Retention{MaxAge: time.Hour}); err != nil {
			t.Fatal(err)
		}
		w := NewWorker(c, WorkerConfig{})
		w.Handle("q", func(_ context.Context, m *Message) error {
			if m.ID == "dead" {
				return Bury(errors.New("bad"))
			}
			return nil
		})
		mustSend(t, q, "", WithID("dead"))
		start(t, w)
		time.Sleep(time.Hour)
		mustSend(t, q, "", WithID("other")) // so that the worker claims
		time.Sleep(time.Second)
		want := []EventKind{EventSent, EventClaimed, EventStarted, EventBuried, EventDied, EventDropped}
		if got := seen.kinds("dead"); !slices.Equal(got, want) {
			t.Errorf("events %v, want %v", got, want)
		}
		stats, err := q.Stats(t.Context())
		if err != nil || stats.Dead != 0 || stats.Dropped != 1 || stats.DeadRetention.MaxAge != time.Hour {
			t.Errorf("Stats = %+v, %v", stats, err)
		}
	})
}

func TestWorkerReportsExpiredMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen events
		c := newClientOn(t, memstore.New(), WithObserver(seen.add))
		q := c.Queue("q")
		mustSend(t, q, "", WithID("expired"), ExpireAfter(time.Second))
		mustSend(t, q, "", WithID("crashed"), MaxAttempts(1))
		if d := mustReceive(t, q, 1, Lease(time.Second))[0]; d.ID != "crashed" {
			t.Fatalf("received %q", d.ID)
		}
		time.Sleep(time.Minute)
		w := NewWorker(c, WorkerConfig{})
		w.Handle("q", ignore)
		start(t, w)
		synctest.Wait()
		for id, want := range map[string][]EventKind{
			"expired": {EventSent, EventExpired, EventDied}, "crashed": {EventSent, EventClaimed, EventDied},
		} {
			if got := seen.kinds(id); !slices.Equal(got, want) {
				t.Errorf("%s: events %v, want %v", id, got, want)
			}
		}
	})
}

func TestWorkerDoesNotPollWhenIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		f := &faulty{Store: memstore.New()}
		c := newClientOn(t, f)
		f.set(func(context.Context, string) error { calls.Add(1); return nil }, nil)
		w := NewWorker(c, WorkerConfig{Unlisted: true}) // its record is renewed every 10 s
		w.Handle("q", ignore)
		start(t, w)
		mustSend(t, c.Queue("q"), "")
		mustSend(t, c.Queue("q"), "", In(24*time.Hour))
		time.Sleep(time.Minute)
		before := calls.Load()
		time.Sleep(time.Hour)
		if n := calls.Load() - before; n != 0 {
			t.Errorf("%d calls to the store in an idle hour; want 0", n)
		}
	})
}

func TestWorkerDoesNotClaimWhilePaused(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		var done atomic.Int32
		w := NewWorker(c, WorkerConfig{})
		w.Handle("q", func(context.Context, *Message) error { done.Add(1); return nil })
		w.Pause()
		mustSend(t, q, "")
		start(t, w)
		time.Sleep(time.Minute)
		wantCounts(t, q, 0, 1, 0, 0)
		w.Resume()
		synctest.Wait()
		wantCounts(t, q, 0, 0, 0, 0)
		w.Pause()
		synctest.Wait()
		mustSend(t, q, "")
		time.Sleep(time.Minute)
		wantCounts(t, q, 0, 1, 0, 0)
		w.Resume()
		synctest.Wait()
		if done.Load() != 2 {
			t.Errorf("%d handled, want 2", done.Load())
		}
	})
}

func TestWorkerSurvivesAnOutageAndLogsItOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text lockedBuffer
		f := &faulty{Store: memstore.New()}
		c := newClientOn(t, f, WithLogger(text.logger()))
		q := c.Queue("q")
		var done atomic.Int32
		w := NewWorker(c, WorkerConfig{})
		w.Handle("q", func(context.Context, *Message) error { done.Add(1); return nil })
		start(t, w)
		synctest.Wait()
		var tries atomic.Int32
		f.set(func(ctx context.Context, call string) error {
			if call != "send" {
				tries.Add(1)
				return store.ErrUnavailable
			}
			return nil
		}, nil)
		mustSend(t, q, "")
		time.Sleep(time.Minute)
		if n := tries.Load(); n < 30 || n > 70 {
			t.Errorf("%d calls in a minute; want one every one to two seconds", n)
		}
		f.set(nil, nil)
		time.Sleep(3 * time.Second)
		if done.Load() != 1 {
			t.Error("the message was not handled after the outage")
		}
		if s := text.String(); strings.Count(s, "store is failing") != 1 || strings.Count(s, "store is back") != 1 {
			t.Errorf("log is %q", s)
		}
	})
}

func TestWorkerRunEndsWhenTheStoreHasStoppedForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		c := newClientOn(t, f)
		stopped := fmt.Errorf("%w: the disk is gone: %w", ErrUnavailable, ErrClosed)
		f.set(func(_ context.Context, call string) error {
			if call == "claim" {
				return stopped
			}
			return nil
		}, nil)
		w := NewWorker(c, WorkerConfig{})
		w.Handle("q", ignore)
		if err := w.Run(t.Context()); !errors.Is(err, stopped) || CodeOf(err) != store.ErrUnavailable.Code {
			t.Errorf("Run returned %v", err)
		}
	})
}
