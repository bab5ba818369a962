package main

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/event"
	"github.com/laterq/later/internal/pauses"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
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

func (m *Main) pauseCommand() *cobra.Command {
	return m.command("pause QUEUE...", "Stop deliveries from queues",
		`Pause stops deliveries from queues to all workers, until later resume. Workers can finish leased messages, and
producers can continue to send. Pause creates a queue that does not exist, so that you can pause it before its first
message, and notes that on standard error with the most similar name of another queue. later problems says since when a
queue is paused, and who paused it.`,
		`  later pause orders mail`,
		m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
			for _, name := range args {
				q := c.Queue(name)
				before, err := q.Stats(ctx)
				if err != nil {
					return err
				}
				if err := q.Pause(pauses.WithAuthor(ctx, userName())); err != nil {
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

// userName returns the user of the command and the machine, as the author of a change.
func userName() string {
	name := "someone"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}

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
			var resumed []string
			n, err := q.Purge(event.WithResumed(ctx, &resumed), chosen...)
			return m.printBulkResult("purged", q, n, nil, resumed, err)
		}))
	cmd.Flags().StringArrayVar(&states, "state", nil, "remove messages in this `STATE`: scheduled, ready or "+
		"dead; can be repeated (default: all messages)")
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
