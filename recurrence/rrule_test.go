package recurrence

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestRRuleExamplesOfRFC5545 has the examples of section 3.8.5.3, in America/New_York, with their first times in order
// as month-day, or month-day hour:minute. A year starts a new one. An entry "end" says that there are no more.
func TestRRuleExamplesOfRFC5545(t *testing.T) {
	newYork := zone(t, "America/New_York")
	for _, c := range []struct{ start, rule, want string }{
		{"1997-09-02", "DAILY;COUNT=10", "1997 09-02 09-03 09-04 09-05 09-06 09-07 09-08 09-09 09-10 09-11 end"},
		{"1997-12-20", "DAILY;UNTIL=19971224T000000Z", "1997 12-20 12-21 12-22 12-23 end"},
		{"1997-09-02", "DAILY;INTERVAL=2", "1997 09-02 09-04 09-06 09-08 09-10 09-12 09-14"},
		{"1997-09-02", "DAILY;INTERVAL=10;COUNT=5", "1997 09-02 09-12 09-22 10-02 10-12 end"},
		{"1998-01-30", "YEARLY;UNTIL=20000131T140000Z;BYMONTH=1;BYDAY=SU,MO,TU,WE,TH,FR,SA",
			"1998 01-30 01-31 1999 01-01 01-02 01-03"},
		{"1998-01-30", "DAILY;UNTIL=20000131T140000Z;BYMONTH=1", "1998 01-30 01-31 1999 01-01 01-02 01-03"},
		{"2000-01-30", "DAILY;UNTIL=20000131T140000Z;BYMONTH=1", "2000 01-30 01-31 end"},
		{"1997-09-02", "WEEKLY;COUNT=10", "1997 09-02 09-09 09-16 09-23 09-30 10-07 10-14 10-21 10-28 11-04 end"},
		{"1997-12-09", "WEEKLY;UNTIL=19971224T000000Z", "1997 12-09 12-16 12-23 end"},
		{"1997-09-02", "WEEKLY;INTERVAL=2;WKST=SU", "1997 09-02 09-16 09-30 10-14 10-28 11-11 11-25 12-09"},
		{"1997-09-02", "WEEKLY;UNTIL=19971007T000000Z;WKST=SU;BYDAY=TU,TH",
			"1997 09-02 09-04 09-09 09-11 09-16 09-18 09-23 09-25 09-30 10-02 end"},
		{"1997-09-02", "WEEKLY;COUNT=10;WKST=SU;BYDAY=TU,TH",
			"1997 09-02 09-04 09-09 09-11 09-16 09-18 09-23 09-25 09-30 10-02 end"},
		{"1997-09-01", "WEEKLY;INTERVAL=2;UNTIL=19971224T000000Z;WKST=SU;BYDAY=MO,WE,FR",
			"1997 09-01 09-03 09-05 09-15 09-17 09-19 09-29 10-01 10-03 10-13 10-15 10-17 10-27 10-29 10-31 11-10 11-12 " +
				"11-14 11-24 11-26 11-28 12-08 12-10 12-12 12-22 end"},
		{"1997-09-02", "WEEKLY;INTERVAL=2;COUNT=8;WKST=SU;BYDAY=TU,TH",
			"1997 09-02 09-04 09-16 09-18 09-30 10-02 10-14 10-16 end"},
		{"1997-09-05", "MONTHLY;COUNT=10;BYDAY=1FR",
			"1997 09-05 10-03 11-07 12-05 1998 01-02 02-06 03-06 04-03 05-01 06-05 end"},
		{"1997-09-05", "MONTHLY;UNTIL=19971224T000000Z;BYDAY=1FR", "1997 09-05 10-03 11-07 12-05 end"},
		{"1997-09-07", "MONTHLY;INTERVAL=2;COUNT=10;BYDAY=1SU,-1SU",
			"1997 09-07 09-28 11-02 11-30 1998 01-04 01-25 03-01 03-29 05-03 05-31 end"},
		{"1997-09-22", "MONTHLY;COUNT=6;BYDAY=-2MO", "1997 09-22 10-20 11-17 12-22 1998 01-19 02-16 end"},
		{"1997-09-28", "MONTHLY;BYMONTHDAY=-3", "1997 09-28 10-29 11-28 12-29 1998 01-29 02-26"},
		{"1997-09-02", "MONTHLY;COUNT=10;BYMONTHDAY=2,15",
			"1997 09-02 09-15 10-02 10-15 11-02 11-15 12-02 12-15 1998 01-02 01-15 end"},
		{"1997-09-30", "MONTHLY;COUNT=10;BYMONTHDAY=1,-1",
			"1997 09-30 10-01 10-31 11-01 11-30 12-01 12-31 1998 01-01 01-31 02-01 end"},
		{"1997-09-10", "MONTHLY;INTERVAL=18;COUNT=10;BYMONTHDAY=10,11,12,13,14,15",
			"1997 09-10 09-11 09-12 09-13 09-14 09-15 1999 03-10 03-11 03-12 03-13 end"},
		{"1997-09-02", "MONTHLY;INTERVAL=2;BYDAY=TU",
			"1997 09-02 09-09 09-16 09-23 09-30 11-04 11-11 11-18 11-25 1998 01-06 01-13 01-20 01-27 03-03"},
		{"1997-06-10", "YEARLY;COUNT=10;BYMONTH=6,7",
			"1997 06-10 07-10 1998 06-10 07-10 1999 06-10 07-10 2000 06-10 07-10 2001 06-10 07-10 end"},
		{"1997-03-10", "YEARLY;INTERVAL=2;COUNT=10;BYMONTH=1,2,3",
			"1997 03-10 1999 01-10 02-10 03-10 2001 01-10 02-10 03-10 2003 01-10 02-10 03-10 end"},
		{"1997-01-01", "YEARLY;INTERVAL=3;COUNT=10;BYYEARDAY=1,100,200",
			"1997 01-01 04-10 07-19 2000 01-01 04-09 07-18 2003 01-01 04-10 07-19 2006 01-01 end"},
		{"1997-05-19", "YEARLY;BYDAY=20MO", "1997 05-19 1998 05-18 1999 05-17"},
		{"1997-05-12", "YEARLY;BYWEEKNO=20;BYDAY=MO", "1997 05-12 1998 05-11 1999 05-17"},
		{"1997-03-13", "YEARLY;BYMONTH=3;BYDAY=TH",
			"1997 03-13 03-20 03-27 1998 03-05 03-12 03-19 03-26 1999 03-04 03-11 03-18 03-25"},
		{"1997-06-05", "YEARLY;BYDAY=TH;BYMONTH=6,7,8",
			"1997 06-05 06-12 06-19 06-26 07-03 07-10 07-17 07-24 07-31 08-07 08-14 08-21 08-28 1998 06-04"},
		{"1997-09-02", "MONTHLY;BYDAY=FR;BYMONTHDAY=13", "1998 02-13 03-13 11-13 1999 08-13 2000 10-13"},
		{"1997-09-13", "MONTHLY;BYDAY=SA;BYMONTHDAY=7,8,9,10,11,12,13",
			"1997 09-13 10-11 11-08 12-13 1998 01-10 02-07 03-07 04-11 05-09 06-13"},
		{"1996-11-05", "YEARLY;INTERVAL=4;BYMONTH=11;BYDAY=TU;BYMONTHDAY=2,3,4,5,6,7,8",
			"1996 11-05 2000 11-07 2004 11-02"},
		{"1997-09-04", "MONTHLY;COUNT=3;BYDAY=TU,WE,TH;BYSETPOS=3", "1997 09-04 10-07 11-06 end"},
		{"1997-09-29", "MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-2",
			"1997 09-29 10-30 11-27 12-30 1998 01-29 02-26 03-30"},
		{"1997-09-02", "HOURLY;INTERVAL=3;UNTIL=19970902T210000Z", "1997 09-02 09-02T12:00 09-02T15:00 end"},
		{"1997-09-02", "MINUTELY;INTERVAL=15;COUNT=6",
			"1997 09-02 09-02T09:15 09-02T09:30 09-02T09:45 09-02T10:00 09-02T10:15 end"},
		{"1997-09-02", "MINUTELY;INTERVAL=90;COUNT=4", "1997 09-02 09-02T10:30 09-02T12:00 09-02T13:30 end"},
		{"1997-09-02", "DAILY;BYHOUR=9,16;BYMINUTE=0,40",
			"1997 09-02 09-02T09:40 09-02T16:00 09-02T16:40 09-03 09-03T09:40"},
		{"1997-09-02", "MINUTELY;INTERVAL=20;BYHOUR=9,16",
			"1997 09-02 09-02T09:20 09-02T09:40 09-02T16:00 09-02T16:20 09-02T16:40 09-03"},
		{"1997-08-05", "WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=MO", "1997 08-05 08-10 08-19 08-24 end"},
		{"1997-08-05", "WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=SU", "1997 08-05 08-17 08-19 08-31 end"},
		{"2007-01-15", "MONTHLY;BYMONTHDAY=15,30;COUNT=5", "2007 01-15 01-30 02-15 03-15 03-30 end"},
	} {
		start := local(t, newYork, c.start+" 09:00:00")
		rule := mustCompile(t, Spec{RRule: "FREQ=" + c.rule, TimeZone: "America/New_York", Start: start})
		year, at := "", start.Add(-time.Second)
		for _, entry := range strings.Fields(c.want) {
			if len(entry) == 4 {
				year = entry
				continue
			}
			next, ok := rule.Next(at)
			at = next.Nominal
			got := strings.TrimSuffix(at.Format("2006-01-02T15:04"), "T09:00")
			if entry == "end" && ok || entry != "end" && (!ok || got != year+"-"+entry) {
				t.Errorf("%s from %s: got %s %v, want %s-%s", c.rule, c.start, got, ok, year, entry)
				break
			}
		}
	}
}

