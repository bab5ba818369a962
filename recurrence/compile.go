package recurrence

import (
	"slices"
	"strings"
	"time"

	"github.com/laterq/later/internal/nearest"
	"github.com/laterq/later/store"
)

const (
	maxTimes   = 10_000
	maxExclude = 1_000
	maxJitter  = 24 * time.Hour
)

// latest and earliest bound all times, in milliseconds since 1970: the years 1 to 9999.
var (
	latest   = time.Date(lastYear+1, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli() - 1
	earliest = time.Time{}.UnixMilli()
)

// Options are the inputs of a Rule in addition to its Spec.
type Options struct {
	// Name is the name of the schedule, which determines its jitter.
	Name string
	// Created is when the schedule was created. Intervals, rules and series without a Start are counted from it.
	Created time.Time
}

// Compile returns the rule of a spec. Every error is an ErrInvalid that names the field, the problem, and a value that
// is allowed.
func Compile(spec Spec, opts Options) (*Rule, error) {
	loc, err := loadZone(spec.TimeZone)
	if err != nil {
		return nil, err
	}
	r := &Rule{loc: loc, start: earliest, end: latest + 1, seed: hashName(opts.Name),
		jitter: spec.Jitter.Milliseconds(), maxRuns: spec.MaxRuns}
	if err := r.bound(&spec); err != nil {
		return nil, err
	}
	if r.exclude, err = parseExclusions(spec.Exclude, loc); err != nil {
		return nil, err
	}
	c := compiler{spec: &spec, rule: r, anchor: opts.Created}
	if !spec.Start.IsZero() {
		c.anchor = spec.Start
	}
	if r.source, err = c.source(); err != nil {
		return nil, err
	}
	return r, nil
}

// bound checks and sets the fields of all kinds of rules.
func (r *Rule) bound(spec *Spec) error {
	if !spec.Start.IsZero() {
		r.start = ceilMilli(spec.Start)
	}
	if !spec.End.IsZero() {
		r.end = ceilMilli(spec.End)
	}
	switch {
	case !spec.Start.IsZero() && !spec.End.IsZero() && !spec.End.After(spec.Start):
		return store.Invalid("end: %s is not after start, %s", stamp(spec.End), stamp(spec.Start))
	case r.start < earliest || r.start > latest:
		return store.Invalid("start: %s is outside of the years 1 to 9999", stamp(spec.Start))
	case r.end < earliest || r.end > latest+1:
		return store.Invalid("end: %s is outside of the years 1 to 9999", stamp(spec.End))
	case spec.Jitter < 0 || spec.Jitter > maxJitter:
		return store.Invalid("jitter: %v is not between 0 and %v", spec.Jitter, maxJitter)
	case spec.MaxRuns < 0:
		return store.Invalid("max_runs: %d is below 0: must be the number of runs, or 0 for no limit", spec.MaxRuns)
	}
	if err := oneOf("gap", spec.Gap, GapShift, GapSkip); err != nil {
		return err
	}
	return oneOf("overlap", spec.Overlap, OverlapFirst, OverlapBoth)
}

func oneOf[T ~string](field string, value T, allowed ...T) error {
	if value == "" || slices.Contains(allowed, value) {
		return nil
	}
	words := make([]string, len(allowed))
	for i, word := range allowed {
		words[i] = string(word)
	}
	return store.Invalid("%s: %q is unknown%s", field, nearest.Clip(string(value)),
		nearest.DidYouMean(string(value), words, "give "+strings.Join(words, " or ")))
}

// A source has the times of one kind of rule, in milliseconds since 1970.
type source interface {
	// next returns the first time later than after, or false if there is none.
	next(after int64) (int64, bool)
}

// compiler makes the source of a rule. The anchor is where counting starts.
type compiler struct {
	spec   *Spec
	rule   *Rule
	anchor time.Time
}

func (c *compiler) source() (source, error) {
	var kinds []string
	var compile func() (source, error)
	for _, kind := range []struct {
		name string
		set  bool
		of   func() (source, error)
	}{
		{"cron", c.spec.Cron != "", c.cron},
		{"every", c.spec.Every != 0, func() (source, error) { return c.every("every", c.spec.Every) }},
		{"rrule", c.spec.RRule != "", c.rrule},
		{"series", c.spec.Series != nil, c.series},
		{"times", len(c.spec.Times) > 0, c.times},
	} {
		if kind.set {
			kinds, compile = append(kinds, kind.name), kind.of
		}
	}
	if len(kinds) == 1 {
		return compile()
	}
	found := "none is set"
	if len(kinds) > 1 {
		found = strings.Join(kinds, " and ") + " are set"
	}
	return nil, store.Invalid("schedule: give exactly one of cron, every, rrule, times and series; %s", found)
}

func (c *compiler) cron() (source, error) {
	rule, err := parseCron(c.spec.Cron)
	if err != nil {
		return nil, err
	}
	if rule.every > 0 {
		return c.every("cron: @every", rule.every)
	}
	return &seconds{zoned{
		loc: c.rule.loc, walls: &rule.calendar,
		shift: c.spec.Gap != GapSkip && !rule.everyHour(),
		both:  c.spec.Overlap == OverlapBoth || rule.wildcard,
	}}, nil
}

// origin returns the anchor in milliseconds.
func (c *compiler) origin(field string) (int64, error) {
	if c.anchor.IsZero() {
		return 0, store.Invalid("%s: there is nothing to count from: set start", field)
	}
	return ceilMilli(c.anchor), nil
}

// seconds is a source from a set of walls.
type seconds struct{ zoned }

func (s *seconds) next(after int64) (int64, bool) {
	at, ok := s.zoned.next(floorDiv(after, 1000))
	return at * 1000, ok
}

// ceilMilli rounds up, so that nothing is early.
func ceilMilli(t time.Time) int64 {
	ms := t.UnixMilli()
	if t.Nanosecond()%int(time.Millisecond) != 0 {
		ms++
	}
	return ms
}

func stamp(t time.Time) string { return t.Format(time.RFC3339Nano) }

func sorted(words []string) []string {
	slices.Sort(words)
	return words
}
