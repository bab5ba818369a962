package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/view"
	"github.com/laterq/later/internal/wire"
)

func (m *Main) seriesListCommand() *cobra.Command {
	return m.command("list QUEUE ID", "Show the remaining messages of a series",
		`List prints the messages of a series that were not acked or cancelled, in order of their offsets. UNTIL is
the moment: the due time minus the offset, or once an attempt has failed, the moment that the series was sent with.`,
		`  later series list reminders appointment-7
  later series list reminders appointment-7 --json | jq -r .due`,
		m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
			q, stats, err := existingQueue(ctx, c, args[0])
			if err != nil {
				return err
			}
			all, err := q.ListSeries(ctx, args[1])
			if err != nil {
				return err
			}
			return m.printSeries(all, stats.Now)
		}))
}

func (m *Main) printSeries(all []later.SeriesMessage, now time.Time) error {
	if len(all) == 0 {
		m.note("nothing of the series remains")
		return nil
	}
	t := newTable(">#", ">OFFSET", "STATE", "DUE", "UNTIL", "ID")
	for _, one := range all {
		if err := m.row(t, view.SeriesMessage(one), fmt.Sprintf("%d/%d", one.Part.Index, one.Part.Count),
			formatOffset(one.Part.Offset), one.State, formatWhen(one.Due, now), formatTime(one.Part.Until, now),
			printable(one.ID)); err != nil {
			return err
		}
	}
	return m.flush(t)
}

func (m *Main) seriesMoveCommand() *cobra.Command {
	var s seriesFlags
	cmd := m.command("move QUEUE ID --until TIME", "Move a series to another moment",
		`Move gives the messages of a series that remain their times before or after another moment, and prints
how many. It cancels a message if its new time has passed, or with --past send, makes it due at once. It leaves messages
that a worker holds, dead ones, and messages that have fallen due already and would not be due later.

After an error, move the series again: each message is moved in one step.`,
		`  later series move reminders appointment-7 --until "2031-01-07 15:00"`,
		m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
			past, err := s.policy()
			if err != nil {
				return err
			}
			q, _, err := existingQueue(ctx, c, args[0])
			if err != nil {
				return err
			}
			n, err := q.MoveSeries(ctx, args[1], s.until, past)
			if err != nil {
				return fmt.Errorf("moved %s of series %q, then: %w", countMessages(n.Moved), args[1], err)
			}
			text := fmt.Sprintf("moved %s of series %s", countMessages(n.Moved), printable(args[1]))
			if n.Skipped > 0 {
				text += fmt.Sprintf(", skipped %d of the past", n.Skipped)
			}
			if n.Left > 0 {
				text += fmt.Sprintf(", left %d", n.Left)
			}
			return m.printResult(wire.MovedSeries{Queue: q.Name(), Series: args[1], Until: wire.FormatTime(s.until),
				Moved: n.Moved, Skipped: n.Skipped, Left: n.Left}, "%s", text)
		}))
	s.add(cmd, "`policy` for messages with a new time in the past: skip or send")
	return cmd
}

func (m *Main) seriesCancelCommand() *cobra.Command {
	var keepID bool
	cmd := m.command("cancel QUEUE ID", "Cancel the remaining messages of a series",
		`Cancel removes the messages of a series that remain, in any state, and prints how many. It is no error if there
are none. The series may be sent again at once. With --keep-id its messages are refused as duplicates for their dedup
window, which is 24 hours unless it was sent with another.`,
		`  later series cancel reminders appointment-7`,
		m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
			q, _, err := existingQueue(ctx, c, args[0])
			if err != nil {
				return err
			}
			var opts []later.CancelOption
			if keepID {
				opts = append(opts, later.KeepID())
			}
			n, err := q.CancelSeries(ctx, args[1], opts...)
			if err != nil {
				return fmt.Errorf("cancelled %s of series %q, then: %w", countMessages(n.Total()), args[1], err)
			}
			return m.printResult(wire.CancelledSeries{Queue: q.Name(), Series: args[1], Cancelled: n.Total()},
				"cancelled %s of series %s", countMessages(n.Total()), printable(args[1]))
		}))
	cmd.Flags().BoolVar(&keepID, "keep-id", false, "refuse the messages as duplicates until their dedup windows end")
	return cmd
}
