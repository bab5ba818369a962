package recurrence

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/laterq/later/internal/nearest"
	"github.com/laterq/later/store"
)

// A cronField describes one field of a cron expression.
type cronField struct {
	name      string
	index     int
	low, high int
	names     []string // of low, low+1 and so on
}

var (
	secondField = cronField{name: "second", index: 0, high: 59}
	minuteField = cronField{name: "minute", index: 1, high: 59}
	hourField   = cronField{name: "hour", index: 2, high: 23}
	domField    = cronField{name: "day of month", index: 3, low: 1, high: 31}
	monthField  = cronField{name: "month", index: 4, low: 1, high: 12, names: monthNames}
	dowField    = cronField{name: "day of week", index: 5, high: 7, names: weekdayNames} // 0 and 7 are Sunday

	monthNames = []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN",
		"JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}
	weekdayNames = []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}
)

// cronParser collects the sets of the fields, with bit n for the value n, and the first error.
type cronParser struct {
	text  string
	sets  [6]uint64
	stars [6]bool // an item of the field starts with a star
	full  [6]bool // an item of the field is a star alone
	dates cronDates
	err   error
}

// fail records the first error: the problem of a part of a field, and how to correct it.
func (p *cronParser) fail(f *cronField, part word, format string, args ...any) {
	if p.err == nil {
		p.err = store.Invalid("cron: %s: %s at position %d of %q %s", f.name, quoteName(part.text), part.at, p.text,
			fmt.Sprintf(format, args...))
	}
}

// quoteName quotes a text that is not a number.
func quoteName(text string) string {
	if _, ok := number(text); ok {
		return text
	}
	return fmt.Sprintf("%q", text)
}

// parse adds the items of a field, which are separated by commas.
func (p *cronParser) parse(f *cronField, field word) {
	at := field.at
	for item := range strings.SplitSeq(field.text, ",") {
		p.item(f, word{item, at}, field)
		at += len(item) + 1
	}
}

func (p *cronParser) item(f *cronField, item, field word) {
	if item.text == "" {
		p.fail(f, field, "has an empty item: remove the comma")
		return
	}
	if p.special(f, item) {
		return
	}
	span, stepText, stepped := strings.Cut(item.text, "/")
	step := 1
	if stepped {
		step = p.step(f, word{stepText, item.at + len(span) + 1}, item)
	}
	low, high := f.low, f.lastOf()
	switch first, last, isRange := strings.Cut(span, "-"); {
	case span == "*" || span == "?":
		p.stars[f.index] = true
		p.full[f.index] = p.full[f.index] || step == 1
	case isRange:
		low = p.value(f, word{first, item.at})
		high = p.value(f, word{last, item.at + len(first) + 1})
		if f.index == dowField.index && high == 0 && low > 0 {
			high = 7 // FRI-SUN
		}
		if low > high {
			p.fail(f, item, "ends before it starts: write %d-%d,%d-%d", low, f.lastOf(), f.low, high)
		}
	default:
		low = p.value(f, word{span, item.at})
		if !stepped { // N/STEP means from N to the end
			high = low
		}
	}
	for v := low; v <= high && p.err == nil; v += step {
		p.sets[f.index] |= 1 << v
	}
}

// lastOf returns the last value of stars and open ranges: 6 for days of the week, since 7 is 0.
func (f *cronField) lastOf() int {
	if f.index == dowField.index {
		return 6
	}
	return f.high
}

func (p *cronParser) step(f *cronField, step, item word) int {
	n, ok := number(step.text)
	switch {
	case !ok:
		p.fail(f, step, "is no step: give a number, as in */5")
	case n < 1:
		p.fail(f, item, "has the step 0: the nearest value is 1")
	case n > f.high:
		p.fail(f, step, "%s", outOfRange(n, 1, f.high))
	}
	return max(n, 1)
}

func (p *cronParser) value(f *cronField, v word) int {
	if n, ok := number(v.text); ok {
		if n < f.low || n > f.high {
			p.fail(f, v, "%s", outOfRange(n, f.low, f.high))
		}
		return n
	}
	for i, name := range f.names {
		if strings.EqualFold(name, v.text) {
			return f.low + i
		}
	}
	advice := fmt.Sprintf("give a number from %d to %d", f.low, f.high)
	if f.names == nil {
		p.fail(f, v, "is no value: %s, *, a range such as 1-5 or a step such as */5", advice)
	} else {
		p.fail(f, v, "is no value%s", nearest.DidYouMean(v.text, f.names, advice+", or a name such as "+f.names[1]))
	}
	return f.low
}

// number returns the value of up to nine digits.
func number(text string) (int, bool) {
	n, err := strconv.ParseUint(text, 10, 32)
	return int(n), err == nil && len(text) <= 9
}

// outOfRange says which bound a number violates, and the nearest value.
func outOfRange(n, low, high int) string {
	if n > high {
		return "is above " + strconv.Itoa(high) + ": the nearest value is " + strconv.Itoa(high)
	}
	return "is below " + strconv.Itoa(low) + ": the nearest value is " + strconv.Itoa(low)
}
