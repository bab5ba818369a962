package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/laterq/later/recurrence"
	"github.com/laterq/later/store"
)

// ruleFlags are the flags that describe a recurrence rule.
type ruleFlags struct {
	recurrence.Spec // other than the fields below
	times           []string
	start, end      string
	gap, overlap    string
	series          recurrence.Series
}

func (f *ruleFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.Cron, "cron", "", "a cron `expression` of 5 fields, or of 6 with the second first, or @daily")
	durationFlag(flags, &f.Every, "every", "an interval of elapsed time, counted from --start")
	flags.StringVar(&f.RRule, "rrule", "", "a recurrence `rule` of RFC 5545, such as 'FREQ=MONTHLY;BYDAY=-1FR'")
	flags.StringSliceVar(&f.times, "times", nil, "a list of `times`, with commas between them; can be repeated")
	durationFlag(flags, &f.series.First, "series-first", "of delays that grow or shrink: the first, counted "+
		"from --start")
	flags.Float64Var(&f.series.Factor, "series-factor", 2, "`factor` of each further delay")
	durationFlag(flags, &f.series.Min, "series-min", "the shortest delay (default 1ms)")
	durationFlag(flags, &f.series.Max, "series-max", "the longest delay (default: no limit)")
	flags.IntVar(&f.series.Count, "series-count", 0, "`number` of delays")
	flags.StringVar(&f.TimeZone, "tz", "", "time `zone`, such as Europe/Berlin (default UTC)")
	flags.StringVar(&f.start, "start", "", "the earliest `time`, included")
	flags.StringVar(&f.end, "end", "", "the `time` when the runs end, not included")
	flags.StringArrayVar(&f.Exclude, "exclude", nil,
		"leave out a `day`, 2030-12-25/2030-12-31, or a time; can be repeated")
	durationFlag(flags, &f.Jitter, "jitter", "the longest delay of a run, up to 24h")
	choice(cmd, &f.gap, "gap", "shift", "`policy` for times that the clock skips: shift or skip", "shift", "skip")
	choice(cmd, &f.overlap, "overlap", "first", "`policy` for times that the clock shows twice: first or both",
		"first", "both")
}

// given reports whether there is a rule.
func (f *ruleFlags) given() bool {
	return f.Cron != "" || f.Every != 0 || f.RRule != "" || len(f.times) > 0 || f.series.First != 0
}

// spec returns the rule. It is not checked.
func (f *ruleFlags) spec(cmd *cobra.Command, now time.Time) (recurrence.Spec, error) {
	spec := f.Spec
	if !f.given() {
		return spec, store.Invalid("no rule: give --cron, --every, --rrule, --times or --series-first")
	}
	if cmd.Flags().Changed("gap") {
		spec.Gap = recurrence.Gap(f.gap)
	}
	if cmd.Flags().Changed("overlap") {
		spec.Overlap = recurrence.Overlap(f.overlap)
	}
	if f.series.First != 0 {
		series := f.series
		spec.Series = &series
	}
	var err error
	if spec.Start, err = f.time("start", f.start, now); err != nil {
		return spec, err
	}
	if spec.End, err = f.time("end", f.end, now); err != nil {
		return spec, err
	}
	for _, text := range f.times {
		t, err := f.time("times", text, now)
		if err != nil {
			return spec, err
		}
		spec.Times = append(spec.Times, t)
	}
	return spec, nil
}

// time parses a time, which is in the zone of the rule unless it has an offset. It returns zero for no text.
func (f *ruleFlags) time(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	zone, err := time.LoadLocation(f.TimeZone)
	if err != nil {
		zone = time.UTC // the rule refuses the zone
	}
	t, err := parseTime(text, now.In(zone))
	if err != nil {
		return t, store.Invalid("--%s is %q: %v", flag, text, err)
	}
	return t, nil
}
