package recurrence

import (
	"math/bits"
	"time"

	"github.com/teambition/rrule-go"
)

// maxSteps bounds the search for one time, and countSteps that for all COUNT of them. A rule that exceeds them when it
// is compiled is refused: its parts meet never or almost never, as in FREQ=HOURLY;INTERVAL=2;BYHOUR=1 from midnight.
const (
	maxSteps   = 200_000
	countSteps = 2_000_000
)

// elapsed has the times of a rule by the hour, minute or second. These are periods of elapsed time, as a fixed interval
// is, from which the parts of the rule select what the local clock and calendar show. So an hourly rule runs every hour
// where the clock changes. The library is not used, since it is wrong there (teambition/rrule-go issue 63) and has
// rules for which it never returns.
type elapsed struct {
	loc    *time.Location
	origin int64 // seconds since 1970: the beginning of the first period
	step   int64 // from one period to the next
	length int64 // of a period: longer than a second if the rule lists its minutes or seconds
	shown  calendar
	last   int64 // none are later
	start  int64 // none are earlier
}

func newElapsed(r *recurrenceRule, loc *time.Location, start int64) *elapsed {
	unit := map[rrule.Frequency]int64{rrule.HOURLY: 3600, rrule.MINUTELY: 60, rrule.SECONDLY: 1}[r.Freq]
	e := &elapsed{loc: loc, step: unit * int64(r.Interval), length: unit, last: never, start: start}
	local := floorMod(start+periodAt(loc, start).offset, daySeconds)
	// What the rule does not list is taken from its start, by elapsed time.
	switch {
	case r.Freq == rrule.HOURLY && len(r.Byminute) == 0 && len(r.Bysecond) == 0,
		r.Freq == rrule.MINUTELY && len(r.Bysecond) == 0:
		e.length = 1
	case r.Freq == rrule.HOURLY && len(r.Byminute) == 0:
		e.length = 60
	}
	e.origin = start - local%e.length
	e.shown = calendar{dates: newRuleDates(r), clock: clock{second: all60, minute: all60, hour: all24}}
	setBits(r.Bysecond, func(n uint64) { e.shown.second = n })
	setBits(r.Byminute, func(n uint64) { e.shown.minute = n })
	setBits(r.Byhour, func(n uint64) { e.shown.hour = uint32(n) })
	if r.Freq == rrule.HOURLY && len(r.Byminute) > 0 && len(r.Bysecond) == 0 {
		e.shown.second = 1 << (local % 60)
	}
	return e
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

// next implements source.
func (e *elapsed) next(after int64) (int64, bool) {
	steps := maxSteps
	at, ok := e.search(max(floorDiv(after, 1000)+1, e.start), &steps)
	return at * 1000, ok && at <= e.last
}

// search returns the first time at or after at. It moves at to the next period and to the next wall that the rule
// selects until both agree.
func (e *elapsed) search(at int64, steps *int) (int64, bool) {
	p := periodAt(e.loc, at)
	for ; *steps > 0; *steps-- {
		begin := at - floorMod(at-e.origin, e.step)
		if at >= begin+e.length {
			at = begin + e.step
		}
		if at >= p.end {
			p = periodAt(e.loc, at)
		}
		w, ok := e.shown.next(at + p.offset)
		switch next := w - p.offset; {
		case !ok:
			return 0, false
		case next >= p.end:
			at = p.end
		case next == at:
			return at, true
		default:
			at = next
		}
	}
	return 0, false
}

func (e *elapsed) limit(count int) string {
	steps := countSteps
	at, ok := e.search(e.start, &steps)
	if !ok {
		return "never runs after its start"
	}
	for i := 1; i < count; i++ {
		later, more := e.search(at+1, &steps)
		if steps == 0 {
			return "has a COUNT that takes too long to reach: lower it"
		}
		if !more { // the rule ends by itself, in the year 9999
			return ""
		}
		at = later
	}
	if count > 0 {
		e.last = at
	}
	return ""
}

// ruleDates are the days that the parts of a rule by the hour, minute or second select.
type ruleDates struct {
	months    uint16 // bit 1 is January
	dom       uint32 // bit 0 is the first day of the month
	fromLast  uint32 // bit 0 is the last day of the month
	dow       uint8  // bit 0 is Sunday
	yearDays  []int
	anyOfYear bool
}

func newRuleDates(r *recurrenceRule) *ruleDates {
	d := &ruleDates{months: 1<<13 - 2, dom: 1<<31 - 1, dow: 0x7f, yearDays: r.Byyearday, anyOfYear: len(r.Byyearday) == 0}
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
	length := 365
	if isLeap(year) {
		length = 366
	}
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
