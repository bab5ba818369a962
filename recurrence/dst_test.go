package recurrence

import (
	"testing"
	"time"
)

// TestClockChanges has the table of the package comment, and the peculiarities of some zones.
func TestClockChanges(t *testing.T) {
	for _, c := range []struct {
		name  string
		spec  Spec
		after string // local time
		want  []string
	}{
		{"a gap shifts by default", Spec{Cron: "30 2 * * *", TimeZone: "Europe/Berlin"}, "2026-03-28 00:00:00",
			[]string{"2026-03-28 02:30:00 +0100", "2026-03-29 03:30:00 +0200", "2026-03-30 02:30:00 +0200"}},
		{"the first moment of a gap", Spec{Cron: "0 2 * * *", TimeZone: "Europe/Berlin"}, "2026-03-28 12:00:00",
			[]string{"2026-03-29 03:00:00 +0200", "2026-03-30 02:00:00 +0200"}},
		{"the first moment after a gap", Spec{Cron: "0 3 * * *", TimeZone: "Europe/Berlin"}, "2026-03-28 12:00:00",
			[]string{"2026-03-29 03:00:00 +0200", "2026-03-30 03:00:00 +0200"}},
		{"from within a gap's shifted hour", Spec{Cron: "10,40 2 * * *", TimeZone: "Europe/Berlin"},
			"2026-03-29 03:10:00", []string{"2026-03-29 03:40:00 +0200", "2026-03-30 02:10:00 +0200"}},
		{"a gap skips if asked", Spec{Cron: "30 2 * * *", TimeZone: "Europe/Berlin", Gap: GapSkip},
			"2026-03-28 00:00:00", []string{"2026-03-28 02:30:00 +0100", "2026-03-30 02:30:00 +0200"}},
		{"a shifted time that coincides with another", Spec{Cron: "30 2,3 * * *", TimeZone: "Europe/Berlin"},
			"2026-03-29 00:00:00", []string{"2026-03-29 03:30:00 +0200", "2026-03-30 02:30:00 +0200"}},
		{"shifted times keep their order", Spec{Cron: "0,45 2,3 * * *", TimeZone: "Europe/Berlin"},
			"2026-03-29 00:00:00",
			[]string{"2026-03-29 03:00:00 +0200", "2026-03-29 03:45:00 +0200", "2026-03-30 02:00:00 +0200"}},
		{"an overlap runs first by default", Spec{Cron: "30 2 * * *", TimeZone: "Europe/Berlin"}, "2026-10-25 00:00:00",
			[]string{"2026-10-25 02:30:00 +0200", "2026-10-26 02:30:00 +0100"}},
		{"an overlap runs both if asked", Spec{Cron: "30 2 * * *", TimeZone: "Europe/Berlin", Overlap: OverlapBoth},
			"2026-10-25 00:00:00", []string{"2026-10-25 02:30:00 +0200", "2026-10-25 02:30:00 +0100",
				"2026-10-26 02:30:00 +0100"}},
		{"a fixed range of hours in an overlap", Spec{Cron: "0 1-3 * * *", TimeZone: "Europe/Berlin"},
			"2026-10-25 00:00:00", []string{"2026-10-25 01:00:00 +0200", "2026-10-25 02:00:00 +0200",
				"2026-10-25 03:00:00 +0100"}},
		{"every half hour in an overlap", Spec{Cron: "*/30 * * * *", TimeZone: "Europe/Berlin"}, "2026-10-25 01:30:00",
			[]string{"2026-10-25 02:00:00 +0200", "2026-10-25 02:30:00 +0200", "2026-10-25 02:00:00 +0100",
				"2026-10-25 02:30:00 +0100", "2026-10-25 03:00:00 +0100"}},
		{"every half hour in a gap", Spec{Cron: "*/30 * * * *", TimeZone: "Europe/Berlin"}, "2026-03-29 01:00:00",
			[]string{"2026-03-29 01:30:00 +0100", "2026-03-29 03:00:00 +0200", "2026-03-29 03:30:00 +0200"}},
		{"every hour by a list of all", Spec{Cron: "0 0-23 * * *", TimeZone: "Europe/Berlin"}, "2026-10-25 01:30:00",
			[]string{"2026-10-25 02:00:00 +0200", "2026-10-25 02:00:00 +0100", "2026-10-25 03:00:00 +0100"}},
		{"a step of hours across a gap", Spec{Cron: "0 */6 * * *", TimeZone: "Africa/Cairo"}, "2026-04-23 12:00:00",
			[]string{"2026-04-23 18:00:00 +0200", "2026-04-24 01:00:00 +0300", "2026-04-24 06:00:00 +0300"}},
		{"a step of minutes in a skipped hour", Spec{Cron: "*/20 2 * * *", TimeZone: "Europe/Berlin"},
			"2026-03-28 03:00:00",
			[]string{"2026-03-29 03:00:00 +0200", "2026-03-29 03:20:00 +0200", "2026-03-29 03:40:00 +0200",
				"2026-03-30 02:00:00 +0200"}},
		{"a gap of half an hour", Spec{Cron: "10 2 * * *", TimeZone: "Australia/Lord_Howe"}, "2026-10-03 12:00:00",
			[]string{"2026-10-04 02:40:00 +1100", "2026-10-05 02:10:00 +1100"}},
		{"an overlap of half an hour", Spec{Cron: "45 1 * * *", TimeZone: "Australia/Lord_Howe"}, "2026-04-04 12:00:00",
			[]string{"2026-04-05 01:45:00 +1100", "2026-04-06 01:45:00 +1030"}},
		{"midnight does not exist", Spec{Cron: "@daily", TimeZone: "Africa/Cairo"}, "2026-04-23 12:00:00",
			[]string{"2026-04-24 01:00:00 +0300", "2026-04-25 00:00:00 +0300"}},
		{"the last hour does not exist", Spec{Cron: "30 23 * * *", TimeZone: "America/Nuuk"}, "2024-03-30 00:00:00",
			[]string{"2024-03-31 00:30:00 -0100", "2024-03-31 23:30:00 -0100", "2024-04-01 23:30:00 -0100"}},
		{"a day does not exist: Samoa", Spec{Cron: "0 9 * * *", TimeZone: "Pacific/Apia"}, "2011-12-29 00:00:00",
			[]string{"2011-12-29 09:00:00 -1000", "2011-12-31 09:00:00 +1400", "2012-01-01 09:00:00 +1400"}},
		{"a weekly job on a day that does not exist", Spec{Cron: "0 9 * * FRI", TimeZone: "Pacific/Apia"},
			"2011-12-23 12:00:00", []string{"2011-12-31 09:00:00 +1400", "2012-01-06 09:00:00 +1400"}},
		{"the same, skipped", Spec{Cron: "0 9 * * FRI", TimeZone: "Pacific/Apia", Gap: GapSkip}, "2011-12-23 12:00:00",
			[]string{"2012-01-06 09:00:00 +1400"}},
		{"a day does not exist: Kwajalein", Spec{Cron: "0 9 * * *", TimeZone: "Pacific/Kwajalein"},
			"1993-08-20 00:00:00", []string{"1993-08-20 09:00:00 -1200", "1993-08-22 09:00:00 +1200"}},
		{"a change of no whole minutes", Spec{Cron: "0 * * * *", TimeZone: "Africa/Monrovia"}, "1972-01-06 22:30:00",
			[]string{"1972-01-06 23:00:00 -0044", "1972-01-07 01:00:00 +0000", "1972-01-07 02:00:00 +0000"}},
		{"an interval takes no notice", Spec{Every: 6 * time.Hour, TimeZone: "Europe/Berlin",
			Start: time.Date(2026, 3, 28, 23, 0, 0, 0, time.UTC)}, "2026-03-28 20:00:00",
			[]string{"2026-03-29 00:00:00 +0100", "2026-03-29 07:00:00 +0200", "2026-03-29 13:00:00 +0200"}},
		{"summer time in the south", Spec{Cron: "30 0 * * *", TimeZone: "America/Santiago"}, "2026-09-05 12:00:00",
			[]string{"2026-09-06 01:30:00 -0300", "2026-09-07 00:30:00 -0300"}},
	} {
		after := local(t, zone(t, c.spec.TimeZone), c.after)
		wantTimes(t, c.name, upcoming(mustCompile(t, c.spec), after, len(c.want)), c.want...)
	}
}

