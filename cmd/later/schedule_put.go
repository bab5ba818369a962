package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/durations"
	"github.com/laterq/later/internal/jsontext"
	"github.com/laterq/later/internal/schedule"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/recurrence"
	"github.com/laterq/later/store"
)

// putFlags are the flags of later schedule put.
type putFlags struct {
	rule         ruleFlags
	message      sendOptions
	queue        string
	missed       string
	missedWithin time.Duration
	missedMax    int
	unfinished   string
	set          string
}

func (m *Main) schedulePutCommand() *cobra.Command {
	var f putFlags
	cmd := m.command("put NAME --queue QUEUE (--cron EXPRESSION | --every DURATION | …) [PAYLOAD|-]",
		"Store a schedule, or replace the one with its name",
		fmt.Sprintf(`Put stores a schedule: from then on, at each time of its rule, a worker sends a message with
PAYLOAD to the queue. PAYLOAD is any text; - reads it from standard input. Without it the payload is empty.

If there is a schedule with the name, put replaces all of it, and keeps its counts and whether it is paused. Its next
run stays, unless the rule changes. Put may be repeated: a schedule that is as it should be does not change.

A run that is late by more than a minute, because no worker was there, was missed. With --missed one, the latest missed
run is sent if it is not older than --missed-within and no other has fallen due since; with none, it is left out; with
all, all within that time are sent, up to --missed-max. With --unfinished skip, a run is left out while the one before
is scheduled, ready or leased; with buffer, one run waits for that one's end; with allow, runs can overlap. Runs that
are left out are counted.

A time is 15:04 (the next), "2030-12-31 15:04:05" (both in the zone of the rule) or 2030-12-31T15:04:05Z. A name has up
to %d bytes.`, schedule.MaxName),
		`  later schedule put nightly --queue reports --cron '0 2 * * *' --tz Europe/Berlin '{"kind":"daily"}'
  later schedule put heartbeat --queue pings --every 30s --missed none
  later schedule put wages --queue wages --rrule 'FREQ=MONTHLY;BYDAY=-1FR' --start "2030-01-01 09:00" --tz Asia/Tokyo
  later schedule put dunning-17 --queue dunning 'invoice 17' --series-first 3d --series-factor 2 --series-count 4
  later schedule put import --queue imports --cron '*/5 * * * *' --unfinished buffer --jitter 30s --timeout 10m`,
		nil)
	cmd.RunE = run(func(ctx context.Context, args []string) error {
		schedule, err := f.schedule(cmd, args[0])
		if err == nil && len(args) > 1 {
			schedule.Payload, err = m.payload(args[1])
		}
		if err == nil {
			err = schedule.Check()
		}
		if err != nil {
			return err // before a store is created
		}
		client, err := m.open(ctx)
		if err != nil {
			return err
		}
		defer client.Close()
		result, err := client.Schedules().Put(ctx, schedule)
		if err != nil {
			return err
		}
		info, err := client.Schedules().Get(ctx, schedule.Name)
		if err != nil {
			return err
		}
		return m.printResult(wire.ScheduleResult{Schedule: schedule.Name, Result: string(result)}, "%s %s: %s", result,
			printable(schedule.Name), scheduleState(info))
	})
	flags := cmd.Flags()
	flags.StringVar(&f.queue, "queue", "", "`queue` of the messages, or topic:TOPIC")
	f.rule.add(cmd)
	f.message.addMessage(flags, &f.message.options.Common)
	choice(cmd, &f.missed, "missed", "", "`policy` for missed runs: none, one or all (default one)",
		"none", "one", "all")
	durationFlag(flags, &f.missedWithin, "missed-within",
		"how old a missed run may be that is sent (default: the distance between runs)")
	flags.IntVar(&f.missedMax, "missed-max", 0, "`number` of missed runs that are sent at most (default 100)")
	choice(cmd, &f.unfinished, "unfinished", "",
		"`policy` for a run while another is unfinished: skip, allow or buffer (default skip)",
		"skip", "allow", "buffer")
	flags.StringVar(&f.set, "set", "", "`name` of a set of schedules; see later schedule apply")
	cmd.MarkFlagRequired("queue")
	cmd.RegisterFlagCompletionFunc("queue", func(cmd *cobra.Command, _ []string, typed string) (
		[]string, cobra.ShellCompDirective,
	) {
		return m.complete(cmd, "QUEUE", nil, typed)
	})
	return cmd
}

// schedule returns the schedule that the flags describe, without a payload.
func (f *putFlags) schedule(cmd *cobra.Command, name string) (later.Schedule, error) {
	spec, err := f.rule.spec(cmd, time.Now())
	if err != nil {
		return later.Schedule{}, err
	}
	o, err := f.message.message()
	if err != nil {
		return later.Schedule{}, err
	}
	var s later.Schedule
	if err := s.UnmarshalJSON(jsontext.Append(nil, f.message.options.Common)); err != nil {
		return later.Schedule{}, err
	}
	s.Name, s.Queue, s.When, s.Headers, s.Set = name, f.queue, spec, o.Headers, f.set
	s.Missed, s.MissedWithin, s.MissedMax = later.MissedPolicy(f.missed), f.missedWithin, f.missedMax
	s.Unfinished = later.UnfinishedPolicy(f.unfinished)
	return s, nil
}

