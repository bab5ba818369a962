package latertest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/laterq/later"
	"github.com/laterq/later/latertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a latertest.TB that records failures. Its Fatalf ends the goroutine, as in testing.T.
type recorder struct {
	mu       sync.Mutex
	cleanups []func()
	failures []string
}

func (r *recorder) Helper()          {}
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// failure runs a test that should fail, with its cleanup, and returns its failures.
func failure(f func(tb latertest.TB)) string {
	r := &recorder{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for i := range r.cleanups {
				r.cleanups[len(r.cleanups)-1-i]()
			}
		}()
		f(r)
	}()
	<-done
	return strings.Join(r.failures, "\n")
}

// wantFailure checks that a test fails with all of the given texts.
func wantFailure(t *testing.T, f func(tb latertest.TB), texts ...string) {
	t.Helper()
	got := failure(f)
	for _, text := range texts {
		if !strings.Contains(got, text) {
			t.Errorf("the failure lacks %q:\n%s", text, got)
		}
	}
}

func send(t *testing.T, q *later.Queue, payload string, opts ...later.SendOption) {
	t.Helper()
	if _, err := q.Send(t.Context(), []byte(payload), opts...); err != nil {
		t.Fatal(err)
	}
}

// log records the calls of handlers, with their times.
type log struct {
	lt    *latertest.Harness
	start time.Time
	mu    sync.Mutex
	lines []string
}

func newLog(lt *latertest.Harness) *log { return &log{lt: lt, start: lt.Now()} }

func (l *log) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf("%v ", l.lt.Now().Sub(l.start))+fmt.Sprintf(format, args...))
}

func (l *log) want(t *testing.T, lines ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if got, want := strings.Join(l.lines, "\n"), strings.Join(lines, "\n"); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	l.lines = nil
}

// way is a way to handle a queue.
type way func(lt *latertest.Harness, queue string, h later.HandlerFunc)

var ways = map[string]way{
	"inline": func(lt *latertest.Harness, queue string, h later.HandlerFunc) { lt.Handle(queue, h) },
	"worker": func(lt *latertest.Harness, queue string, h later.HandlerFunc) {
		backoff, _ := later.GeometricBackoff(time.Second, 2, time.Minute)
		w := later.NewWorker(lt.Client(), later.WorkerConfig{Concurrency: 1, Backoff: backoff})
		w.Handle(queue, h)
		lt.Start(w)
	},
}

// everyWay runs a test with inline handlers and with workers, outside and inside of a bubble.
func everyWay(t *testing.T, f func(t *testing.T, handle way)) {
	for name, handle := range ways {
		t.Run(name, func(t *testing.T) { f(t, handle) })
		t.Run(name+" in a bubble", func(t *testing.T) { inBubble(t, func(t *testing.T) { f(t, handle) }) })
	}
}

func TestAdvanceHandlesEachMessageAtItsDueTime(t *testing.T) {
	everyWay(t, func(t *testing.T, handle way) {
		lt := latertest.New(t)
		q, l := lt.Client().Queue("q"), newLog(lt)
		handle(lt, "q", func(_ context.Context, m *later.Message) error {
			l.add("%s", m.Payload)
			return nil
		})
		send(t, q, "third", later.In(time.Hour))
		send(t, q, "first", later.In(time.Minute))
		send(t, q, "second", later.At(lt.Now().Add(30*time.Minute)))
		send(t, q, "never", later.In(time.Hour+time.Millisecond))
		results := lt.Advance(time.Hour)
		l.want(t, "1m0s first", "30m0s second", "1h0m0s third")
		if len(results) != 3 || string(results[1].Message.Payload) != "second" || results[1].Err != nil {
			t.Errorf("results: %+v", results)
		}
		latertest.RequireScheduled(t, q, latertest.Payload("never"), latertest.In(time.Millisecond))
		if results := lt.Run(); len(results) != 0 {
			t.Errorf("Run handled %+v", results)
		}
		lt.Advance(time.Millisecond)
		l.want(t, "1h0m0.001s never")
		latertest.RequireNone(t, q)
	})
}

