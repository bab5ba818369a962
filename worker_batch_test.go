package later

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/memstore"
)

func ackAll(context.Context, []*Message) []error { return nil }

// batchRun is one call of a batch handler.
type batchRun struct {
	at   time.Duration // after the start
	size int
}

// recording returns a batch handler that records its calls, works for d and acks.
func recording(runs *log[batchRun], d time.Duration) BatchHandlerFunc {
	begin := time.Now()
	return func(ctx context.Context, msgs []*Message) []error {
		runs.add(batchRun{time.Since(begin), len(msgs)})
		_ = sleep(ctx, d)
		return nil
	}
}

func TestBatchRunRefusesAnInvalidConfiguration(t *testing.T) {
	c := newClientOn(t, memstore.New())
	for text, handle := range map[string]func(*Worker){
		"HandleBatch: Size is -1: must be 1":  func(w *Worker) { w.HandleBatch("q", ackAll, BatchConfig{Size: -1}) },
		"Size is 501: must be 1 to 500, or 0": func(w *Worker) { w.HandleBatch("q", ackAll, BatchConfig{Size: 501}) },
		"Wait is -1ns: give up to 1m0s":       func(w *Worker) { w.HandleBatch("q", ackAll, BatchConfig{Wait: -1}) },
		"Wait is 1h0m0s: give up to 1m0s":     func(w *Worker) { w.HandleBatch("q", ackAll, BatchConfig{Wait: time.Hour}) },
		`handler of queue "q" is nil`:         func(w *Worker) { w.HandleBatch("q", nil, BatchConfig{}) },
		"has a handler already": func(w *Worker) {
			w.Handle("q", ignore)
			w.HandleBatch("q", ackAll, BatchConfig{})
		},
	} {
		w := NewWorker(c, WorkerConfig{})
		handle(w)
		if err := w.Run(t.Context()); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), text) {
			t.Errorf("Run returned %v; want ErrInvalid with %q", err, text)
		}
	}
}

func TestBatchHasWhatIsDueUpToItsSize(t *testing.T) {
	for _, c := range []struct{ size, concurrency, messages, runs, leased int }{
		{0, 1, 250, 3, 100}, {500, 1, 1200, 3, 500}, {1, 1, 7, 7, 1}, {10, 4, 400, 40, 40}, {200, 3, 1000, 5, 600},
	} {
		t.Run(fmt.Sprintf("%d of size %d, %d at a time", c.messages, c.size, c.concurrency), func(t *testing.T) {
			inBubble(t, func(t *testing.T, client *Client) {
				q := client.Queue("q")
				var runs log[batchRun]
				w := NewWorker(client, WorkerConfig{Concurrency: c.concurrency})
				w.HandleBatch("q", recording(&runs, time.Second), BatchConfig{Size: c.size})
				backlog(t, q, c.messages)
				start(t, w)
				for range c.runs {
					synctest.Wait()
					if leased := mustStats(t, q).Leased; leased > int64(c.leased) {
						t.Errorf("%d messages are held, want at most %d", leased, c.leased)
					}
					time.Sleep(time.Second)
				}
				time.Sleep(time.Second)
				all := runs.list()
				if len(all) != c.runs {
					t.Errorf("the messages ran in %d batches: %v; want %d", len(all), all, c.runs)
				}
				if want := time.Duration((c.runs-1)/c.concurrency) * time.Second; all[len(all)-1].at != want {
					t.Errorf("the last batch began after %v, want %v", all[len(all)-1].at, want)
				}
				wantCounts(t, q, 0, 0, 0, 0)
			})
		})
	}
}

func TestBatchSettlesEachMessageByItsOwnResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen events
		c := newClientOn(t, memstore.New(), WithObserver(func(e Event) {
			e.Context.Done() // as tracing does
			seen.add(e)
		}))
		q, begin := c.Queue("q"), time.Now()
		results := map[string]error{
			"ack": nil, "fail": errors.New("no"), "retry": RetryIn(time.Hour), "snooze": Snooze(2 * time.Hour),
			"bury": Bury(errors.New("bad")), "then": Then("next", []byte("x")), "bad then": Then("{", nil),
		}
		var attempts log[string]
		w := NewWorker(c, WorkerConfig{Backoff: ConstantBackoff(3 * time.Hour)})
		w.HandleBatch("q", func(ctx context.Context, msgs []*Message) []error {
			if MessageFromContext(ctx) != nil {
				t.Error("the context has a message")
			}
			errs := make([]error, len(msgs))
			for i, m := range msgs {
				attempts.add(fmt.Sprint(m.ID, m.Attempt))
				errs[i] = results[m.ID]
			}
			return errs
		}, BatchConfig{})
		for id := range results {
			mustSend(t, q, "", WithID(id))
		}
		start(t, w)
		time.Sleep(time.Second)
		for id, want := range map[string]struct {
			due      time.Duration
			attempts int
			reason   DeadReason
		}{
			"retry": {time.Hour, 1, ""}, "snooze": {2 * time.Hour, 0, ""}, "bury": {0, 1, DeadBuried},
			"fail": {3 * time.Hour, 1, ""}, "bad then": {3 * time.Hour, 1, ""},
		} {
			info, err := q.Get(t.Context(), id)
			if err != nil || info.Due.Sub(begin) != want.due || info.Attempts != want.attempts ||
				info.DeadReason != want.reason {
				t.Errorf("%s: %+v, %v; want %+v", id, info, err, want)
			}
		}
		wantCounts(t, c.Queue("next"), 0, 1, 0, 0)
		for id, want := range map[string]EventKind{
			"ack": EventAcked, "fail": EventNacked, "snooze": EventSnoozed, "then": EventAcked,
		} {
			kinds := seen.kinds(id)
			if !slices.Equal(kinds, []EventKind{EventSent, EventClaimed, EventStarted, want}) {
				t.Errorf("events of %s are %v", id, kinds)
			}
		}
		time.Sleep(10 * time.Hour) // only failed messages come again
		got := attempts.list()
		slices.Sort(got)
		has := func(attempt string) bool { return slices.Contains(got, attempt) }
		if len(got) < 12 || !has("fail2") || has("snooze2") || has("ack2") {
			t.Errorf("attempts were %v", got)
		}
	})
}

func TestBatchHandlerThatGoesWrongFailsEveryMessage(t *testing.T) {
	for text, c := range map[string]struct {
		handler BatchHandlerFunc
		logged  string
	}{
		"batch handler returned 2 errors for 3 messages": {
			func(context.Context, []*Message) []error { return make([]error, 2) }, "all messages of a batch failed",
		},
		"batch handler returned 0 errors for 3 messages": {
			func(context.Context, []*Message) []error { return []error{} }, "all messages of a batch failed",
		},
		"batch handler returned 4 errors for 3 messages": {
			func(context.Context, []*Message) []error { return make([]error, 4) }, "all messages of a batch failed",
		},
		"batch handler reordered its slice": {
			func(_ context.Context, msgs []*Message) []error {
				slices.Reverse(msgs)
				return make([]error, len(msgs))
			}, "all messages of a batch failed",
		},
		"panic: boom\n\n": {
			func(context.Context, []*Message) []error { explode(); return nil }, "batch handler panicked",
		},
		"handler called runtime.Goexit": {
			func(context.Context, []*Message) []error { runtime.Goexit(); return nil }, "",
		},
	} {
		t.Run(text, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var logged lockedBuffer
				client := newClientOn(t, memstore.New(), WithLogger(logged.logger()))
				q := client.Queue("q")
				w := NewWorker(client, WorkerConfig{Concurrency: 1, Backoff: ConstantBackoff(time.Hour)})
				broken := true
				w.HandleBatch("q", func(ctx context.Context, msgs []*Message) []error {
					if broken {
						broken = false
						return c.handler(ctx, msgs)
					}
					return nil
				}, BatchConfig{})
				backlog(t, q, 3)
				stop := start(t, w)
				synctest.Wait()
				page, err := q.List(t.Context(), ListOptions{State: StateScheduled})
				if err != nil || len(page.Messages) != 3 {
					t.Fatalf("List returned %+v, %v", page, err)
				}
				for _, m := range page.Messages {
					if m.Attempts != 1 || !strings.Contains(m.LastError, text) {
						t.Errorf("attempts %d, last error %q", m.Attempts, m.LastError)
					}
					if strings.HasPrefix(text, "panic") && !strings.Contains(m.LastError, "explode") {
						t.Errorf("the reason lacks the stack: %s", m.LastError)
					}
				}
				if n := strings.Count(logged.String(), c.logged); c.logged != "" && n != 1 {
					t.Errorf("%d log messages: %s", n, logged.String())
				}
				mustSend(t, q, "") // the handler is called again
				synctest.Wait()
				wantCounts(t, q, 3, 0, 0, 0)
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestBatchReplacesABackoffThatPanics(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		w := NewWorker(c, WorkerConfig{Backoff: func(int, error) time.Duration { panic("bad backoff") }})
		w.HandleBatch("q", func(_ context.Context, msgs []*Message) []error {
			errs := make([]error, len(msgs))
			errs[0] = errors.New("no")
			return errs
		}, BatchConfig{})
		mustSend(t, q, "", MaxAttempts(1), WithID("a"))
		mustSend(t, q, "", MaxAttempts(1), WithID("b"))
		start(t, w)
		synctest.Wait()
		if info, err := q.Get(t.Context(), "a"); err != nil || !strings.HasPrefix(info.LastError, "panic: bad backoff") {
			t.Errorf("Get returned %+v, %v", info, err)
		}
		wantCounts(t, q, 0, 0, 0, 1)
	})
}

func TestBatchGoesOnWithoutAMessageThatIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen events
		c := newClientOn(t, memstore.New(), WithObserver(seen.add))
		q := c.Queue("q")
		w := NewWorker(c, WorkerConfig{Lease: 3 * time.Second})
		var causes log[error]
		w.HandleBatch("q", func(ctx context.Context, msgs []*Message) []error {
			causes.add(sleep(ctx, time.Minute))
			return nil
		}, BatchConfig{})
		for _, id := range []string{"a", "b", "c"} {
			mustSend(t, q, "", WithID(id))
		}
		start(t, w)
		synctest.Wait()
		if state, err := q.Cancel(t.Context(), "b"); state != StateLeased || err != nil {
			t.Fatalf("Cancel returned %v, %v", state, err)
		}
		time.Sleep(59 * time.Second)
		wantCounts(t, q, 0, 0, 2, 0)
		time.Sleep(2 * time.Second)
		wantCounts(t, q, 0, 0, 0, 0)
		if got := causes.list(); len(got) != 1 || got[0] != nil {
			t.Errorf("the context ended with %v, although messages were held", got)
		}
		if a, b := seen.kinds("a"), seen.kinds("b"); a[len(a)-1] != EventAcked || b[len(b)-1] != EventLeaseLost {
			t.Errorf("events are %v and %v", a, b)
		}
		// When no message is left, the context ends.
		mustSend(t, q, "", WithID("d"))
		mustSend(t, q, "", WithID("e"))
		synctest.Wait()
		for _, id := range []string{"d", "e"} {
			if _, err := q.Cancel(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(3 * time.Second)
		for _, cause := range causes.list()[1:] {
			wantError(t, cause, ErrCancelled)
		}
		if len(causes.list()) < 2 {
			t.Error("the context did not end")
		}
		wantCounts(t, q, 0, 0, 0, 0)
	})
}

func TestBatchEndsWhenItsLeaseIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		c := newClientOn(t, f)
		q := c.Queue("q")
		w := NewWorker(c, WorkerConfig{Concurrency: 1, Lease: 3 * time.Second})
		var causes log[error]
		var attempts log[int]
		w.HandleBatch("q", func(ctx context.Context, msgs []*Message) []error {
			for _, m := range msgs {
				attempts.add(m.Attempt)
			}
			causes.add(sleep(ctx, 10*time.Second))
			return nil
		}, BatchConfig{})
		backlog(t, q, 2)
		start(t, w)
		synctest.Wait()
		f.set(unavailable("extend", "claim"), nil)
		time.Sleep(4 * time.Second)
		f.set(nil, nil)
		time.Sleep(time.Minute)
		// After claims that failed, the worker claims one message first.
		got := causes.list()
		if !errors.Is(got[0], ErrLeaseLost) || errors.Join(got[1:]...) != nil {
			t.Errorf("the contexts ended with %v; want ErrLeaseLost, then nothing", got)
		}
		if !slices.Equal(attempts.list(), []int{1, 1, 2, 2}) {
			t.Errorf("attempts were %v", attempts.list())
		}
		wantCounts(t, q, 0, 0, 0, 0)
	})
}

func TestBatchTimeLimitIsTheShortestOfItsMessages(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		w := NewWorker(c, WorkerConfig{Timeout: time.Minute, Backoff: ConstantBackoff(time.Hour)})
		var ran log[time.Duration]
		w.HandleBatch("q", func(ctx context.Context, msgs []*Message) []error {
			begin := time.Now()
			wantError(t, sleep(ctx, time.Hour), ErrTimeout)
			ran.add(time.Since(begin))
			errs := make([]error, len(msgs))
			errs[1] = Snooze(2 * time.Hour)
			return errs
		}, BatchConfig{})
		for i, id := range []string{"a", "b", "c"} {
			due := At(time.Now().Add(time.Duration(i-10) * time.Millisecond))
			mustSend(t, q, "", WithID(id), due, Timeout(time.Duration(3-i)*time.Second))
		}
		start(t, w)
		time.Sleep(2 * time.Second)
		if got := ran.list(); !slices.Equal(got, []time.Duration{time.Second}) {
			t.Errorf("ran for %v, want 1 s", got)
		}
		for id, attempts := range map[string]int{"a": 1, "b": 0, "c": 1} {
			if info, err := q.Get(t.Context(), id); err != nil || info.Attempts != attempts {
				t.Errorf("%s: %+v, %v; want %d attempts", id, info, err, attempts)
			}
		}
	})
}

