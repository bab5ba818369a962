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
	cmd := &cobra.Command{
		Use:   "reschedule QUEUE ID (--in DURATION | --at TIME)",
		Short: "Change the due time of a message",
		Long: fmt.Sprintf(`Reschedule sets a new due time for a scheduled or ready message; its attempts are kept. It refuses
a leased message (exit code %d) and a dead message (exit code %d, use later dead replay).`,
			exitCode(store.ErrLeased), exitCode(store.ErrDead)),
		Example: `  later reschedule orders order-17 --in 2h
  later reschedule orders order-17 --at "2030-12-31 18:00"`,
		Args:              arguments(2, 2),
		ValidArgsFunction: m.queueNames(false),
		RunE: m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
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
			due := w.due(stats.Now)
			if err := q.Reschedule(ctx, args[1], later.At(due)); err != nil {
				return err
			}
			return m.printResult(wire.Rescheduled{ID: args[1], Queue: q.Name(), Due: wire.FormatTime(due)}, "%s is due %s (%s)",
				args[1], formatRelative(due, stats.Now), formatTime(due, stats.Now))
		}),
	}
	w.add(cmd.Flags())
	return cmd
}
