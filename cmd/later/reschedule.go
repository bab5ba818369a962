package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

func (m *Main) rescheduleCommand() *cobra.Command {
	var w whenFlags
	var group groupFlag
	cmd := m.command("reschedule QUEUE (ID | --group GROUP) (--in DURATION | --at TIME)",
		"Change the due time of messages",
		fmt.Sprintf(`Reschedule sets a new due time for a scheduled or ready message; its attempts are kept. It refuses
a leased message (exit code %d) and a dead message (exit code %d, use later dead replay).

With --group, reschedule moves all scheduled and ready messages that were sent with that --group, and prints how many.
It leaves leased and dead ones, and counts them.`,
			exitCode(store.ErrLeased), exitCode(store.ErrDead)),
		`  later reschedule orders order-17 --in 2h
  later reschedule orders order-17 --at "2030-12-31 18:00"
  later reschedule orders --group customer-9 --in 5m`,
		m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
			ofGroup, err := group.instead(args[1:])
			if err != nil {
				return err
			}
			_, given, err := w.when()
			if err != nil {
				return err
			}
			if !given {
				return store.Invalid("no due time: give --in or --at (or use later run-now)")
			}
			q, stats, err := existingQueue(ctx, c, args[0])
			if err != nil {
				return err
			}
			if ofGroup {
				return m.rescheduleGroup(ctx, q, stats, &w, group.name)
			}
			due := w.due(stats.Now)
			if err := q.Reschedule(ctx, args[1], later.At(due)); err != nil {
				return err
			}
			return m.printResult(wire.Rescheduled{ID: args[1], Queue: q.Name(), Due: wire.FormatTime(due)},
				"%s is due %s (%s)", args[1], formatRelative(due, stats.Now), formatTime(due, stats.Now))
		}))
	w.add(cmd.Flags())
	group.add(cmd, "move all messages of this `group`")
	return cmd
}
