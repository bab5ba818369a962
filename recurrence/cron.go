package recurrence

import (
	"regexp"
	"strings"
	"time"

	"github.com/laterq/later/internal/nearest"
	"github.com/laterq/later/store"
)

// maxExpression is the maximum length of a cron expression or RRULE, in bytes.
const maxExpression = 1024

// A cronRule is a parsed cron expression: a calendar, or an interval for @every.
type cronRule struct {
	calendar calendar
	every    time.Duration
	// wildcard is set if the hour or minute field has a star: then walls that are shown twice are times twice.
	wildcard bool
}

// everyHour reports whether the hour field has all hours: then nothing moves where the clock skips an hour.
func (c *cronRule) everyHour() bool { return c.calendar.hour == all24 }

// descriptors are the names for common expressions.
var descriptors = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

// parseCron parses five fields, six with seconds first, or a descriptor.
func parseCron(text string) (*cronRule, error) {
	if len(text) > maxExpression {
		return nil, store.Invalid("cron: the expression has %d bytes: the limit is %d", len(text), maxExpression)
	}
	words := splitWords(text)
	switch {
	case len(words) == 0:
		return nil, store.Invalid("cron: the expression is empty: give five fields such as \"0 9 * * 1-5\"")
	case hasPrefixFold(words[0].text, "CRON_TZ="), hasPrefixFold(words[0].text, "TZ="):
		return nil, store.Invalid("cron: %q at position %d of %q: set the time zone of the schedule instead",
			words[0].text, words[0].at, text)
	case strings.HasPrefix(words[0].text, "@"):
		return parseDescriptor(text, words)
	case len(words) != 5 && len(words) != 6:
		return nil, store.Invalid("cron: %q has %d fields: give five (minute, hour, day of month, month, day "+
			"of week), or six with the second first", text, len(words))
	}
	p := cronParser{text: text}
	fields := words
	if len(words) == 6 {
		p.parse(&secondField, words[0])
		fields = words[1:]
	} else {
		p.sets[secondField.index] = 1
	}
	for i, field := range []*cronField{&minuteField, &hourField, &domField, &monthField, &dowField} {
		p.parse(field, fields[i])
	}
	if p.err != nil {
		return nil, p.err
	}
	return p.rule(fields[2].text)
}

func parseDescriptor(text string, words []word) (*cronRule, error) {
	name := words[0]
	if name.text == "@every" {
		return parseEvery(text, words[1:])
	}
	expression, ok := descriptors[name.text]
	if !ok {
		names := []string{"@every"}
		for known := range descriptors {
			names = append(names, known)
		}
		return nil, store.Invalid("cron: %q at position %d of %q is unknown%s", name.text, name.at, text,
			nearest.DidYouMean(name.text, sorted(names), "give a name such as @daily, or five fields"))
	}
	if len(words) > 1 {
		return nil, store.Invalid("cron: %q at position %d of %q: nothing can follow %s", words[1].text, words[1].at,
			text, name.text)
	}
	return parseCron(expression)
}

func parseEvery(text string, words []word) (*cronRule, error) {
	if len(words) != 1 {
		return nil, store.Invalid("cron: %q: give @every one duration, as in \"@every 1h30m\"", text)
	}
	d, err := time.ParseDuration(words[0].text)
	if err != nil {
		return nil, store.Invalid("cron: @every: %q at position %d of %q is no duration: give one such as 90s, 15m or "+
			"1h30m", words[0].text, words[0].at, text)
	}
	if err := checkEvery(d); err != nil {
		return nil, store.Invalid("cron: @every: %s", err)
	}
	return &cronRule{every: d}, nil
}

// A word of an expression, and its position in bytes.
type word struct {
	text string
	at   int
}

var nonSpaces = regexp.MustCompile(`[^ \t]+`)

func splitWords(text string) (words []word) {
	for _, at := range nonSpaces.FindAllStringIndex(text, -1) {
		words = append(words, word{text[at[0]:at[1]], at[0]})
	}
	return words
}

func hasPrefixFold(text, prefix string) bool {
	return len(text) >= len(prefix) && strings.EqualFold(text[:len(prefix)], prefix)
}
