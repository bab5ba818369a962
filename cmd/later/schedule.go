package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/schedule"
	"github.com/laterq/later/internal/view"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

func (m *Main) scheduleCommand() *cobra.Command {
	return m.group("schedule put|get|list|next|pause|resume|trigger|backfill|delete|apply",
		"Send messages again and again, by cron expressions and other rules",
		`A schedule sends a message to a queue at each time of a rule: a cron expression, an interval, an RRULE, a list
of times or delays that grow, in any time zone. Each run is a message of its own, with the headers schedule (the name)
and schedule-nominal (the time of the rule).

Any worker of the store sends the runs, of all queues; so one must run. A crash neither loses nor doubles a run. The
policies for runs that were missed because no worker ran, and for a run that is due while the one before is unfinished,
are --missed and --unfinished of later schedule put.`,
		`  later schedule put nightly --queue reports --cron '0 2 * * *' --tz Europe/Berlin '{"kind":"daily"}'
  later schedule list
  later schedule next nightly
  later schedule pause nightly --note 'until the new warehouse is there'
  later schedule apply schedules.yaml --dry-run`,
		m.schedulePutCommand(), m.scheduleGetCommand(), m.scheduleListCommand(), m.scheduleNextCommand(),
		m.schedulePauseCommand(), m.scheduleResumeCommand(), m.scheduleTriggerCommand(), m.scheduleBackfillCommand(),
		m.scheduleDeleteCommand(), m.scheduleApplyCommand())
}

// withSchedules opens the store for a command with the name of a schedule as its first argument, if it has arguments.
// To the error for a schedule that does not exist it adds the names of existing ones.
func (m *Main) withSchedules(
	f func(ctx context.Context, s *later.Schedules, args []string) error,
) func(*cobra.Command, []string) error {
	return m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
		s := c.Schedules()
		err := f(ctx, s, args)
		if !errors.Is(err, later.ErrNotFound) || len(args) == 0 {
			return err
		}
		names, listing := scheduleNames(c, ctx)
		if listing != nil {
			return err
		}
		return missing("schedule", args[0], names, "later schedule list", "later schedule put")
	})
}

// scheduleNames returns the names of the first schedules.
func scheduleNames(c *later.Client, ctx context.Context) (names []string, err error) {
	page, err := c.Schedules().List(ctx, "", store.MaxBatch)
	for _, info := range page.Schedules {
		names = append(names, info.Name)
	}
	return names, err
}

func (m *Main) schedulePauseCommand() *cobra.Command {
	var note string
	cmd := m.command("pause NAME [--note TEXT]", "Stop the runs of a schedule",
		`Pause stops the runs of a schedule until later schedule resume. Runs that were sent stay in their queue. The
note is shown by later schedule get and list.`,
		`  later schedule pause nightly --note 'until the new warehouse is there'`,
		m.withSchedules(func(ctx context.Context, s *later.Schedules, args []string) error {
			return m.printScheduleResult(s.Pause(ctx, args[0], note), args[0], "paused")
		}))
	cmd.Flags().StringVar(&note, "note", "", "`text` that says why")
	return cmd
}

func (m *Main) scheduleResumeCommand() *cobra.Command {
	return m.command("resume NAME", "Let a paused schedule run again",
		`Resume lets a paused schedule run again, next at the first time of its rule from now on. The times of the pause
do not count as missed.`,
		`  later schedule resume nightly`,
		m.withSchedules(func(ctx context.Context, s *later.Schedules, args []string) error {
			return m.printScheduleResult(s.Resume(ctx, args[0]), args[0], "resumed")
		}))
}

// printScheduleResult prints the result of a change, unless it has failed.
func (m *Main) printScheduleResult(err error, name, result string) error {
	return m.printDone(err, wire.ScheduleResult{Schedule: name, Result: result}, "%s %s", result, printable(name))
}

func (m *Main) scheduleTriggerCommand() *cobra.Command {
	return m.command("trigger NAME", "Send a run of a schedule now",
		`Trigger sends a run now, in addition to the runs of the rule, and prints the id of its message. It does
so even if the schedule is paused or has finished, or a run is unfinished.`,
		`  later schedule trigger nightly`,
		m.withSchedules(func(ctx context.Context, s *later.Schedules, args []string) error {
			triggered, err := s.Trigger(ctx, args[0])
			return m.printDone(err, view.Triggered(triggered), "%s", printable(triggered.ID))
		}))
}

