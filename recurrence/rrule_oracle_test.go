package recurrence

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/teambition/rrule-go"
)

// TestRRuleIsItsDefinition compares random rules by the day, week, month and year with a plain reading of RFC 5545 that
// looks at each day of some years.
func TestRRuleIsItsDefinition(t *testing.T) {
	rules := 200
	if long() {
		rules = 6_000
	}
	random := rand.New(rand.NewPCG(17, 3))
	run := 0
	for range rules {
		text := randomRRule(random)
		start := time.Date(1990+random.IntN(30), 1, 1+random.IntN(366), random.IntN(24), random.IntN(60),
			random.IntN(60), 0, time.UTC)
		rule, err := parseRRule(text, time.UTC)
		if err != nil {
			t.Fatal(err)
		}
		want := definition(rule, start, start.AddDate(5, 0, 0))
		compiled, err := Compile(Spec{RRule: text, Start: start}, Options{})
		if err != nil {
			if len(want) > 0 || !strings.Contains(err.Error(), "never runs") {
				t.Fatalf("%s from %s: %v; expected %v", text, start, err, want[0])
			}
			continue
		}
		// From the start, and from a random moment, since the library does not search from its DTSTART then.
		later := time.Duration(random.Int64N(4*365*86400)) * time.Second
		for _, after := range []time.Time{start.Add(-time.Second), start.Add(later)} {
			i, _ := slices.BinarySearchFunc(want, after.Add(time.Second), time.Time.Compare)
			for _, w := range want[i:min(len(want), i+20)] {
				got, ok := compiled.Next(after)
				if !ok || !got.Nominal.Equal(w) {
					t.Fatalf("%s from %s: after %s: got %v %v, want %v", text, start, after, got.Nominal, ok, w)
				}
				after, run = w, run+1
			}
		}
	}
	if run < rules*4 {
		t.Errorf("only %d times were compared", run)
	}
}

func randomRRule(r *rand.Rand) string {
	freq := r.IntN(4)
	parts := []string{"FREQ=" + frequencies[freq]}
	add := func(chance int, name string, low, high int) {
		if r.IntN(chance) > 0 {
			return
		}
		values := make([]string, 1+r.IntN(3))
		for i := range values {
			n := low + r.IntN(high-low+1)
			if ruleParts[name].negative && r.IntN(3) == 0 {
				n = -n
			}
			values[i] = fmt.Sprint(n)
		}
		parts = append(parts, name+"="+strings.Join(values, ","))
	}
	if r.IntN(2) == 0 {
		parts = append(parts, fmt.Sprintf("INTERVAL=%d", 1+r.IntN(4)))
	}
	if r.IntN(3) == 0 {
		parts = append(parts, "WKST="+rruleDays[r.IntN(7)])
	}
	add(3, "BYMONTH", 1, 12)
	if freq != 2 {
		add(4, "BYMONTHDAY", 1, 31)
	}
	byWeek := false
	if freq == 0 {
		add(5, "BYYEARDAY", 1, 366)
		before := len(parts)
		add(5, "BYWEEKNO", 1, 53)
		byWeek = len(parts) > before
	}
	if r.IntN(2) == 0 {
		days := make([]string, 1+r.IntN(3))
		for i := range days {
			if days[i] = rruleDays[r.IntN(7)]; freq < 2 && !byWeek && r.IntN(2) == 0 {
				days[i] = fmt.Sprint(1+r.IntN(5)-r.IntN(2)*6) + days[i]
				days[i] = strings.TrimPrefix(strings.Replace(days[i], "0", "1", 1), "+")
			}
		}
		parts = append(parts, "BYDAY="+strings.Join(days, ","))
	}
	add(6, "BYHOUR", 0, 23)
	add(6, "BYMINUTE", 0, 59)
	add(10, "BYSECOND", 0, 59)
	if len(parts) > 2 && !byWeek && strings.Contains(strings.Join(parts, ";"), ";BY") {
		add(4, "BYSETPOS", 1, 6)
	}
	return strings.Join(parts, ";")
}

