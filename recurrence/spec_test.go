package recurrence

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

var day1 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestSpecsAreChecked(t *testing.T) {
	series := Series{First: time.Minute, Factor: 2, Count: 3}
	changed := func(f func(*Series)) *Series { s := series; f(&s); return &s }
	for _, c := range []struct {
		spec Spec
		want string
	}{
		{Spec{}, "give exactly one of cron, every, rrule, times and series; none is set"},
		{Spec{Cron: "@daily", Every: time.Hour}, "cron and every are set"},
		{Spec{Every: -1}, "every: -1ns is below 1ms: the nearest value is 1ms"},
		{Spec{Every: 1500 * time.Microsecond}, "every: 1.5ms is not in whole milliseconds: the nearest value is 2ms"},
		{Spec{Every: maxEvery + 1}, "is above 876600h0m0s"},
		{Spec{Every: time.Hour}, "every: there is nothing to count from: set start"},
		{Spec{Cron: "@every 1h"}, "cron: @every: there is nothing to count from"},
		{Spec{Series: &series}, "series: there is nothing to count from"},
		{Spec{Times: make([]time.Time, maxTimes+1)}, "times: 10001 times: the limit is 10000"},
		{Spec{Times: []time.Time{day1, day1.AddDate(9000, 0, 0)}}, "times: entry 2, 11026-01-01T00:00:00Z, is outside"},
		{Spec{Cron: "@daily", Start: day1, End: day1}, "end: 2026-01-01T00:00:00Z is not after start"},
		{Spec{Cron: "@daily", Start: day1.AddDate(9000, 0, 0)}, "start: 11026-01-01T00:00:00Z is outside"},
		{Spec{Cron: "@daily", End: day1.AddDate(9000, 0, 0)}, "end: 11026-01-01T00:00:00Z is outside"},
		{Spec{Cron: "@daily", Jitter: -1}, "jitter: -1ns is not between 0 and 24h0m0s"},
		{Spec{Cron: "@daily", Jitter: 25 * time.Hour}, "jitter: 25h0m0s is not"},
		{Spec{Cron: "@daily", MaxRuns: -1}, "max_runs: -1 is below 0"},
		{Spec{Cron: "@daily", Gap: "shfit"}, `gap: "shfit" is unknown: did you mean shift?`},
		{Spec{Cron: "@daily", Overlap: "last"}, `overlap: "last" is unknown`},
		{Spec{Cron: "@daily", Exclude: []string{"2026-12-25", "christmas"}},
			`exclude: entry 2, "christmas": give a day`},
		{Spec{Cron: "@daily", Exclude: []string{"2026-12-25/2026-12-24"}}, "2026-12-24 is not after 2026-12-25"},
		{Spec{Cron: "@daily", Exclude: []string{"2026-12-25/x"}}, "give a day"},
		{Spec{Cron: "@daily", Exclude: []string{"2026-12-25/2026-12-26T00:00"}}, "give two days or two times"},
		{Spec{Cron: "@daily", Exclude: []string{"2026-02-30"}}, `entry 1, "2026-02-30"`},
		{Spec{Cron: "@daily", Exclude: make([]string, maxExclude+1)}, "1001 entries: the limit is 1000"},
		{Spec{Series: changed(func(s *Series) { s.First = 0 })}, "series.first: 0s is not between 1ms"},
		{Spec{Series: changed(func(s *Series) { s.Min = -1 })}, "series.min: -1ns is not between 0s"},
		{Spec{Series: changed(func(s *Series) { s.Max = 1 })}, "series.max: 1ns is not in whole milliseconds"},
		{Spec{Series: changed(func(s *Series) { s.Min, s.Max = 2*time.Hour, time.Hour })},
			"series.min: 2h0m0s is above"},
		{Spec{Series: changed(func(s *Series) { s.Factor = 0 })}, "series.factor: 0 is not a finite number above 0"},
		{Spec{Series: changed(func(s *Series) { s.Factor = math.NaN() })}, "series.factor: NaN"},
		{Spec{Series: changed(func(s *Series) { s.Factor = math.Inf(1) })}, "series.factor: +Inf"},
		{Spec{Series: changed(func(s *Series) { s.Count = 0 })}, "series.count: 0 is not between 1 and 10000"},
		{Spec{Series: changed(func(s *Series) { s.Factor, s.Count = 1e9, 1000 }), Start: day1},
			"is after the year 9999"},
	} {
		_, err := Compile(c.spec, Options{})
		wantInvalid(t, c.want, err, c.want)
	}
}

