// Package durations is the text of durations as people write and read it: as in package time, and with days. It
// imports package store only.
package durations

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/laterq/later/store"
)

// Parse parses a duration as time.ParseDuration does, with optional leading days of 24 hours: 90s, 2d12h, 1.5d. It
// returns ErrInvalid for one that is negative or longer than store.MaxDelay.
func Parse(text string) (time.Duration, error) {
	days, rest, hasDays := strings.Cut(text, "d")
	if !hasDays {
		days, rest = "0", text
	} else if rest == "" {
		rest = "0s"
	}
	number, err := strconv.ParseFloat(days, 64)
	if err != nil {
		return 0, errDuration
	}
	d, err := time.ParseDuration(rest)
	if err != nil {
		return 0, errDuration
	}
	if !(number >= 0) || d < 0 { // NaN too
		return 0, store.Invalid("the duration must not be negative")
	}
	if number > store.MaxDelay.Hours()/24 || d > store.MaxDelay { // the sum of larger ones may not fit
		return 0, errDuration
	}
	if d += time.Duration(number * float64(24*time.Hour)); d > store.MaxDelay {
		return 0, errDuration
	}
	return d, nil
}

// ParseDelay parses a delay: a duration; below zero means none, as for later.In.
func ParseDelay(text string) (time.Duration, error) {
	above, isBelow := strings.CutPrefix(text, "-")
	d, err := Parse(above)
	if isBelow {
		d = 0
	}
	return d, err
}

var errDuration = store.Invalid("give a duration such as 500ms, 30s, 1h30m or 2d12h: "+
	"the units are ms, s, m, h and d, and the limit is %s", Format(store.MaxDelay))

// Format formats a duration for people, in the syntax of Parse: 1.5s, 12m3s, 2d12h.
func Format(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return d.String()
	case d < time.Second:
		d = d.Round(time.Millisecond)
	case d < time.Minute:
		d = d.Round(100 * time.Millisecond)
	case d < 24*time.Hour:
		d = d.Round(time.Second)
	default:
		d = d.Round(time.Minute)
	}
	days := ""
	if d >= 24*time.Hour {
		days = fmt.Sprintf("%dd", d/(24*time.Hour))
		d %= 24 * time.Hour
		if d == 0 {
			return days
		}
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return days + text
}