func TestZonesAreCheckedByName(t *testing.T) {
	for name, want := range map[string]string{
		"Europe/Berln": `time zone: "Europe/Berln" is unknown: did you mean Europe/Berlin?`,
		"berlin":       "did you mean Europe/Berlin?",
		"Local":        "differs between machines",
		"../etc":       "is unknown",
		"qqqqqqq":      "give a name such as Europe/Berlin",
	} {
		_, err := Compile(Spec{Cron: "@daily", TimeZone: name}, Options{})
		wantInvalid(t, name, err, want)
	}
	if r := mustCompile(t, Spec{Cron: "@daily"}); r.Location() != time.UTC {
		t.Errorf("no name is %v, want UTC", r.Location())
	}
}

// TestLastDayOfLeapYears crosses a day where package time returns a period that has ended.
func TestLastDayOfLeapYears(t *testing.T) {
	berlin := zone(t, "Europe/Berlin")
	rule := mustCompile(t, Spec{Cron: "30 2 * * *", TimeZone: "Europe/Berlin"})
	for year := 2028; year < 2100; year += 4 {
		at := time.Date(year, 12, 30, 12, 0, 0, 0, berlin)
		for day := range 3 {
			next, ok := rule.Next(at)
			if at = next.Nominal; !ok || !at.Equal(time.Date(year, 12, 31+day, 2, 30, 0, 0, berlin)) {
				t.Fatalf("got %s", at)
			}
		}
	}
}
