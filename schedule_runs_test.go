package later

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/internal/schedule"
	"github.com/laterq/later/recurrence"
)

// runsOf describes runs of a schedule by their minutes since start and states.
func runsOf(t *testing.T, c *Client, name string, start time.Time, from, to time.Duration, n int) (text string) {
	t.Helper()
	end := time.Time{}
	if to > 0 {
		end = start.Add(to)
	}
	runs, err := c.Schedules().Runs(t.Context(), name, start.Add(from), end, n)
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range runs {
		if run.Schedule != name || run.ID == "" || run.Queue == "" || !run.Due.Equal(run.Nominal) {
			t.Errorf("%+v", run)
		}
		text += fmt.Sprintf("%d %s, ", run.Nominal.Sub(start)/time.Minute, run.State)
	}
	return text
}

func TestScheduleRunsHaveTheStatesOfTheirMessages(t *testing.T) {
	inScheduleStores(t, func(t *testing.T, c *Client, start time.Time) {
		s := everyMinute("a")
		s.Unfinished = UnfinishedAllow
		put(t, c, s, PutCreated)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Schedules().Run(ctx) }()
		time.Sleep(3*time.Minute + 30*time.Second)
		synctest.Wait()
		q := c.Queue(s.Queue)
		ready, err := q.List(t.Context(), ListOptions{State: StateReady})
		if err != nil || len(ready.Messages) != 3 {
			t.Fatal(ready, err)
		}
		mustReceive(t, q, 1)
		if err := q.Reschedule(t.Context(), ready.Messages[1].ID, In(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if _, err := q.Cancel(t.Context(), ready.Messages[2].ID); err != nil {
			t.Fatal(err)
		}
		for _, x := range []struct {
			from, to time.Duration
			n        int
			want     string
		}{
			{-time.Hour, 6 * time.Minute, 100, "1 leased, 2 scheduled, 3 past, 4 planned, 5 planned, "},
			{-time.Hour, 0, 2, "1 leased, 2 scheduled, "},
			{3 * time.Minute, 4 * time.Minute, 9, "3 past, "},
			{100*time.Minute + 1, 0, 2, "101 planned, 102 planned, "},
			{-time.Hour, time.Minute, 9, ""},
		} {
			if got := runsOf(t, c, "a", start, x.from, x.to, x.n); got != x.want {
				t.Errorf("%v to %v: got %s, want %s", x.from, x.to, got, x.want)
			}
		}
		if err := c.Schedules().Pause(t.Context(), "a", ""); err != nil {
			t.Fatal(err)
		}
		if got := runsOf(t, c, "a", start, 2*time.Minute, 0, 9); got != "2 scheduled, 3 past, " {
			t.Errorf("paused: %s", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestScheduleRunsEndWithTheRule(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		start := time.Now()
		put(t, c, Schedule{Name: "a", Queue: "q", When: recurrence.Spec{Every: time.Minute, MaxRuns: 3}}, PutCreated)
		if got := runsOf(t, c, "a", start, 0, 0, 9); got != "1 planned, 2 planned, 3 planned, " {
			t.Error(got)
		}
		if got := runsOf(t, c, "a", start, 3*time.Minute, 0, 9); got != "3 planned, " {
			t.Error(got)
		}
		if got := runsOf(t, c, "a", start, time.Hour, 0, 9); got != "" {
			t.Error(got)
		}
		_, err := c.Schedules().Runs(t.Context(), "a", start, start, 1)
		wantError(t, err, ErrInvalid)
		_, err = c.Schedules().Runs(t.Context(), "a", start, time.Time{}, schedule.MaxRuns+1)
		wantError(t, err, ErrInvalid)
		if _, err = c.Schedules().Runs(t.Context(), "b", start, time.Time{}, 1); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
	})
}