func TestIntervalsAreCountedFromTheirStart(t *testing.T) {
	created := day1.Add(time.Nanosecond) // rounded up
	rule, err := Compile(Spec{Cron: "@every 90m"}, Options{Created: created})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for o := range rule.After(day1) {
		if got = append(got, o.Nominal.Format("15:04:05.000")); len(got) == 3 {
			break
		}
	}
	wantTimes(t, "from the creation", got, "00:00:00.001", "01:30:00.001", "03:00:00.001")
	every := mustCompile(t, Spec{Every: 7 * time.Millisecond, Start: day1})
	for _, c := range []struct{ after, want time.Duration }{
		{-time.Hour, 0}, {-1, 0}, {0, 7}, {1, 7}, {6, 7}, {7, 14}, {8, 14},
		{7_000_000_000, 7_000_000_007},
	} {
		if next, ok := every.Next(day1.Add(c.after * time.Millisecond)); !ok ||
			!next.Nominal.Equal(day1.Add(c.want*time.Millisecond)) {
			t.Errorf("after %d ms: %v", c.after, next)
		}
	}
}

func TestListsAreSorted(t *testing.T) {
	rule := mustCompile(t, Spec{Times: []time.Time{day1.Add(2 * time.Hour), day1, day1.Add(time.Hour), day1},
		TimeZone: "Asia/Tokyo"})
	wantTimes(t, "list", upcoming(rule, time.Time{}, 5), "2026-01-01 09:00:00 +0900", "2026-01-01 10:00:00 +0900",
		"2026-01-01 11:00:00 +0900")
	wantTimes(t, "the rest", upcoming(rule, day1, 5), "2026-01-01 10:00:00 +0900", "2026-01-01 11:00:00 +0900")
}

func TestSeriesGrowAndShrink(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name   string
		series Series
		delays []time.Duration
	}{
		{"doubling", Series{First: 10 * s, Factor: 2, Count: 4}, []time.Duration{10 * s, 20 * s, 40 * s, 80 * s}},
		{"halving", Series{First: 80 * s, Factor: 0.5, Min: 15 * s, Count: 5},
			[]time.Duration{80 * s, 40 * s, 20 * s, 15 * s, 15 * s}},
		{"limited", Series{First: 10 * s, Factor: 3, Max: 60 * s, Count: 4},
			[]time.Duration{10 * s, 30 * s, 60 * s, 60 * s}},
		{"constant", Series{First: 10 * s, Factor: 1, Count: 3}, []time.Duration{10 * s, 10 * s, 10 * s}},
		{"the first is limited too", Series{First: s, Factor: 2, Min: 3 * s, Count: 3},
			[]time.Duration{3 * s, 3 * s, 4 * s}},
		{"whole milliseconds", Series{First: 100 * time.Millisecond, Factor: 1.5, Count: 5}, []time.Duration{
			100 * time.Millisecond, 150 * time.Millisecond, 225 * time.Millisecond, 338 * time.Millisecond,
			506 * time.Millisecond}},
		{"at least a millisecond", Series{First: time.Millisecond, Factor: 0.1, Count: 3},
			[]time.Duration{time.Millisecond, time.Millisecond, time.Millisecond}},
	} {
		rule := mustCompile(t, Spec{Series: &c.series, Start: day1})
		at := day1
		for i, delay := range c.delays {
			next, ok := rule.Next(at)
			if at = at.Add(delay); !ok || !next.Nominal.Equal(at) {
				t.Errorf("%s: time %d is %s, want %s", c.name, i+1, next.Nominal, at)
			}
		}
		if next, ok := rule.Next(at); ok {
			t.Errorf("%s: %s follows", c.name, next.Nominal)
		}
	}
	huge := Series{First: time.Hour, Factor: 1e300, Max: 24 * time.Hour, Count: 1000}
	if n := len(upcoming(mustCompile(t, Spec{Series: &huge, Start: day1}), day1, 2000)); n != 1000 {
		t.Errorf("a factor that overflows: %d times", n)
	}
}

