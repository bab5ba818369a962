package latertest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/latertest"
	"github.com/laterq/later/recurrence"
)

// newAtMidnight returns a harness with a clock that begins at midnight, like the clock of a bubble.
func newAtMidnight(t *testing.T, opts ...later.Option) *latertest.Harness {
	return latertest.NewAt(t, time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), opts...)
}

// cron returns a schedule for queue q.
func cron(name, rule string) later.Schedule {
	return later.Schedule{Name: name, Queue: "q", Payload: []byte(name), When: recurrence.Spec{Cron: rule}}
}

func put(t *testing.T, lt *latertest.Harness, s later.Schedule) {
	t.Helper()
	if _, err := lt.Client().Schedules().Put(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

func getSchedule(t *testing.T, lt *latertest.Harness, name string) *later.ScheduleInfo {
	t.Helper()
	info, err := lt.Client().Schedules().Get(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func TestAdvanceRunsADailyScheduleEachDay(t *testing.T) {
	everyWay(t, func(t *testing.T, handle way) {
		lt := newAtMidnight(t)
		l := newLog(lt)
		handle(lt, "q", func(_ context.Context, m *later.Message) error {
			run, ok := later.RunOf(m)
			l.add("%s %v %v", m.Payload, ok, run.Nominal.Equal(lt.Now()))
			return nil
		})
		lt.Advance(time.Hour) // the workers run
		put(t, lt, cron("report", "0 9 * * *"))
		results := lt.Advance(10 * 24 * time.Hour)
		var want []string
		for day := range 10 {
			want = append(want, fmt.Sprintf("%v report true true", time.Duration(24*day+9)*time.Hour))
		}
		l.want(t, want...)
		if info := getSchedule(t, lt, "report"); len(results) != 10 || info.Runs != 10 || info.MissedRuns != 0 {
			t.Errorf("%d results, schedule %+v", len(results), info)
		}
	})
}

func TestAdvanceKeepsTheOrderOfSchedulesAndOtherMessages(t *testing.T) {
	everyWay(t, func(t *testing.T, handle way) {
		lt := newAtMidnight(t)
		l := newLog(lt)
		topic := lt.Client().Topic("news")
		handle(lt, "q", func(ctx context.Context, m *later.Message) error {
			l.add("%s attempt %d", m.Payload, m.Attempt)
			switch string(m.Payload) {
			case "hourly":
				return later.Then("q", []byte("follow-up"), later.In(30*time.Minute))
			case "first":
				put(t, lt, cron("hourly", "0 * * * *"))
			case "at three":
				if m.Attempt == 1 {
					return later.RetryIn(15 * time.Minute)
				}
				if err := lt.Client().Schedules().Pause(ctx, "hourly", ""); err != nil {
					return err
				}
				return topicSend(ctx, topic)
			}
			return nil
		})
		send(t, lt.Client().Queue("q"), "first", later.In(90*time.Minute))
		send(t, lt.Client().Queue("q"), "at three", later.In(3*time.Hour+20*time.Minute))
		lt.Advance(6 * time.Hour)
		l.want(t, "1h30m0s first attempt 1", "2h0m0s hourly attempt 1", "2h30m0s follow-up attempt 1",
			"3h0m0s hourly attempt 1", "3h20m0s at three attempt 1", "3h30m0s follow-up attempt 1",
			"3h35m0s at three attempt 2")
		put(t, lt, cron("again", "0 12 * * *"))
		lt.Advance(6 * time.Hour)
		l.want(t, "12h0m0s again attempt 1")
	})
}

// topicSend publishes to a topic without subscriptions.
func topicSend(ctx context.Context, topic *later.Topic) error {
	_, err := topic.Publish(ctx, []byte("news"))
	return err
}

// TestStepsWithoutARunAreAwaited looks at a schedule once a second, because a run waits for the end of the one before.
func TestStepsWithoutARunAreAwaited(t *testing.T) {
	everyWay(t, func(t *testing.T, handle way) {
		lt := newAtMidnight(t)
		l := newLog(lt)
		handle(lt, "q", func(_ context.Context, m *later.Message) error {
			run, _ := later.RunOf(m)
			l.add("run of %s", run.Nominal.Format("15:04"))
			if run.Nominal.Minute() == 1 && m.Attempt == 1 {
				return fmt.Errorf("busy: %w", later.RetryIn(150500*time.Millisecond))
			}
			return nil
		})
		s := cron("a", "* * * * *")
		s.Unfinished = later.UnfinishedBuffer
		put(t, lt, s)
		lt.Advance(5*time.Minute - time.Second)
		l.want(t, "1m0s run of 00:01", "3m30.5s run of 00:01", "3m31s run of 00:02", "4m0s run of 00:04")
		if info := getSchedule(t, lt, "a"); info.SkippedRuns != 1 || info.Runs != 3 {
			t.Errorf("the schedule is %+v", info)
		}
	})
}

// TestSchedulesNeedAHandler advances the clock without a worker that sends runs, as in an outage.
func TestSchedulesNeedAHandler(t *testing.T) {
	for name, run := range map[string]func(*testing.T, func(*testing.T)){"": plain, "bubble": inBubble} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T) {
				lt := newAtMidnight(t)
				l := newLog(lt)
				put(t, lt, cron("hourly", "0 * * * *"))
				start := func() (stop func()) {
					w := later.NewWorker(lt.Client(), later.WorkerConfig{})
					w.Handle("q", func(_ context.Context, m *later.Message) error {
						run, _ := later.RunOf(m)
						l.add("%s %s", run.Nominal.Format("15:04"), run.Cause)
						return nil
					})
					return lt.Start(w)
				}
				stop := start()
				lt.Advance(time.Hour)
				l.want(t, "1h0m0s 01:00 due")
				stop()
				if results := lt.Advance(150 * time.Minute); len(results) != 0 {
					t.Errorf("handled without a worker: %+v", results)
				}
				latertest.RequireNone(t, lt.Client().Queue("q"))
				start()
				lt.Advance(time.Hour)
				l.want(t, "3h30m0s 03:00 missed", "4h0m0s 04:00 due")
				if info := getSchedule(t, lt, "hourly"); info.MissedRuns != 1 {
					t.Errorf("missed runs: %d, want 1", info.MissedRuns)
				}
			})
		})
	}
}

