package recurrence

import (
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
// is; the parts of the rule select the times that the local clock and calendar show. So an hourly rule runs every hour
// where the clock changes. The library is not used, since it is wrong there (teambition/rrule-go issue 63) and never
// returns for some rules.
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
	// Parts that the rule does not list are taken from its start, by elapsed time.
	switch {
	case r.Freq == rrule.HOURLY && len(r.Byminute) == 0 && len(r.Bysecond) == 0,
		r.Freq == rrule.MINUTELY && len(r.Bysecond) == 0:
		e.length = 1
	case r.Freq == rrule.HOURLY && len(r.Byminute) == 0:
		e.length = 60
	}
	e.origin = start - local%e.length
	e.shown = calendar{clock: newClock(&r.ROption), dates: newRuleDates(&r.ROption)}
	if r.Freq == rrule.HOURLY && len(r.Byminute) > 0 && len(r.Bysecond) == 0 {
		e.shown.second = 1 << (local % 60)
	}
	return e
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
