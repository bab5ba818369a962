package recurrence

import (
	"encoding/json"
	"time"

	"github.com/laterq/later/internal/jsonfields"
	"github.com/laterq/later/internal/wire"
)

// Spec says when something recurs. Exactly one of Cron, Every, RRule, Times and Series is set. Its JSON has durations
// as text such as "1h30m", and refuses fields that it does not know.
type Spec struct {
	// Cron is a cron expression of five fields, or six with seconds first, or a name such as @daily.
	Cron string
	// Every is a fixed interval of elapsed time: the times are Start, Start+Every, Start+2·Every and so on.
	Every time.Duration
	// RRule is a recurrence rule of RFC 5545 such as "FREQ=MONTHLY;BYDAY=1FR". Start is its DTSTART.
	RRule string
	// Times is a list of at most 10,000 times, in any order.
	Times []time.Time
	// Series has delays that grow or shrink.
	Series *Series

	// TimeZone is the name of the zone of the local times in Cron and RRule, such as Europe/Berlin. Empty means UTC.
	TimeZone string
	// Start is the earliest time. Intervals, rules and series are counted from it; if it is zero, from Created.
	Start time.Time
	// End is the time when the rule ends, not included. Zero means no end.
	End time.Time
	// Exclude leaves out times. Each of its at most 1,000 texts is one of
	//
	//	2026-12-25                                    a day of the zone's calendar
	//	2026-12-24/2026-12-31                         days, both included
	//	2026-12-24T18:00                              a local time, "T18:00:00Z" or "T18:00:00+01:00" an exact one
	//	2026-12-24T18:00/2026-12-27T06:00             from the first time until before the second one
	Exclude []string
	// Jitter is the longest delay of a time, to spread the times of several schedules. It is at most 24 hours. The
	// delay depends on the name and the time alone. It never reaches the following time.
	Jitter time.Duration
	// MaxRuns is the number of runs until a schedule has finished; zero means no limit. Rule.Next ignores it; see
	// Rule.Finished.
	MaxRuns int
	// Gap is the policy for a local time that the clock skips. Empty means GapShift.
	Gap Gap
	// Overlap is the policy for a local time that the clock shows twice. Empty means OverlapFirst.
	Overlap Overlap
}

// Series is a list of Count times. The first one is First after Start. Each further delay is Factor times the one
// before, and then limited to Min and Max.
type Series struct {
	First  time.Duration
	Factor float64       // above 1 the delays grow, below 1 they shrink
	Min    time.Duration // at least a millisecond, which zero means
	Max    time.Duration // zero means no limit
	Count  int           // 1 to 10,000
}

// Gap is the policy for a local time that does not exist because the clock is set forward.
type Gap string

// Policies for a gap.
const (
	// GapShift runs as much later as the clock is set forward: 02:30 becomes 03:30. This is the rule of RFC 5545.
	GapShift Gap = "shift"
	// GapSkip does not run.
	GapSkip Gap = "skip"
)

// Overlap is the policy for a local time that exists twice because the clock is set back.
type Overlap string

// Policies for an overlap.
const (
	// OverlapFirst runs at the first of the two times.
	OverlapFirst Overlap = "first"
	// OverlapBoth runs at both.
	OverlapBoth Overlap = "both"
)

// MarshalJSON returns the spec without its empty fields.
func (s Spec) MarshalJSON() ([]byte, error) {
	return json.Marshal(wire.Rule{
		Cron: s.Cron, Every: duration(s.Every), RRule: s.RRule, Times: s.Times, Series: s.Series.json(),
		TimeZone: s.TimeZone, Start: s.Start, End: s.End, Exclude: s.Exclude, Jitter: duration(s.Jitter),
		MaxRuns: s.MaxRuns, Gap: string(s.Gap), Overlap: string(s.Overlap),
	})
}

func (s *Series) json() *wire.RuleSeries {
	if s == nil {
		return nil
	}
	return &wire.RuleSeries{First: duration(s.First), Factor: s.Factor, Min: duration(s.Min), Max: duration(s.Max),
		Count: s.Count}
}

// UnmarshalJSON replaces the spec. A field that it does not know is an error.
func (s *Spec) UnmarshalJSON(text []byte) error {
	var j wire.Rule
	if err := jsonfields.Decode(text, &j); err != nil {
		return err
	}
	*s = Spec{
		Cron: j.Cron, Every: time.Duration(j.Every), RRule: j.RRule, Times: j.Times, TimeZone: j.TimeZone,
		Start: j.Start, End: j.End, Exclude: j.Exclude, Jitter: time.Duration(j.Jitter), MaxRuns: j.MaxRuns, Gap: Gap(j.Gap),
		Overlap: Overlap(j.Overlap),
	}
	if r := j.Series; r != nil {
		s.Series = &Series{time.Duration(r.First), r.Factor, time.Duration(r.Min), time.Duration(r.Max), r.Count}
	}
	return nil
}

// duration is a time.Duration whose JSON is text.
type duration = jsonfields.Duration