// scheduleState says in words when the schedule runs next, or why it does not.
func scheduleState(info *later.ScheduleInfo) string {
	switch {
	case info.Paused && info.PauseNote != "":
		return "paused: " + printable(info.PauseNote)
	case info.Paused:
		return "paused"
	case info.Finished:
		return "finished"
	case !info.Buffered.IsZero():
		return "a run waits for the end of " + printable(info.LastRun.ID)
	}
	now := time.Now()
	if info.NextRun.Due.Before(now.Add(-time.Second)) {
		return "due " + formatRelative(info.NextRun.Due, now) + "; a worker must run"
	}
	return "next run " + info.NextRun.Due.Format("Mon 2006-01-02 15:04:05 -07:00") + ", " +
		formatRelative(info.NextRun.Due, now)
}

func (m *Main) scheduleGetCommand() *cobra.Command {
	return m.command("get NAME", "Show a schedule and its runs",
		`Get prints a schedule: its rule, its messages, its next and last run, and how many runs were sent, missed
and skipped. With --json, the schedule has the same fields as in a file for later schedule apply.`,
		`  later schedule get nightly
  later schedule get nightly --json | jq .next_run.due`,
		m.withSchedules(func(ctx context.Context, s *later.Schedules, args []string) error {
			info, err := s.Get(ctx, args[0])
			if err != nil {
				return err
			}
			if m.json {
				return m.printJSON(info)
			}
			return m.print("%s", describeSchedule(info))
		}))
}

// ruleText returns a rule in one line.
func ruleText(s *later.Schedule) string {
	w := &s.When
	var text string
	switch {
	case w.Cron != "":
		text = w.Cron
	case w.Every != 0:
		text = "every " + durations.Format(w.Every)
	case w.RRule != "":
		text = w.RRule
	case w.Series != nil:
		text = fmt.Sprintf("%d delays from %s, times %s", w.Series.Count, durations.Format(w.Series.First),
			strconv.FormatFloat(w.Series.Factor, 'g', -1, 64))
	default:
		text = fmt.Sprintf("%d times", len(w.Times))
	}
	if w.TimeZone != "" {
		text += " (" + w.TimeZone + ")"
	}
	return printable(text)
}

// describeSchedule formats a schedule as one line per field, followed by the payload.
func describeSchedule(info *later.ScheduleInfo) string {
	f := &fields{width: 15}
	f.add("name", info.Name)
	f.add("queue", info.Queue)
	f.add("set", info.Set)
	f.add("rule", ruleText(&info.Schedule))
	f.at("start", info.When.Start)
	f.at("end", info.When.End)
	f.add("exclude", strings.Join(info.When.Exclude, ", "))
	if info.When.Jitter > 0 {
		f.add("jitter", "up to "+durations.Format(info.When.Jitter))
	}
	if info.When.MaxRuns > 0 {
		f.add("max runs", strconv.Itoa(info.When.MaxRuns))
	}
	f.add("state", scheduleState(info))
	if last := info.LastRun; !last.Nominal.IsZero() {
		f.at("last run", last.Nominal)
		f.addf("", "%s, message %s", last.Cause, last.ID)
	}
	f.addf("runs", "%d sent, %d missed, %d skipped, %d triggered", info.Runs, info.MissedRuns, info.SkippedRuns,
		info.TriggeredRuns)
	f.at("last missed", info.LastMissed)
	f.at("last skipped", info.LastSkipped)
	f.addf("if missed", "%s, within %s", info.Schedule.Missed, durations.Format(info.MadeUpWithin))
	f.add("if unfinished", string(info.Unfinished))
	f.at("created", info.Created)
	f.at("changed", info.Changed)
	describeOptions(info.Schedule, f.add)
	f.content(info.Headers, info.Payload)
	return f.String()
}

func (m *Main) scheduleListCommand() *cobra.Command {
	return m.command("list", "List all schedules",
		`List prints all schedules in order of name, with their rule, next run and counts. With --json it prints each as
later schedule get does.`,
		`  later schedule list
  later schedule list --json | jq -r 'select(.paused) | .name'`,
		m.withClient(func(ctx context.Context, c *later.Client, _ []string) error {
			t := newTable("SCHEDULE", "QUEUE", "RULE", "STATE", ">RUNS", ">MISSED", ">SKIPPED")
			found, unreadable := false, []error(nil)
			for cursor := ""; ; {
				page, err := c.Schedules().List(ctx, cursor, store.MaxBatch)
				if err != nil {
					return err
				}
				for _, info := range page.Schedules {
					found = true
					if err := m.row(t, info, printable(info.Name), printable(info.Queue), ruleText(&info.Schedule),
						scheduleState(info), info.Runs, info.MissedRuns, info.SkippedRuns); err != nil {
						return err
					}
				}
				unreadable = append(unreadable, page.Unreadable...)
				if cursor = page.Next; cursor == "" {
					break
				}
			}
			if !found && len(unreadable) == 0 && !m.json {
				m.note("there are no schedules yet in %s: later schedule put NAME creates one", m.shownURL())
			}
			return errors.Join(m.flush(t), m.reportAllButLast(unreadable))
		}))
}

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
	take(cmd.Flags(), "gap", &spec.Gap, recurrence.Gap(f.gap))
	take(cmd.Flags(), "overlap", &spec.Overlap, recurrence.Overlap(f.overlap))
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