func TestBatchDrain(t *testing.T) {
	for name, c := range map[string]struct {
		wait, work time.Duration
		took       time.Duration
		ready      int64 // messages that are back in the queue
	}{
		"lets a batch finish":                 {0, 3 * time.Second, 3 * time.Second, 0},
		"releases a batch that waits at once": {time.Minute, 0, 0, 3},
		"ends a batch after ShutdownTimeout":  {0, time.Hour, 5 * time.Second, 3},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, client *Client) {
				q := client.Queue("q")
				w := NewWorker(client, WorkerConfig{ShutdownTimeout: 5 * time.Second})
				var causes log[error]
				w.HandleBatch("q", func(ctx context.Context, _ []*Message) []error {
					causes.add(sleep(ctx, c.work))
					return nil
				}, BatchConfig{Wait: c.wait})
				backlog(t, q, 3)
				stop := start(t, w)
				synctest.Wait()
				wantCounts(t, q, 0, 0, 3, 0)
				begin := time.Now()
				if err := stop(); err != nil || time.Since(begin) != c.took {
					t.Errorf("Run returned %v after %v, want %v", err, time.Since(begin), c.took)
				}
				wantCounts(t, q, 0, c.ready, 0, 0)
				if c.work > 5*time.Second {
					wantError(t, causes.list()[0], ErrShutdown)
				}
				for range c.ready {
					if d := mustReceive(t, q, 1)[0]; d.Attempt != 1 {
						t.Errorf("attempt is %d; a release must not count as an attempt", d.Attempt)
					}
				}
			})
		})
	}
}

func TestBatchSharesHandlersWithOtherQueues(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		var all gauge
		w := NewWorker(c, WorkerConfig{Concurrency: 4, Queues: map[string]QueueConfig{"batch": {Concurrency: 2}}})
		var handled atomic.Int32
		work := func(ctx context.Context) {
			all.in()
			defer all.out()
			_ = sleep(ctx, time.Second)
		}
		w.HandleBatch("batch", func(ctx context.Context, msgs []*Message) []error {
			handled.Add(int32(len(msgs)))
			work(ctx)
			return nil
		}, BatchConfig{Size: 10})
		w.Handle("single", func(ctx context.Context, _ *Message) error { work(ctx); return nil })
		backlog(t, c.Queue("batch"), 1000)
		backlog(t, c.Queue("single"), 1000)
		start(t, w)
		time.Sleep(20*time.Second + time.Millisecond)
		synctest.Wait()
		// About two batches of 10 run at a time, and two single messages.
		if n := handled.Load(); n < 300 || n > 420 || all.most.Load() != 4 {
			t.Errorf("%d messages ran in batches, and %d handlers at a time; want about 400, and 4", n, all.most.Load())
		}
		if leased := mustStats(t, c.Queue("batch")).Leased; leased > 20 {
			t.Errorf("%d messages are held by 2 batches of 10", leased)
		}
	})
}

func TestBatchFailuresAreRetriedAloneOnRedis(t *testing.T) {
	server := redistest.Start(t)
	c, err := Open(t.Context(), server.URL(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	q := c.Queue("q")
	const n = 1000
	msgs := make([]Outgoing, n)
	for i := range msgs {
		msgs[i].ID = fmt.Sprintf("%04d", i)
	}
	if _, err := q.SendBatch(t.Context(), msgs); err != nil {
		t.Fatal(err)
	}
	done := make(chan string, 2*n)
	var batches atomic.Int32
	w := NewWorker(c, WorkerConfig{Concurrency: 4, Backoff: ConstantBackoff(20 * time.Millisecond)})
	w.HandleBatch("q", func(_ context.Context, msgs []*Message) []error {
		batches.Add(1)
		errs := make([]error, len(msgs))
		for i, m := range msgs {
			if m.ID[3] == '7' && m.Attempt < 3 {
				errs[i] = errors.New("not yet")
				continue
			}
			if want := map[bool]int{false: 1, true: 3}[m.ID[3] == '7']; m.Attempt != want {
				t.Errorf("message %s was done at attempt %d, want %d", m.ID, m.Attempt, want)
			}
			done <- m.ID
		}
		return errs
	}, BatchConfig{Size: 50, Wait: 50 * time.Millisecond})
	stop := start(t, w)
	timeout := time.After(30 * time.Second)
	seen := map[string]bool{}
	for range n {
		select {
		case id := <-done:
			seen[id] = true
		case <-timeout:
			t.Fatalf("%d messages are done, want %d", len(seen), n)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if len(seen) != n || batches.Load() < n/50 {
		t.Errorf("%d different messages were done in %d batches", len(seen), batches.Load())
	}
	wantCounts(t, q, 0, 0, 0, 0)
}
