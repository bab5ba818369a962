package later

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/internal/schedule"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/recurrence"
	"github.com/laterq/later/store"
)

func TestSchedulePauseAndResume(t *testing.T) {
	inScheduleStores(t, func(t *testing.T, c *Client, start time.Time) {
		put(t, c, everyMinute("a"), PutCreated)
		ran := work(t, c, start, nil)
		defer ran.stop()
		time.Sleep(70 * time.Second)
		if err := c.Schedules().Pause(t.Context(), "a", "for repairs"); err != nil {
			t.Fatal(err)
		}
		info := getSchedule(t, c, "a")
		if !info.Paused || info.PauseNote != "for repairs" || !info.PausedAt.Equal(time.Now()) ||
			!info.NextRun.Nominal.IsZero() || info.Finished {
			t.Errorf("the paused schedule is %+v", info)
		}
		put(t, c, everyMinute("a"), PutUnchanged)
		changed := everyMinute("a")
		changed.When.Cron = "*/2 * * * *"
		put(t, c, changed, PutChanged)
		time.Sleep(10 * time.Minute)
		ran.want(t, "1m0s")
		if err := c.Schedules().Resume(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		ran.want(t, "1m0s", "12m0s")
		if info := getSchedule(t, c, "a"); info.MissedRuns != 0 || info.Paused {
			t.Errorf("the schedule is %+v", info)
		}
	})
}

func TestScheduleTrigger(t *testing.T) {
	inScheduleStores(t, func(t *testing.T, c *Client, start time.Time) {
		put(t, c, everyMinute("a"), PutCreated)
		if err := c.Schedules().Pause(t.Context(), "a", ""); err != nil {
			t.Fatal(err)
		}
		ran := work(t, c, start, nil)
		defer ran.stop()
		time.Sleep(5 * time.Second)
		run, err := c.Schedules().Trigger(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		ran.want(t, "5s triggered")
		info := getSchedule(t, c, "a")
		if info.TriggeredRuns != 1 || info.Runs != 0 || info.LastRun.ID != run.ID || info.LastRun.Cause != RunTriggered {
			t.Errorf("the schedule is %+v", info)
		}
	})
}

func TestScheduleBackfill(t *testing.T) {
	inScheduleStores(t, func(t *testing.T, c *Client, start time.Time) {
		put(t, c, everyMinute("a"), PutCreated)
		s, from, to := c.Schedules(), start.Add(-10*time.Minute), start.Add(-7*time.Minute)
		if got, err := s.Backfill(t.Context(), "a", from, to, true); err != nil || got != (Backfilled{Runs: 3}) {
			t.Errorf("a dry Backfill returned %+v, %v", got, err)
		}
		for _, want := range []Backfilled{{3, 3, 0}, {3, 0, 3}} {
			if got, err := s.Backfill(t.Context(), "a", from, to, false); err != nil || got != want {
				t.Errorf("Backfill returned %+v, %v; want %+v", got, err, want)
			}
		}
		if got, err := s.Backfill(t.Context(), "a", from, to.Add(time.Minute), false); err != nil || got.Sent != 1 {
			t.Errorf("a longer Backfill returned %+v, %v", got, err)
		}
		ran := work(t, c, start, nil)
		time.Sleep(time.Second)
		synctest.Wait()
		got := ran.list()
		slices.SortFunc(got, byMinute)
		want := []string{"-10m0s backfilled", "-9m0s backfilled", "-8m0s backfilled", "-7m0s backfilled"}
		if !slices.Equal(got, want) {
			t.Errorf("the runs were %q", got)
		}
		ran.stop()
		if _, err := s.Backfill(t.Context(), "a", from, from, true); !errors.Is(err, ErrInvalid) {
			t.Errorf("an empty range: %v", err)
		}
		if _, err := s.Backfill(t.Context(), "a", from, from.AddDate(1, 0, 0), true); !errors.Is(err, ErrTooLarge) {
			t.Errorf("a year of minutes: %v", err)
		}
	})
}

// TestScheduleRunsOfANewRuleAreOthers backfills the times of runs of an earlier rule.
func TestScheduleRunsOfANewRuleAreOthers(t *testing.T) {
	inScheduleStores(t, func(t *testing.T, c *Client, start time.Time) {
		schedule := everyMinute("a")
		from := start.Add(-10 * time.Minute)
		ran := work(t, c, start, nil)
		defer ran.stop()
		for _, change := range []struct {
			cron string
			want Backfilled
		}{
			{"* * * * *", Backfilled{3, 3, 0}}, {"* * * * *", Backfilled{3, 0, 3}},
			{"0 * * * * *", Backfilled{3, 3, 0}}, {"0 * * * * *", Backfilled{3, 0, 3}},
		} {
			schedule.When.Cron = change.cron
			if _, err := c.Schedules().Put(t.Context(), schedule); err != nil {
				t.Fatal(err)
			}
			got, err := c.Schedules().Backfill(t.Context(), "a", from, from.Add(3*time.Minute), false)
			if err != nil || got != change.want {
				t.Errorf("%s: Backfill returned %+v, %v; want %+v", change.cron, got, err, change.want)
			}
			time.Sleep(time.Second) // they are acked, and their ids are remembered
		}
	})
}

// TestScheduleRunReplacesNoLiveMessage has middleware that makes the sends of the program replace messages.
func TestScheduleRunReplacesNoLiveMessage(t *testing.T) {
	for _, linked := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			sends := 0
			replace := WithSendMiddleware(func(_ context.Context, o *Outgoing) error {
				sends++
				o.OnDuplicate, o.Payload = Replace(), fmt.Append(nil, sends)
				return nil
			})
			c := newClientOn(t, &dyingStore{Store: memstore.New(), linked: linked, left: 1 << 30}, replace)
			put(t, c, everyMinute("a"), PutCreated)
			next := getSchedule(t, c, "a").NextRun
			for _, want := range []Backfilled{{1, 1, 0}, {1, 0, 1}} {
				got, err := c.Schedules().Backfill(t.Context(), "a", next.Nominal, next.Nominal.Add(time.Second), false)
				if err != nil || got != want {
					t.Errorf("Backfill returned %+v, %v; want %+v", got, err, want)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- c.Schedules().Run(ctx) }()
			time.Sleep(61 * time.Second)
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			info, err := c.Queue("q").Get(t.Context(), next.ID)
			if err != nil || string(info.Payload) != "1" || sends != 3 {
				t.Errorf("after %d sends the message is %+v, %v; want that of the first", sends, info, err)
			}
		})
	}
}