// definition returns the times of a rule before an end.
func definition(r *recurrenceRule, start, end time.Time) []time.Time {
	var times []time.Time
	periods := map[int][]time.Time{}
	o := newLocalRule(r, time.UTC, start.Unix()).rule // with the fields that DTSTART supplies
	first := time.Date(start.Year(), 1, 1, 0, 0, 0, 0, time.UTC).AddDate(0, 0, -7)
	for day := first; day.Before(end.AddDate(1, 0, 0)); day = day.AddDate(0, 0, 1) {
		if period := periodOf(&o, start, day); period >= 0 && period%o.Interval == 0 && selects(&o, r, day) {
			for _, h := range o.Byhour {
				for _, m := range o.Byminute {
					for _, s := range o.Bysecond {
						periods[period] = append(periods[period], time.Date(day.Year(), day.Month(), day.Day(), h, m, s,
							0, time.UTC))
					}
				}
			}
		}
	}
	for _, set := range periods {
		slices.SortFunc(set, time.Time.Compare)
		for i, at := range set {
			if len(o.Bysetpos) == 0 || slices.Contains(o.Bysetpos, i+1) || slices.Contains(o.Bysetpos, i-len(set)) {
				times = append(times, at)
			}
		}
	}
	times = slices.DeleteFunc(times, func(at time.Time) bool { return at.Before(start) || !at.Before(end) })
	slices.SortFunc(times, time.Time.Compare)
	return times
}

// periodOf returns the number of the period of a day. The period of the start is 0.
func periodOf(o *rrule.ROption, start, day time.Time) int {
	date := time.Date(start.Year(), start.Month(), start.Day(), 0, 0, 0, 0, time.UTC)
	switch o.Freq {
	case rrule.YEARLY:
		return day.Year() - start.Year()
	case rrule.MONTHLY:
		return (day.Year()-start.Year())*12 + int(day.Month()) - int(start.Month())
	case rrule.WEEKLY:
		return int(weekStart(day, o.Wkst).Sub(weekStart(date, o.Wkst)).Hours() / 24 / 7)
	}
	return int(day.Sub(date).Hours() / 24)
}

func weekStart(day time.Time, first rrule.Weekday) time.Time {
	return day.AddDate(0, 0, -(int(day.Weekday()+6)-first.Day())%7)
}

// selects reports whether the parts of a rule select a day.
func selects(o *rrule.ROption, r *recurrenceRule, day time.Time) bool {
	in := func(list []int, values ...int) bool {
		return len(list) == 0 || slices.ContainsFunc(values, func(v int) bool { return slices.Contains(list, v) })
	}
	yearDays := time.Date(day.Year(), 12, 31, 0, 0, 0, 0, time.UTC).YearDay()
	monthDays := time.Date(day.Year(), day.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day()
	if !in(o.Bymonth, int(day.Month())) || !in(o.Byyearday, day.YearDay(), day.YearDay()-yearDays-1) ||
		!in(o.Bymonthday, day.Day(), day.Day()-monthDays-1) || !in(o.Byweekno, weekNumbers(day, o.Wkst)...) {
		return false
	}
	if len(o.Byweekday) == 0 {
		return true
	}
	// The position of the day among the days with its weekday, from the front and from the back.
	index, length := day.YearDay()-1, yearDays
	if o.Freq == rrule.MONTHLY || len(r.Bymonth) > 0 {
		index, length = day.Day()-1, monthDays
	}
	front, back := index/7+1, -((length-1-index)/7 + 1)
	days := o.Byweekday
	if len(r.Byweekday) > 0 {
		days = r.Byweekday // as they were written
	}
	return slices.ContainsFunc(days, func(d rrule.Weekday) bool {
		return d.Day() == int(day.Weekday()+6)%7 && (d.N() == 0 || d.N() == front || d.N() == back)
	})
}

// weekNumbers returns the number of a day's week, from the front and from the back of the year that has most of it.
func weekNumbers(day time.Time, first rrule.Weekday) []int {
	week := weekStart(day, first)
	year := week.AddDate(0, 0, 3).Year()
	one := func(year int) time.Time { return weekStart(time.Date(year, 1, 4, 0, 0, 0, 0, time.UTC), first) }
	weeks := func(from, to time.Time) int { return int(to.Sub(from).Hours() / 24 / 7) }
	return []int{weeks(one(year), week) + 1, -weeks(week, one(year+1))}
}