func TestRRulesAcrossClockChanges(t *testing.T) {
	for _, c := range []struct {
		name, rule, zone, start string
		gap                     Gap
		overlap                 Overlap
		want                    []string
	}{
		// From issue 63 of teambition/rrule-go.
		{"hourly in a gap", "FREQ=HOURLY;COUNT=3", "Australia/Sydney", "2022-10-02 01:00:00", "", "",
			[]string{"2022-10-02 01:00:00 +1000", "2022-10-02 03:00:00 +1100", "2022-10-02 04:00:00 +1100"}},
		{"hourly in an overlap", "FREQ=HOURLY;COUNT=4", "Australia/Sydney", "2023-04-02 01:00:00", "", "",
			[]string{"2023-04-02 01:00:00 +1100", "2023-04-02 02:00:00 +1100", "2023-04-02 02:00:00 +1000",
				"2023-04-02 03:00:00 +1000"}},
		{"each six hours is elapsed time", "FREQ=HOURLY;INTERVAL=6", "Europe/Berlin", "2026-03-28 18:00:00", "", "",
			[]string{"2026-03-28 18:00:00 +0100", "2026-03-29 00:00:00 +0100", "2026-03-29 07:00:00 +0200"}},
		{"local hours of an hourly rule", "FREQ=HOURLY;BYHOUR=1,2,3", "Europe/Berlin", "2026-03-29 00:00:00", "", "",
			[]string{"2026-03-29 01:00:00 +0100", "2026-03-29 03:00:00 +0200", "2026-03-30 01:00:00 +0200"}},
		{"listed minutes are those of the local clock", "FREQ=HOURLY;BYMINUTE=0", "Australia/Lord_Howe",
			"2026-10-04 01:00:00", "", "", []string{"2026-10-04 01:00:00 +1030", "2026-10-04 03:00:00 +1100"}},
		{"daily at 9", "FREQ=DAILY;COUNT=3", "Australia/Sydney", "2023-04-01 09:00:00", "", "",
			[]string{"2023-04-01 09:00:00 +1100", "2023-04-02 09:00:00 +1000", "2023-04-03 09:00:00 +1000"}},
		{"daily in a gap", "FREQ=DAILY", "Europe/Berlin", "2026-03-28 02:30:00", "", "",
			[]string{"2026-03-28 02:30:00 +0100", "2026-03-29 03:30:00 +0200", "2026-03-30 02:30:00 +0200"}},
		{"daily, skipped", "FREQ=DAILY", "Europe/Berlin", "2026-03-28 02:30:00", GapSkip, "",
			[]string{"2026-03-28 02:30:00 +0100", "2026-03-30 02:30:00 +0200"}},
		{"weekly in an overlap", "FREQ=WEEKLY", "Europe/Berlin", "2026-10-18 02:30:00", "", "",
			[]string{"2026-10-18 02:30:00 +0200", "2026-10-25 02:30:00 +0200", "2026-11-01 02:30:00 +0100"}},
		{"weekly, both", "FREQ=WEEKLY", "Europe/Berlin", "2026-10-18 02:30:00", "", OverlapBoth,
			[]string{"2026-10-18 02:30:00 +0200", "2026-10-25 02:30:00 +0200", "2026-10-25 02:30:00 +0100",
				"2026-11-01 02:30:00 +0100"}},
		{"the last time, both", "FREQ=DAILY;COUNT=2", "Europe/Berlin", "2026-10-24 02:30:00", "", OverlapBoth,
			[]string{"2026-10-24 02:30:00 +0200", "2026-10-25 02:30:00 +0200", "2026-10-25 02:30:00 +0100", "end"}},
		{"until a day, which is included", "FREQ=DAILY;UNTIL=20260329", "Europe/Berlin", "2026-03-28 23:59:59", "", "",
			[]string{"2026-03-28 23:59:59 +0100", "2026-03-29 23:59:59 +0200", "end"}},
		{"until a local time", "FREQ=DAILY;UNTIL=20260329T090000", "Europe/Berlin", "2026-03-28 09:00:00", "", "",
			[]string{"2026-03-28 09:00:00 +0100", "2026-03-29 09:00:00 +0200", "end"}},
		{"leap days on Mondays", "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29;BYDAY=MO", "UTC", "2016-03-01 12:00:00",
			"", "", []string{"2044-02-29 12:00:00 +0000", "2072-02-29 12:00:00 +0000", "2112-02-29 12:00:00 +0000"}},
		{"weekdays with and without numbers", "FREQ=MONTHLY;BYDAY=MO,1FR", "UTC", "2026-01-01 12:00:00", "", "",
			[]string{"2026-01-02 12:00:00 +0000", "2026-01-05 12:00:00 +0000", "2026-01-12 12:00:00 +0000"}},
		{"the weekday of the start", "FREQ=YEARLY;BYWEEKNO=20", "UTC", "2026-01-07 12:00:00", "", "",
			[]string{"2026-05-13 12:00:00 +0000", "2027-05-19 12:00:00 +0000"}},
		{"with its name and in lower case", "RRULE:freq=daily;byhour=7;", "UTC", "2026-01-07 12:30:00", "", "",
			[]string{"2026-01-08 07:30:00 +0000"}},
		{"every third second of a minute", "FREQ=SECONDLY;INTERVAL=20;BYMINUTE=5", "UTC", "2026-01-07 12:00:10", "", "",
			[]string{"2026-01-07 12:05:10 +0000", "2026-01-07 12:05:30 +0000", "2026-01-07 12:05:50 +0000",
				"2026-01-07 13:05:10 +0000"}},
		{"days of the year, by the hour", "FREQ=HOURLY;BYYEARDAY=-1;BYHOUR=6,18;BYSECOND=0,30", "UTC",
			"2027-01-07 12:15:10", "", "", []string{"2027-12-31 06:15:00 +0000", "2027-12-31 06:15:30 +0000",
				"2027-12-31 18:15:00 +0000", "2027-12-31 18:15:30 +0000", "2028-12-31 06:15:00 +0000"}},
		{"days from the end of the month, by the minute", "FREQ=MINUTELY;BYMONTHDAY=-2;BYHOUR=0;BYMINUTE=1;BYDAY=SU",
			"UTC", "2026-01-01 00:00:07", "", "", []string{"2026-08-30 00:01:07 +0000", "2026-11-29 00:01:07 +0000"}},
	} {
		start := local(t, zone(t, c.zone), c.start)
		rule := mustCompile(t, Spec{RRule: c.rule, TimeZone: c.zone, Start: start, Gap: c.gap, Overlap: c.overlap})
		got := upcoming(rule, start.Add(-time.Second), len(c.want))
		if last := len(c.want) - 1; c.want[last] == "end" {
			c.want = c.want[:last]
		}
		wantTimes(t, c.name, got, c.want...)
	}
}

