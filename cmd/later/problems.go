package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/inspect"
	"github.com/laterq/later/internal/durations"
	"github.com/laterq/later/internal/view"
	"github.com/laterq/later/store"
)

// exitProblems is the exit code of later problems --check.
const exitProblems = 30

// errProblems is the error of a --check that found a problem. The problem is on standard output.
var errProblems = errors.New("a problem needs a person")

// problemsOptions are the flags of later problems.
type problemsOptions struct {
	severity string
	check    bool
	watch    bool
	interval time.Duration
}

func (m *Main) problemsCommand() *cobra.Command {
	o := problemsOptions{interval: 5 * time.Second}
	cmd := m.command("problems", "List what needs a person",
		fmt.Sprintf(`Problems lists the conditions of the store that need a person, the most urgent first, each with a
command that helps or shows more: queues without a worker, workers that are all busy or paused, paused queues and who
paused them, limits that hold messages back, halted keys, growing dead messages with their most frequent error,
messages that are given back, topics without a subscription, schedules that missed runs or failed, and shards or queues
that cannot be read. docs/monitoring.md lists all kinds. A message that waits is a problem once it has been due for
30 s.

  act    messages are stopped or lost until a person acts
  watch  it may pass by itself, or is meant so

With --check the exit code is %d if a problem with the severity act was found, so that a cron job can tell a person. It
is 0 if there was none, and that of the error if the store cannot be read. With --watch, problems repeats until
Ctrl-C.`,
			exitProblems),
		`  later problems
  later problems --severity act --check || mail -s 'later has a problem' ops@example.com
  later problems --json | jq -r .text
  later problems --watch`,
		m.withClient(func(ctx context.Context, c *later.Client, _ []string) error {
			switch {
			case !slices.Contains(severities, o.severity):
				return store.Invalid("--severity is %q: give act or watch, or omit it", o.severity)
			case o.check && o.watch:
				return store.Invalid("--check and --watch exclude each other: give one of them")
			case o.interval < time.Millisecond:
				return store.Invalid("--interval is %s: must be 1ms or more", durations.Format(o.interval))
			case o.watch:
				return m.watchProblems(ctx, c, o)
			}
			list, err := readProblems(ctx, c, o)
			if err != nil {
				return err
			}
			if err := m.printProblems(list); err != nil {
				return err
			}
			if o.check && slices.ContainsFunc(list.Problems, needsPerson) {
				return errProblems
			}
			return nil
		}))
	flags := cmd.Flags()
	flags.StringVar(&o.severity, "severity", "", "list only problems of this `SEVERITY`: act or watch")
	cmd.RegisterFlagCompletionFunc("severity",
		cobra.FixedCompletions(severities[1:], cobra.ShellCompDirectiveNoFileComp))
	flags.BoolVar(&o.check, "check", false, fmt.Sprintf("exit with %d if a problem needs a person now", exitProblems))
	flags.BoolVarP(&o.watch, "watch", "w", false, "repeat until stopped")
	durationFlag(flags, &o.interval, "interval", "how often --watch updates")
	return cmd
}

// severities are the values of --severity.
var severities = []string{"", string(inspect.Act), string(inspect.Watch)}

func needsPerson(p inspect.Problem) bool { return p.Severity == inspect.Act }

// readProblems returns the problems of the store with the severity that is asked for.
func readProblems(ctx context.Context, c *later.Client, o problemsOptions) (inspect.ProblemList, error) {
	list, err := inspect.Problems(ctx, c)
	list.Problems = slices.DeleteFunc(list.Problems, func(p inspect.Problem) bool {
		return o.severity != "" && string(p.Severity) != o.severity
	})
	return list, err
}

func (m *Main) printProblems(list inspect.ProblemList) error {
	if list.LeftOut > 0 {
		m.note("%d queues were not looked at, or only in part", list.LeftOut)
	}
	if m.json {
		for _, p := range list.Problems {
			if err := m.printJSON(view.Problem(p)); err != nil {
				return err
			}
		}
		return nil
	}
	if len(list.Problems) == 0 {
		m.note("there are no problems in %s", m.shownURL())
		return nil
	}
	return m.print("%s", problemsTable(list.Problems))
}

func problemsTable(all []inspect.Problem) *table {
	t := newTable("SEVERITY", "PROBLEM", "TRY")
	for _, p := range all {
		t.add(p.Severity, preview(p.Text(), 300), shownCommand(p.Action().Shell()))
	}
	return t
}

// shownCommand returns a command as it is, or "" if a name in it cannot be printed on a line: a person must not copy
// another one.
func shownCommand(line string) string {
	if printable(line) != line || strings.ContainsAny(line, "\n\t") {
		return ""
	}
	return line
}

// watchProblems prints the problems every interval until it is stopped. It retries if the store is unavailable.
func (m *Main) watchProblems(ctx context.Context, c *later.Client, o problemsOptions) error {
	return m.repeat(ctx, o.interval, func(ctx context.Context, screen bool) error {
		list, err := readProblems(ctx, c, o)
		switch {
		case ctx.Err() != nil || err != nil && !errors.Is(err, later.ErrUnavailable):
			return err
		case screen:
			return m.problemsScreen(list.Problems, err, o.interval)
		case err != nil:
			m.report(err)
			return nil
		case m.json:
			return m.printProblems(list)
		}
		return m.print("%s  %s\n%s\n", time.Now().Format(time.DateTime), countProblems(len(list.Problems)),
			problemsTable(list.Problems))
	})
}

// problemsScreen overwrites the screen with the problems, or with why they cannot be read.
func (m *Main) problemsScreen(all []inspect.Problem, err error, every time.Duration) error {
	lines := problemsTable(all).lines()
	switch {
	case err != nil:
		lines = []string{preview(err.Error(), 500)}
	case len(all) == 0:
		lines = []string{"there are no problems"}
	}
	return m.overwrite(lines, every)
}

// countProblems returns that there are so many problems.
func countProblems(n int) string {
	if n == 1 {
		return "1 problem"
	}
	return fmt.Sprintf("%d problems", n)
}
