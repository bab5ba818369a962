package recurrence

import (
	"math/bits"

	"github.com/teambition/rrule-go"
)

// newClock returns the times of day that a rule lists; a part that it does not list is any.
func newClock(r *rrule.ROption) clock {
	c := clock{second: all60, minute: all60, hour: all24}
	setBits(r.Bysecond, func(n uint64) { c.second = n })
	setBits(r.Byminute, func(n uint64) { c.minute = n })
	setBits(r.Byhour, func(n uint64) { c.hour = uint32(n) })
	return c
}

func setBits(list []int, set func(uint64)) {
	var n uint64
	for _, v := range list {
		n |= 1 << v
	}
	if n != 0 {
		set(n)
	}
}

// ruleDates are the days that the parts of a rule select together, for rules that the library does not handle.
type ruleDates struct {
	months    uint16 // bit 1 is January
	dom       uint32 // bit 0 is the first day of the month
	fromLast  uint32 // bit 0 is the last day of the month
	dow       uint8  // bit 0 is Sunday
	yearDays  []int
	anyOfYear bool
}

func newRuleDates(r *rrule.ROption) *ruleDates {
	d := &ruleDates{months: 1<<13 - 2, dom: 1<<31 - 1, dow: 0x7f, yearDays: r.Byyearday,
		anyOfYear: len(r.Byyearday) == 0}
	setBits(r.Bymonth, func(n uint64) { d.months = uint16(n) })
	if len(r.Bymonthday) > 0 {
		d.dom = 0
	}
	for _, day := range r.Bymonthday {
		if day > 0 {
			d.dom |= 1 << (day - 1)
		} else {
			d.fromLast |= 1 << (-day - 1)
		}
	}
	if len(r.Byweekday) > 0 {
		d.dow = 0
	}
	for _, day := range r.Byweekday {
		d.dow |= 1 << ((day.Day() + 1) % 7)
	}
	return d
}

// days implements daySet.
func (d *ruleDates) days(year, month int) uint32 {
	if d.months>>month&1 == 0 {
		return 0
	}
	n, first := daysInMonth(year, month), daysOfCivil(year, month, 1)
	set := d.dom | bits.Reverse32(d.fromLast)>>(32-n)
	set &= weekdays(d.dow, weekdayOf(first), n)
	if d.anyOfYear {
		return set
	}
	return set & d.ofYear(year, int(first-daysOfCivil(year, 1, 1)))
}

// ofYear returns the days of a month that BYYEARDAY lists, given the number of days before the month.
func (d *ruleDates) ofYear(year, before int) uint32 {
	length := int(daysOfCivil(year+1, 1, 1) - daysOfCivil(year, 1, 1))
	var set uint32
	for _, day := range d.yearDays {
		if day < 0 {
			day += length + 1
		}
		if i := day - 1 - before; i >= 0 && i < 31 {
			set |= 1 << i
		}
	}
	return set
}

// weekDates are the days of a yearly rule that lists weeks by number.
type weekDates struct {
	*ruleDates
	front, back uint64 // bit n: week n of a year, and the n-th from its end
	first       int    // the first weekday of a week; Sunday is 0
	year, step  int    // the years are year, year+step and so on
}

func newWeekDates(r *rrule.ROption, year int) *weekDates {
	d := &weekDates{ruleDates: newRuleDates(r), first: (r.Wkst.Day() + 1) % 7, year: year, step: r.Interval}
	for _, n := range r.Byweekno {
		if n > 0 {
			d.front |= 1 << n
		} else {
			d.back |= 1 << -n
		}
	}
	return d
}

// days implements daySet.
func (d *weekDates) days(year, month int) uint32 {
	if year < d.year || (year-d.year)%d.step != 0 {
		return 0
	}
	set, first := d.ruleDates.days(year, month), daysOfCivil(year, month, 1)
	for rest := set; rest != 0; rest &= rest - 1 {
		if i := bits.TrailingZeros32(rest); !d.selects(first + int64(i)) {
			set &^= 1 << i
		}
	}
	return set
}

// selects reports whether a day is in one of the weeks. A week belongs to the year that has at least four of its days,
// as the fourth day and 4 January have to.
func (d *weekDates) selects(day int64) bool {
	begin := d.weekOf(day)
	year, _, _ := civilOfDays(begin + 3)
	front := (begin-d.weekOf(daysOfCivil(year, 1, 4)))/7 + 1
	back := (d.weekOf(daysOfCivil(year+1, 1, 4)) - begin) / 7
	return d.front>>front&1 != 0 || d.back>>back&1 != 0
}

// weekOf returns the first day of a day's week.
func (d *weekDates) weekOf(day int64) int64 { return day - int64((weekdayOf(day)-d.first+7)%7) }