func TestRRuleErrorsNamePartPositionAndValue(t *testing.T) {
	for _, c := range [][2]string{
		{"BYDAY=MO", "has no FREQ: give one such as FREQ=DAILY"},
		{"FREQ=DAYLY", `rrule: FREQ: "DAYLY" at position 5 of "FREQ=DAYLY" is no frequency: did you mean DAILY?`},
		{"FREQ=DAILY;BYHOR=5",
			`rrule: "BYHOR" at position 11 of "FREQ=DAILY;BYHOR=5" is no part of a rule: did you mean BYHOUR?`},
		{"FREQ=DAILY;BYHOUR=9,24",
			`BYHOUR: 24 at position 20 of "FREQ=DAILY;BYHOUR=9,24" is above 23: the nearest value is 23`},
		{"FREQ=DAILY;BYHOUR=x", `BYHOUR: "X" at position 18`},
		{"FREQ=DAILY;BYSECOND=60", "the nearest value is 59"},
		{"FREQ=MONTHLY;BYMONTHDAY=-32", "is below -31: the nearest value is -31"},
		{"FREQ=MONTHLY;BYMONTHDAY=0", "is below 1: the nearest value is 1"},
		{"FREQ=MONTHLY;BYDAY=1FI",
			`BYDAY: "FI" at position 20 of "FREQ=MONTHLY;BYDAY=1FI" is no weekday: did you mean FR?`},
		{"FREQ=MONTHLY;BYDAY=0FR", "needs a number from 1 to 53 or -53 to -1"},
		{"FREQ=MONTHLY;BYDAY=6FR", "a month has at most 5 of a weekday"},
		{"FREQ=YEARLY;BYMONTH=2;BYDAY=6FR", "a month has at most 5 of a weekday"},
		{"FREQ=WEEKLY;BYDAY=1FR", "which is only allowed with FREQ=MONTHLY"},
		{"FREQ=YEARLY;BYWEEKNO=1;BYDAY=1FR", "without BYWEEKNO"},
		{"FREQ=MONTHLY;BYWEEKNO=1",
			"BYWEEKNO at position 13 of \"FREQ=MONTHLY;BYWEEKNO=1\" is not allowed with FREQ=MONTHLY"},
		{"FREQ=DAILY;BYYEARDAY=1", "is not allowed with FREQ=DAILY"},
		{"FREQ=WEEKLY;BYMONTHDAY=1", "is not allowed with FREQ=WEEKLY"},
		{"FREQ=DAILY;COUNT=3;UNTIL=20260101", "give either UNTIL or COUNT"},
		{"FREQ=DAILY;COUNT=0", "is below 1: the nearest value is 1"},
		{"FREQ=DAILY;COUNT=1,2", "has more than one number"},
		{"FREQ=DAILY;COUNT=100001", "is above 100000"},
		{"FREQ=DAILY;INTERVAL=0", "is below 1"},
		{"FREQ=DAILY;UNTIL=2026", "UNTIL: 2026 at position 17 of \"FREQ=DAILY;UNTIL=2026\" is no time"},
		{"FREQ=DAILY;FREQ=DAILY", "FREQ at position 11 of \"FREQ=DAILY;FREQ=DAILY\" is given twice"},
		{"FREQ=DAILY;BYHOUR=", "BYHOUR at position 11 of \"FREQ=DAILY;BYHOUR=\" has no value"},
		{"FREQ=DAILY;BYSETPOS=1", "needs another part such as BYDAY"},
		{"FREQ=HOURLY;BYMINUTE=1;BYSETPOS=1", "is not supported with FREQ=HOURLY"},
		{"FREQ=YEARLY;BYWEEKNO=1;BYSETPOS=1", "is not supported with BYWEEKNO"},
		{"FREQ=MONTHLY;BYSETPOS=1;BYMINUTE=" + numbers60 + ";BYSECOND=" + numbers60,
			"from 3600 times a day: the limit is 1440"},
		{"FREQ=DAILY;;BYHOUR=1", "is no part of a rule"},
		{"FREQ=DAILY;BYEASTER=0", `"BYEASTER" at position 11`},
		{"DTSTART:20260101T000000Z\nRRULE:FREQ=DAILY", "set start and time_zone of the schedule instead"},
		{"RRULE:FREQ=DAILY\nEXDATE:20260101T000000Z", "list the times in exclude instead"},
		{"RRULE:FREQ=DAILY\nRDATE:20260101T000000Z", "use a second schedule with times instead"},
		{"FREQ=DAILY\nFREQ=DAILY", "has several lines: give one rule"},
		{"  ", `"" at position 0`},
		{"FREQ=DAILY;BYHOUR=" + strings.Repeat("1,", 600), "has 1218 bytes: the limit is 1024"},
		// Rules that never run. For some of them the library never returns.
		{"FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=30", "never runs"},
		{"FREQ=DAILY;BYMONTH=2,4;BYMONTHDAY=31", "never runs"},
		{"FREQ=HOURLY;INTERVAL=2;BYHOUR=1", "never runs"},
		{"FREQ=MINUTELY;INTERVAL=60;BYMINUTE=5", "never runs"},
		{"FREQ=SECONDLY;INTERVAL=60;BYSECOND=5", "never runs"},
		{"FREQ=DAILY;INTERVAL=7;BYDAY=MO", "never runs"},
		{"FREQ=YEARLY;BYMONTH=3;BYYEARDAY=1", "never runs"},
		{"FREQ=YEARLY;BYMONTH=1;BYWEEKNO=30;BYDAY=MO", "never runs"},
		{"FREQ=MONTHLY;BYDAY=5MO;BYMONTHDAY=1", "never runs"},
		{"FREQ=MONTHLY;BYMONTHDAY=1;BYSETPOS=2", "never runs"},
		{"FREQ=YEARLY;INTERVAL=1000000", ""},
		{"FREQ=SECONDLY;INTERVAL=59;BYSECOND=3;COUNT=100000", "takes too long to reach: lower it"},
	} {
		start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) // a Thursday
		text, want := c[0], c[1]
		_, err := Compile(Spec{RRule: text, Start: start}, Options{})
		if want != "" {
			wantInvalid(t, text, err, want)
		} else if err != nil {
			t.Error(err)
		}
	}
	_, err := Compile(Spec{RRule: "FREQ=DAILY"}, Options{})
	wantInvalid(t, "no start", err, "rrule: there is nothing to count from: set start")
}

