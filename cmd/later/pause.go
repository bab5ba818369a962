package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/wire"
)

func (m *Main) pauseCommand() *cobra.Command {
	return m.command("pause QUEUE...", "Stop deliveries from queues",
		`Pause stops deliveries from queues to all workers, until later resume. Workers can finish leased messages, and
producers can continue to send. Pause creates a queue that does not exist, so that you can pause it before its first
message, and notes that on standard error with the most similar name of another queue.`,
		`  later pause orders mail`,
		m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
			for _, name := range args {
				q := c.Queue(name)
				before, err := q.Stats(ctx)
				if err != nil {
					return err
				}
				if err := q.Pause(ctx); err != nil {
					return err
				}
				if err := m.printResult(wire.Paused{Queue: name, Paused: true}, "paused %s", name); err != nil {
					return err
				}
				if !before.Exists {
					m.noteNewQueue(ctx, c, name, false)
				}
			}
			return nil
		}))
}
