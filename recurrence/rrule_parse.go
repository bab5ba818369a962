package recurrence

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/teambition/rrule-go"

	"github.com/laterq/later/internal/nearest"
	"github.com/laterq/later/store"
)

// recurrenceRule is a parsed RRULE.
type recurrenceRule struct {
	rrule.ROption
	until    int64 // the second of the last occurrence, if hasUntil
	hasUntil bool
}

var (
	frequencies  = []string{"YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY", "SECONDLY"}
	rruleDays    = []string{"MO", "TU", "WE", "TH", "FR", "SA", "SU"}
	rruleWeekday = []rrule.Weekday{rrule.MO, rrule.TU, rrule.WE, rrule.TH, rrule.FR, rrule.SA, rrule.SU}
)

// A rulePart is a part of an RRULE with a list of numbers as value.
type rulePart struct {
	low, high int // high is also the bound of negative numbers, if negative is set
	negative  bool
	single    bool
	field     func(*recurrenceRule) *[]int
}

// These bound the work for a rule.
const (
	maxInterval   = 1_000_000
	maxCount      = 100_000
	maxTimesOfDay = 1_440 // with BYSETPOS
)

var ruleParts = map[string]rulePart{
	"BYSECOND":   {0, 59, false, false, func(r *recurrenceRule) *[]int { return &r.Bysecond }},
	"BYMINUTE":   {0, 59, false, false, func(r *recurrenceRule) *[]int { return &r.Byminute }},
	"BYHOUR":     {0, 23, false, false, func(r *recurrenceRule) *[]int { return &r.Byhour }},
	"BYMONTHDAY": {1, 31, true, false, func(r *recurrenceRule) *[]int { return &r.Bymonthday }},
	"BYYEARDAY":  {1, 366, true, false, func(r *recurrenceRule) *[]int { return &r.Byyearday }},
	"BYWEEKNO":   {1, 53, true, false, func(r *recurrenceRule) *[]int { return &r.Byweekno }},
	"BYMONTH":    {1, 12, false, false, func(r *recurrenceRule) *[]int { return &r.Bymonth }},
	"BYSETPOS":   {1, 366, true, false, func(r *recurrenceRule) *[]int { return &r.Bysetpos }},
	"INTERVAL":   {1, maxInterval, false, true, nil},
	"COUNT":      {1, maxCount, false, true, nil},
}

var partNames = func() []string {
	names := []string{"FREQ", "UNTIL", "BYDAY", "WKST"}
	for name := range ruleParts {
		names = append(names, name)
	}
	return sorted(names)
}()

// rruleParser parses one RRULE. The library's own parser accepts parts that are given twice or contradict each other,
// and values that make it panic or search without end.
type rruleParser struct {
	text string
	loc  *time.Location
	rule recurrenceRule
	seen map[string]word
}

// parseRRule parses "FREQ=…;…", with or without "RRULE:" before it. A local UNTIL is a time of loc.
func parseRRule(text string, loc *time.Location) (*recurrenceRule, error) {
	if len(text) > maxExpression {
		return nil, store.Invalid("rrule: the rule has %d bytes: the limit is %d", len(text), maxExpression)
	}
	p := rruleParser{text: text, loc: loc, seen: map[string]word{}}
	p.rule.Interval = 1
	body := strings.TrimRight(text, " \t\r\n;")
	at := len(body) - len(strings.TrimLeft(body, " \t\r\n"))
	if hasPrefixFold(body[at:], "RRULE:") {
		at += len("RRULE:")
	}
	if err := p.refuseLines(body[at:]); err != nil {
		return nil, err
	}
	for part := range strings.SplitSeq(body[at:], ";") {
		if err := p.part(word{part, at}); err != nil {
			return nil, err
		}
		at += len(part) + 1
	}
	return &p.rule, p.check()
}

// refuseLines refuses further lines of an iCalendar component.
func (p *rruleParser) refuseLines(body string) error {
	for name, instead := range map[string]string{"DTSTART": "set start and time_zone of the schedule instead",
		"EXDATE": "list the times in exclude instead", "RDATE": "use a second schedule with times instead",
		"EXRULE": "list the times in exclude instead"} {
		if i := strings.Index(nearest.UpperASCII(p.text), name); i >= 0 {
			return store.Invalid("rrule: %s at position %d of %q: %s", name, i, p.text, instead)
		}
	}
	if i := strings.IndexAny(body, "\r\n"); i >= 0 {
		return store.Invalid("rrule: %q has several lines: give one rule", p.text)
	}
	return nil
}

