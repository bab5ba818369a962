package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/wire"
)

func (m *Main) deleteCommand() *cobra.Command {
	var yes bool
	cmd := m.command("delete QUEUE", "Delete a queue and everything in it",
		`Delete removes a queue with all its messages, including leased ones, its dedup window and its settings. It asks
for confirmation first unless --yes is set. A message sent afterwards creates the queue again.`,
		`  later delete orders`,
		m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
			q, stats, err := existingQueue(ctx, c, args[0])
			if err != nil {
				return err
			}
			if !yes {
				if err := m.confirm("Delete queue %q with %s?", q.Name(), countsOf(stats, nil)); err != nil {
					return err
				}
			}
			if err := q.Delete(ctx); err != nil {
				return err
			}
			return m.printResult(wire.Deleted{Queue: q.Name(), Deleted: true}, "deleted %s", q.Name())
		}))
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	return cmd
}
