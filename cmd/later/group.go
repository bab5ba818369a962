package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

// groupFlag is the flag of commands for the messages of a group.
type groupFlag struct {
	name string
	cmd  *cobra.Command
}

// add defines the flag.
func (g *groupFlag) add(cmd *cobra.Command, usage string) {
	g.cmd = cmd
	cmd.Flags().StringVar(&g.name, "group", "", usage)
}

// given reports whether the flag is given. It refuses a name that no group can have.
func (g *groupFlag) given() (bool, error) {
	if !g.cmd.Flags().Changed("group") {
		return false, nil
	}
	if err := store.CheckGroup(g.name); err != nil {
		return false, fmt.Errorf("--group: %w", err)
	}
	return true, nil
}

// instead reports whether the command is for a group. Otherwise it is for ids, and there must be some.
func (g *groupFlag) instead(ids []string) (bool, error) {
	given, err := g.given()
	switch {
	case err != nil:
		return false, err
	case given && len(ids) > 0:
		return false, store.Invalid("--group and an id are both given: use one of them")
	case !given && len(ids) == 0:
		return false, store.Invalid("no id: give one, or --group for all messages of a group")
	}
	return given, nil
}

// cancelGroup cancels the messages of a group and prints how many.
func (m *Main) cancelGroup(ctx context.Context, c *later.Client, queue, group string,
	opts []later.CancelOption,
) error {
	q, _, err := existingQueue(ctx, c, queue)
	if err != nil {
		return err
	}
	n, err := q.CancelGroup(ctx, group, opts...)
	if err != nil {
		return fmt.Errorf("cancelled %s of group %q, then: %w", countMessages(n.Total()), group, err)
	}
	var states []string
	for _, s := range []struct {
		n    int
		name later.State
	}{{n.Scheduled, later.StateScheduled}, {n.Ready, later.StateReady}, {n.Leased, later.StateLeased},
		{n.Dead, later.StateDead}} {
		if s.n > 0 {
			states = append(states, fmt.Sprintf("%d %s", s.n, s.name))
		}
	}
	text := fmt.Sprintf("cancelled %s of group %s", countMessages(n.Total()), printable(group))
	if len(states) > 0 {
		text += ": " + strings.Join(states, ", ")
	}
	return m.printResult(wire.CancelledGroup{
		Queue: q.Name(), Group: group, Cancelled: n.Total(), Scheduled: n.Scheduled, Ready: n.Ready, Leased: n.Leased,
		Dead: n.Dead,
	}, "%s", text)
}

// rescheduleGroup moves the messages of a group and prints how many.
func (m *Main) rescheduleGroup(ctx context.Context, q *later.Queue, now later.Stats, w *whenFlags, group string) error {
	due := w.due(now.Now)
	n, err := q.RescheduleGroup(ctx, group, later.At(due))
	if err != nil {
		return fmt.Errorf("moved %s of group %q, then: %w", countMessages(n.Rescheduled), group, err)
	}
	text := fmt.Sprintf("moved %s of group %s, now due %s (%s)", countMessages(n.Rescheduled), printable(group),
		formatRelative(due, now.Now), formatTime(due, now.Now))
	if n.Leased+n.Dead > 0 {
		text += fmt.Sprintf("; left %d leased and %d dead", n.Leased, n.Dead)
	}
	return m.printResult(wire.RescheduledGroup{
		Queue: q.Name(), Group: group, Due: wire.FormatTime(due), Rescheduled: n.Rescheduled, Leased: n.Leased,
		Dead: n.Dead,
	}, "%s", text)
}

func countMessages(n int) string {
	if n == 1 {
		return "1 message"
	}
	return fmt.Sprintf("%d messages", n)
}
