package recurrence

import (
	"math/bits"
	"strings"
	"testing"
	"time"
)

func TestCronExpressionsRunWhenTheySay(t *testing.T) {
	after := time.Date(2026, 1, 15, 10, 30, 0, 0, time.UTC) // a Thursday
	for expression, want := range map[string]string{
		"0 9 * * 1-5":           "2026-01-16 09:00:00",
		"30 10 * * *":           "2026-01-16 10:30:00", // strictly after
		"31 10 * * *":           "2026-01-15 10:31:00",
		"* * * * *":             "2026-01-15 10:31:00",
		"* * * * * *":           "2026-01-15 10:30:01",
		"*/20 30 10 * * *":      "2026-01-15 10:30:20",
		"5/20 * * * *":          "2026-01-15 10:45:00",
		"0 0 1 * *":             "2026-02-01 00:00:00",
		"0 0 31 * *":            "2026-01-31 00:00:00",
		"0 0 31 2,4 MON":        "2026-02-02 00:00:00", // either day matches
		"0 0 * * 7":             "2026-01-18 00:00:00",
		"0 0 * * sun":           "2026-01-18 00:00:00",
		"0 0 * * FRI-SUN":       "2026-01-16 00:00:00",
		"0 0 ? * SAT-7":         "2026-01-17 00:00:00",
		"0 0 13 * FRI":          "2026-01-16 00:00:00",
		"0 0 29 2 *":            "2028-02-29 00:00:00",
		"0 0 1 jan,Jul ?":       "2026-07-01 00:00:00",
		"0\t 0  1-7/3 * *":      "2026-02-01 00:00:00",
		"0 0 */10 * *":          "2026-01-21 00:00:00",
		"0 0 L * *":             "2026-01-31 00:00:00",
		"0 0 L 2 *":             "2026-02-28 00:00:00",
		"0 0 L-3 * *":           "2026-01-28 00:00:00",
		"0 0 LW * *":            "2026-01-30 00:00:00", // the 31st is a Saturday
		"0 0 17W * *":           "2026-01-16 00:00:00", // a Saturday
		"0 0 18W * *":           "2026-01-19 00:00:00", // a Sunday
		"0 0 1W 8 *":            "2026-08-03 00:00:00", // a Saturday, and July is another month
		"0 0 31W 5 *":           "2026-05-29 00:00:00", // a Sunday, and June is another month
		"0 0 31W 4,6,7 *":       "2026-07-31 00:00:00", // only months with 31 days
		"0 0 * * 5L":            "2026-01-30 00:00:00",
		"0 0 * * friL":          "2026-01-30 00:00:00",
		"0 0 * * 7L":            "2026-01-25 00:00:00",
		"0 0 * * 5#4":           "2026-01-23 00:00:00",
		"0 0 * * MON#5":         "2026-03-30 00:00:00",
		"0 0 15,L * *":          "2026-01-31 00:00:00",
		"0 0 L 2 TUE#1":         "2026-02-03 00:00:00", // either
		"@yearly":               "2027-01-01 00:00:00",
		"@annually":             "2027-01-01 00:00:00",
		"@monthly":              "2026-02-01 00:00:00",
		"@weekly":               "2026-01-18 00:00:00",
		"@daily":                "2026-01-16 00:00:00",
		"@midnight":             "2026-01-16 00:00:00",
		"@hourly":               "2026-01-15 11:00:00",
		"59 59 23 31 12 *":      "2026-12-31 23:59:59",
		" 0 9 * * * ":           "2026-01-16 09:00:00",
		"0,15,30-40/5,59 * * *": "error",
	} {
		rule, err := Compile(Spec{Cron: expression}, Options{})
		if want == "error" {
			wantInvalid(t, expression, err, "has 4 fields")
			continue
		}
		if err != nil {
			t.Error(err)
			continue
		}
		wantTimes(t, expression, upcoming(rule, after, 1), want+" +0000")
	}
}