func TestBoundsAndExclusions(t *testing.T) {
	berlin := zone(t, "Europe/Berlin")
	for _, c := range []struct {
		name  string
		spec  Spec
		after string
		want  []string
	}{
		{"start is included, end is not", Spec{Start: local(t, berlin, "2026-01-05 09:00:00"),
			End: local(t, berlin, "2026-01-07 09:00:00")}, "2020-01-01 00:00:00", []string{"01-05", "01-06"}},
		{"a start between two times", Spec{Start: local(t, berlin, "2026-01-05 09:00:00").Add(1),
			End: local(t, berlin, "2026-01-07 09:00:00").Add(1)}, "2020-01-01 00:00:00", []string{"01-06", "01-07"}},
		{"days", Spec{Exclude: []string{"2026-01-03", "2026-01-02", "2026-01-05/2026-01-07"}}, "2026-01-01 00:00:00",
			[]string{"01-01", "01-04", "01-08"}},
		{"a local time", Spec{Exclude: []string{"2026-01-01T09:00", "2026-01-02T09:00:00", "2026-01-03T08:00"}},
			"2026-01-01 00:00:00", []string{"01-03", "01-04"}},
		{"an exact time", Spec{Exclude: []string{"2026-01-01T08:00:00Z", "2026-01-02T09:00:00+01:00",
			"2026-01-03T09:00+01:00"}},
			"2026-01-01 00:00:00", []string{"01-04"}},
		{"from a time until before a time", Spec{Exclude: []string{"2026-01-01T09:00/2026-01-03T09:00"}},
			"2026-01-01 00:00:00", []string{"01-03"}},
		{"overlapping entries", Spec{Exclude: []string{"2026-01-01/2026-01-09", "2026-01-02/2026-01-03",
			"2026-01-08T00:00/2026-01-11T00:00"}}, "2026-01-01 00:00:00", []string{"01-11"}},
		{"thousands of years", Spec{Exclude: []string{"2026-01-02/9999-01-01"}, End: day1.AddDate(7000, 0, 0)},
			"2026-01-01 00:00:00", []string{"01-01"}},
	} {
		c.spec.Cron, c.spec.TimeZone = "0 9 * * *", "Europe/Berlin"
		rule := mustCompile(t, c.spec)
		var got []string
		for o := range rule.After(local(t, berlin, c.after)) {
			if got = append(got, o.Nominal.Format("01-02")); len(got) == len(c.want) {
				break
			}
		}
		wantTimes(t, c.name, got, c.want...)
		last, _ := time.ParseInLocation("2006-01-02 15:04", "2026-"+got[len(got)-1]+" 09:00", berlin)
		if next, ok := rule.Next(last); ok && (!c.spec.End.IsZero()) {
			t.Errorf("%s: %s follows", c.name, next.Nominal)
		}
	}
	midnight := mustCompile(t, Spec{Cron: "*/30 * * * *", TimeZone: "Africa/Cairo", Exclude: []string{"2026-04-24"}})
	evening := local(t, zone(t, "Africa/Cairo"), "2026-04-23 23:00:00")
	wantTimes(t, "a day without its midnight", upcoming(midnight, evening, 2),
		"2026-04-23 23:30:00 +0200", "2026-04-25 00:00:00 +0300")
	samoa := mustCompile(t, Spec{Cron: "0 */12 * * *", TimeZone: "Pacific/Apia", Exclude: []string{"2011-12-30"}})
	wantTimes(t, "a day that does not exist", upcoming(samoa, local(t, zone(t, "Pacific/Apia"), "2011-12-29 01:00:00"),
		2), "2011-12-29 12:00:00 -1000", "2011-12-31 00:00:00 +1400")
}

