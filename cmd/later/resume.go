package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/wire"
)

func (m *Main) resumeCommand() *cobra.Command {
	return m.command("resume QUEUE...", "Resume deliveries from paused queues",
		`Resume resumes deliveries from paused queues. Messages that fell due during the pause are ready, earliest
first. A queue that is not paused is left unchanged.`,
		`  later resume orders`,
		m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
			for _, name := range args {
				q, _, err := existingQueue(ctx, c, name)
				if err != nil {
					return err
				}
				if err := q.Resume(ctx); err != nil {
					return err
				}
				if err := m.printResult(wire.Paused{Queue: name, Paused: false}, "resumed %s", name); err != nil {
					return err
				}
			}
			return nil
		}))
}