// numbers60 lists 0 to 59.
var numbers60 = strings.Trim(strings.ReplaceAll(fmt.Sprint(rand.Perm(60)), " ", ","), "[]")

// TestRRuleWithAllSecondsIsCheap has 31 million times in each period.
func TestRRuleWithAllSecondsIsCheap(t *testing.T) {
	rule := mustCompile(t, Spec{Start: day1, RRule: "FREQ=YEARLY;BYDAY=MO,TU,WE,TH,FR,SA,SU;" +
		"BYHOUR=0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23;BYMINUTE=" + numbers60 +
		";BYSECOND=" + numbers60})
	began, at := time.Now(), day1.AddDate(2, 6, 0)
	for range 100 {
		next, ok := rule.Next(at)
		if !ok || !next.Nominal.Equal(at.Add(time.Second)) {
			t.Fatalf("%v follows %v", next, at)
		}
		at = next.Nominal
	}
	if took := time.Since(began); took > longestCall {
		t.Errorf("100 times took %v", took)
	}
}

// TestSubDailyRRulesAreTheirDefinition compares random rules by the hour, minute and second with a look at each second
// around a change of the clock.
func TestSubDailyRRulesAreTheirDefinition(t *testing.T) {
	rules := 20
	if long() {
		rules = 1000
	}
	random := rand.New(rand.NewPCG(17, 4))
	for i := range rules {
		name := []string{"Europe/Berlin", "Australia/Lord_Howe", "UTC"}[i%3]
		loc := zone(t, name)
		change := time.Date(2026, []time.Month{3, 10}[i%2], []int{28, 24}[i%2], 22+random.IntN(6), 0, 0, 0, time.UTC)
		if i%3 == 1 {
			change = time.Date(2026, []time.Month{4, 10}[i%2], []int{4, 3}[i%2], 13+random.IntN(4), 0, 0, 0, time.UTC)
		}
		start := change.Add(-time.Duration(random.IntN(7200)) * time.Second).In(loc)
		text, matches := randomSubDaily(random, start)
		rule, err := Compile(Spec{RRule: text, TimeZone: name, Start: start}, Options{})
		if err != nil {
			if !strings.Contains(err.Error(), "never runs") {
				t.Fatal(err)
			}
			continue
		}
		last := start.Add(-time.Second)
		for want := start; want.Before(start.Add(12 * time.Hour)); want = want.Add(time.Second) {
			if !matches(want) {
				continue
			}
			next, _ := rule.Next(last)
			if last = next.Nominal; !last.Equal(want) {
				t.Fatalf("%s from %s: got %s, want %s", text, start, last, want)
			}
		}
	}
}

