package later

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/recurrence"
	"github.com/laterq/later/store"
)

const day = 24 * time.Hour

// TestMissedWithinFollowsThePeriod has the table of docs/schedules.md.
func TestMissedWithinFollowsThePeriod(t *testing.T) {
	c := newClientOn(t, memstore.New())
	start := time.Now().Truncate(time.Second)
	for name, test := range map[string]struct {
		when     recurrence.Spec
		set      time.Duration
		one, all time.Duration
	}{
		"every second":     {recurrence.Spec{Every: time.Second}, 0, time.Hour, time.Hour},
		"every minute":     {recurrence.Spec{Cron: "* * * * *"}, 0, time.Hour, 100 * time.Minute},
		"every hour":       {recurrence.Spec{Cron: "0 * * * *"}, 0, time.Hour, 100 * time.Hour},
		"every 90 minutes": {recurrence.Spec{Every: 90 * time.Minute}, 0, 90 * time.Minute, 150 * time.Hour},
		"every day":        {recurrence.Spec{Cron: "0 9 * * *"}, 0, day, 31 * day},
		"office hours":     {recurrence.Spec{Cron: "0 9-17 * * 1-5"}, 0, 64 * time.Hour, 31 * day},
		"every week":       {recurrence.Spec{Cron: "0 9 * * 1"}, 0, 7 * day, 31 * day},
		"every month":      {recurrence.Spec{Cron: "0 9 1 * *"}, 0, 31 * day, 31 * day},
		"every year":       {recurrence.Spec{Cron: "0 9 1 1 *"}, 0, 31 * day, 31 * day},
		"once":             {recurrence.Spec{Times: []time.Time{start.Add(day)}}, 0, 31 * day, 31 * day},
		"set":              {recurrence.Spec{Cron: "0 9 1 * *"}, time.Hour, time.Hour, time.Hour},
	} {
		for policy, want := range map[MissedPolicy]time.Duration{MissedOne: test.one, MissedAll: test.all} {
			s := Schedule{
				Name: "a", Queue: "q", When: test.when, Missed: policy, MissedWithin: test.set, Unfinished: UnfinishedAllow,
			}
			if _, err := c.Schedules().Put(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			info := getSchedule(t, c, "a")
			if info.MadeUpWithin != want || info.MissedWithin != test.set {
				t.Errorf("%s, %s: made up for within %v (set to %v), want %v", name, policy, info.MadeUpWithin,
					info.MissedWithin, want)
			}
		}
	}
}

// TestMonthlyRunIsMadeUpForAfterAnOutage runs no worker from before a run until hours or days after it.
func TestMonthlyRunIsMadeUpForAfterAnOutage(t *testing.T) {
	inScheduleStores(t, func(t *testing.T, c *Client, start time.Time) {
		s := everyMinute("invoices")
		s.When = recurrence.Spec{Cron: "0 9 1 * *"} // the bubble begins on the first of January
		put(t, c, s, PutCreated)
		time.Sleep(5 * time.Hour)
		for _, outage := range []time.Duration{5 * time.Hour, 33 * day} {
			time.Sleep(outage)
			ran := work(t, c, start, nil)
			time.Sleep(time.Second)
			ran.want(t, map[bool]string{true: "9h0m0s missed", false: "753h0m0s missed"}[outage < day])
			ran.stop()
		}
		put(t, c, everyMinute("invoices"), PutChanged)
		time.Sleep(time.Hour)
		ran := work(t, c, start, nil)
		time.Sleep(time.Minute)
		ran.stop()
		// The last of the runs that were left out is named. Its run is a minute or two before the first that was sent.
		info := getSchedule(t, c, "invoices")
		if ago := time.Since(info.LastMissed); info.MissedRuns < 58 || ago < 2*time.Minute || ago > 4*time.Minute {
			t.Errorf("%d runs were missed, the last %v ago", info.MissedRuns, ago)
		}
	})
}

// TestSchedulesOfTheOldDefaultFollowTheNewOne stores records as version 1 did.
func TestSchedulesOfTheOldDefaultFollowTheNewOne(t *testing.T) {
	s := memstore.New()
	c := newClientOn(t, s)
	for name, within := range map[string]time.Duration{"default": time.Hour, "set": 2 * time.Hour} {
		schedule := everyMinute(name)
		schedule.When, schedule.MissedWithin = recurrence.Spec{Cron: "0 9 1 * *"}, within
		put(t, c, schedule, PutCreated)
		infos, err := s.Get(t.Context(), reserved.Schedules, []string{name})
		if err != nil {
			t.Fatal(err)
		}
		m := store.Outgoing{Message: infos[0].Message, Due: store.Due{At: infos[0].Due}}
		old := bytes.Replace(m.Payload, []byte(`{"v":3,`), []byte(`{"v":1,`), 1)
		if bytes.Equal(old, m.Payload) {
			t.Fatalf("the record is %s", m.Payload)
		}
		m.Payload, m.OnDuplicate = old, store.OnDuplicate{Mode: store.DuplicateReplace}
		if _, err := s.Send(t.Context(), reserved.Schedules, []store.Outgoing{m}); err != nil {
			t.Fatal(err)
		}
	}
	if info := getSchedule(t, c, "default"); info.MissedWithin != 0 || info.MadeUpWithin != 31*day {
		t.Errorf("missed within %v, %v", info.MissedWithin, info.MadeUpWithin)
	}
	if info := getSchedule(t, c, "set"); info.MissedWithin != 2*time.Hour || info.MadeUpWithin != 2*time.Hour {
		t.Errorf("missed within %v, %v", info.MissedWithin, info.MadeUpWithin)
	}
	schedule := everyMinute("default")
	schedule.When = recurrence.Spec{Cron: "0 9 1 * *"}
	put(t, c, schedule, PutUnchanged)
	if err := c.Schedules().Pause(t.Context(), "default", ""); err != nil {
		t.Fatal(err)
	}
	infos, err := s.Get(t.Context(), reserved.Schedules, []string{"default"})
	if err != nil || strings.Contains(string(infos[0].Payload), "missed_within") ||
		!strings.HasPrefix(string(infos[0].Payload), `{"v":3,`) {
		t.Errorf("the record was written as %s, %v", infos[0].Payload, err)
	}
	schedule.MissedWithin = time.Hour
	put(t, c, schedule, PutChanged)
	if info := getSchedule(t, c, "default"); info.MadeUpWithin != time.Hour {
		t.Errorf("missed within %v, want what was set", info.MadeUpWithin)
	}
}
