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

	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/recurrence"
	"github.com/laterq/later/store"
)

// everyMinute is a schedule with a run a minute for a queue.
func everyMinute(name string) Schedule {
	when := recurrence.Spec{Cron: "* * * * *"}
	return Schedule{Name: name, Queue: "q", When: when, Payload: []byte("payload of " + name)}
}

func put(t *testing.T, c *Client, s Schedule, want PutResult) {
	t.Helper()
	got, err := c.Schedules().Put(t.Context(), s)
	if err != nil || got != want {
		t.Fatalf("Put of %q returned %q, %v; want %q", s.Name, got, err, want)
	}
}

func getSchedule(t *testing.T, c *Client, name string) *ScheduleInfo {
	t.Helper()
	info, err := c.Schedules().Get(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// ranRuns is a worker that handles queue q, and the messages that it has received.
type ranRuns struct {
	log[string]
	stop func()
}

// nominal returns the nominal times of the runs that were received, after a time, as durations.
func describeRun(m *Message, start time.Time) string {
	run, ok := RunOf(m)
	if !ok {
		return "no run"
	}
	text := run.Nominal.Sub(start).String()
	if run.Cause != RunDue {
		text += " " + string(run.Cause)
	}
	return text
}

// work starts a worker of queue q that records its runs. handle, if it is not nil, is called for each.
func work(t *testing.T, c *Client, start time.Time, handle func(ctx context.Context, m *Message) error) *ranRuns {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ran := &ranRuns{}
	w := NewWorker(c, WorkerConfig{})
	w.Handle("q", func(ctx context.Context, m *Message) error {
		ran.add(describeRun(m, start))
		if handle != nil {
			return handle(ctx, m)
		}
		return nil
	})
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	ran.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v", err)
		}
	}
	return ran
}

func (r *ranRuns) want(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	if got := r.list(); !slices.Equal(got, want) {
		t.Fatalf("the runs were %q, want %q", got, want)
	}
}

// inScheduleStores runs a test in a bubble that begins at midnight, with a store that sends runs in one step and one
// that does not.
func inScheduleStores(t *testing.T, test func(t *testing.T, c *Client, start time.Time)) {
	inTopicStores(t, func(t *testing.T, c *Client) { test(t, c, time.Now()) })
}

func TestScheduleRunsAtItsTimes(t *testing.T) {
	inScheduleStores(t, func(t *testing.T, c *Client, start time.Time) {
		put(t, c, everyMinute("a"), PutCreated)
		if info := getSchedule(t, c, "a"); !info.NextRun.Due.Equal(start.Add(time.Minute)) {
			t.Errorf("the next run is %+v", info.NextRun)
		}
		ran := work(t, c, start, func(_ context.Context, m *Message) error {
			if string(m.Payload) != "payload of a" || m.Lateness > 10*time.Millisecond {
				t.Errorf("received %q, %v late", m.Payload, m.Lateness)
			}
			return nil
		})
		time.Sleep(3*time.Minute + time.Second)
		ran.want(t, "1m0s", "2m0s", "3m0s")
		info := getSchedule(t, c, "a")
		if info.Runs != 3 || info.MissedRuns+info.SkippedRuns != 0 || !info.LastRun.Nominal.Equal(start.Add(3*time.Minute)) ||
			!info.NextRun.Nominal.Equal(start.Add(4*time.Minute)) {
			t.Errorf("the schedule is %+v", info)
		}
		ran.stop()
	})
}

func TestScheduleOfARunningStoreIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, start := newClientOn(t, memstore.New()), time.Now()
		ran := work(t, c, start, nil)
		defer ran.stop()
		time.Sleep(10 * time.Second)
		put(t, c, everyMinute("a"), PutCreated)
		time.Sleep(51 * time.Second)
		ran.want(t, "1m0s")
	})
}

