package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/inspect"
	"github.com/laterq/later/internal/view"
	"github.com/laterq/later/store"
)

// namedQueues is how many queues of a group of errors are named.
const namedQueues = 3

func (m *Main) deadErrorsCommand() *cobra.Command {
	look := 100_000
	cmd := m.command("errors [QUEUE] [--look N]", "Group dead messages by their errors",
		`Errors counts the dead messages of a queue, or of all queues, by their last errors. In a group's error,
# stands for each number, UUID and long hexadecimal number, so that errors that differ only in these count as one. It
prints the largest group first, each with its queues, how many of its messages died in the last 24 hours, and the
message that died last as an example. It looks at --look messages, first at those that died in these hours, then at
earlier ones. The last of the 24 hours has not ended, so they are up to an hour less.`,
		`  later dead errors
  later dead errors orders
  later dead errors --json | jq -r '[.count, .pattern, .queues[0].queue] | @tsv'`,
		m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
			if look < 1 {
				return store.Invalid("--look is %d: must be 1 or more", look)
			}
			o, queue := inspect.DeadErrorsOptions{Look: look}, ""
			if len(args) == 1 {
				q, _, err := existingQueue(ctx, c, args[0])
				if err != nil {
					return err
				}
				queue = q.Name()
				o.Queues = []string{queue}
			}
			page, err := inspect.DeadErrors(ctx, c, o)
			if err != nil {
				return err
			}
			return m.printDeadErrors(queue, &page)
		}))
	cmd.Flags().IntVar(&look, "look", look, "look at up to `N` messages")
	return cmd
}

// printDeadErrors prints the groups of one queue, or of all if it is "".
func (m *Main) printDeadErrors(queue string, page *inspect.DeadErrorsPage) error {
	if page.Next != "" {
		m.note("these are the groups of %d of %d dead messages: give a larger --look for more", page.Looked, page.Dead)
	}
	if page.LeftOut > 0 {
		m.note("%d of %d queues cannot be read and are left out: later doctor says why", page.LeftOut, page.Queues)
	}
	if len(page.Groups) == 0 && !m.json {
		if queue == "" {
			m.note("there are no dead messages")
		} else {
			m.note("queue %q has no dead messages", queue)
		}
	}
	headings := []string{">COUNT", ">24H", "FIRST", "LAST", "REASON", "ERROR", "EXAMPLE"}
	if queue == "" {
		headings = append(headings, "QUEUES")
	}
	t, now := newTable(headings...), page.From.Add(23*time.Hour)
	for _, group := range page.Groups {
		recent := 0
		for _, n := range group.Hours {
			recent += n
		}
		row := []any{group.Count, recent, formatTime(group.First, now), formatTime(group.Last, now), group.Reason,
			preview(group.Pattern, 2*previewWidth), printable(group.ExampleID)}
		if queue == "" {
			row = append(row, queuesOf(group.Queues))
		}
		if err := m.row(t, view.DeadErrors(queue, group), row...); err != nil {
			return err
		}
	}
	return m.flush(t)
}

// queuesOf names the queues with the largest counts.
func queuesOf(counts []inspect.QueueCount) string {
	var names []string
	for _, c := range counts[:min(len(counts), namedQueues)] {
		names = append(names, fmt.Sprintf("%s (%d)", printable(c.Queue), c.Count))
	}
	text := strings.Join(names, ", ")
	if more := len(counts) - namedQueues; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
