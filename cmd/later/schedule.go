package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
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
		switch {
		case listing != nil:
			return err
		case len(names) == 0:
			return notFound("no schedule %q; this store has no schedules yet: later schedule put creates one", args[0])
		}
		return notFound("no schedule %q; existing schedules: %s", args[0],
			listExisting(args[0], names, "later schedule list"))
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