func TestAdvanceHandlesWhatHandlersSend(t *testing.T) {
	everyWay(t, func(t *testing.T, handle way) {
		lt := latertest.New(t)
		l := newLog(lt)
		handle(lt, "a", func(ctx context.Context, m *later.Message) error {
			l.add("a %s", m.Payload)
			if _, err := lt.Client().Queue("b").Send(ctx, []byte("sent"), later.In(time.Minute)); err != nil {
				return err
			}
			return later.Then("b", []byte("follow-up"), later.In(2*time.Minute)).Then("c", []byte("at once"))
		})
		for _, queue := range []string{"b", "c"} {
			handle(lt, queue, func(_ context.Context, m *later.Message) error {
				l.add("%s %s", queue, m.Payload)
				return nil
			})
		}
		send(t, lt.Client().Queue("a"), "begin", later.In(time.Hour))
		lt.Advance(2 * time.Hour)
		l.want(t, "1h0m0s a begin", "1h0m0s c at once", "1h1m0s b sent", "1h2m0s b follow-up")
	})
}

func TestAdvanceHandlesRetriesSnoozesAndDeadLetters(t *testing.T) {
	everyWay(t, func(t *testing.T, handle way) {
		lt := latertest.New(t)
		q, l := lt.Client().Queue("q"), newLog(lt)
		handle(lt, "q", func(_ context.Context, m *later.Message) error {
			l.add("attempt %d", m.Attempt)
			switch {
			case len(l.lines) == 1:
				return later.Snooze(time.Hour)
			case m.Attempt == 3:
				return fmt.Errorf("slow: %w", later.RetryIn(10*time.Minute))
			case m.Attempt == 4:
				return later.Bury(errors.New("hopeless"))
			}
			return errors.New("busy")
		})
		send(t, q, "")
		results := lt.Advance(2 * time.Hour)
		l.want(t, "0s attempt 1", "1h0m0s attempt 1", "1h0m1s attempt 2", "1h0m3s attempt 3", "1h10m3s attempt 4")
		var kinds []string
		for _, r := range results {
			kinds = append(kinds, string(later.OutcomeOf(r.Err).Kind))
		}
		if got := strings.Join(kinds, " "); got != "snoozed nacked nacked nacked buried" {
			t.Errorf("outcomes: %s", got)
		}
		info := latertest.RequireDead(t, q)
		if info.Attempts != 4 || info.LastError != "hopeless" {
			t.Errorf("dead: %+v", info)
		}
		if err := q.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		send(t, q, "expires", later.ExpireAfter(time.Minute))
		lt.Advance(time.Hour)
		l.want(t)
		if err := q.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		lt.Run()
		l.want(t)
		latertest.RequireDead(t, q, latertest.Payload("expires"))
	})
}

func TestWorkerWithManyHandlersIsAwaited(t *testing.T) {
	for name, run := range map[string]func(*testing.T, func(*testing.T)){"": plain, "bubble": inBubble} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T) {
				const messages = 1000
				lt := latertest.New(t)
				var mu sync.Mutex
				handled := map[string]time.Time{}
				var dead []string
				w := later.NewWorker(lt.Client(), later.WorkerConfig{
					Concurrency: 32, Backoff: later.ConstantBackoff(time.Second),
					OnDead: func(_ context.Context, info *later.Info) {
						mu.Lock()
						defer mu.Unlock()
						dead = append(dead, info.ID)
					},
				})
				w.Handle("q", func(_ context.Context, m *later.Message) error {
					for range 10 {
						runtime.Gosched()
					}
					if m.Headers["fail"] != "" {
						return errors.New("no")
					}
					mu.Lock()
					defer mu.Unlock()
					handled[m.ID] = lt.Now()
					return nil
				})
				lt.Start(w)
				q, start := lt.Client().Queue("q"), lt.Now()
				for i := range messages {
					opts := []later.SendOption{later.WithID(fmt.Sprint(i)),
						later.In(time.Duration(i/100) * time.Minute)}
					if i%100 == 7 {
						opts = append(opts, later.Header("fail", "yes"), later.MaxAttempts(2))
					}
					send(t, q, "", opts...)
				}
				results := lt.Advance(time.Hour)
				if len(handled) != 990 || len(dead) != 10 || len(results) != 1010 {
					t.Errorf("%d handled, %d dead, %d results; want 990, 10, 1010", len(handled), len(dead),
						len(results))
				}
				for id, at := range handled {
					var i int
					fmt.Sscan(id, &i)
					if want := start.Add(time.Duration(i/100) * time.Minute); !at.Equal(want) {
						t.Errorf("message %s was handled at %v, want %v", id, at, want)
					}
				}
			})
		})
	}
}