func (m *Main) scheduleBackfillCommand() *cobra.Command {
	var from, to time.Time
	var dry bool
	cmd := m.command("backfill NAME --from TIME --to TIME", "Send the runs of a past range",
		fmt.Sprintf(`Backfill sends a run at once for each time of the rule from --from until before --to, up to
%d, and prints how many. It may be repeated: a run is not sent again if its message is there, or was acked within its
dedup window. --dry-run only counts the times.`, schedule.MaxRuns),
		`  later schedule backfill nightly --from "2030-01-01 00:00" --to "2030-01-08 00:00" --dry-run`,
		m.withSchedules(func(ctx context.Context, s *later.Schedules, args []string) error {
			b, err := s.Backfill(ctx, args[0], from, to, dry)
			if err != nil && b.Sent > 0 {
				return fmt.Errorf("sent %d of %d runs, then: %w", b.Sent, b.Runs, err)
			}
			if err != nil {
				return err
			}
			result := wire.Backfilled{Schedule: args[0], Runs: b.Runs, Sent: b.Sent, Duplicates: b.Duplicates,
				DryRun: dry}
			if dry {
				return m.printResult(result, "%d runs of %s would be sent", b.Runs, printable(args[0]))
			}
			return m.printResult(result, "sent %d runs of %s, %d were there before", b.Sent, printable(args[0]),
				b.Duplicates)
		}))
	cmd.Flags().Var(pastTimeValue{timeValue{&from}}, "from", "the first `TIME`, included")
	cmd.Flags().Var(pastTimeValue{timeValue{&to}}, "to", "the `TIME` when the runs end, not included")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "send nothing")
	cmd.MarkFlagRequired("from")
	cmd.MarkFlagRequired("to")
	return cmd
}

func (m *Main) scheduleDeleteCommand() *cobra.Command {
	return m.command("delete NAME...", "Delete schedules",
		`Delete deletes schedules. Runs that were sent stay in their queue, where later cancel removes
them.`,
		`  later schedule delete nightly`,
		m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
			var errs []error
			for _, name := range args {
				err := c.Schedules().Delete(ctx, name)
				if errors.Is(err, later.ErrNotFound) {
					err = notFound("no schedule %q; see later schedule list", name)
				}
				errs = append(errs, m.printScheduleResult(err, name, string(later.PutDeleted)))
			}
			return m.reportAllButLast(errs)
		}))
}

func (m *Main) scheduleApplyCommand() *cobra.Command {
	var o later.ApplyOptions
	var set string
	cmd := m.command("apply FILE [--dry-run] [--prune]", "Store the schedules of a file",
		`Apply stores the schedules of a YAML or JSON file, - for standard input, and prints the changes: + for a
new schedule, ~ for one that changes, with the fields that differ, and - for one that is deleted. So schedules can live
in a repository. The file is checked as a whole before anything is stored.

    set: reports                  # optional; --prune deletes other schedules of the set
    schedules:
      - name: nightly
        queue: reports
        cron: 0 2 * * *           # or every, rrule, times, series
        time_zone: Europe/Berlin
        payload: {kind: daily}    # JSON; payload_text is for text
        missed: one               # none, one or all; missed_within: 31d
        unfinished: skip          # skip, allow or buffer

The fields have the names that later schedule get --json prints; see docs/schedules.md.`,
		`  later schedule apply schedules.yaml --dry-run
  later schedule apply schedules.yaml --prune`,
		run(func(ctx context.Context, args []string) error {
			file, err := m.readScheduleFile(args[0])
			if err != nil {
				return err
			}
			if set != "" && file.Set != "" && set != file.Set {
				return store.Invalid("--set is %q and the file has set %q: give one", set, file.Set)
			}
			if o.Set = file.Set; set != "" {
				o.Set = set
			}
			client, err := m.openDry(ctx, o.DryRun)
			if err != nil {
				return err
			}
			defer client.Close()
			changes, err := client.Schedules().Apply(ctx, file.Schedules, o)
			return errors.Join(m.printChanges(changes, o.DryRun), err)
		}))
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "change nothing")
	cmd.Flags().BoolVar(&o.Prune, "prune", false, "delete the schedules of the set that are not in the file")
	cmd.Flags().StringVar(&set, "set", "", "`name` of the set, unless the file has it")
	return cmd
}