func (p *rruleParser) fail(name string, value word, format string, args ...any) error {
	return store.Invalid("rrule: %s: %s at position %d of %q %s", name, quoteName(value.text), value.at, p.text,
		fmt.Sprintf(format, args...))
}

// refuse returns an error about a part that is not allowed beside others. Its text begins with the name.
func (p *rruleParser) refuse(name, format string, args ...any) error {
	return store.Invalid("rrule: %s at position %d of %q%s", name, p.seen[name].at-len(name)-1, p.text,
		fmt.Sprintf(format, args...))
}

func (p *rruleParser) part(part word) error {
	name, text, ok := strings.Cut(part.text, "=")
	name = nearest.UpperASCII(name)
	value := word{nearest.UpperASCII(text), part.at + len(name) + 1}
	if !slices.Contains(partNames, name) {
		return store.Invalid("rrule: %q at position %d of %q is no part of a rule%s", name, part.at, p.text,
			nearest.DidYouMean(name, partNames, "give parts such as FREQ=DAILY, separated by semicolons"))
	}
	if !ok || text == "" {
		return store.Invalid("rrule: %s at position %d of %q has no value", name, part.at, p.text)
	}
	if _, twice := p.seen[name]; twice {
		return store.Invalid("rrule: %s at position %d of %q is given twice: list its values with commas",
			name, part.at, p.text)
	}
	p.seen[name] = value
	switch name {
	case "FREQ":
		i := slices.Index(frequencies, value.text)
		if i < 0 {
			return p.fail(name, value, "is no frequency%s",
				nearest.DidYouMean(value.text, frequencies, "give one such as DAILY"))
		}
		p.rule.Freq = rrule.Frequency(i)
	case "WKST":
		day, err := p.weekday(name, value)
		p.rule.Wkst = day
		return err
	case "BYDAY":
		return p.weekdays(value)
	case "UNTIL":
		return p.until(value)
	default:
		return p.numbers(name, value)
	}
	return nil
}

func (p *rruleParser) weekday(name string, value word) (rrule.Weekday, error) {
	i := slices.Index(rruleDays, value.text)
	if i < 0 {
		return rrule.MO, p.fail(name, value, "is no weekday%s",
			nearest.DidYouMean(value.text, rruleDays, "give one of MO, TU, "+
				"WE, TH, FR, SA and SU"))
	}
	return rruleWeekday[i], nil
}

func (p *rruleParser) weekdays(value word) error {
	at := value.at
	for item := range strings.SplitSeq(value.text, ",") {
		digits := max(0, len(item)-2)
		day, err := p.weekday("BYDAY", word{item[digits:], at + digits})
		if err != nil {
			return err
		}
		if digits > 0 {
			n, ok := signed(item[:digits])
			if !ok || n == 0 || n > 53 || n < -53 {
				return p.fail("BYDAY", word{item, at}, "needs a number from 1 to 53 or -53 to -1 before the "+
					"weekday, as in 2FR or -1SU")
			}
			day = day.Nth(n)
		}
		p.rule.Byweekday = append(p.rule.Byweekday, day)
		at += len(item) + 1
	}
	return nil
}

func (p *rruleParser) until(value word) error {
	p.rule.hasUntil = true
	if t, err := time.Parse("20060102", value.text); err == nil { // the day is included
		p.rule.until = startOfDay(p.loc, t.Unix()+daySeconds) - 1
		return nil
	}
	if t, err := time.Parse("20060102T150405", value.text); err == nil {
		p.rule.until = instantOf(p.loc, t.Unix())
		return nil
	}
	t, err := time.Parse("20060102T150405Z", value.text)
	p.rule.until = t.Unix()
	if err != nil {
		return p.fail("UNTIL", value, "is no time: give one such as 20261231T235959Z, or a day such as 20261231")
	}
	return nil
}