func TestCronErrorsNameFieldPositionAndValue(t *testing.T) {
	for expression, want := range map[string]string{
		"  ":                           "the expression is empty: give five fields",
		"61 * * * *":                   `minute: 61 at position 0 of "61 * * * *" is above 59: the nearest value is 59`,
		"0 24 * * *":                   "hour: 24 at position 2 of \"0 24 * * *\" is above 23: the nearest value is 23",
		"0 0 0 * *":                    "day of month: 0 at position 4 of \"0 0 0 * *\" is below 1: the nearest value is 1",
		"0 0 1,32 * *":                 "day of month: 32 at position 6",
		"0 0 * JNA *":                  `month: "JNA" at position 6 of "0 0 * JNA *" is no value: did you mean JAN?`,
		"0 0 * * MOM":                  `day of week: "MOM" at position 8 of "0 0 * * MOM" is no value: did you mean MON?`,
		"0 0 * * 8":                    "day of week: 8 at position 8 of \"0 0 * * 8\" is above 7: the nearest value is 7",
		"0 0 * * Wednesday":            "is no value: did you mean WED?",
		"60 0 0 * * *":                 "second: 60 at position 0",
		"x * * * *":                    `minute: "x" at position 0 of "x * * * *" is no value: give a number from 0 to 59, *`,
		"-5 * * * *":                   `minute: "" at position 0 of "-5 * * * *" is no value`,
		"5- * * * *":                   `minute: "" at position 2`,
		"1,,2 * * * *":                 `has an empty item: remove the comma`,
		"*/0 * * * *":                  "has the step 0: the nearest value is 1",
		"*/x * * * *":                  `minute: "x" at position 2 of "*/x * * * *" is no step`,
		"*/60 * * * *":                 "minute: 60 at position 2 of \"*/60 * * * *\" is above 59",
		"0 22-2 * * *":                 `hour: "22-2" at position 2 of "0 22-2 * * *" ends before it starts: write 22-23,0-2`,
		"0 0 * * L":                    "write 6L for the last Saturday",
		"0 0 * * 5#6":                  "needs a number from 1 to 5 after the #",
		"0 0 L-31 * *":                 "is before the month: the nearest value is L-30",
		"0 0 XL * *":                   "is no day: give 1 to 31, L for the last day",
		"0 0 30 2 *":                   `"0 0 30 2 *" never runs: no month that it names has the day of month 30`,
		"0 0 31 4,6,9,11 *":            "never runs",
		"0 0 L-29 2 *":                 "never runs",
		"* * * *":                      "has 4 fields: give five (minute, hour, day of month, month, day of week), or six",
		"* * * * * * *":                "has 7 fields",
		"@dayly":                       `"@dayly" at position 0 of "@dayly" is unknown: did you mean @daily?`,
		"@reboot":                      `"@reboot"`,
		"@daily 5":                     "nothing can follow @daily",
		"@every":                       "give @every one duration",
		"@every 5":                     `"5" at position 7 of "@every 5" is no duration`,
		"@every 1us":                   "the nearest value is 1ms",
		"@every 1500us":                "not in whole milliseconds",
		"TZ=Asia/Tokyo 0 9 * * *":      `"TZ=Asia/Tokyo" at position 0`,
		"CRON_TZ=Asia/Tokyo 0 9 * * *": "set the time zone of the schedule instead",
		"0 9 * * 1-5\x00":              "is no value",
		"0 9 * * é":                    "is no value",
		strings.Repeat("1,", 600):      "has 1200 bytes: the limit is 1024",
	} {
		_, err := Compile(Spec{Cron: expression}, Options{Created: time.Unix(0, 0)})
		wantInvalid(t, expression, err, want)
	}
}

// TestCronDatesAreTheirDefinition compares the days that expressions select with a plain reading of their definition,
// day by day for 28 years, in which all combinations of dates and weekdays occur.
func TestCronDatesAreTheirDefinition(t *testing.T) {
	day := func(text string) time.Time { d, _ := time.Parse(time.DateOnly, text); return d }
	last := func(d time.Time) time.Time { return time.Date(d.Year(), d.Month()+1, 0, 0, 0, 0, 0, time.UTC) }
	work := func(d time.Time) bool { return d.Weekday() != time.Saturday && d.Weekday() != time.Sunday }
	// nearest reports whether d is the weekday nearest to day n of its month.
	nearest := func(d time.Time, n int) bool {
		target := time.Date(d.Year(), d.Month(), n, 0, 0, 0, 0, time.UTC)
		if target.Month() != d.Month() {
			return false
		}
		for _, distance := range []int{0, -1, 1, 2, -2} {
			if c := target.AddDate(0, 0, distance); c.Month() == d.Month() && work(c) {
				return c.Equal(d)
			}
		}
		return false
	}
	for expression, matches := range map[string]func(d time.Time) bool{
		"0 0 L * *":    func(d time.Time) bool { return d.Equal(last(d)) },
		"0 0 L-5 * *":  func(d time.Time) bool { return d.Equal(last(d).AddDate(0, 0, -5)) },
		"0 0 L-29 * *": func(d time.Time) bool { return d.Equal(last(d).AddDate(0, 0, -29)) && last(d).Day() > 29 },
		"0 0 LW * *":   func(d time.Time) bool { return nearest(d, last(d).Day()) },
		"0 0 1W * *":   func(d time.Time) bool { return nearest(d, 1) },
		"0 0 15W * *":  func(d time.Time) bool { return nearest(d, 15) },
		"0 0 30W * *":  func(d time.Time) bool { return nearest(d, 30) },
		"0 0 31W * *":  func(d time.Time) bool { return nearest(d, 31) },
		"0 0 * * 5L":   func(d time.Time) bool { return d.Weekday() == 5 && d.Day() > last(d).Day()-7 },
		"0 0 * * 0#1":  func(d time.Time) bool { return d.Weekday() == 0 && d.Day() <= 7 },
		"0 0 * * 3#5":  func(d time.Time) bool { return d.Weekday() == 3 && d.Day() > 28 },
		"0 0 13 * 5":   func(d time.Time) bool { return d.Weekday() == 5 || d.Day() == 13 },
		"0 0 */2 * 1":  func(d time.Time) bool { return d.Weekday() == 1 || d.Day()%2 == 1 },
		"0 0 * 2-4 1-3": func(d time.Time) bool {
			return d.Weekday() >= 1 && d.Weekday() <= 3 && d.Month() >= 2 && d.Month() <= 4
		},
		"0 0 L,1 * 2#2": func(d time.Time) bool {
			return d.Equal(last(d)) || d.Day() == 1 || d.Weekday() == 2 && (d.Day()-1)/7 == 1
		},
		"0 0 29 2 ?":      func(d time.Time) bool { return d.Month() == 2 && d.Day() == 29 },
		"0 0 * * 1,2#1":   func(d time.Time) bool { return d.Weekday() == 1 || d.Weekday() == 2 && d.Day() <= 7 },
		"0 0 L,* * 1":     func(d time.Time) bool { return d.Weekday() == 1 },
		"0 0 29-31/2 * ?": func(d time.Time) bool { return d.Day() == 29 || d.Day() == 31 },
	} {
		rule, err := parseCron(expression)
		if err != nil {
			t.Error(err)
			continue
		}
		got := day("1999-12-31").Unix()
		for want := day("2000-01-01"); want.Year() < 2028; want = want.AddDate(0, 0, 1) {
			if !matches(want) {
				continue
			}
			if got, _ = rule.calendar.next(got + 1); got != want.Unix() {
				t.Errorf("%s: got %s, want %s", expression, time.Unix(got, 0).UTC(), want)
				break
			}
		}
	}
}

