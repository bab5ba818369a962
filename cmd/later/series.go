package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/durations"
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
	switch f.past {
	case "skip":
		return later.SkipPast, nil
	case "send":
		return later.SendPast, nil
	}
	return 0, store.Invalid("--past is %q: must be skip or send", f.past)
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

func addOffsets(flags *pflag.FlagSet, v *offsetsValue) {
	flags.Var(v, "offsets", "distances from the moment, such as -24h,-1h for before and 1h for after")
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
			later.MaxSeriesID, exitCode(store.ErrDuplicate)),
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
				return store.Invalid("ID is empty: must have 1 to %d bytes", later.MaxSeriesID)
			}
			if message.Payload, err = m.payload(args[2]); err != nil {
				return err
			}
			return m.sendSeries(ctx, args[0], message, later.Series{Until: s.until, Offsets: offsets, Past: past})
		}))
	s.add(cmd, "`policy` for messages due in the past: skip or send")
	addOffsets(cmd.Flags(), &offsets)
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
		return fmt.Errorf("sent %s of series %s, then: %w", countMessages(r.Sent), r.ID, err)
	case err != nil:
		return err
	}
	text := fmt.Sprintf("sent %s of series %s", countMessages(r.Sent), printable(r.ID))
	if r.Skipped > 0 {
		text += fmt.Sprintf(", skipped %d of the past", r.Skipped)
	}
	if r.Duplicates > 0 {
		text += fmt.Sprintf(", %d were sent before", r.Duplicates)
	}
	return m.printResult(wire.SentSeries{Queue: queue, Series: r.ID, Until: wire.FormatTime(s.Until), Sent: r.Sent,
		Skipped: r.Skipped, Duplicates: r.Duplicates}, "%s", text)
}
