package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/wire"
)

func (m *Main) queuesCommand() *cobra.Command {
	return m.command("queues", "List all queues",
		`Queues prints the names of all queues, one per line. A queue exists from its first message or pause until it is
deleted.`,
		`  later queues
  later queues | xargs later pause`,
		m.withClient(func(ctx context.Context, c *later.Client, _ []string) error {
			names, err := c.Queues(ctx)
			if err != nil {
				return err
			}
			for _, name := range names {
				if err := m.printResult(wire.Queue{Queue: name}, "%s", name); err != nil {
					return err
				}
			}
			return nil
		}))
}
