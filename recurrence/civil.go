package recurrence

import (
	"math/bits"
	"time"
)

const (
	daySeconds = 24 * 60 * 60
	// lastYear is the last year of occurrences.
	lastYear = 9999
	// cycleMonths is the number of months until dates and weekdays repeat: 400 years.
	cycleMonths = 400 * 12
)

// A wall is the time that a local clock and calendar show, as the seconds since 1970 that UTC would have if it showed
// the same.
type wall = int64

// daysOfCivil returns the days from 1970-01-01 to a date of the proleptic Gregorian calendar.
func daysOfCivil(year, month, day int) int64 {
	return time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC).Unix() / daySeconds
}

// civilOfDays is the inverse of daysOfCivil.
func civilOfDays(days int64) (year, month, day int) {
	year, m, day := time.Unix(days*daySeconds, 0).UTC().Date()
	return year, int(m), day
}

// weekdayOf returns the weekday of a day counted from 1970-01-01, a Thursday. Sunday is 0.
func weekdayOf(days int64) int { return int(floorMod(days+4, 7)) }

func daysInMonth(year, month int) int {
	return int(daysOfCivil(year, month+1, 1) - daysOfCivil(year, month, 1))
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

func floorMod(a, b int64) int64 { return a - floorDiv(a, b)*b }

// A clock is a set of times of day: every combination of its hours, minutes and seconds. Bit n stands for n.
type clock struct {
	second, minute uint64
	hour           uint32
}

const (
	all60 = 1<<60 - 1
	all24 = 1<<24 - 1
)

// next returns the first time of the set at or after a second of the day.
func (c *clock) next(second int64) (int64, bool) {
	h, m, s := second/3600, second/60%60, second%60
	if c.hour>>h&1 != 0 {
		if c.minute>>m&1 != 0 {
			if rest := c.second >> s; rest != 0 {
				return second + int64(bits.TrailingZeros64(rest)), true
			}
		}
		if rest := c.minute >> (m + 1); rest != 0 {
			m += 1 + int64(bits.TrailingZeros64(rest))
			return h*3600 + m*60 + int64(bits.TrailingZeros64(c.second)), true
		}
	}
	rest := c.hour >> (h + 1)
	if rest == 0 {
		return 0, false
	}
	h += 1 + int64(bits.TrailingZeros32(rest))
	return h*3600 + int64(bits.TrailingZeros64(c.minute))*60 + int64(bits.TrailingZeros64(c.second)), true
}

// A daySet returns the days of a month that belong to it: bit 0 stands for the first.
type daySet interface {
	days(year, month int) uint32
}

// A calendar is a set of walls: the times of a clock on the days of a daySet.
type calendar struct {
	clock
	dates daySet
}

// next returns the first wall of the set at or after w, or false if there is none within the next 400 years.
func (c *calendar) next(w wall) (wall, bool) {
	day := floorDiv(w, daySeconds)
	year, month, d := civilOfDays(day)
	rest := c.dates.days(year, month) >> (d - 1)
	if rest&1 != 0 {
		if s, ok := c.clock.next(w - day*daySeconds); ok {
			return day*daySeconds + s, true
		}
	}
	if rest >>= 1; rest != 0 {
		return c.firstOn(day + 1 + int64(bits.TrailingZeros32(rest))), true
	}
	for range cycleMonths + 1 {
		if month++; month > 12 {
			year, month = year+1, 1
		}
		if year > lastYear {
			break
		}
		if set := c.dates.days(year, month); set != 0 {
			return c.firstOn(daysOfCivil(year, month, 1) + int64(bits.TrailingZeros32(set))), true
		}
	}
	return 0, false
}

func (c *calendar) firstOn(day int64) wall {
	s, _ := c.clock.next(0)
	return day*daySeconds + s
}

// weekdays returns the days of a month of n days with weekdays in the set; first is the weekday of day 1.
func weekdays(set uint8, first, n int) uint32 {
	week := uint64(set>>first|set<<(7-first)) & 0x7f // bit i: the weekday of day 1+i
	return uint32(week * 0x10204081 & (1<<n - 1))    // repeated every seven days
}
