package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/recurrence"
	"github.com/laterq/later/store"
)

// maxShownRuns is the maximum number of runs that later schedule next shows.
const maxShownRuns = 10_000

func (m *Main) scheduleCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "schedule next",
		Short:   "Show when a recurrence rule runs",
		Long:    `Schedule shows when a cron expression, an interval, an RRULE or a list of times runs, in any time zone.`,
		Example: `  later schedule next --cron '0 9 * * 1-5' --tz Europe/Berlin`,
		Args:    knownCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(m.scheduleNextCommand())
	return cmd
}

// ruleFlags are the flags that describe a recurrence rule.
type ruleFlags struct {
	spec         recurrence.Spec // but for what follows
	name         string
	times        []string
	start, end   string
	gap, overlap string
}

func (f *ruleFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.spec.Cron, "cron", "", "a cron `expression` of 5 fields, or of 6 with the second first, or @daily")
	durationFlag(flags, &f.spec.Every, "every", "an interval of elapsed time, counted from --start")
	flags.StringVar(&f.spec.RRule, "rrule", "", "a recurrence `rule` of RFC 5545, such as 'FREQ=MONTHLY;BYDAY=-1FR'")
	flags.StringSliceVar(&f.times, "times", nil, "a list of `times`, with commas between them; can be repeated")
	flags.StringVar(&f.spec.TimeZone, "tz", "", "time `zone`, such as Europe/Berlin (default UTC)")
	flags.StringVar(&f.start, "start", "", "the earliest `time`, included")
	flags.StringVar(&f.end, "end", "", "the `time` from which on there are no runs")
	flags.StringArrayVar(&f.spec.Exclude, "exclude", nil,
		"leave out a `day`, 2030-12-25/2030-12-31, or a time; can be repeated")
	durationFlag(flags, &f.spec.Jitter, "jitter", "the longest delay by which a run is moved, up to 24h")
	flags.StringVar(&f.name, "name", "", "`name` of the schedule, from which the jitter derives")
	flags.StringVar(&f.gap, "gap", "shift", "`policy` for times that the clock skips: shift or skip")
	flags.StringVar(&f.overlap, "overlap", "first", "`policy` for times that the clock shows twice: first or both")
	for name, values := range map[string][]string{"gap": {"shift", "skip"}, "overlap": {"first", "both"}} {
		cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
}

// rule compiles the rule. What has no --start is counted from the anchor.
func (f *ruleFlags) rule(now, anchor time.Time) (*recurrence.Rule, error) {
	spec := f.spec
	if spec.Cron == "" && spec.Every == 0 && spec.RRule == "" && len(f.times) == 0 {
		return nil, store.Invalid("no rule: give --cron, --every, --rrule or --times")
	}
	spec.Gap, spec.Overlap = recurrence.Gap(f.gap), recurrence.Overlap(f.overlap)
	var err error
	if spec.Start, err = f.time("start", f.start, now); err != nil {
		return nil, err
	}
	if spec.End, err = f.time("end", f.end, now); err != nil {
		return nil, err
	}
	for _, text := range f.times {
		t, err := f.time("times", text, now)
		if err != nil {
			return nil, err
		}
		spec.Times = append(spec.Times, t)
	}
	return recurrence.Compile(spec, recurrence.Options{Name: f.name, Created: anchor})
}

// time parses a time, which is in the zone of the rule unless it has an offset. It returns zero for no text.
func (f *ruleFlags) time(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	zone, err := time.LoadLocation(f.spec.TimeZone)
	if err != nil {
		zone = time.UTC // the rule refuses the zone
	}
	t, err := parseTime(text, now.In(zone))
	if err != nil {
		return t, store.Invalid("--%s is %q: %v", flag, text, err)
	}
	return t, nil
}

func (m *Main) scheduleNextCommand() *cobra.Command {
	var f ruleFlags
	var from string
	var count int
	cmd := &cobra.Command{
		Use:   "next (--cron EXPRESSION | --every DURATION | --rrule RULE | --times TIMES) [--tz ZONE]",
		Short: "Show the next runs of a recurrence rule",
		Long: `Next prints the next runs of a rule: in the local time of its zone with the offset from UTC, in UTC, and
relative to now. It uses no store.

A time is 15:04 (the next), "2030-12-31 15:04:05" (both in the zone of the rule) or 2030-12-31T15:04:05Z. Without
--start, --every and --rrule are counted from --from, or else from now.

With --jitter, NOMINAL is the time before jitter. The jitter depends on that time and --name alone.`,
		Example: `  later schedule next --cron '0 9 * * 1-5' --tz Europe/Berlin
  later schedule next --cron '30 2 * * *' --tz Europe/Berlin --from "2030-03-30 00:00" --gap skip -n 3
  later schedule next --rrule 'FREQ=MONTHLY;BYDAY=-1FR' --start "2030-01-01 18:00" --exclude 2030-12-20/2031-01-06
  later schedule next --every 90m --start 2030-01-01T00:00:00Z --json | jq -r .due`,
		Args: arguments(0, 0),
		RunE: run(func(context.Context, []string) error {
			if count < 1 || count > maxShownRuns {
				return store.Invalid("--count is %d: give 1 to %d", count, maxShownRuns)
			}
			now := time.Now()
			after, anchor := now, now.Truncate(time.Second)
			first, err := f.time("from", from, now)
			if err != nil {
				return err
			}
			if !first.IsZero() {
				after, anchor = first.Add(-time.Millisecond), first
			}
			rule, err := f.rule(now, anchor)
			if err != nil {
				return err
			}
			return m.printRuns(rule, after, now, count, f.spec.Jitter > 0)
		}),
	}
	f.add(cmd)
	cmd.Flags().StringVar(&from, "from", "", "the `time` from which on to show runs, included (default now)")
	cmd.Flags().IntVarP(&count, "count", "n", 10, "`number` of runs to show")
	return cmd
}

// printRuns prints up to count runs with nominal times later than after.
func (m *Main) printRuns(rule *recurrence.Rule, after, now time.Time, count int, jitter bool) error {
	zone := rule.Location().String()
	headings := []string{"LOCAL (" + zone + ")", "UTC", "WHEN"}
	if jitter {
		headings = append(headings, "NOMINAL")
	}
	t := newTable(headings...)
	shown := 0
	for next := range rule.After(after) {
		if shown++; shown > count {
			break
		}
		if m.json {
			if err := m.printJSON(wire.Run{Nominal: wire.FormatTime(next.Nominal), Due: wire.FormatTime(next.Due),
				Local: next.Due.Format("2006-01-02T15:04:05.000Z07:00"), TimeZone: zone}); err != nil {
				return err
			}
			continue
		}
		const local = "Mon 2006-01-02 15:04:05.999 -07:00"
		row := []string{next.Due.Format(local), next.Due.UTC().Format("2006-01-02T15:04:05.999Z"),
			formatRelative(next.Due, now)}
		if jitter {
			row = append(row, next.Nominal.Format(local))
		}
		t.add(row...)
	}
	if shown == 0 {
		m.note("the rule has no runs after %s", after.In(rule.Location()).Format(time.RFC3339))
	}
	return m.flush(t)
}
