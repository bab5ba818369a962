package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/schedule"
	"github.com/laterq/later/internal/view"
	"github.com/laterq/later/recurrence"
	"github.com/laterq/later/store"
)

// maxShownRuns is the maximum number of runs that later schedule next shows.
const maxShownRuns = schedule.MaxRuns

// nextFlags are the flags of later schedule next.
type nextFlags struct {
	rule  ruleFlags
	name  string
	from  string
	count int
	all   bool
}

func (m *Main) scheduleNextCommand() *cobra.Command {
	var f nextFlags
	cmd := m.command("next [NAME | --all | --cron EXPRESSION | --every DURATION | --rrule RULE | …]",
		"Show the next runs of a schedule, of all schedules, or of a rule",
		`Next prints the next runs of a schedule, or of all schedules in order of time, as if all of them were sent:
in the local time of the zone with the offset from UTC, in UTC, and relative to now.

With a rule in place of a name it uses no store. A time is then 15:04 (the next), "2030-12-31 15:04:05" (both in the
zone of the rule) or 2030-12-31T15:04:05Z. Without --start, --every, --rrule and --series-first are counted from --from,
or else from now.

With --jitter, NOMINAL is the time before jitter. The jitter depends on that time and --name alone.`,
		`  later schedule next nightly
  later schedule next --all -n 100
  later schedule next --cron '0 9 * * 1-5' --tz Europe/Berlin
  later schedule next --cron '30 2 * * *' --tz Europe/Berlin --from "2030-03-30 00:00" --gap skip -n 3
  later schedule next --rrule 'FREQ=MONTHLY;BYDAY=-1FR' --start "2030-01-01 18:00" --exclude 2030-12-20/2031-01-06
  later schedule next --every 90m --start 2030-01-01T00:00:00Z --json | jq -r .due`,
		nil)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := f.check(args); err != nil {
			return &commandError{err}
		}
		switch {
		case f.all:
			return m.withSchedules(func(ctx context.Context, s *later.Schedules, _ []string) error {
				runs, err := s.Upcoming(ctx, f.count)
				if err != nil {
					return err
				}
				return m.printRuns(runs, false)
			})(cmd, args)
		case len(args) > 0:
			return m.withSchedules(func(ctx context.Context, s *later.Schedules, args []string) error {
				info, err := s.Get(ctx, args[0])
				if err != nil {
					return err
				}
				runs, err := info.NextRuns(f.count)
				if err != nil {
					return err
				}
				if len(runs) == 0 {
					m.note("schedule %s has no next run: %s", printable(info.Name), scheduleState(info))
				}
				return m.printRuns(runs, info.When.Jitter > 0)
			})(cmd, args)
		}
		return run(func(context.Context, []string) error { return m.printRule(cmd, &f) })(cmd, args)
	}
	f.rule.add(cmd)
	cmd.Flags().BoolVar(&f.all, "all", false, "show the next runs of all schedules")
	cmd.Flags().StringVar(&f.name, "name", "", "`name` of the schedule, for the jitter of a rule")
	cmd.Flags().StringVar(&f.from, "from", "", "show runs of a rule from this `time` on, included (default now)")
	cmd.Flags().IntVarP(&f.count, "count", "n", 10, "`number` of runs to show")
	return cmd
}

// check returns an ErrInvalid unless one of a name, --all and a rule is given.
func (f *nextFlags) check(args []string) error {
	given := 0
	for _, one := range []bool{len(args) > 0, f.all, f.rule.given()} {
		if one {
			given++
		}
	}
	switch {
	case f.count < 1 || f.count > maxShownRuns:
		return store.Invalid("--count is %d: must be 1 to %d", f.count, maxShownRuns)
	case given > 1:
		return store.Invalid("a schedule, --all and a rule exclude each other: give one of them")
	case given == 0:
		_, err := f.rule.spec(nil, time.Time{})
		return err
	case !f.rule.given() && (f.from != "" || f.name != ""):
		return store.Invalid("--from and --name are for a rule: give one, or leave them out")
	}
	return nil
}

// printRule prints the next runs of a rule.
func (m *Main) printRule(cmd *cobra.Command, f *nextFlags) error {
	now := time.Now()
	after, anchor := now, now.Truncate(time.Second)
	first, err := f.rule.time("from", f.from, now)
	if err != nil {
		return err
	}
	if !first.IsZero() {
		after, anchor = first.Add(-time.Millisecond), first
	}
	spec, err := f.rule.spec(cmd, now)
	if err != nil {
		return err
	}
	rule, err := recurrence.Compile(spec, recurrence.Options{Name: f.name, Created: anchor})
	if err != nil {
		return err
	}
	var runs []later.Run
	for next := range rule.After(after) {
		if len(runs) == f.count {
			break
		}
		runs = append(runs, later.Run{Nominal: next.Nominal, Due: next.Due})
	}
	if len(runs) == 0 {
		m.note("the rule has no runs after %s", after.In(rule.Location()).Format(time.RFC3339))
	}
	return m.printRuns(runs, spec.Jitter > 0)
}

// printRuns prints runs, each in the zone of its rule. The runs of schedules have names, the runs of a rule have none.
func (m *Main) printRuns(runs []later.Run, jitter bool) error {
	if len(runs) == 0 {
		return nil
	}
	const local = "Mon 2006-01-02 15:04:05.999 -07:00"
	now, zone, named := time.Now(), runs[0].Due.Location().String(), false
	for _, run := range runs {
		named = named || run.Schedule != runs[0].Schedule
		if run.Due.Location().String() != zone {
			zone = "each in its zone"
		}
	}
	headings := []string{"LOCAL (" + zone + ")", "UTC", "WHEN"}
	if jitter {
		headings = append(headings, "NOMINAL")
	}
	if named {
		headings = append(headings, "SCHEDULE")
	}
	t := newTable(headings...)
	for _, run := range runs {
		row := []any{run.Due.Format(local), run.Due.UTC().Format("2006-01-02T15:04:05.999Z"),
			formatRelative(run.Due, now)}
		if jitter {
			row = append(row, run.Nominal.Format(local))
		}
		if named {
			row = append(row, printable(run.Schedule))
		}
		m.row(t, view.Run(run), row...)
	}
	return m.flush(t)
}
