package later

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/memstore"
)

func TestWorkerPanicIsAFailureAndTheWorkerContinues(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		var done atomic.Int32
		w := NewWorker(c, WorkerConfig{Concurrency: 1, Backoff: ConstantBackoff(time.Hour)})
		w.Handle("q", func(_ context.Context, m *Message) error {
			if m.ID == "bad" {
				time.Sleep(time.Second)
				explode()
			}
			done.Add(1)
			return nil
		})
		start(t, w)
		mustSend(t, q, "", WithID("bad"))
		mustSend(t, q, "")
		time.Sleep(time.Second)
		synctest.Wait()
		if done.Load() != 1 {
			t.Error("the message after the panic was not handled")
		}
		info, err := q.Get(t.Context(), "bad")
		if err != nil || info.Attempts != 1 || !strings.HasPrefix(info.LastError, "panic: boom\n\n") ||
			!strings.Contains(strings.SplitN(info.LastError, "\n", 4)[2], "explode") {
			t.Errorf("Get returned %+v, %v", info, err)
		}
		host, _ := os.Hostname()
		want := Failure{
			Time: time.Now(), Attempt: 1, Duration: time.Second, Worker: fmt.Sprintf("%s:%d", host, os.Getpid()),
			Error: "panic: boom",
		}
		if len(info.Failures) != 1 || !info.Failures[0].Time.Equal(want.Time) {
			t.Fatalf("failures %+v", info.Failures)
		}
		if want.Time = info.Failures[0].Time; info.Failures[0] != want {
			t.Errorf("got  %+v\nwant %+v", info.Failures[0], want)
		}
	})
}

func explode() { panic("boom") }

func TestWorkerGoexitIsAFailureAndTheSlotIsReused(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		var done atomic.Int32
		w := NewWorker(c, WorkerConfig{Concurrency: 1, Backoff: ConstantBackoff(time.Hour)})
		w.Handle("q", func(_ context.Context, m *Message) error {
			if m.ID == "bad" {
				runtime.Goexit()
			}
			done.Add(1)
			return nil
		})
		stop := start(t, w)
		mustSend(t, q, "", WithID("bad"))
		mustSend(t, q, "")
		synctest.Wait()
		info, err := q.Get(t.Context(), "bad")
		if err != nil || info.LastError != "handler called runtime.Goexit" || done.Load() != 1 {
			t.Errorf("Get returned %+v, %v; %d handled", info, err, done.Load())
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestWorkerReplacesABackoffThatPanics(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		w := NewWorker(c, WorkerConfig{Backoff: func(int, error) time.Duration { panic("bad backoff") }})
		w.Handle("q", func(context.Context, *Message) error { return errors.New("no") })
		start(t, w)
		mustSend(t, q, "", MaxAttempts(2), WithID("id"))
		time.Sleep(time.Hour)
		if info, err := q.Get(t.Context(), "id"); err != nil || !strings.HasPrefix(info.LastError, "panic: bad backoff") {
			t.Errorf("Get returned %+v, %v", info, err)
		}
	})
}

func TestWorkerTimeoutEndsTheHandlersContext(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		w := NewWorker(c, WorkerConfig{
			Timeout: time.Minute,
			Queues:  map[string]QueueConfig{"quick": {Timeout: time.Second}},
			Backoff: ConstantBackoff(time.Hour),
		})
		var ran log[time.Duration]
		handle := func(ctx context.Context, m *Message) error {
			begin := time.Now()
			err := sleep(ctx, 10*time.Minute)
			ran.add(time.Since(begin))
			if !errors.Is(err, ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) ||
				ctx.Err() != context.DeadlineExceeded {
				t.Errorf("cause is %v", err)
			}
			return errors.New("cut short")
		}
		w.Handle("slow", handle)
		w.Handle("quick", handle)
		start(t, w)
		mustSend(t, c.Queue("quick"), "", WithID("id"))
		time.Sleep(2 * time.Second)
		mustSend(t, c.Queue("quick"), "", Timeout(2*time.Second))
		time.Sleep(3 * time.Second)
		mustSend(t, c.Queue("slow"), "")
		time.Sleep(2 * time.Minute)
		if got, want := ran.list(), []time.Duration{time.Second, 2 * time.Second, time.Minute}; !slices.Equal(got, want) {
			t.Errorf("ran for %v, want %v", got, want)
		}
		info, err := c.Queue("quick").Get(t.Context(), "id")
		want := "handler's time limit has passed (1s): cut short"
		if err != nil || info.LastError != want || info.Attempts != 1 {
			t.Errorf("Get returned %+v, %v", info, err)
		}
	})
}