func TestScheduleSurvivesItsWorkers(t *testing.T) {
	inScheduleStores(t, func(t *testing.T, c *Client, start time.Time) {
		for _, test := range []struct {
			policy MissedPolicy
			within time.Duration
			want   []string
			missed int64
		}{
			{MissedNone, 0, []string{"10m0s"}, 9}, // the last one is late by half a minute only
			{MissedOne, 0, []string{"10m0s"}, 9},
			{MissedAll, 0, []string{"1m0s missed", "2m0s missed", "3m0s missed", "4m0s missed", "5m0s missed", "6m0s missed",
				"7m0s missed", "8m0s missed", "9m0s missed", "10m0s"}, 0},
			{MissedAll, 3 * time.Minute, []string{"8m0s missed", "9m0s missed", "10m0s"}, 7},
		} {
			name := fmt.Sprint(test.policy, test.within)
			s := everyMinute(name)
			s.Missed, s.MissedWithin, s.Unfinished = test.policy, test.within, UnfinishedAllow
			begun := time.Now()
			put(t, c, s, PutCreated)
			time.Sleep(10*time.Minute + 30*time.Second)
			ran := work(t, c, begun, nil)
			time.Sleep(5 * time.Second)
			synctest.Wait()
			got := ran.list()
			slices.SortStableFunc(got, func(a, b string) int { return len(a) - len(b) }) // handlers run at the same time
			slices.SortFunc(got, byMinute)
			if !slices.Equal(got, test.want) {
				t.Errorf("%s: the runs were %q, want %q", name, got, test.want)
			}
			if info := getSchedule(t, c, name); info.MissedRuns != test.missed {
				t.Errorf("%s: %d runs were missed, want %d", name, info.MissedRuns, test.missed)
			}
			ran.stop()
			if err := c.Schedules().Delete(t.Context(), name); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Until(begun.Add(11 * time.Minute)))
		}
	})
}

func byMinute(a, b string) int {
	first, _, _ := strings.Cut(a, " ")
	second, _, _ := strings.Cut(b, " ")
	x, _ := time.ParseDuration(first)
	y, _ := time.ParseDuration(second)
	return int(x - y)
}

func TestScheduleMakesUpForTheLatestMissedRun(t *testing.T) {
	inScheduleStores(t, func(t *testing.T, c *Client, start time.Time) {
		hourly := Schedule{Name: "a", Queue: "q", When: recurrence.Spec{Every: 30 * time.Minute, Start: start}}
		put(t, c, hourly, PutCreated)
		old := hourly
		old.Name, old.MissedWithin = "old", 10*time.Minute
		put(t, c, old, PutCreated)
		time.Sleep(3*time.Hour + 20*time.Minute)
		ran := work(t, c, start, nil)
		time.Sleep(time.Second)
		ran.want(t, "3h0m0s missed")
		if info := getSchedule(t, c, "a"); info.MissedRuns != 5 || info.Runs != 1 {
			t.Errorf("the schedule is %+v", info)
		}
		if info := getSchedule(t, c, "old"); info.MissedRuns != 6 || info.Runs != 0 {
			t.Errorf("the schedule is %+v", info)
		}
		ran.stop()
	})
}

func TestScheduleWithAnUnfinishedRun(t *testing.T) {
	inScheduleStores(t, func(t *testing.T, c *Client, start time.Time) {
		for policy, want := range map[UnfinishedPolicy][]string{
			UnfinishedSkip:   {"1m0s", "4m0s"},
			UnfinishedAllow:  {"1m0s", "2m0s", "3m0s", "4m0s"},
			UnfinishedBuffer: {"1m0s", "2m0s buffered"}, // begins after 3m30s, and is unfinished after 4m
		} {
			s := everyMinute(string(policy))
			s.Unfinished = policy
			begun := time.Now()
			put(t, c, s, PutCreated)
			ran := work(t, c, begun, func(ctx context.Context, _ *Message) error {
				return calls.Sleep(ctx, 150*time.Second)
			})
			time.Sleep(4*time.Minute + 10*time.Second)
			ran.want(t, want...)
			info := getSchedule(t, c, s.Name)
			wantSkipped := map[UnfinishedPolicy]int64{UnfinishedSkip: 2, UnfinishedBuffer: 1}[policy]
			buffered := map[UnfinishedPolicy]time.Time{UnfinishedBuffer: begun.Add(4 * time.Minute)}[policy]
			if wantSkipped > 0 && !info.LastSkipped.Equal(begun.Add(3*time.Minute)) {
				t.Errorf("%s: the last skipped run is that of %v", policy, info.LastSkipped)
			}
			if info.SkippedRuns != wantSkipped || !info.Buffered.Equal(buffered) {
				t.Errorf("%s: %d runs were skipped, want %d; buffered %v, want %v", policy, info.SkippedRuns, wantSkipped,
					info.Buffered, buffered)
			}
			if err := c.Schedules().Delete(t.Context(), s.Name); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Minute)
			ran.stop()
			time.Sleep(time.Until(begun.Add(15 * time.Minute).Truncate(time.Minute)))
		}
	})
}

