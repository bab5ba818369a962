package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/durations"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

func (m *Main) statsCommand() *cobra.Command {
	var watch bool
	interval := time.Second
	cmd := m.command("stats [QUEUE...]", "Count messages by state",
		`Stats prints how many messages the named queues, or all queues, have in each state, and when the earliest
waiting message is due by the store's clock. It is cheap, however many messages there are. If a queue is damaged, stats
reports it on standard error, shows the others, and exits with the code of the error.

  scheduled    not yet due
  ready due, and not held by a worker
  leased       held by a worker
  dead         set aside with a reason: last attempt failed, expired, buried or unreadable

With --watch, stats repeats until Ctrl-C and prints how much each count changes per second. On a terminal it updates the
screen; otherwise it prints a block each time.`,
		`  later stats
  later stats orders mail --json
  later stats --watch`,
		m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
			if interval < time.Millisecond {
				return store.Invalid("--interval is %s: must be 1ms or more", durations.Format(interval))
			}
			var names []string // each once
			for _, name := range args {
				if _, _, err := existingQueue(ctx, c, name); err != nil && !isDamage(err) {
					return err
				}
				if !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
			if watch {
				return m.watch(ctx, c, names, interval)
			}
			all, damaged, err := readStats(ctx, c, names)
			if err == nil && (len(all) > 0 || len(damaged) == 0) {
				err = m.printStats(all)
			}
			return m.reportAllButLast(append(damaged, err))
		}))
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "repeat until stopped")
	durationFlag(cmd.Flags(), &interval, "interval", "how often --watch updates")
	return cmd
}

// queueStats has the counts of a queue, and with --watch the previous ones.
type queueStats struct {
	name string
	later.Stats
	before *later.Stats // the previous counts, or nil
}

// readStats reads the counts of the named queues, or of all queues. It leaves out queues that no longer exist. damaged
// has the errors of queues with unreadable counts.
func readStats(ctx context.Context, c *later.Client, names []string) (all []queueStats, damaged []error, err error) {
	if len(names) == 0 {
		if names, err = c.Queues(ctx); err != nil {
			return nil, nil, err
		}
	}
	for _, name := range names {
		stats, err := c.Queue(name).Stats(ctx)
		switch {
		case isDamage(err):
			damaged = append(damaged, err)
		case err != nil:
			return nil, nil, err
		case stats.Exists:
			all = append(all, queueStats{name: name, Stats: stats})
		}
	}
	return all, damaged, nil
}

// isDamage reports whether an error is about a single queue, so that other queues may be intact.
func isDamage(err error) bool {
	return errors.Is(err, later.ErrCorrupt) || errors.Is(err, later.ErrUnsupported)
}

func (m *Main) printStats(all []queueStats) error {
	if m.json {
		for _, q := range all {
			if err := m.printJSON(wire.NewStats(q.name, q.Stats)); err != nil {
				return err
			}
		}
		return nil
	}
	if len(all) == 0 {
		m.note("there are no queues yet in %s: later send QUEUE PAYLOAD creates one", m.shownURL())
		return nil
	}
	return m.print("%s", statsTable(all))
}

// statsTable formats the counts. It adds a column for the change of each count if there are previous counts.
func statsTable(all []queueStats) *table {
	watched := slices.ContainsFunc(all, func(q queueStats) bool { return q.before != nil })
	headings := []string{"QUEUE"}
	for _, heading := range []string{">SCHEDULED", ">READY", ">LEASED", ">DEAD"} {
		headings = append(headings, heading)
		if watched {
			headings = append(headings, ">/s")
		}
	}
	t := newTable(append(headings, "NEXT DUE", "")...)
	for _, q := range all {
		before, paused, row := q.Stats, "", []any{q.name}
		if q.before != nil {
			before = *q.before
		}
		for _, count := range [][2]int64{{q.Scheduled, before.Scheduled}, {q.Ready, before.Ready},
			{q.Leased, before.Leased}, {q.Dead, before.Dead}} {
			row = append(row, count[0])
			if watched {
				row = append(row, formatRate(count[0]-count[1], q.Now.Sub(before.Now)))
			}
		}
		if q.Paused {
			paused = "paused"
		}
		t.add(append(row, q.nextDue(), paused)...)
	}
	return t
}

func (q *queueStats) nextDue() string {
	if q.NextDue.IsZero() {
		return "-"
	}
	return formatRelative(q.NextDue, q.Now) + " (" + formatTime(q.NextDue, q.Now) + ")"
}

