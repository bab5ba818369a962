package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

func (m *Main) rescheduleCommand() *cobra.Command {
	var w whenFlags
	cmd := &cobra.Command{
		Use:   "reschedule QUEUE ID (--in DURATION | --at TIME)",
		Short: "Give a message another due time",
		Long: fmt.Sprintf(`Reschedule gives a scheduled or ready message another due time; its attempts are kept. A message that a worker
holds cannot be moved (exit code %d), a dead one is replayed instead (exit code %d, see later dead replay).`,
			store.ErrLeased.Code.Exit, store.ErrDead.Code.Exit),
		Example: `  later reschedule orders order-17 --in 2h
  later reschedule orders order-17 --at "2030-12-31 18:00"`,
		Args:              arguments(2, 2),
		ValidArgsFunction: m.queueNames(false),
		RunE: m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
			when, given, err := w.when()
			if err != nil {
				return err
			}
			if !given {
				return store.Invalid("no due time: give --in or --at (or use later run-now)")
			}
			if err := c.Queue(args[0]).Reschedule(ctx, args[1], when); err != nil {
				return explain(ctx, c, args[0], err)
			}
			return m.printResult(struct {
				ID string `json:"id"`
			}{args[1]}, "%s is due %s", args[1], when)
		}),
	}
	w.add(cmd.Flags())
	return cmd
}