// TestCronFindsRareDays crosses the years without a leap day around 2100 and 2200.
func TestCronFindsRareDays(t *testing.T) {
	leap := mustCompile(t, Spec{Cron: "0 12 29 2 *"})
	wantTimes(t, "leap days", upcoming(leap, time.Date(2092, 3, 1, 0, 0, 0, 0, time.UTC), 3),
		"2096-02-29 12:00:00 +0000", "2104-02-29 12:00:00 +0000", "2108-02-29 12:00:00 +0000")
	fifth := mustCompile(t, Spec{Cron: "0 0 * 2 MON#5"}) // a fifth Monday in February is a 29th
	wantTimes(t, "leap days on Mondays", upcoming(fifth, time.Date(2016, 3, 1, 0, 0, 0, 0, time.UTC), 5),
		"2044-02-29 00:00:00 +0000", "2072-02-29 00:00:00 +0000", "2112-02-29 00:00:00 +0000",
		"2140-02-29 00:00:00 +0000", "2168-02-29 00:00:00 +0000")
	berlin := mustCompile(t, Spec{Cron: "30 2 29 2 *", TimeZone: "Europe/Berlin"})
	next, _ := berlin.Next(time.Date(2096, 3, 1, 0, 0, 0, 0, time.UTC))
	wantTimes(t, "leap days in Berlin", []string{next.Nominal.Format(time.DateTime)}, "2104-02-29 02:30:00")
	if next, ok := leap.Next(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)); ok {
		t.Errorf("after the last leap day: %v", next)
	}
	if _, ok := leap.Next(time.Date(250_000, 1, 1, 0, 0, 0, 0, time.UTC)); ok {
		t.Error("there is a time after the year 9999")
	}
	first, _ := leap.Next(time.Time{}.AddDate(-300, 0, 0))
	wantTimes(t, "first leap day", []string{first.Nominal.Format(time.DateOnly)}, "0004-02-29")
}

func TestCivilDatesAreThoseOfPackageTime(t *testing.T) {
	for day := int64(-800_000); day < 3_000_000; day += 17 {
		want := time.Unix(day*daySeconds, 0).UTC()
		year, month, d := civilOfDays(day)
		if year != want.Year() || month != int(want.Month()) || d != want.Day() ||
			daysOfCivil(year, month, d) != day || weekdayOf(day) != int(want.Weekday()) {
			t.Fatalf("day %d: %d-%d-%d on weekday %d, want %v", day, year, month, d, weekdayOf(day), want)
		}
		all := everyDay{}.days(year, month)
		if n := daysInMonth(year, month); bits.Len32(all) != n || weekdays(0x7f, d%7, n) != all {
			t.Fatalf("%d-%d: %d days", year, month, n)
		}
	}
}

// everyDay is the set of all days.
type everyDay struct{}

func (everyDay) days(year, month int) uint32 { return 1<<daysInMonth(year, month) - 1 }
