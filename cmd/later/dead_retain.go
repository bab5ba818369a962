package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/durations"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

func (m *Main) deadRetainCommand() *cobra.Command {
	var r later.Retention
	var forever bool
	cmd := m.command("retain QUEUE [--max-age DURATION] [--max-count N] [--forever]",
		"Limit how long and how many dead messages are kept",
		`Retain limits the dead messages that a queue keeps: by the time since their death, by their number, or
both. New limits replace all earlier ones; --forever removes all limits. Without a flag it prints the limits. Retain
creates a queue that does not exist, so that you can limit it before its first message.

Claims remove the messages that exceed the limits, the oldest deaths first. So a queue without workers keeps its dead
messages. Later stats --json counts the removed messages.`,
		`  later dead retain orders --max-age 30d --max-count 100000
  later dead retain orders --forever
  later dead retain orders`,
		nil)
	durationFlag(cmd.Flags(), &r.MaxAge, "max-age", "keep dead messages for this long")
	cmd.Flags().Int64Var(&r.MaxCount, "max-count", 0, "keep this many dead messages, the latest deaths")
	cmd.Flags().BoolVar(&forever, "forever", false, "keep all dead messages")
	cmd.RunE = m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
		limited := false
		for _, name := range []string{"max-age", "max-count"} {
			limited = limited || cmd.Flags().Changed(name)
		}
		switch {
		case forever && limited:
			return store.Invalid("--forever and a limit are both given: use one of them")
		case limited && r == (later.Retention{}):
			return store.Invalid("the limit is 0: give more, or --forever to keep all dead messages")
		case !forever && !limited:
			q, stats, err := existingQueue(ctx, c, args[0])
			if err != nil {
				return err
			}
			return m.printRetention(q, stats)
		}
		q := c.Queue(args[0])
		if err := q.SetDeadRetention(ctx, r); err != nil {
			return err
		}
		stats, err := q.Stats(ctx)
		if err != nil {
			return err
		}
		return m.printRetention(q, stats)
	})
	return cmd
}

func (m *Main) printRetention(q *later.Queue, stats later.Stats) error {
	var limits []string
	if age := stats.DeadRetention.MaxAge; age > 0 {
		limits = append(limits, "for "+durations.Format(age))
	}
	if n := stats.DeadRetention.MaxCount; n > 0 {
		limits = append(limits, fmt.Sprintf("up to %d", n))
	}
	text := "for ever"
	if len(limits) > 0 {
		text = strings.Join(limits, ", ")
	}
	return m.printResult(wire.Retained{Queue: q.Name(), Retention: wire.NewRetention(stats)},
		"dead messages of %s are kept %s; %d were dropped", q.Name(), text, stats.Dropped)
}