// formatRate formats a change per second. It returns "" if there was no change.
func formatRate(change int64, elapsed time.Duration) string {
	if change == 0 || elapsed <= 0 {
		return ""
	}
	rate := float64(change) / elapsed.Seconds()
	text := strconv.FormatFloat(rate, 'f', 1, 64)
	if rate >= 10 || rate <= -10 {
		text = strconv.FormatFloat(rate, 'f', 0, 64)
	}
	if change > 0 {
		text = "+" + text
	}
	return text
}

// Terminal control sequences of ECMA-48 and xterm.
const (
	otherScreen = "\x1b[?1049h\x1b[?25l" // the alternate screen, without a cursor
	mainScreen  = "\x1b[?25h\x1b[?1049l"
	homeCursor  = "\x1b[H"
	clearLine   = "\x1b[K" // from the cursor
	clearBelow  = "\x1b[J"
)

// repeat calls look every interval until it is stopped, with whether it writes a screen.
func (m *Main) repeat(ctx context.Context, interval time.Duration, look func(context.Context, bool) error) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	screen := isTerminal(m.Stdout) && !m.json
	if screen {
		io.WriteString(m.Stdout, otherScreen)
		defer io.WriteString(m.Stdout, mainScreen)
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if err := look(ctx, screen); ctx.Err() == nil && err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// watch prints the counts every interval until it is stopped. It retries if the store is unavailable.
func (m *Main) watch(ctx context.Context, c *later.Client, names []string, interval time.Duration) error {
	before, looks := map[string]later.Stats{}, 0
	return m.repeat(ctx, interval, func(ctx context.Context, screen bool) error {
		all, damaged, err := readStats(ctx, c, names)
		if ctx.Err() != nil || err != nil && !errors.Is(err, later.ErrUnavailable) {
			return err
		}
		for i := range all {
			last, seen := before[all[i].name]
			if !seen {
				last.Now = all[i].Now.Add(-interval) // a new queue was empty before
			}
			if looks > 0 {
				all[i].before = &last
			}
			before[all[i].name] = all[i].Stats
		}
		switch {
		case screen:
			err = m.printScreen(all, append(damaged, err), interval)
		case err != nil:
			m.report(err)
			err = nil
		default:
			err = m.printBlock(all, looks)
			for _, problem := range damaged {
				m.report(problem)
			}
		}
		looks++
		return err
	})
}

// printBlock prints the counts below the previous ones.
func (m *Main) printBlock(all []queueStats, looks int) error {
	if m.json {
		return m.printStats(all)
	}
	separator := ""
	if looks > 0 {
		separator = "\n"
	}
	return m.print("%s%s\n%s", separator, time.Now().Format(time.DateTime), statsTable(all))
}

// printScreen overwrites the screen with the counts.
func (m *Main) printScreen(all []queueStats, problems []error, interval time.Duration) error {
	var lines []string
	problems = slices.DeleteFunc(problems, func(err error) bool { return err == nil })
	switch {
	case len(all) > 0:
		lines = append(lines, statsTable(all).lines()...)
	case len(problems) == 0:
		lines = append(lines, "there are no queues yet")
	}
	for _, problem := range problems {
		lines = append(lines, preview(problem.Error(), 500))
	}
	return m.overwrite(lines, interval)
}

// overwrite replaces the screen by a heading and lines in one write, without clearing it first.
func (m *Main) overwrite(lines []string, interval time.Duration) error {
	heading := fmt.Sprintf("%s  %s  every %s, Ctrl-C to stop", time.Now().Format(time.TimeOnly), m.shownURL(),
		durations.Format(interval))
	columns, rows := terminalSize(m.Stdout)
	_, err := io.WriteString(m.Stdout, frame(append([]string{heading, ""}, lines...), columns, rows))
	return err
}

// frame formats lines to fit a screen.
func frame(lines []string, columns, rows int) string {
	if over := len(lines) - (rows - 1); over > 0 {
		lines = append(lines[:max(0, rows-2):max(0, rows-2)], fmt.Sprintf("and %d more lines", over+1))
	}
	var b strings.Builder
	b.WriteString(homeCursor)
	for _, line := range lines {
		if runes := []rune(line); len(runes) > columns {
			line = string(runes[:columns])
		}
		b.WriteString(line + clearLine + "\r\n")
	}
	b.WriteString(clearBelow)
	return b.String()
}
