package main

import (
	"fmt"
	"strings"
	"testing"
)

// next runs later schedule next in a program without a store, and returns its standard output.
func next(t *testing.T, args ...string) string {
	t.Helper()
	r := runMain(t.Context(), []string{"LATER_STORE=bogus://"}, "", append([]string{"schedule", "next"}, args...)...)
	if r.exit != 0 || r.stderr != "" {
		t.Fatalf("schedule next %q: exit %d: %s", args, r.exit, r.stderr)
	}
	return r.stdout
}

func TestScheduleNextShowsRunsInTheZoneAndInUTC(t *testing.T) {
	berlin := []string{"--tz", "Europe/Berlin", "--from", "2040-03-24 00:00", "-n", "3"}
	for _, test := range []struct {
		args []string
		want []string
	}{
		{append([]string{"--cron", "30 2 * * *"}, berlin...), []string{
			"Sat 2040-03-24 02:30:00 +01:00  2040-03-24T01:30:00Z",
			"Sun 2040-03-25 03:30:00 +02:00  2040-03-25T01:30:00Z",
			"Mon 2040-03-26 02:30:00 +02:00  2040-03-26T00:30:00Z"}},
		{append([]string{"--cron", "30 2 * * *", "--gap", "skip", "--exclude", "2040-03-26"}, berlin...), []string{
			"Sat 2040-03-24 02:30:00 +01:00", "Tue 2040-03-27 02:30:00 +02:00", "Wed 2040-03-28"}},
		{append([]string{"--cron", "@daily", "--start", "2040-03-25 00:00", "--end", "2040-03-26 00:00"}, berlin...),
			[]string{"Sun 2040-03-25 00:00:00 +01:00"}},
		{[]string{"--cron", "30 2 28 10 *", "--tz", "Europe/Berlin", "--overlap", "both", "--from", "2040-10-28 00:00",
			"-n", "2"}, []string{"Sun 2040-10-28 02:30:00 +02:00", "Sun 2040-10-28 02:30:00 +01:00"}},
		{[]string{"--every", "90m", "--from", "2040-01-01T00:00:00Z", "-n", "2"}, []string{
			"Sun 2040-01-01 00:00:00 +00:00", "Sun 2040-01-01 01:30:00 +00:00"}},
		{[]string{"--rrule", "FREQ=MONTHLY;BYDAY=-1FR", "--start", "2040-01-01 18:00", "--from", "2040-01-01 00:00",
			"-n", "1"}, []string{"Fri 2040-01-27 18:00:00 +00:00"}},
		{[]string{"--times", "2040-01-02 08:00,2040-01-01T08:00:00+01:00", "--tz", "Asia/Tokyo"}, []string{
			"Sun 2040-01-01 16:00:00 +09:00", "Mon 2040-01-02 08:00:00 +09:00  2040-01-01T23:00:00Z"}},
	} {
		lines := strings.Split(strings.TrimSuffix(next(t, test.args...), "\n"), "\n")[1:]
		if len(lines) != len(test.want) {
			t.Fatalf("%q printed %q, want %d runs", test.args, lines, len(test.want))
		}
		for i, want := range test.want {
			if !strings.HasPrefix(lines[i], want) {
				t.Errorf("%q: run %d is %q, want %q", test.args, i, lines[i], want)
			}
		}
	}
}

func TestScheduleNextPrintsJSON(t *testing.T) {
	got := next(t, "--cron", "0 9 * * 1-5", "--tz", "Europe/Berlin", "--from", "2040-06-01 00:00", "-n", "1", "--json")
	const want = `{"nominal":"2040-06-01T07:00:00.000Z","due":"2040-06-01T07:00:00.000Z",` +
		`"local":"2040-06-01T09:00:00.000+02:00","time_zone":"Europe/Berlin"}` + "\n"
	if got != want {
		t.Errorf("printed %s, want %s", got, want)
	}
}

func TestScheduleNextHasTheJitterOfTheName(t *testing.T) {
	args := []string{"--cron", "@daily", "--jitter", "1h", "--from", "2040-01-01 00:00", "-n", "2"}
	contains(t, next(t, append(args, "--name", "a")...), "NOMINAL", "  Sun 2040-01-01 00:00:00 +00:00\n")
	runs := func(name string) string {
		due := ""
		for _, run := range objects(t, next(t, append(args, "--name", name, "--json")...)) {
			due += fmt.Sprint(run["due"], " ")
		}
		return due
	}
	first, again, other := runs("a"), runs("a"), runs("b")
	if first != again || first == other {
		t.Errorf("name a runs at %s and %s, and b at %s", first, again, other)
	}
}

func TestScheduleNextWithoutRunsSaysSo(t *testing.T) {
	r := runMain(t.Context(), nil, "", "schedule", "next", "--times", "2020-01-01T00:00:00Z")
	if r.exit != 0 || r.stdout != "" || !strings.Contains(r.stderr, "the rule has no runs after 20") {
		t.Errorf("%+v", r)
	}
	if got := next(t, "--every", "1h", "-n", "4"); strings.Count(got, "\n") != 5 {
		t.Errorf("the next 4 runs are\n%s", got)
	}
}