func TestJitterIsStableAndKeepsTheOrder(t *testing.T) {
	compile := func(name string, jitter time.Duration) *Rule {
		rule, err := Compile(Spec{Cron: "*/10 * * * *", Jitter: jitter}, Options{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		return rule
	}
	for _, jitter := range []time.Duration{time.Second, 10 * time.Minute, 24 * time.Hour} {
		a, again, b := compile("a", jitter), compile("a", jitter), compile("b", jitter)
		limit := min(jitter, 10*time.Minute-time.Millisecond)
		at, last, sum, different := day1, day1, time.Duration(0), 0
		const n = 2000
		for range n {
			x, _ := a.Next(at)
			y, _ := again.Next(at)
			z, _ := b.Next(at)
			delay := x.Due.Sub(x.Nominal)
			if x != y || delay < 0 || delay > limit || !x.Due.After(last) || x.Due.Nanosecond()%1e6 != 0 {
				t.Fatalf("jitter %v: %v and %v, after %v", jitter, x, y, last)
			}
			if x.Due != z.Due {
				different++
			}
			at, last, sum = x.Nominal, x.Due, sum+delay
		}
		if mean := sum / n; mean < limit*45/100 || mean > limit*55/100 || different < n*9/10 {
			t.Errorf("jitter %v: mean %v, %d of %d differ between names", jitter, mean, different, n)
		}
	}
	// These values must never change: processes of different versions share schedules.
	next, _ := compile("nightly report", time.Minute).Next(day1)
	if got := next.Due.Format("15:04:05.000"); got != "00:10:24.209" {
		t.Errorf("due at %s", got)
	}
}

func TestFinishedCountsRuns(t *testing.T) {
	three, unlimited := mustCompile(t, Spec{Cron: "@daily", MaxRuns: 3}), mustCompile(t, Spec{Cron: "@daily"})
	if three.Finished(2) || !three.Finished(3) || !three.Finished(4) || unlimited.Finished(1e9) {
		t.Error("MaxRuns is not respected")
	}
}

func TestSpecsSurviveJSON(t *testing.T) {
	for _, spec := range []Spec{
		{Cron: "@daily", TimeZone: "Europe/Berlin", Gap: GapSkip, Overlap: OverlapBoth, MaxRuns: 3},
		{Every: 90 * time.Minute, Start: day1, End: day1.AddDate(1, 0, 0), Jitter: time.Minute,
			Exclude: []string{"2026-12-25"}},
		{Times: []time.Time{day1}},
		{Series: &Series{First: time.Hour, Factor: 1.5, Min: time.Minute, Max: 24 * time.Hour, Count: 5}},
		{RRule: "FREQ=DAILY"},
	} {
		text, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		var got Spec
		if err := json.Unmarshal(text, &got); err != nil || !reflect.DeepEqual(got, spec) {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, spec)
		}
	}
	text, _ := json.Marshal(Spec{Every: 90 * time.Minute, Series: &Series{First: time.Second, Factor: 2, Count: 3}})
	if want := `{"every":"1h30m0s","series":{"first":"1s","factor":2,"count":3}}`; string(text) != want {
		t.Errorf("JSON is %s, want %s", text, want)
	}
	for text, want := range map[string]string{
		`{"every":"soon"}`:     `"soon" is no duration: give one such as 90s, 15m or 1h30m`,
		`{"crom":"@daily"}`:    `field "crom" is unknown: did you mean cron?`,
		`{"every":5}`:          `field "every" is a number: must be a duration`,
		`{"start":"tomorrow"}`: "tomorrow",
	} {
		err := json.Unmarshal([]byte(text), new(Spec))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
