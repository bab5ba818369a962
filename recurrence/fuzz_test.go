package recurrence

import (
	"errors"
	"testing"
	"time"

	"github.com/laterq/later/store"
)

// longestCall is far more than any compilation or search takes, on a busy machine too.
const longestCall = 30 * time.Second

// FuzzCron checks that no expression panics or takes long, that its errors are ErrInvalid, and that its times are in
// order and match the expression on the clock of the zone.
func FuzzCron(f *testing.F) {
	for _, text := range []string{"0 9 * * 1-5", "*/15 * * * *", "0 0 29 2 *", "0 0 L-3,15W ? 5#2,MONL", "@every 1h30m",
		"@daily", "59 59 23 31 12 7", "61 * * * *", "0 0 * JNA *", "CRON_TZ=UTC * * * * *", "0 0 30 2 *",
		"1-2-3/4/5 * * * *", "0 0 0 0 \xe3L"} {
		f.Add(text, int64(1_774_746_000), uint8(0))
		f.Add(text, int64(-60_000_000_000), uint8(7))
	}
	zones := []string{"UTC", "Europe/Berlin", "America/New_York", "Pacific/Apia", "Australia/Lord_Howe", "America/Nuuk"}
	f.Fuzz(func(t *testing.T, text string, after int64, options uint8) {
		spec := Spec{Cron: text, TimeZone: zones[int(options/4)%len(zones)]}
		if options&1 != 0 {
			spec.Gap = GapSkip
		}
		if options&2 != 0 {
			spec.Overlap = OverlapBoth
		}
		rule := fuzzCompile(t, spec)
		if rule == nil {
			return
		}
		parsed, err := parseCron(text)
		if err != nil {
			t.Fatal(err)
		}
		fuzzTimes(t, rule, after, func(at time.Time) {
			if parsed.every > 0 || spec.Gap != GapSkip {
				return
			}
			_, offset := at.Zone()
			w := at.Unix() + int64(offset)
			if next, ok := parsed.calendar.next(w); !ok || next != w {
				t.Errorf("%q has the time %s", text, at)
			}
		})
	})
}

// FuzzRRule does the same for recurrence rules.
func FuzzRRule(f *testing.F) {
	for _, text := range []string{"FREQ=DAILY;COUNT=10", "FREQ=MONTHLY;BYDAY=-1FR", "FREQ=DAILY;\xe3=\xff",
		"FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=30", "FREQ=HOURLY;INTERVAL=2;BYHOUR=1",
		"FREQ=YEARLY;BYHOUR=" + "1,5,9,13,17,21" + ";BYMINUTE=" + numbers60 + ";BYSECOND=" + numbers60,
		"FREQ=YEARLY;BYWEEKNO=53,-53;BYDAY=SU;WKST=TH", "FREQ=MONTHLY;BYDAY=53MO",
		"FREQ=YEARLY;BYDAY=-53SU,MO;BYSETPOS=366", "FREQ=MINUTELY;INTERVAL=999999;BYSECOND=1;COUNT=99999",
		"RRULE:FREQ=WEEKLY;UNTIL=20261231T235959Z;INTERVAL=1000000", "FREQ=DAILY;INTERVAL=7;BYDAY=MO", "FREQ=DAYLY",
		"FREQ=YEARLY;BYYEARDAY=-366;INTERVAL=1000000", "FREQ=SECONDLY;INTERVAL=59;BYSECOND=3;COUNT=100000"} {
		f.Add(text, int64(1_774_746_000), int64(1_774_746_000), uint8(0))
		f.Add(text, int64(-60_000_000_000), int64(250_000_000_000), uint8(1))
	}
	f.Fuzz(func(t *testing.T, text string, start, after int64, options uint8) {
		const far = 253_000_000_000 // the year 9987
		spec := Spec{RRule: text, Start: time.Unix(start%far, 0), TimeZone: "Europe/Berlin"}
		if options&1 != 0 {
			spec.Gap, spec.Overlap = GapSkip, OverlapBoth
		}
		if rule := fuzzCompile(t, spec); rule != nil {
			fuzzTimes(t, rule, after%far, func(at time.Time) {
				if at.Before(spec.Start) {
					t.Errorf("%q from %s has the time %s", text, spec.Start, at)
				}
			})
		}
	})
}

func fuzzCompile(t *testing.T, spec Spec) *Rule {
	began := time.Now()
	rule, err := Compile(spec, Options{Created: time.Unix(1_774_746_000, 0)})
	if err != nil && !errors.Is(err, store.ErrInvalid) {
		t.Errorf("%+v: %v is no ErrInvalid", spec, err)
	}
	if took := time.Since(began); took > longestCall {
		t.Errorf("%+v: compiled in %v", spec, took)
	}
	return rule
}

func fuzzTimes(t *testing.T, rule *Rule, after int64, check func(time.Time)) {
	began := time.Now()
	last := time.Unix(after, 0)
	for range 5 {
		next, ok := rule.Next(last)
		if !ok {
			break
		}
		if !next.Nominal.After(last) || next.Due != next.Nominal {
			t.Fatalf("%v follows %v", next, last)
		}
		last = next.Nominal
		check(last)
	}
	if took := time.Since(began); took > longestCall {
		t.Errorf("five times took %v", took)
	}
}