// randomSubDaily returns a rule, and a function that reports whether it has a time.
func randomSubDaily(r *rand.Rand, start time.Time) (string, func(time.Time) bool) {
	freq := r.IntN(3)
	unit := []int{3600, 60, 1}[freq]
	interval := 1 + r.IntN([]int{5, 40, 500}[freq])
	parts := []string{"FREQ=" + frequencies[4+freq], fmt.Sprintf("INTERVAL=%d", interval)}
	list := func(name string, chance, n int) []int {
		if r.IntN(chance) > 0 {
			return nil
		}
		values := r.Perm(n)[:1+r.IntN(n/2)]
		parts = append(parts, name+"="+strings.Trim(strings.ReplaceAll(fmt.Sprint(values), " ", ","), "[]"))
		return values
	}
	hours, minutes, seconds := list("BYHOUR", 3, 24), list("BYMINUTE", 2, 60), list("BYSECOND", 3, 60)
	in := func(list []int, value int) bool { return len(list) == 0 || slices.Contains(list, value) }
	origin := start.Unix()
	switch { // with listed minutes or seconds, from the beginning of the hour or minute
	case freq == 0 && minutes != nil:
		origin -= int64(start.Minute()*60 + start.Second())
	case freq < 2 && seconds != nil:
		origin -= int64(start.Second())
	}
	return strings.Join(parts, ";"), func(at time.Time) bool {
		elapsed := int(at.Unix() - origin)
		rest := elapsed % (interval * unit) // within a period
		switch {
		case freq == 0 && minutes == nil && seconds == nil, freq == 1 && seconds == nil:
			if rest != 0 {
				return false
			}
		case freq == 0 && minutes == nil && rest >= 60, rest >= unit:
			return false
		case freq == 0 && seconds == nil && at.Second() != start.Second():
			return false
		}
		return in(hours, at.Hour()) && in(minutes, at.Minute()) && in(seconds, at.Second())
	}
}
