package recurrence

import (
	"math/bits"
	"strings"

	"github.com/laterq/later/internal/nearest"
	"github.com/laterq/later/store"
)

// cronDates are the days that three fields of a cron expression select.
type cronDates struct {
	months   uint16 // bit 1 is January
	dom      uint32 // bit 0 is the first day of the month
	dow      uint8  // bit 0 is Sunday
	either   bool   // a day needs only one of dom and dow
	fromLast uint32 // bit n: L-n, the n-th day before the last one
	nearest  uint32 // bit n: nW, the weekday nearest to day n
	lastWork bool   // LW, the last weekday, Monday to Friday
	lastDow  uint8  // bit n: nL, the last such day of the month
	nthDow   [5]uint8
}

// days returns the selected days of a month.
func (c *cronDates) days(year, month int) uint32 {
	if c.months>>month&1 == 0 {
		return 0
	}
	n := daysInMonth(year, month)
	first := weekdayOf(daysOfCivil(year, month, 1))
	dom := c.dom&(1<<n-1) | c.specialDom(first, n)
	dow := weekdays(c.dow, first, n) | c.specialDow(first, n)
	if c.either {
		return dom | dow
	}
	return dom & dow
}

func (c *cronDates) specialDom(first, n int) uint32 {
	var set uint32
	for rest := c.fromLast; rest != 0; rest &= rest - 1 {
		if back := bits.TrailingZeros32(rest); back < n {
			set |= 1 << (n - 1 - back)
		}
	}
	for rest := c.nearest; rest != 0; rest &= rest - 1 {
		if day := bits.TrailingZeros32(rest); day <= n {
			set |= 1 << (workday(day, first, n) - 1)
		}
	}
	if c.lastWork {
		set |= 1 << (workday(n, first, n) - 1)
	}
	return set
}

// workday returns the day from Monday to Friday that is nearest to a day, within the same month.
func workday(day, first, n int) int {
	switch (first + day - 1) % 7 {
	case 6: // Saturday
		if day == 1 {
			return 3
		}
		return day - 1
	case 0: // Sunday
		if day == n {
			return day - 2
		}
		return day + 1
	}
	return day
}

func (c *cronDates) specialDow(first, n int) uint32 {
	var set uint32
	for i, dow := range c.nthDow {
		set |= weekdays(dow, first, n) & (0x7f << (7 * i))
	}
	return set | weekdays(c.lastDow, first, n)&(0x7f<<(n-7))
}

// special parses an item with L, W or #, and reports whether it is one.
func (p *cronParser) special(f *cronField, item word) bool {
	text := nearest.UpperASCII(item.text)
	switch {
	case f.index == domField.index && strings.ContainsAny(text, "LW"):
		p.specialDom(f, item, text)
	case f.index == dowField.index && strings.Contains(text, "#"):
		p.nth(f, item, text)
	case f.index == dowField.index && text == "L":
		p.fail(f, item, "has no day: write 6L for the last Saturday of the month, or 6 for each one")
	case f.index == dowField.index && strings.HasSuffix(text, "L"):
		p.dates.lastDow |= 1 << (p.value(f, word{item.text[:len(text)-1], item.at}) % 7)
	default:
		return false
	}
	return true
}

func (p *cronParser) specialDom(f *cronField, item word, text string) {
	back, fromLast := strings.CutPrefix(text, "L-")
	n, isNumber := number(back)
	day, nearest := strings.CutSuffix(text, "W")
	switch {
	case text == "L":
		p.dates.fromLast |= 1
	case text == "LW" || text == "WL":
		p.dates.lastWork = true
	case fromLast && isNumber && n > 30:
		p.fail(f, item, "is before the month: the nearest value is L-30")
	case fromLast && isNumber:
		p.dates.fromLast |= 1 << n
	case nearest:
		p.dates.nearest |= 1 << p.value(f, word{day, item.at})
	default:
		p.fail(f, item, "is no day: give 1 to 31, L for the last day, L-3 for the third before it, LW for the last "+
			"weekday, or 15W for the weekday nearest to the 15th")
	}
}

func (p *cronParser) nth(f *cronField, item word, text string) {
	day, nth, _ := strings.Cut(text, "#")
	n, ok := number(nth)
	if !ok || n < 1 || n > 5 {
		p.fail(f, item, "needs a number from 1 to 5 after the #, as in 5#2 for the second Friday")
		return
	}
	p.dates.nthDow[n-1] |= 1 << (p.value(f, word{day, item.at}) % 7)
}

// rule combines the sets of the fields. A day of the month and a day of the week that are both restricted select the
// days of either, as in Vixie cron. A field is unrestricted if it has a star without a step, as in robfig/cron.
func (p *cronParser) rule(domText string) (*cronRule, error) {
	d := &p.dates
	d.months = uint16(p.sets[monthField.index])
	d.dom = uint32(p.sets[domField.index] >> 1)
	d.dow = uint8(p.sets[dowField.index]&0x7f | p.sets[dowField.index]>>7)
	d.either = !p.full[domField.index] && !p.full[dowField.index]
	rule := &cronRule{
		calendar: calendar{dates: d, clock: clock{
			second: p.sets[secondField.index], minute: p.sets[minuteField.index], hour: uint32(p.sets[hourField.index]),
		}},
		wildcard: p.stars[minuteField.index] || p.stars[hourField.index] || p.sets[hourField.index] == all24,
	}
	if _, ok := rule.calendar.next(0); !ok {
		return nil, store.Invalid("cron: %q never runs: no month that it names has the day of month %s", p.text,
			domText)
	}
	return rule, nil
}
