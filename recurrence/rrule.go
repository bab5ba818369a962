package recurrence

import (
	"slices"
	"time"

	"github.com/teambition/rrule-go"

	"github.com/laterq/later/store"
)

// rrule returns the source of an RRULE. Rules by the day or longer are local times; rules by the hour, minute and
// second are elapsed time.
func (c *compiler) rrule() (source, error) {
	rule, err := parseRRule(c.spec.RRule, c.rule.loc)
	if err != nil {
		return nil, err
	}
	origin, err := c.origin("rrule")
	if err != nil {
		return nil, err
	}
	start := floorDiv(origin+999, 1000) // DTSTART, in whole seconds
	if rule.hasUntil {
		c.rule.end = min(c.rule.end, rule.until*1000+1)
	}
	var s source
	var limit func(count int) string
	if rule.Freq >= rrule.HOURLY {
		e := newElapsed(rule, c.rule.loc, start)
		s, limit = e, e.limit
	} else {
		l := newLocalRule(rule, c.rule.loc, start)
		s, limit = &seconds{zoned{loc: c.rule.loc, walls: l, shift: c.spec.Gap != GapSkip && len(rule.Byhour) < 24,
			both: c.spec.Overlap == OverlapBoth || len(rule.Byhour) == 24}}, l.limit
	}
	problem := "never runs"
	if rule.possible() {
		problem = limit(rule.Count)
	}
	if problem != "" {
		return nil, store.Invalid("rrule: %q %s (start is %s)", c.spec.RRule, problem,
			stamp(time.Unix(start, 0).In(c.rule.loc)))
	}
	return s, nil
}

// possible reports false for rules with month days that exist in none of their months, without a long search.
func (r *recurrenceRule) possible() bool {
	if len(r.Bymonth) == 0 || len(r.Bymonthday) == 0 {
		return true
	}
	for _, month := range r.Bymonth {
		for _, day := range r.Bymonthday {
			if max(day, -day) <= daysInMonth(2000, month) {
				return true
			}
		}
	}
	return false
}

// localRule has the walls of a rule by the day, week, month or year.
//
// It asks the library for walls as if they were times in UTC, because the library is wrong where a zone changes, and
// asks it from a period shortly before the wanted one, because the library counts from its DTSTART. The values that the
// library would take from DTSTART are set explicitly, so that DTSTART can move.
type localRule struct {
	rule  rrule.ROption
	start wall      // none are earlier
	last  wall      // none are later
	weeks *calendar // has the walls instead of the library, which is wrong about weeks that span two years
}

func newLocalRule(r *recurrenceRule, loc *time.Location, start int64) *localRule {
	l := &localRule{rule: r.ROption, start: start + periodAt(loc, start).offset, last: never}
	o, dtstart := &l.rule, time.Unix(l.start, 0).UTC()
	setDays(o, dtstart)
	hour, minute, second := dtstart.Clock()
	o.Byhour, o.Byminute, o.Bysecond = orOne(o.Byhour, hour), orOne(o.Byminute, minute), orOne(o.Bysecond, second)
	o.Count = 0 // limit counts
	o.Until = time.Date(lastYear, 12, 31, 23, 59, 59, 0, time.UTC)
	if len(o.Byweekno) > 0 {
		l.weeks = &calendar{clock: newClock(o), dates: newWeekDates(o, dtstart.Year())}
	}
	return l
}

// setDays takes the days from DTSTART if the rule lists none.
func setDays(o *rrule.ROption, dtstart time.Time) {
	switch listed := len(o.Byyearday)+len(o.Bymonthday)+len(o.Byweekday) > 0; {
	case listed:
		o.Byweekday = numbered(o)
	case o.Freq == rrule.WEEKLY || len(o.Byweekno) > 0: // the library would take all days of the weeks
		o.Byweekday = []rrule.Weekday{rruleWeekday[(dtstart.Weekday()+6)%7]}
	case o.Freq == rrule.YEARLY && len(o.Bymonth) == 0:
		o.Bymonth = []int{int(dtstart.Month())}
		o.Bymonthday = []int{dtstart.Day()}
	case o.Freq == rrule.YEARLY || o.Freq == rrule.MONTHLY:
		o.Bymonthday = []int{dtstart.Day()}
	}
}