func TestScheduleEventsNameTheSchedule(t *testing.T) {
	for _, linked := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var seen log[string]
			s := store.Store(memstore.New())
			if !linked {
				s = unlinked{s}
			}
			c := newClientOn(t, s, WithObserver(func(e Event) {
				if e.Schedule != "" {
					seen.add(fmt.Sprint(e.Queue, " ", e.Kind, " ", e.Schedule, " ", e.Count))
				}
			}))
			put(t, c, Schedule{Name: "a", Queue: "q", When: recurrence.Spec{Every: time.Minute}}, PutCreated)
			time.Sleep(10*time.Minute + 30*time.Second)
			ran := work(t, c, time.Now(), func(ctx context.Context, _ *Message) error {
				return calls.Sleep(ctx, 2*time.Minute)
			})
			mustSend(t, c.Queue("q"), "of no schedule")
			time.Sleep(time.Minute)
			ran.stop()
			want := []string{"q sent a 0", "q run_missed a 9", "q run_skipped a 1"}
			if got := seen.list(); !slices.Equal(got, want) {
				t.Errorf("linked %v: the events were %q; want %q", linked, got, want)
			}
		})
	}
}

func TestSchedulePutKeepsTheState(t *testing.T) {
	inScheduleStores(t, func(t *testing.T, c *Client, start time.Time) {
		s := everyMinute("a")
		put(t, c, s, PutCreated)
		ran := work(t, c, start, nil)
		time.Sleep(2*time.Minute + 20*time.Second)
		before := getSchedule(t, c, "a")
		put(t, c, s, PutUnchanged)
		s.Payload = []byte("other")
		put(t, c, s, PutChanged)
		after := getSchedule(t, c, "a")
		if after.Runs != 2 || after.Generation != before.Generation || after.NextRun != before.NextRun ||
			string(after.Payload) != "other" || !after.Created.Equal(start) || !after.Changed.Equal(time.Now()) {
			t.Errorf("after a change of the payload: %+v", after)
		}
		s.When.Cron = "*/10 * * * *"
		put(t, c, s, PutChanged)
		after = getSchedule(t, c, "a")
		if after.Runs != 2 || after.Generation <= before.Generation || !after.NextRun.Due.Equal(start.Add(10*time.Minute)) {
			t.Errorf("after a change of the rule: %+v", after)
		}
		time.Sleep(8 * time.Minute)
		ran.want(t, "1m0s", "2m0s", "10m0s")
		ran.stop()
	})
}

func TestScheduleEnds(t *testing.T) {
	inScheduleStores(t, func(t *testing.T, c *Client, start time.Time) {
		s := everyMinute("a")
		s.When.MaxRuns = 2
		put(t, c, s, PutCreated)
		b := everyMinute("b")
		b.When.End = start.Add(2 * time.Minute)
		put(t, c, b, PutCreated)
		ran := work(t, c, start, nil)
		defer ran.stop()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if got := ran.list(); len(got) != 3 {
			t.Errorf("the runs were %q", got)
		}
		for _, name := range []string{"a", "b"} {
			if info := getSchedule(t, c, name); !info.Finished || !info.NextRun.Nominal.IsZero() {
				t.Errorf("the schedule is %+v", info)
			}
		}
		s.When.MaxRuns = 3 // another rule: it counts from 0 again
		put(t, c, s, PutChanged)
		time.Sleep(10 * time.Minute)
		if info := getSchedule(t, c, "a"); info.Runs != 5 || !info.Finished {
			t.Errorf("the schedule is %+v", info)
		}
	})
}

