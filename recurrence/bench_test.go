package recurrence

import (
	"testing"
	"time"
)

// BenchmarkNext measures one call, hour by hour through some years.
func BenchmarkNext(b *testing.B) {
	start := time.Date(2026, 1, 1, 9, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name string
		spec Spec
	}{
		{"cron", Spec{Cron: "0 9 * * 1-5", TimeZone: "Europe/Berlin"}},
		{"cron in UTC", Spec{Cron: "0 9 * * 1-5"}},
		{"cron, every quarter", Spec{Cron: "*/15 * * * *", TimeZone: "America/New_York"}},
		{"cron, leap days", Spec{Cron: "0 9 29 2 *", TimeZone: "Europe/Berlin"}},
		{"cron with jitter", Spec{Cron: "0 9 * * 1-5", TimeZone: "Europe/Berlin", Jitter: time.Minute}},
		{"every", Spec{Every: 90 * time.Minute}},
		{"rrule, daily", Spec{RRule: "FREQ=DAILY", TimeZone: "Europe/Berlin"}},
		{"rrule, monthly", Spec{RRule: "FREQ=MONTHLY;BYDAY=-1FR", TimeZone: "Europe/Berlin"}},
		{"rrule, hourly", Spec{RRule: "FREQ=HOURLY;INTERVAL=3", TimeZone: "Europe/Berlin"}},
	} {
		b.Run(c.name, func(b *testing.B) {
			c.spec.Start = start
			rule := mustCompile(b, c.spec)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, ok := rule.Next(start.Add(time.Duration(i%50_000) * time.Hour)); !ok {
					b.Fatal("there is no next time")
				}
			}
		})
	}
}
