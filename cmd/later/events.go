package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/diskstore"
	"github.com/laterq/later/internal/view"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// eventFilter selects the events to show. Missing events are always shown.
type eventFilter struct {
	kinds []string
	id    string
}

func (m *Main) eventsCommand() *cobra.Command {
	var filter eventFilter
	cmd := m.command("events [QUEUE...]", "Show the events of all processes, live",
		`Events prints the events of the named queues, or of all queues, in all processes, until Ctrl-C: time,
kind, queue, id, attempt, how late the message was delivered, how long its handler ran, the error, and the process. New
queues are included with their first message, or within a few seconds in a Redis Cluster and if the Redis user may not
listen to the pattern of all channels.

A busy process notices within a second that it is watched. Watching never slows a queue: events that are too many to
show are dropped, and a line says how many are missing.

An embedded store must be shared: with share=no only the program that has it open can watch, with Client.Watch.

Kinds: `+kindsText(),
		`  later events
  later events mail --kind nacked --kind died
  later events mail --id 42 --json`,
		m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
			return m.events(ctx, c, args, filter)
		}))
	cmd.Flags().StringArrayVar(&filter.kinds, "kind", nil, "show only this `KIND`; can be repeated (default: all)")
	cmd.Flags().StringVar(&filter.id, "id", "", "show only the message with this `ID`")
	return cmd
}

// kindsText lists the kinds, in lines of up to 120 characters.
func kindsText() string {
	var lines []string
	for kinds := range slices.Chunk(view.EventKinds, 8) {
		lines = append(lines, view.Kinds(kinds))
	}
	return strings.Join(lines, ",\n") + "."
}

func (m *Main) events(ctx context.Context, c *later.Client, args []string, filter eventFilter) error {
	for _, kind := range filter.kinds {
		if !slices.Contains(view.EventKinds, later.EventKind(kind)) {
			return store.Invalid("--kind is %q: must be one of %s", kind, view.Kinds(view.EventKinds))
		}
	}
	_, onDisk := store.As[*diskstore.Store](c.Store())
	if _, inMemory := store.As[*memstore.Store](c.Store()); onDisk || inMemory {
		return fmt.Errorf("only this process has %s open, so there are no events of others: in Go, Client.Watch "+
			"shows the events of the program that uses it: %w", m.shownURL(), store.ErrUnsupported)
	}
	for _, name := range args {
		if _, _, err := existingQueue(ctx, c, name); err != nil {
			return err
		}
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	watch, err := c.Watch(ctx, args...)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer watch.Close()
	if isTerminal(m.Stdout) {
		m.note("watching %s, Ctrl-C to stop", cmp.Or(strings.Join(args, ", "), "all queues"))
	}
	var lines eventLines
	for {
		e, err := watch.Next(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case !filter.matches(&e):
			continue
		}
		if err := m.printResult(view.Event(&e), "%s", lines.format(&e)); err != nil {
			return err
		}
	}
}

func (f *eventFilter) matches(e *later.WatchEvent) bool {
	if e.Kind == later.EventMissed {
		return true
	}
	return (len(f.kinds) == 0 || slices.Contains(f.kinds, string(e.Kind))) && (f.id == "" || f.id == e.ID)
}

// eventLines formats events as lines. Columns become wider when a text needs it, since later ones are not known.
type eventLines struct {
	queue, id, details int
}

func (l *eventLines) format(e *later.WatchEvent) string {
	at := e.Time.Local().Format("15:04:05.000")
	if e.Kind == later.EventMissed {
		return strings.TrimRight(fmt.Sprintf("%s  %-11s  %s %s", at, e.Kind, missedText(e.Missed), e.Queue), " ")
	}
	var details []string
	if e.Attempt > 0 {
		details = append(details, fmt.Sprintf("attempt %d", e.Attempt))
	}
	if e.Kind == later.EventClaimed || e.Lateness > 0 {
		details = append(details, "late "+formatMillis(e.Lateness))
	}
	if e.Duration > 0 {
		details = append(details, "took "+formatMillis(e.Duration))
	}
	if e.Count > 0 {
		details = append(details, fmt.Sprintf("%d messages", e.Count))
	}
	for _, name := range slices.Sorted(maps.Keys(e.Headers)) {
		details = append(details, preview(name+"="+e.Headers[name], 40))
	}
	line := fmt.Sprintf("%s  %-11s  %s  %s  %s  %s", at, e.Kind, pad(&l.queue, printable(e.Queue)),
		pad(&l.id, printable(e.ID)), pad(&l.details, strings.Join(details, ", ")), e.Process)
	if e.Error != "" {
		line += "  " + preview(e.Error, 120)
	}
	return line
}

func missedText(n int) string {
	if n == 0 {
		return "the connection was interrupted; some events may be missing"
	}
	return fmt.Sprintf("%d events", n)
}

// pad pads a text to the width of its column, which becomes wider for it up to a limit.
func pad(width *int, text string) string {
	const widest = 40
	n := utf8.RuneCountInString(text)
	*width = min(max(*width, n), widest)
	return text + strings.Repeat(" ", max(*width-n, 0))
}
