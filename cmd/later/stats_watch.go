package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/durations"
)

// Terminal control sequences of ECMA-48 and xterm.
const (
	otherScreen = "\x1b[?1049h\x1b[?25l" // the alternate screen, without a cursor
	mainScreen  = "\x1b[?25h\x1b[?1049l"
	homeCursor  = "\x1b[H"
	clearLine   = "\x1b[K" // from the cursor
	clearBelow  = "\x1b[J"
)

// watch prints the counts every interval until it is stopped. It retries if the store is unavailable.
func (m *Main) watch(ctx context.Context, c *later.Client, names []string, interval time.Duration) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	screen := isTerminal(m.Stdout) && !m.json
	if screen {
		io.WriteString(m.Stdout, otherScreen)
		defer io.WriteString(m.Stdout, mainScreen)
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	before := map[string]later.Stats{}
	for looks := 0; ; looks++ {
		all, damaged, err := readStats(ctx, c, names)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && !errors.Is(err, later.ErrUnavailable) {
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
		if err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
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

// printScreen overwrites the screen in one write, without clearing it first.
func (m *Main) printScreen(all []queueStats, problems []error, interval time.Duration) error {
	lines := []string{fmt.Sprintf("%s  %s  every %s, Ctrl-C to stop",
		time.Now().Format(time.TimeOnly), m.shownURL(), durations.Format(interval)), ""}
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
	columns, rows := terminalSize(m.Stdout)
	_, err := io.WriteString(m.Stdout, frame(lines, columns, rows))
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