func (p *rruleParser) numbers(name string, value word) error {
	part, at := ruleParts[name], value.at
	var list []int
	for item := range strings.SplitSeq(value.text, ",") {
		n, ok := signed(item)
		size := n
		if part.negative {
			size = max(n, -n)
		}
		switch {
		case !ok:
			return p.fail(name, word{item, at}, "is no number: give one from %d to %d", part.low, part.high)
		case size < part.low || size > part.high:
			return p.fail(name, word{item, at}, "%s", nearestSigned(n, part))
		case part.single && len(list) > 0:
			return p.fail(name, value, "has more than one number")
		}
		if !slices.Contains(list, n) {
			list = append(list, n)
		}
		at += len(item) + 1
	}
	slices.Sort(list)
	switch name {
	case "INTERVAL":
		p.rule.Interval = list[0]
	case "COUNT":
		p.rule.Count = list[0]
	default:
		*part.field(&p.rule) = list
	}
	return nil
}

func nearestSigned(n int, part rulePart) string {
	if part.negative && n < 0 {
		return outOfRange(n, -part.high, -part.low)
	}
	return outOfRange(n, part.low, part.high)
}

// signed returns the value of a number with an optional sign.
func signed(text string) (int, bool) {
	digits, negative := strings.CutPrefix(text, "-")
	if !negative {
		digits = strings.TrimPrefix(text, "+")
	}
	n, ok := number(digits)
	if negative {
		n = -n
	}
	return n, ok
}

// check refuses the combinations that RFC 5545 forbids (3.3.10).
func (p *rruleParser) check() error {
	if _, ok := p.seen["FREQ"]; !ok {
		return store.Invalid("rrule: %q has no FREQ: give one such as FREQ=DAILY", p.text)
	}
	freq := p.rule.Freq
	forbidden := map[string]bool{
		"BYWEEKNO":   freq != rrule.YEARLY,
		"BYYEARDAY":  freq == rrule.MONTHLY || freq == rrule.WEEKLY || freq == rrule.DAILY,
		"BYMONTHDAY": freq == rrule.WEEKLY,
	}
	for _, name := range []string{"BYWEEKNO", "BYYEARDAY", "BYMONTHDAY"} {
		if _, ok := p.seen[name]; ok && forbidden[name] {
			return p.refuse(name, " is not allowed with FREQ=%s (RFC 5545, 3.3.10)", frequencies[freq])
		}
	}
	if p.rule.hasUntil && p.rule.Count > 0 {
		return p.refuse("UNTIL", ": give either UNTIL or COUNT")
	}
	if len(p.rule.Bysetpos) > 0 {
		times := max(1, len(p.rule.Byhour)) * max(1, len(p.rule.Byminute)) * max(1, len(p.rule.Bysecond))
		switch {
		case freq >= rrule.HOURLY:
			return p.refuse("BYSETPOS", " is not supported with FREQ=%s: list the wanted values in BYHOUR, BYMINUTE or "+
				"BYSECOND instead", frequencies[freq])
		case len(p.rule.Byweekno) > 0:
			return p.refuse("BYSETPOS", " is not supported with BYWEEKNO: list the wanted weekdays in BYDAY instead")
		case times > maxTimesOfDay:
			return p.refuse("BYSETPOS", " selects from %d times a day: the limit is %d", times, maxTimesOfDay)
		case !p.hasBy():
			return p.refuse("BYSETPOS", " needs another part such as BYDAY")
		}
	}
	return p.checkOrdinals()
}

func (p *rruleParser) hasBy() bool {
	for name := range p.seen {
		if strings.HasPrefix(name, "BY") && name != "BYSETPOS" {
			return true
		}
	}
	return false
}

// checkOrdinals checks the numbers of weekdays such as 2FR.
func (p *rruleParser) checkOrdinals() error {
	value, freq := p.seen["BYDAY"], p.rule.Freq
	ofMonth := freq == rrule.MONTHLY || len(p.rule.Bymonth) > 0
	for _, day := range p.rule.Byweekday {
		switch n := day.N(); {
		case n == 0:
		case freq > rrule.MONTHLY || len(p.rule.Byweekno) > 0:
			return p.fail("BYDAY", value, "has a number before a weekday, which is only allowed with "+
				"FREQ=MONTHLY, or with FREQ=YEARLY without BYWEEKNO")
		case ofMonth && (n > 5 || n < -5):
			return p.fail("BYDAY", value, "has the number %d, but a month has at most 5 of a weekday", n)
		}
	}
	return nil
}
