package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/view"
	"github.com/laterq/later/store"
)

func (m *Main) deadErrorsCommand() *cobra.Command {
	look := 100_000
	cmd := m.command("errors QUEUE [--look N]", "Group dead messages by their errors",
		`Errors counts the dead messages of a queue by their last errors. In a group's error, # stands for each
number, UUID and long hexadecimal number, so that errors that differ only in these count as one. It prints the largest
group first, each with the message that died last as an example. It looks at the --look messages that died first.`,
		`  later dead errors orders
  later dead errors orders --json | jq -r '[.count, .pattern] | @tsv'`,
		m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
			if look < 1 {
				return store.Invalid("--look is %d: must be 1 or more", look)
			}
			q, stats, err := existingQueue(ctx, c, args[0])
			if err != nil {
				return err
			}
			page, err := q.DeadErrors(ctx, later.DeadErrorsOptions{Look: look})
			if err != nil {
				return err
			}
			if page.Next != "" {
				m.note("these are the groups of the first %d dead messages: give a larger --look for more", page.Looked)
			}
			return m.printDeadErrors(q.Name(), page.Groups, stats)
		}))
	cmd.Flags().IntVar(&look, "look", look, "look at this many messages")
	return cmd
}

func (m *Main) printDeadErrors(queue string, groups []later.DeadErrors, stats later.Stats) error {
	if len(groups) == 0 && !m.json {
		m.note("queue %q has no dead messages", queue)
	}
	t := newTable(">COUNT", "FIRST", "LAST", "REASON", "ERROR", "EXAMPLE")
	for _, group := range groups {
		if err := m.row(t, view.DeadErrors(queue, group), group.Count, formatTime(group.First, stats.Now),
			formatTime(group.Last, stats.Now), group.Reason, preview(group.Pattern, 2*previewWidth),
			printable(group.ExampleID)); err != nil {
			return err
		}
	}
	return m.flush(t)
}
