package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
)

func (m *Main) pauseCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "pause QUEUE...",
		Short: "Stop the deliveries of queues",
		Long: `Pause stops deliveries from queues, to all workers everywhere, until later resume. Messages that workers hold
may be finished, and sending goes on. It makes a queue that does not exist, so that one can be paused before
its first message.`,
		Example:           `  later pause orders mail`,
		Args:              arguments(1, unlimited),
		ValidArgsFunction: m.queueNames(true),
		RunE: m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
			for _, name := range args {
				q := c.Queue(name)
				before, err := q.Stats(ctx)
				if err != nil {
					return err
				}
				if err := q.Pause(ctx); err != nil {
					return err
				}
				made := ""
				if !before.Exists {
					made = ", which is new"
				}
				if err := m.printResult(pauseJSON{name, true}, "paused %s%s", name, made); err != nil {
					return err
				}
			}
			return nil
		}),
	}
}

type pauseJSON struct {
	Queue  string `json:"queue"`
	Paused bool   `json:"paused"`
}
