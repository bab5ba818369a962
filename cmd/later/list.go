package main

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

const (
	defaultListLimit = 100
	previewWidth     = 50
)

// allStates are the states that a listing shows, in this order.
var allStates = []later.State{later.StateLeased, later.StateReady, later.StateScheduled, later.StateDead}

// rangeFlags are the flags that select a range of messages.
type rangeFlags struct {
	from, to time.Time
	limit    int
}

func (r *rangeFlags) add(flags *pflag.FlagSet, what string) {
	timeFlag(flags, &r.from, "from", "only messages "+what+" at this time or later")
	timeFlag(flags, &r.to, "to", "only messages "+what+" before this time")
	flags.IntVar(&r.limit, "limit", defaultListLimit, "list at most `N` messages; 0 for all")
}

func (r *rangeFlags) check() error {
	if r.limit < 0 {
		return store.Invalid("--limit is %d: give 1 or more, or 0 for all", r.limit)
	}
	return nil
}

func (m *Main) listCommand() *cobra.Command {
	var state string
	var r rangeFlags
	cmd := &cobra.Command{
		Use:   "list QUEUE [--state STATE]",
		Short: "List messages",
		Long: `List prints the messages of a queue in one state or in all states: leased, ready and scheduled messages by due
time, dead messages by time of death. A message that does not change state meanwhile is listed exactly once (a leased
message at least once). Times are in this machine's time zone.

With --json, list prints every field that later get shows.`,
		Example: `  later list orders
  later list orders --state scheduled --to 18:00 --limit 0 --json`,
		Args:              arguments(1, 1),
		ValidArgsFunction: m.queueNames(false),
		RunE: m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
			states := allStates
			if state != "" {
				states = []later.State{later.State(state)}
			}
			if err := r.check(); err != nil {
				return err
			}
			q, stats, err := existingQueue(ctx, c, args[0])
			if err != nil {
				return err
			}
			return m.list(ctx, q, states, r, &stateListing{now: stats.Now})
		}),
	}
	cmd.Flags().StringVar(&state, "state", "", "scheduled, ready, leased or dead (default: all states)")
	cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(
		[]string{"scheduled", "ready", "leased", "dead"}, cobra.ShellCompDirectiveNoFileComp))
	r.add(cmd.Flags(), "due")
	return cmd
}

// listing formats messages as a table.
type listing interface {
	table() *table
	row(info *later.Info) []string
}

// list prints messages in the given states page by page. The limit applies to all states together.
func (m *Main) list(ctx context.Context, q *later.Queue, states []later.State, r rangeFlags, shape listing) error {
	table, listed := shape.table(), 0
	for _, state := range states {
		options := later.ListOptions{State: state, From: r.from, To: r.to, Limit: store.MaxBatch}
		if r.limit > 0 {
			options.Limit = min(options.Limit, r.limit)
		}
		for info, err := range q.All(ctx, options) {
			switch {
			case err != nil:
				return err
			case r.limit > 0 && listed == r.limit:
				m.note("there are more messages: use a higher --limit, or 0 for all")
				return m.flush(table)
			case m.json:
				if err := m.printJSON(newInfoJSON(q.Name(), info)); err != nil {
					return err
				}
			default:
				table.add(shape.row(info)...)
			}
			if listed++; len(table.rows) == store.MaxBatch {
				if err := m.flush(table); err != nil {
					return err
				}
				table = shape.table()
			}
		}
	}
	if listed == 0 && !m.json {
		m.note("no matching messages in queue %q", q.Name())
	}
	return m.flush(table)
}

func (m *Main) flush(t *table) error {
	if len(t.rows) == 0 {
		return nil
	}
	return m.print("%s", t)
}

// stateListing is the table of later list.
type stateListing struct{ now time.Time }

func (*stateListing) table() *table { return newTable("ID", "STATE", "DUE", ">ATTEMPTS", "PAYLOAD") }

func (l *stateListing) row(info *later.Info) []string {
	return []string{
		printable(info.ID),
		string(info.State),
		formatTime(info.Due, l.now) + " (" + formatRelative(info.Due, l.now) + ")",
		strconv.Itoa(info.Attempts),
		preview(string(info.Payload), previewWidth),
	}
}