func TestScheduleThatIsNotAllowed(t *testing.T) {
	c := newClientOn(t, memstore.New())
	for want, change := range map[string]func(*Schedule){
		"name is empty":                func(s *Schedule) { s.Name = "" },
		"name is 81 bytes":             func(s *Schedule) { s.Name = strings.Repeat("x", 81) },
		"control character":            func(s *Schedule) { s.Name = "a\n" },
		"queue name is empty":          func(s *Schedule) { s.Queue = "" },
		"topic name is empty":          func(s *Schedule) { s.Queue = "topic:" },
		"holds a brace":                func(s *Schedule) { s.Queue = "topic:{a}" },
		"has the schedules":            func(s *Schedule) { s.Queue = reserved.Schedules },
		"give exactly one of cron":     func(s *Schedule) { s.When.Every = time.Hour },
		"cron":                         func(s *Schedule) { s.When.Cron = "* * * *" },
		"time zone":                    func(s *Schedule) { s.When.TimeZone = "Europe/Berln" },
		`missed is "some"`:             func(s *Schedule) { s.Missed = "some" },
		`unfinished is "wait"`:         func(s *Schedule) { s.Unfinished = "wait" },
		"missed_max is 10001":          func(s *Schedule) { s.MissedMax = 10_001 },
		"missed_within is -1ns":        func(s *Schedule) { s.MissedWithin = -1 },
		"set unfinished to allow":      func(s *Schedule) { s.Missed = MissedAll },
		`header "schedule"`:            func(s *Schedule) { s.Headers = map[string]string{"schedule": "x"} },
		"the limit is 1032192":         func(s *Schedule) { s.Payload = make([]byte, 900_000) },
		"max attempts is -1":           func(s *Schedule) { s.MaxAttempts = -1 },
		"set is":                       func(s *Schedule) { s.Set = strings.Repeat("x", 81) },
		"dedup window is 1000000h0m0s": func(s *Schedule) { s.DedupWindow = 1_000_000 * time.Hour },
	} {
		s := everyMinute("a")
		change(&s)
		_, err := c.Schedules().Put(t.Context(), s)
		if !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrTooLarge) || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: %v", want, err)
		}
		if err != nil && s.Check() == nil {
			t.Errorf("%s: Check returned nil", want)
		}
	}
	if stats, err := c.Queue(reserved.Schedules).Stats(t.Context()); err != nil || stats.Exists {
		t.Errorf("something was stored: %+v, %v", stats, err)
	}
	for name, err := range map[string]error{
		"get":   func() error { _, err := c.Schedules().Get(t.Context(), "no"); return err }(),
		"pause": c.Schedules().Pause(t.Context(), "no", ""), "resume": c.Schedules().Resume(t.Context(), "no"),
		"delete":  c.Schedules().Delete(t.Context(), "no"),
		"trigger": func() error { _, err := c.Schedules().Trigger(t.Context(), "no"); return err }(),
		"backfill": func() error {
			_, err := c.Schedules().Backfill(t.Context(), "no", time.Unix(1, 0), time.Unix(2, 0), false)
			return err
		}(),
	} {
		if !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), `schedule "no"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestScheduleRacingChangesAreNotLost(t *testing.T) {
	c := newClientOn(t, memstore.New())
	put(t, c, everyMinute("a"), PutCreated)
	done := make(chan error)
	for range 8 {
		go func() {
			_, err := c.Schedules().Trigger(t.Context(), "a")
			done <- err
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if info := getSchedule(t, c, "a"); info.TriggeredRuns != 8 {
		t.Errorf("%d of 8 triggers were counted", info.TriggeredRuns)
	}
}

// TestChangeOfAScheduleSeesWhatOthersChange lets another change come between the look and the write of each change.
func TestChangeOfAScheduleSeesWhatOthersChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		c, other := newClientOn(t, f), newClientOn(t, f.Store)
		schedule := everyMinute("a")
		between := func(change func(), call func() error) {
			t.Helper()
			f.set(func(_ context.Context, call string) error {
				if call == "send" {
					f.set(nil, nil)
					change()
				}
				return nil
			}, nil)
			if err := call(); err != nil {
				t.Error(err)
			}
		}
		trigger := func() {
			if _, err := other.Schedules().Trigger(t.Context(), "a"); err != nil {
				t.Error(err)
			}
		}
		putOf := func(payload string) func() error {
			return func() error {
				schedule.Payload = []byte(payload)
				_, err := c.Schedules().Put(t.Context(), schedule)
				return err
			}
		}
		want := func(payload, note string, triggered int64) {
			t.Helper()
			if info := getSchedule(t, c, "a"); string(info.Payload) != payload || info.PauseNote != note ||
				info.TriggeredRuns != triggered {
				t.Errorf("the schedule is %+v", info)
			}
		}
		between(func() { put(t, other, everyMinute("a"), PutCreated) }, putOf("created meanwhile"))
		want("created meanwhile", "", 0)
		between(trigger, putOf("triggered meanwhile"))
		want("triggered meanwhile", "", 1)
		between(trigger, func() error { return c.Schedules().Pause(t.Context(), "a", "why") })
		want("triggered meanwhile", "why", 2)
		between(func() {
			if err := other.Schedules().Delete(t.Context(), "a"); err != nil {
				t.Error(err)
			}
		}, putOf("deleted meanwhile"))
		want("deleted meanwhile", "", 0)
		time.Sleep(2 * time.Minute) // it is due
		between(func() {            // a worker holds it for a moment
			claim, err := f.Store.Claim(t.Context(), reserved.Schedules, store.ClaimRequest{Max: 1, Lease: 5 * time.Second})
			if err != nil || len(claim.Messages) != 1 {
				t.Fatalf("%+v, %v", claim, err)
			}
			release := []store.Settlement{{Receipt: claim.Messages[0].Receipt, Action: store.Release}}
			time.AfterFunc(time.Second, func() {
				if _, err := f.Store.Settle(t.Context(), reserved.Schedules, release); err != nil {
					t.Error(err)
				}
			})
		}, putOf("held meanwhile"))
		want("held meanwhile", "", 0)
	})
}

func TestScheduleThatCannotBeReadIsSetAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		c, start := newClientOn(t, s), time.Now()
		put(t, c, everyMinute("a"), PutCreated)
		put(t, c, everyMinute("newer"), PutCreated)
		for name, payload := range map[string]string{"a": `{"v":1,"schedule":7}`, "newer": `{"v":4,"schedule":7}`} {
			m := store.Outgoing{Message: store.Message{ID: name, Payload: []byte(payload), Group: "schedules"}}
			m.OnDuplicate.Mode = store.DuplicateReplace
			if _, err := s.Send(t.Context(), reserved.Schedules, []store.Outgoing{m}); err != nil {
				t.Fatal(err)
			}
		}
		ran := work(t, c, start, nil)
		defer ran.stop()
		time.Sleep(3 * time.Second)
		_, err := c.Schedules().Get(t.Context(), "a")
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "cannot be read") {
			t.Errorf("Get of a damaged schedule returned %v", err)
		}
		if _, err := c.Schedules().Put(t.Context(), everyMinute("a")); !errors.Is(err, ErrCorrupt) {
			t.Errorf("Put of a damaged schedule returned %v", err)
		}
		if _, err := c.Schedules().Get(t.Context(), "newer"); !errors.Is(err, ErrUnsupported) {
			t.Errorf("Get of a newer schedule returned %v", err)
		}
		if stats, _ := c.Queue(reserved.Schedules).Stats(t.Context()); stats.Dead != 1 || stats.Scheduled+stats.Ready != 1 {
			t.Errorf("%+v", stats)
		}
		put(t, c, everyMinute("good"), PutCreated)
		page, err := c.Schedules().List(t.Context(), "", 0)
		if err != nil || len(page.Schedules) != 1 || len(page.Unreadable) != 2 {
			t.Errorf("listed %d schedules and %v, %v", len(page.Schedules), page.Unreadable, err)
		}
		good, bad := 0, 0
		for _, err := range c.Schedules().All(t.Context()) {
			if good++; err != nil {
				good, bad = good-1, bad+1
			}
		}
		if good != 1 || bad != 2 {
			t.Errorf("All returned %d schedules and %d errors", good, bad)
		}
		if err := c.Schedules().Delete(t.Context(), "a"); err != nil {
			t.Error(err)
		}
	})
}
