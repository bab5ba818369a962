package main

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/view"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

func (m *Main) activityCommand() *cobra.Command {
	return m.command("activity [QUEUE...]", "Count the events of the last minute, hour and day",
		`Activity prints how many events of each kind happened to the named queues, or to all queues, in the last
minute, hour and day, in all processes. Processes report their events once a second. The last minute is the last 60 to
70 seconds, the last hour 60 to 65 minutes, and the last day 24 to 25 hours; --json prints when each begins.

later events shows the events themselves.`,
		`  later activity
  later activity mail --json`,
		m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
			names := args
			for _, name := range args {
				if _, _, err := existingQueue(ctx, c, name); err != nil {
					return err
				}
			}
			if len(args) == 0 {
				var err error
				if names, err = c.Queues(ctx); err != nil {
					return err
				}
			}
			return m.printActivity(ctx, c, names)
		}))
}

func (m *Main) printActivity(ctx context.Context, c *later.Client, names []string) error {
	t := newTable("QUEUE", "EVENT", ">MINUTE", ">HOUR", ">DAY")
	var problems []error
	for _, name := range names {
		a, err := c.Queue(name).Activity(ctx)
		switch {
		case isDamage(err): // other queues may be intact
			problems = append(problems, err)
			continue
		case err != nil:
			return err
		case !a.Exists: // deleted in between
			continue
		}
		if m.json {
			if err := m.printJSON(wire.NewActivity(name, a)); err != nil {
				return err
			}
			continue
		}
		addActivity(t, name, a)
	}
	switch {
	case len(t.rows) > 0:
		if err := m.print("%s", t); err != nil {
			return err
		}
	case !m.json && len(problems) == 0:
		m.note("nothing has happened in the last day")
	}
	return m.reportAllButLast(problems)
}

// addActivity adds a row for each kind of event of a queue that happened, kinds that it does not know last.
func addActivity(t *table, name string, a later.Activity) {
	kinds := slices.Clone(view.EventKinds)
	var others []later.EventKind
	for _, w := range []store.ActivityWindow{a.Minute, a.Hour, a.Day} {
		for kind := range w.Counts {
			if !slices.Contains(kinds, kind) && !slices.Contains(others, kind) {
				others = append(others, kind)
			}
		}
	}
	slices.Sort(others)
	for _, kind := range append(kinds, others...) {
		counts := []int64{a.Minute.Counts[kind], a.Hour.Counts[kind], a.Day.Counts[kind]}
		if slices.Max(counts) == 0 {
			continue
		}
		t.add(name, kind, counts[0], counts[1], counts[2])
	}
}
