package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/durations"
	"github.com/laterq/later/internal/series"
	"github.com/laterq/later/internal/view"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

func (m *Main) seriesCommand() *cobra.Command {
	return m.group("series send|list|move|cancel QUEUE ID",
		"Send several messages before or after a moment, under one id",
		`A reminder series is a set of messages with the same payload at several distances from one moment, such
as a day and an hour before an appointment. One id covers them all: list the remaining messages, move the moment, or
cancel the series.

Each message has the headers series (the id), series-until (the moment that it was sent with), series-offset,
series-index and series-count, and the id ID/OFFSET, for later get.`,
		`  later series send reminders appointment-7 'dentist' --until "2030-12-31 15:00" --offsets -24h,-1h,-10m
  later series list reminders appointment-7
  later series move reminders appointment-7 --until "2031-01-07 15:00"
  later series cancel reminders appointment-7`,
		m.seriesSendCommand(), m.seriesListCommand(), m.seriesMoveCommand(), m.seriesCancelCommand())
}

// seriesFlags are --until and --past.
type seriesFlags struct {
	until time.Time
	past  string
}

func (f *seriesFlags) add(cmd *cobra.Command, past string) {
	timeFlag(cmd.Flags(), &f.until, "until",
		`the moment: 15:04 (the next), "2030-12-31 15:04:05" (local) or 2030-12-31T15:04:05Z`)
	choice(cmd, &f.past, "past", "skip", past, "skip", "send")
}

func (f *seriesFlags) policy() (later.PastPolicy, error) {
	if f.until.IsZero() {
		return 0, store.Invalid("no moment: give --until")
	}
	policy, ok := map[string]later.PastPolicy{"skip": later.SkipPast, "send": later.SendPast}[f.past]
	if !ok {
		return 0, store.Invalid("--past is %q: must be skip or send", f.past)
	}
	return policy, nil
}

// offsetsValue is a flag value: durations that begin with - are before the moment.
type offsetsValue []time.Duration

func (v *offsetsValue) Set(text string) error {
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		unsigned, before := strings.CutPrefix(part, "-")
		d, err := durations.Parse(strings.TrimPrefix(unsigned, "+"))
		if err != nil {
			return fmt.Errorf("%q: %w", part, err)
		}
		if before {
			d = -d
		}
		*v = append(*v, d)
	}
	return nil
}

func (v *offsetsValue) String() string {
	texts := make([]string, len(*v))
	for i, d := range *v {
		texts[i] = formatOffset(d)
	}
	return strings.Join(texts, ",")
}

func (*offsetsValue) Type() string { return "DURATIONS" }

// formatOffset formats the distance from a moment, with its sign.
func formatOffset(d time.Duration) string {
	if d < 0 {
		return "-" + durations.Format(-d)
	}
	return "+" + durations.Format(d)
}

func (m *Main) seriesSendCommand() *cobra.Command {
	var o sendOptions
	var s seriesFlags
	var offsets offsetsValue
	cmd := m.command("send QUEUE ID PAYLOAD|- --until TIME --offsets DURATIONS", "Send a series",
		fmt.Sprintf(`Send sends a message for each of the offsets, due at the moment plus the offset. A message
that would be due in the past is skipped, or with --past send, due at once. ID has up to %d bytes. PAYLOAD is any text;
- reads it from standard input.

It is safe to send a series again after an error: this sends the missing messages. If none is missing, the exit code is
%d. A series that was moved stays where it is then. A message that was acked is not sent again for --dedup-window, which
is 24 hours by default.`,
			series.MaxID, exitCode(store.ErrDuplicate)),
		`  later series send reminders appointment-7 'dentist' --until "2030-12-31 15:00" --offsets -24h,-1h,-10m
  later series send mail order-17 - --until 2030-12-31T15:00:00Z --offsets 1d,3d,7d --kind review.ask < order.json`,
		run(func(ctx context.Context, args []string) error {
			past, err := s.policy()
			if err != nil {
				return err
			}
			if len(offsets) == 0 {
				return store.Invalid("no offsets: give --offsets, such as -24h,-1h")
			}
			message, err := o.message()
			if err != nil {
				return err
			}
			if message.ID = args[1]; message.ID == "" {
				return store.Invalid("ID is empty: must have 1 to %d bytes", series.MaxID)
			}
			if message.Payload, err = m.payload(args[2]); err != nil {
				return err
			}
			return m.sendSeries(ctx, args[0], message, later.Series{Until: s.until, Offsets: offsets, Past: past})
		}))
	s.add(cmd, "`policy` for messages due in the past: skip or send")
	cmd.Flags().Var(&offsets, "offsets", "distances from the moment, such as -24h,-1h for before and 1h for after")
	o.addMessage(cmd.Flags(), &o.options, "group") // a series is a group
	durableFlag(cmd.Flags(), &o.durable)
	return cmd
}

func (m *Main) sendSeries(ctx context.Context, queue string, message later.Outgoing, s later.Series) error {
	client, err := m.open(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	r, err := client.Queue(queue).SendSeriesMessage(ctx, message, s)
	switch {
	case errors.Is(err, later.ErrDuplicate):
		return fmt.Errorf("series %q is already in queue %q, nothing was changed (see later series list %s %s): %w",
			r.ID, queue, queue, r.ID, later.ErrDuplicate)
	case err != nil && r.Sent > 0:
		return fmt.Errorf("sent %s of series %s, then: %w", messages(r.Sent), r.ID, err)
	case err != nil:
		return err
	}
	text := fmt.Sprintf("sent %s of series %s", messages(r.Sent), printable(r.ID))
	if r.Skipped > 0 {
		text += fmt.Sprintf(", skipped %d of the past", r.Skipped)
	}
	if r.Duplicates > 0 {
		text += fmt.Sprintf(", %d were sent before", r.Duplicates)
	}
	return m.printResult(wire.SentSeries{Queue: queue, Series: r.ID, Until: wire.FormatTime(s.Until), Sent: r.Sent,
		Skipped: r.Skipped, Duplicates: r.Duplicates}, "%s", text)
}

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
		m.row(t, view.SeriesMessage(one), fmt.Sprintf("%d/%d", one.Part.Index, one.Part.Count),
			formatOffset(one.Part.Offset), one.State, formatWhen(one.Due, now), formatTime(one.Part.Until, now),
			printable(one.ID))
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
				return fmt.Errorf("moved %s of series %q, then: %w", messages(n.Moved), args[1], err)
			}
			text := fmt.Sprintf("moved %s of series %s", messages(n.Moved), printable(args[1]))
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
				return fmt.Errorf("cancelled %s of series %q, then: %w", messages(n.Total()), args[1], err)
			}
			return m.printResult(wire.CancelledSeries{Queue: q.Name(), Series: args[1], Cancelled: n.Total()},
				"cancelled %s of series %s", messages(n.Total()), printable(args[1]))
		}))
	cmd.Flags().BoolVar(&keepID, "keep-id", false, "refuse the messages as duplicates until their dedup windows end")
	return cmd
}
