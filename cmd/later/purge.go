package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

// purgeable are the values of --state.
var purgeable = []string{"scheduled", "ready", "dead"}

func (m *Main) purgeCommand() *cobra.Command {
	var states []string
	var yes bool
	cmd := m.command("purge QUEUE [--state STATE]...", "Remove messages permanently",
		`Purge removes the messages of a queue in the given states, or all messages. All includes leased messages,
and ends the contexts of their handlers. Purge asks for confirmation first unless --yes is set. It works in many small
steps, so that a large purge does not block the store, and does not remove messages that are sent after it started. The
queue itself remains, and remains paused if it was.`,
		`  later purge orders
  later purge orders --state scheduled --state ready --yes`,
		m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
			chosen := make([]later.State, len(states))
			for i, state := range states {
				chosen[i] = later.State(state)
				if !slices.Contains(purgeable, state) {
					return store.Invalid("--state is %q: use one of %s, or omit it", state,
						strings.Join(purgeable, ", "))
				}
			}
			q, stats, err := existingQueue(ctx, c, args[0])
			if err != nil {
				return err
			}
			if !yes {
				if err := m.confirm("Permanently remove %s from queue %q?", countsOf(stats, states),
					q.Name()); err != nil {
					return err
				}
			}
			n, err := q.Purge(ctx, chosen...)
			return m.printBulkResult("purged", q, n, nil, err)
		}))
	cmd.Flags().StringArrayVar(&states, "state", nil, "scheduled, ready or dead; can be repeated (default: "+
		"all messages)")
	cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(purgeable, cobra.ShellCompDirectiveNoFileComp))
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	return cmd
}

// countsOf describes how many messages are in the given states, or in all states if states is empty.
func countsOf(s later.Stats, states []string) string {
	if len(states) == 0 {
		return fmt.Sprintf("all messages (%d scheduled, %d ready, %d leased, %d dead)",
			s.Scheduled, s.Ready, s.Leased, s.Dead)
	}
	counts := map[string]int64{"scheduled": s.Scheduled, "ready": s.Ready, "dead": s.Dead}
	text := ""
	for i, state := range states {
		if i > 0 {
			text += " and "
		}
		text += fmt.Sprintf("%d %s", counts[state], state)
	}
	return text + " messages"
}