func TestScheduleCancelOfARunSkipsIt(t *testing.T) {
	inScheduleStores(t, func(t *testing.T, c *Client, start time.Time) {
		put(t, c, everyMinute("a"), PutCreated)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Schedules().Run(ctx) }() // without a worker of the queue
		time.Sleep(time.Minute + time.Second)
		first := getSchedule(t, c, "a").LastRun
		if _, err := c.Queue("q").Cancel(t.Context(), first.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		info := getSchedule(t, c, "a")
		if info.Runs != 2 || info.SkippedRuns != 0 {
			t.Errorf("the schedule is %+v", info)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestScheduleQueueIsKeptFromOtherUses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClientOn(t, memstore.New())
		put(t, c, everyMinute("a"), PutCreated)
		q := c.Queue(reserved.Schedules)
		_, sending := q.Send(t.Context(), nil)
		_, batch := q.SendBatch(t.Context(), []Outgoing{{}})
		_, cancelling := q.Cancel(t.Context(), "a")
		_, purging := q.Purge(t.Context())
		_, receiving := q.Receive(t.Context(), 1)
		_, group := q.CancelGroup(t.Context(), "schedules")
		_, moved := q.RescheduleGroup(t.Context(), "schedules", In(0))
		w := NewWorker(c, WorkerConfig{})
		w.Handle(reserved.Schedules, func(context.Context, *Message) error { return nil })
		forward := NewWorker(c, WorkerConfig{})
		forward.Forward(reserved.Schedules, ToQueue("q"))
		for name, err := range map[string]error{
			"send": sending, "batch": batch, "cancel": cancelling, "purge": purging, "receive": receiving, "group": group,
			"moved": moved, "reschedule": q.RunNow(t.Context(), "a"), "handle": w.Run(t.Context()),
			"forward": forward.Run(t.Context()), "subscribe": c.Topic("t").Subscribe(t.Context(), reserved.Schedules),
		} {
			if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), reserved.Schedules) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if stats, err := q.Stats(t.Context()); err != nil || stats.Scheduled != 1 {
			t.Errorf("%+v, %v", stats, err)
		}
	})
}

func TestSchedulesInPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, start := newClientOn(t, memstore.New()), time.Now()
		var names []string
		for i := range 25 {
			s := everyMinute(fmt.Sprintf("s%02d", i))
			s.When = recurrence.Spec{Every: time.Duration(i+1) * time.Minute, Start: start}
			put(t, c, s, PutCreated)
			names = append(names, s.Name)
		}
		paused := everyMinute("paused")
		put(t, c, paused, PutCreated)
		if err := c.Schedules().Pause(t.Context(), "paused", ""); err != nil {
			t.Fatal(err)
		}
		var got []string
		for cursor := ""; ; {
			page, err := c.Schedules().List(t.Context(), cursor, 10)
			if err != nil || len(page.Schedules) > 10 {
				t.Fatal(len(page.Schedules), err)
			}
			for _, s := range page.Schedules {
				got = append(got, s.Name)
			}
			if cursor = page.Next; cursor == "" {
				break
			}
		}
		if want := append([]string{"paused"}, names...); !slices.Equal(got, want) {
			t.Errorf("listed %q", got)
		}
		runs, err := c.Schedules().Upcoming(t.Context(), 8)
		if err != nil {
			t.Fatal(err)
		}
		var upcoming []string
		for _, r := range runs {
			upcoming = append(upcoming, fmt.Sprint(r.Schedule, " ", r.Due.Sub(start)))
		}
		slices.Sort(upcoming)
		want := []string{"s00 1m0s", "s00 2m0s", "s00 3m0s", "s00 4m0s", "s01 2m0s", "s01 4m0s", "s02 3m0s", "s03 4m0s"}
		if !slices.Equal(upcoming, want) {
			t.Errorf("upcoming are %q", upcoming)
		}
		next, err := getSchedule(t, c, "s01").NextRuns(2)
		if err != nil || len(next) != 2 || !next[1].Due.Equal(start.Add(4*time.Minute)) {
			t.Errorf("the next runs of s01 are %+v, %v", next, err)
		}
	})
}

func TestScheduleResumeKeepsARunThatIsNotDueYet(t *testing.T) {
	inScheduleStores(t, func(t *testing.T, c *Client, start time.Time) {
		s := everyMinute("a")
		s.When.Cron, s.When.Jitter = "@daily", 24*time.Hour
		put(t, c, s, PutCreated)
		time.Sleep(24*time.Hour + time.Second) // the nominal time has passed
		next := getSchedule(t, c, "a").NextRun
		if err := c.Schedules().Pause(t.Context(), "a", ""); err != nil {
			t.Fatal(err)
		}
		if err := c.Schedules().Resume(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		if got := getSchedule(t, c, "a").NextRun; got != next {
			t.Errorf("the next run was %v and is %v", next, got)
		}
	})
}

func TestUpcomingLooksPastSchedulesWithoutNextRun(t *testing.T) {
	inScheduleStores(t, func(t *testing.T, c *Client, start time.Time) {
		s := everyMinute("a")
		s.Unfinished, s.When.MaxRuns = UnfinishedBuffer, 2
		put(t, c, s, PutCreated)
		s.Name, s.When = "b", recurrence.Spec{Cron: "@daily"}
		put(t, c, s, PutCreated)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Schedules().Run(ctx) }()
		time.Sleep(3 * time.Minute)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if info := getSchedule(t, c, "a"); info.Buffered.IsZero() || !info.NextRun.Nominal.IsZero() {
			t.Fatalf("%+v", info)
		}
		runs, err := c.Schedules().Upcoming(t.Context(), 1)
		if err != nil || len(runs) != 1 || runs[0].Schedule != "b" {
			t.Errorf("upcoming: %v, %v", runs, err)
		}
		before := getSchedule(t, c, "a").SkippedRuns
		if err := c.Schedules().Pause(t.Context(), "a", ""); err != nil {
			t.Fatal(err)
		}
		if err := c.Schedules().Resume(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		if info := getSchedule(t, c, "a"); info.SkippedRuns != before+1 || !info.Buffered.IsZero() {
			t.Errorf("after a resume: %+v", info)
		}
	})
}

// TestScheduleOfTheLargestSizeHasRoomForItsState changes all parts of the state that vary in size.
func TestScheduleOfTheLargestSizeHasRoomForItsState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		c := newClientOn(t, s)
		large := everyMinute(strings.Repeat("ä", schedule.MaxName/2))
		put(t, c, large, PutCreated)
		large = getSchedule(t, c, large.Name).Schedule // with its defaults
		text, err := large.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		large.Payload = append(large.Payload, strings.Repeat("x", (store.MaxPayload-16<<10)-len(text))...)
		put(t, c, large, PutChanged)
		if _, err := c.Schedules().Trigger(t.Context(), large.Name); err != nil {
			t.Fatal(err)
		}
		if err := c.Schedules().Pause(t.Context(), large.Name, strings.Repeat("\x01", 1024)); err != nil {
			t.Fatal(err)
		}
		infos, err := s.Get(t.Context(), reserved.Schedules, []string{large.Name})
		if err != nil || len(infos[0].Payload) > store.MaxPayload {
			t.Errorf("the record has %d bytes, %v", len(infos[0].Payload), err)
		}
		large.Payload = append(large.Payload, 'x')
		if _, err := c.Schedules().Put(t.Context(), large); !errors.Is(err, ErrTooLarge) {
			t.Errorf("a larger one: %v", err)
		}
		for note, want := range map[string]string{strings.Repeat("x", 1025): "the limit is 1024", "\xff": "is not UTF-8"} {
			err := c.Schedules().Pause(t.Context(), large.Name, note)
			if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", want, err)
			}
		}
	})
}