// numbered returns MO,1FR as 1MO, 2MO and so on and 1FR, because the library takes it for the Mondays that are also the
// first Friday.
func numbered(o *rrule.ROption) []rrule.Weekday {
	if !slices.ContainsFunc(o.Byweekday, func(day rrule.Weekday) bool { return day.N() != 0 }) {
		return o.Byweekday
	}
	most := 53 // of a weekday in a year
	if o.Freq == rrule.MONTHLY || len(o.Bymonth) > 0 {
		most = 5
	}
	var list []rrule.Weekday
	for _, day := range o.Byweekday {
		if day.N() != 0 {
			list = append(list, day)
			continue
		}
		for n := 1; n <= most; n++ {
			list = append(list, day.Nth(n))
		}
	}
	return list
}

func orOne(list []int, value int) []int {
	if len(list) == 0 {
		return []int{value}
	}
	return list
}

// next implements walls.
func (l *localRule) next(w wall) (wall, bool) {
	found, ok := l.iterate(max(w, l.start))()
	return found, ok && found <= l.last
}

// The calendar repeats itself after 400 years, which are a whole number of weeks.
const (
	cycleYears   = 400
	cycleSeconds = 146_097 * daySeconds
)

// iterate returns the walls at or after one, in order.
//
// Without BYSETPOS the library is only asked for days, since it would list all times of a period at once: 31 million if
// a yearly rule lists all seconds.
func (l *localRule) iterate(from wall) func() (wall, bool) {
	if l.weeks != nil {
		return func() (w wall, ok bool) {
			w, ok = l.weeks.next(from)
			from = w + 1
			return w, ok
		}
	}
	if len(l.rule.Bysetpos) > 0 {
		return l.ask(l.rule, from)
	}
	option, times := l.rule, newClock(&l.rule)
	option.Byhour, option.Byminute, option.Bysecond = []int{0}, []int{0}, []int{0}
	days := l.ask(option, floorDiv(from, daySeconds)*daySeconds)
	day, ok := days()
	return func() (wall, bool) {
		for ; ok; day, ok = days() {
			if from = max(from, day); from >= day+daySeconds {
				continue
			}
			if second, found := times.next(from - day); found {
				from = day + second + 1
				return day + second, true
			}
		}
		return 0, false
	}
}

// ask returns the walls of the library at or after one, for at least 400 years. The library searches until the year
// 9999, which takes long for a rule that never runs, so this asks it for a time shortly before that.
func (l *localRule) ask(option rrule.ROption, from wall) func() (wall, bool) {
	begin := l.periodBefore(from)
	cycles := floorDiv(lastYear-cycleYears-int64(begin.Year()), cycleYears)
	option.Dtstart = begin.AddDate(int(cycles)*cycleYears, 0, 0)
	rule, err := rrule.NewRRule(option)
	if err != nil {
		return func() (wall, bool) { return 0, false }
	}
	next := rule.Iterator()
	return func() (wall, bool) {
		for {
			t, ok := next()
			if w := t.Unix() - cycles*cycleSeconds; !ok || w >= from {
				return w, ok
			}
		}
	}
}

// periodBefore returns the beginning of the rule's period before the one of a wall, or of its first period.
func (l *localRule) periodBefore(w wall) time.Time {
	first, to, step := time.Unix(l.start, 0).UTC(), time.Unix(w, 0).UTC(), l.rule.Interval
	periods := func(distance int) int { return max(0, distance/step-1) * step }
	switch l.rule.Freq {
	case rrule.YEARLY:
		return time.Date(first.Year()+periods(to.Year()-first.Year()), 1, 1, 0, 0, 0, 0, time.UTC)
	case rrule.MONTHLY:
		months := (to.Year()-first.Year())*12 + int(to.Month()-first.Month())
		return time.Date(first.Year(), first.Month()+time.Month(periods(months)), 1, 0, 0, 0, 0, time.UTC)
	case rrule.WEEKLY:
		weekday := int(first.Weekday()+6) % 7 // from Monday, as in the library
		day := floorDiv(l.start, daySeconds) - int64((weekday-l.rule.Wkst.Day()+7)%7)
		weeks := int((floorDiv(w, daySeconds) - day) / 7)
		return time.Unix((day+int64(7*periods(weeks)))*daySeconds, 0).UTC()
	}
	day := floorDiv(l.start, daySeconds)
	return time.Unix((day+int64(periods(int(floorDiv(w, daySeconds)-day))))*daySeconds, 0).UTC()
}

// limit ends the rule after its first count times, if count is above zero, and returns the problem if there are none.
func (l *localRule) limit(count int) string {
	next := l.iterate(l.start)
	last, ok := next()
	if !ok {
		return "never runs after its start"
	}
	for i := 1; i < count; i++ {
		w, more := next()
		if !more { // that is centuries away
			return ""
		}
		last = w
	}
	if count > 0 {
		l.last = last
	}
	return ""
}