// TestLaterSubscriptionsAreDistributed subscribes a queue to a topic when the worker runs already.
func TestLaterSubscriptionsAreDistributed(t *testing.T) {
	for name, run := range map[string]func(*testing.T, func(*testing.T)){"": plain, "bubble": inBubble} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T) {
				lt := latertest.New(t)
				l := newLog(lt)
				topic := lt.Client().Topic("news")
				w := later.NewWorker(lt.Client(), later.WorkerConfig{})
				w.Handle("mail", func(_ context.Context, m *later.Message) error {
					l.add("%s", m.Payload)
					return nil
				})
				lt.Start(w)
				lt.Advance(time.Hour)
				if err := topic.Subscribe(t.Context(), "mail"); err != nil {
					t.Fatal(err)
				}
				for i := range 3 {
					_, err := topic.Publish(t.Context(), fmt.Append(nil, i), later.In(time.Duration(i)*time.Hour))
					if err != nil {
						t.Fatal(err)
					}
				}
				lt.Advance(24 * time.Hour)
				l.want(t, "1h0m0s 0", "2h0m0s 1", "3h0m0s 2")
				if err := topic.Unsubscribe(t.Context(), "mail"); err != nil && !errors.Is(err, later.ErrNotFound) {
					t.Fatal(err)
				}
				if _, err := topic.Publish(t.Context(), []byte("late")); err != nil {
					t.Fatal(err)
				}
				lt.Advance(time.Hour)
				l.want(t)
			})
		})
	}
}