// TestRunningHandlerKeepsItsLease moves the clock by hours while a handler runs.
func TestRunningHandlerKeepsItsLease(t *testing.T) {
	for name, run := range map[string]func(*testing.T, func(*testing.T)){"": plain, "bubble": inBubble} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T) {
				lt := latertest.New(t)
				w := later.NewWorker(lt.Client(), later.WorkerConfig{Concurrency: 2, Lease: time.Minute})
				begun, release := make(chan bool), make(chan bool)
				calls := 0
				w.Handle("slow", func(ctx context.Context, m *later.Message) error {
					calls++
					begun <- true
					<-release
					return context.Cause(ctx)
				})
				w.Handle("quick", func(context.Context, *later.Message) error { return nil })
				lt.Start(w)
				send(t, lt.Client().Queue("slow"), "")
				<-begun
				send(t, lt.Client().Queue("quick"), "", later.In(time.Hour))
				for range 5 {
					lt.MoveClock(time.Hour)
				}
				close(release)
				results := lt.Run()
				if len(results) != 2 || results[0].Err != nil || results[1].Err != nil || calls != 1 {
					t.Errorf("the handler was called %d times; results: %+v", calls, results)
				}
				latertest.RequireNone(t, lt.Client().Queue("slow"))
			})
		})
	}
}

func TestQueuesWithoutAHandlerAndPausedWorkersWait(t *testing.T) {
	lt := latertest.New(t)
	w := later.NewWorker(lt.Client(), later.WorkerConfig{})
	w.Handle("paused", func(context.Context, *later.Message) error { return nil })
	w.Pause()
	lt.Start(w)
	send(t, lt.Client().Queue("none"), "a", later.In(time.Hour))
	send(t, lt.Client().Queue("paused"), "b", later.In(time.Hour))
	if results := lt.Advance(2 * time.Hour); len(results) != 0 {
		t.Errorf("handled: %+v", results)
	}
	latertest.RequireScheduled(t, lt.Client().Queue("none"), latertest.In(-time.Hour))
	w.Resume()
	if results := lt.Run(); len(results) != 1 {
		t.Errorf("after Resume: %+v", results)
	}
}

func TestTopicsAndForwardedQueuesAreAwaited(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		lt := latertest.New(t)
		l := newLog(lt)
		topic := lt.Client().Topic("orders")
		if err := topic.Subscribe(t.Context(), "mail"); err != nil {
			t.Fatal(err)
		}
		w := later.NewWorker(lt.Client(), later.WorkerConfig{})
		w.Handle("mail", func(_ context.Context, m *later.Message) error {
			l.add("mail %s", m.Payload)
			return nil
		})
		w.Forward("in", later.ToQueue("mail"))
		lt.Start(w)
		if _, err := topic.Publish(t.Context(), []byte("published"), later.In(time.Hour)); err != nil {
			t.Fatal(err)
		}
		send(t, lt.Client().Queue("in"), "forwarded", later.In(30*time.Minute))
		lt.Advance(time.Hour)
		l.want(t, "30m0s mail forwarded", "1h0m0s mail published")
	})
}

func TestOptionsOfTheClientApply(t *testing.T) {
	var kinds []later.EventKind
	lt := latertest.New(t, later.WithObserver(func(e later.Event) { kinds = append(kinds, e.Kind) }),
		later.WithDefaults(later.MaxAttempts(3)))
	lt.Handle("q", func(context.Context, *later.Message) error { return nil })
	send(t, lt.Client().Queue("q"), "")
	info := latertest.RequireScheduled(t, lt.Client().Queue("q"))
	lt.Run()
	if info.MaxAttempts != 3 || fmt.Sprint(kinds) != "[sent claimed acked]" {
		t.Errorf("max attempts %d, events %v", info.MaxAttempts, kinds)
	}
}