func TestWorkerSuccessAfterTheTimeoutIsAFailedAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen events
		c := newClientOn(t, memstore.New(), WithObserver(seen.add))
		q := c.Queue("q")
		w := NewWorker(c, WorkerConfig{Timeout: time.Second, Backoff: ConstantBackoff(time.Minute)})
		w.Handle("q", func(ctx context.Context, m *Message) error {
			if m.Attempt == 1 {
				sleep(ctx, time.Hour)
			}
			return nil
		})
		start(t, w)
		mustSend(t, q, "", WithID("id"))
		mustSend(t, q, "", WithID("last"), MaxAttempts(1))
		time.Sleep(2 * time.Second)
		want := "handler's time limit has passed (1s)"
		if info, err := q.Get(t.Context(), "id"); err != nil || info.Attempts != 1 || info.LastError != want {
			t.Errorf("Get returned %+v, %v", info, err)
		}
		if info, err := q.Get(t.Context(), "last"); err != nil || info.DeadReason != DeadFailed || info.LastError != want {
			t.Errorf("Get returned %+v, %v", info, err)
		}
		for _, e := range seen.of(EventNacked) {
			wantError(t, e.Err, ErrTimeout)
		}
		time.Sleep(time.Hour)
		wantCounts(t, q, 0, 0, 0, 1)
	})
}

func TestWorkerRetryInSnoozeAndBuryApplyAfterTheTimeout(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		results := map[string]error{
			"retry": RetryIn(time.Hour), "snooze": Snooze(2 * time.Hour), "bury": Bury(errors.New("bad")),
		}
		w := NewWorker(c, WorkerConfig{Timeout: time.Second, Backoff: ConstantBackoff(time.Minute)})
		w.Handle("q", func(ctx context.Context, m *Message) error {
			sleep(ctx, time.Hour)
			return results[m.ID]
		})
		start(t, w)
		begin := time.Now()
		for id := range results {
			mustSend(t, q, "", WithID(id))
		}
		time.Sleep(10 * time.Second)
		for id, want := range map[string]struct {
			due      time.Duration
			attempts int
			reason   DeadReason
		}{
			"retry":  {time.Second + time.Hour, 1, ""},
			"snooze": {time.Second + 2*time.Hour, 0, ""},
			"bury":   {0, 1, DeadBuried},
		} {
			info, err := q.Get(t.Context(), id)
			if err != nil || info.Due.Sub(begin) != want.due || info.Attempts != want.attempts ||
				info.DeadReason != want.reason {
				t.Errorf("%s: %+v, %v; want %+v", id, info, err, want)
			}
		}
	})
}

func TestWorkerHandlersContextEndsWithItAndHasTheValuesOfRun(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		type key struct{}
		contexts := make(chan context.Context, 1)
		w := NewWorker(c, WorkerConfig{})
		w.Handle("q", func(ctx context.Context, _ *Message) error { contexts <- ctx; return nil })
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		mustSend(t, c.Queue("q"), "")
		handling := <-contexts
		<-handling.Done()
		if handling.Value(key{}) != "value" {
			t.Error("the handler's context lacks the value of Run's context")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
