package latertest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/latertest"
)

func inBubble(t *testing.T, f func(*testing.T)) { synctest.Test(t, f) }

func plain(t *testing.T, f func(*testing.T)) { f(t) }

func TestSleepInABubbleMovesTheClock(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		lt := latertest.New(t)
		l := newLog(lt)
		w := later.NewWorker(lt.Client(), later.WorkerConfig{})
		w.Handle("q", func(ctx context.Context, m *later.Message) error {
			time.Sleep(time.Hour) // longer than its lease
			l.add("%s, %v", m.Payload, context.Cause(ctx))
			return nil
		})
		lt.Start(w)
		send(t, lt.Client().Queue("q"), "one", later.In(30*time.Minute))
		send(t, lt.Client().Queue("q"), "two", later.In(10*time.Hour))
		time.Sleep(29 * time.Minute)
		latertest.RequireScheduled(t, lt.Client().Queue("q"), latertest.Payload("one"), latertest.In(time.Minute))
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		l.want(t, "1h30m0s one, <nil>")
		if lt.Advance(time.Until(time.Now().Add(8 * time.Hour))); !lt.Now().Equal(time.Now()) {
			t.Errorf("the clock is at %v, want %v", lt.Now(), time.Now())
		}
		l.want(t, "11h0m0s two, <nil>")
	})
}

func TestInlineHandlerInABubbleMaySleep(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		lt := latertest.New(t)
		l := newLog(lt)
		lt.Handle("q", func(_ context.Context, m *later.Message) error {
			time.Sleep(time.Hour)
			l.add("%s", m.Payload)
			return nil
		})
		send(t, lt.Client().Queue("q"), "limited", later.Timeout(time.Minute), later.MaxAttempts(1))
		send(t, lt.Client().Queue("q"), "one", later.In(time.Minute))
		results := lt.Advance(time.Minute)
		l.want(t, "1h0m0s limited", "2h0m0s one")
		if len(results) != 2 || later.OutcomeOf(results[0].Err).Kind != later.EventNacked {
			t.Errorf("results: %+v", results)
		}
		latertest.RequireDead(t, lt.Client().Queue("q"), latertest.Payload("limited"))
	})
}

func TestHandlersThatNeverReturnFailTheTest(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		release := make(chan bool)
		wantFailure(t, func(tb latertest.TB) {
			lt := latertest.New(tb)
			w := later.NewWorker(lt.Client(), later.WorkerConfig{Concurrency: 1})
			w.Handle("q", func(context.Context, *later.Message) error {
				<-release
				return nil
			})
			lt.Start(w)
			tb.Cleanup(func() { close(release) }) // before the worker is stopped
			send(t, lt.Client().Queue("q"), "", later.WithID("stuck"))
			lt.Run()
		}, "handlers have been running", "MoveClock", `leased "stuck"`)
		again := make(chan bool)
		wantFailure(t, func(tb latertest.TB) {
			lt := latertest.New(tb)
			w := later.NewWorker(lt.Client(), later.WorkerConfig{Concurrency: 1})
			w.Handle("q", func(context.Context, *later.Message) error {
				<-again
				return nil
			})
			lt.Start(w)
			tb.Cleanup(func() { close(again) })
			send(t, lt.Client().Queue("q"), "", later.WithID("a"))
			send(t, lt.Client().Queue("q"), "", later.WithID("b"))
			lt.Run()
		}, "messages are ready in q", "MoveClock", `ready "`, `leased "`)
	})
}
