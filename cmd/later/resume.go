package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
)

func (m *Main) resumeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "resume QUEUE...",
		Short: "Let the deliveries of queues go on",
		Long: `Resume lets deliveries from paused queues go on. What fell due meanwhile is ready, earliest first. A queue that
was not paused stays as it is.`,
		Example:           `  later resume orders`,
		Args:              arguments(1, unlimited),
		ValidArgsFunction: m.queueNames(true),
		RunE: m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
			for _, name := range args {
				q, _, err := existing(ctx, c, name)
				if err != nil {
					return err
				}
				if err := q.Resume(ctx); err != nil {
					return err
				}
				if err := m.printResult(pauseJSON{name, false}, "resumed %s", name); err != nil {
					return err
				}
			}
			return nil
		}),
	}
}
