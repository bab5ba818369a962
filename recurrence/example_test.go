package recurrence_test

import (
	"fmt"
	"time"

	"github.com/laterq/later/recurrence"
)

// A report at 02:30 in Berlin, except on a holiday. On 29 March 2026 there is no 02:30 in Berlin.
func ExampleCompile() {
	rule, err := recurrence.Compile(recurrence.Spec{
		Cron:     "30 2 * * *",
		TimeZone: "Europe/Berlin",
		Exclude:  []string{"2026-03-27"},
	}, recurrence.Options{Name: "report"})
	if err != nil {
		fmt.Println(err)
		return
	}
	after := time.Date(2026, 3, 26, 0, 0, 0, 0, time.UTC)
	for range 4 {
		next, _ := rule.Next(after)
		fmt.Println(next.Nominal)
		after = next.Nominal
	}
	// Output:
	// 2026-03-26 02:30:00 +0100 CET
	// 2026-03-28 02:30:00 +0100 CET
	// 2026-03-29 03:30:00 +0200 CEST
	// 2026-03-30 02:30:00 +0200 CEST
}

// Errors name the position of a mistake, and suggest a correction.
func ExampleCompile_error() {
	for _, spec := range []recurrence.Spec{
		{Cron: "61 * * * *"},
		{Cron: "0 9 * JNA *"},
		{RRule: "FREQ=MONTHLY;BYDAY=1FI"},
		{Cron: "@daily", TimeZone: "Europe/Berln"},
	} {
		_, err := recurrence.Compile(spec, recurrence.Options{})
		fmt.Println(err)
	}
	// Output:
	// cron: minute: 61 at position 0 of "61 * * * *" is above 59: the nearest value is 59
	// cron: month: "JNA" at position 6 of "0 9 * JNA *" is no value: did you mean JAN?
	// rrule: BYDAY: "FI" at position 20 of "FREQ=MONTHLY;BYDAY=1FI" is no weekday: did you mean FR?
	// time zone: "Europe/Berln" is unknown: did you mean Europe/Berlin?
}

// Dunning: reminders that come sooner and sooner, at least a day apart.
func ExampleRule_After() {
	rule, err := recurrence.Compile(recurrence.Spec{
		Series: &recurrence.Series{First: 14 * 24 * time.Hour, Factor: 0.5, Min: 24 * time.Hour, Count: 6},
	}, recurrence.Options{Name: "dunning", Created: time.Date(2027, 1, 1, 8, 0, 0, 0, time.UTC)})
	if err != nil {
		fmt.Println(err)
		return
	}
	for next := range rule.After(time.Time{}) {
		fmt.Println(next.Nominal.Format(time.DateTime))
	}
	// Output:
	// 2027-01-15 08:00:00
	// 2027-01-22 08:00:00
	// 2027-01-25 20:00:00
	// 2027-01-27 14:00:00
	// 2027-01-28 14:00:00
	// 2027-01-29 14:00:00
}
