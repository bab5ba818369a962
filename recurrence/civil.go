package recurrence

import "math/bits"

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

// daysOfCivil returns the days from 1970-01-01 to a date of the proleptic Gregorian calendar, by the algorithm that
// Howard Hinnant describes in "chrono-Compatible Low-Level Date Algorithms".
func daysOfCivil(year, month, day int) int64 {
	y := int64(year)
	if month <= 2 {
		y--
	}
	era := floorDiv(y, 400)
	yearOfEra := y - era*400
	monthFromMarch := int64(month+9) % 12
	dayOfYear := (153*monthFromMarch+2)/5 + int64(day) - 1
	return era*146097 + yearOfEra*365 + yearOfEra/4 - yearOfEra/100 + dayOfYear - 719468
}

// civilOfDays is the inverse of daysOfCivil.
func civilOfDays(days int64) (year, month, day int) {
	z := days + 719468
	era := floorDiv(z, 146097)
	dayOfEra := z - era*146097
	yearOfEra := (dayOfEra - dayOfEra/1460 + dayOfEra/36524 - dayOfEra/146096) / 365
	dayOfYear := dayOfEra - (365*yearOfEra + yearOfEra/4 - yearOfEra/100)
	fromMarch := (5*dayOfYear + 2) / 153
	day = int(dayOfYear - (153*fromMarch+2)/5 + 1)
	month = int(fromMarch+2)%12 + 1
	year = int(yearOfEra + era*400)
	if month <= 2 {
		year++
	}
	return year, month, day
}

// weekdayOf returns the weekday of a day counted from 1970-01-01, a Thursday. Sunday is 0.
func weekdayOf(days int64) int { return int(floorMod(days+4, 7)) }

func isLeap(year int) bool { return year%4 == 0 && (year%100 != 0 || year%400 == 0) }

func daysInMonth(year, month int) int {
	switch {
	case month == 2 && isLeap(year):
		return 29
	case month == 2:
		return 28
	case month == 4 || month == 6 || month == 9 || month == 11:
		return 30
	}
	return 31
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
