package main

import (
	"context"
	"iter"
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
	r.addLimit(flags)
}

func (r *rangeFlags) addLimit(flags *pflag.FlagSet) {
	flags.IntVar(&r.limit, "limit", defaultListLimit, "list at most `N` messages; 0 for all")
}

func (r *rangeFlags) check() error {
	if r.limit < 0 {
		return store.Invalid("--limit is %d: must be 1 or more, or 0 for all", r.limit)
	}
	return nil
}

// page returns the number of messages to read at a time.
func (r *rangeFlags) page() int {
	if r.limit > 0 {
		return min(store.MaxBatch, r.limit)
	}
	return store.MaxBatch
}

func (m *Main) listCommand() *cobra.Command {
	var state string
	var group groupFlag
	var r rangeFlags
	cmd := m.command("list QUEUE [--state STATE | --group GROUP]", "List messages",
		`List prints the messages of a queue in one state or in all states: leased, ready and scheduled messages
by due time, dead messages by time of death. A message that does not change state during the listing is listed exactly
once (a leased message at least once). Times are in this machine's time zone.

With --group, list prints the messages that were sent with that --group, in any state, in order of id.

With --json, list prints every field that later get shows.`,
		`  later list orders
  later list orders --state scheduled --to 18:00 --limit 0 --json
  later list orders --group customer-9`,
		m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
			states := allStates
			if state != "" {
				states = []later.State{later.State(state)}
			}
			ofGroup, err := group.given()
			if err != nil {
				return err
			}
			if ofGroup && (state != "" || !r.from.IsZero() || !r.to.IsZero()) {
				return store.Invalid("--group is given with --state, --from or --to: omit these, or use them " +
					"without --group")
			}
			if err := r.check(); err != nil {
				return err
			}
			q, stats, err := existingQueue(ctx, c, args[0])
			if err != nil {
				return err
			}
			all := allIn(ctx, q, states, r)
			if ofGroup {
				all = q.All(ctx, later.ListOptions{Group: group.name, Limit: r.page()})
			}
			return m.listMessages(q, all, r.limit, stateListing(stats.Now))
		}))
	stateFlag(cmd, &state)
	group.add(cmd, "only the messages of this `group`, in any state")
	r.add(cmd.Flags(), "due")
	return cmd
}

// stateFlag adds --state of the commands that list messages.
func stateFlag(cmd *cobra.Command, state *string) {
	choice(cmd, state, "state", "", "only messages in this `STATE`: scheduled, ready, leased or dead (default: all)",
		"scheduled", "ready", "leased", "dead")
}

// listing formats messages as a table.
type listing struct {
	headings []string
	row      func(info *later.Info) []any
}

// allIn returns the messages in the given states.
func allIn(
	ctx context.Context, q *later.Queue, states []later.State, r rangeFlags,
) iter.Seq2[*later.Info, error] {
	return func(yield func(*later.Info, error) bool) {
		for _, state := range states {
			options := later.ListOptions{State: state, From: r.from, To: r.to, Limit: r.page()}
			for info, err := range q.All(ctx, options) {
				if !yield(info, err) {
					return
				}
			}
		}
	}
}

// listMessages prints up to limit messages of a queue, or all if it is 0, or notes that there are none.
func (m *Main) listMessages(q *later.Queue, all iter.Seq2[*later.Info, error], limit int, shape listing) error {
	listed, err := m.printMessages(all, limit, shape)
	if listed == 0 && err == nil && !m.json {
		m.note("no matching messages in queue %q", q.Name())
	}
	return err
}

// printMessages prints up to limit messages, or all if it is 0, and returns how many it printed.
func (m *Main) printMessages(all iter.Seq2[*later.Info, error], limit int, shape listing) (listed int, err error) {
	table := newTable(shape.headings...)
	for info, err := range all {
		if err == nil && limit > 0 && listed == limit {
			m.note("there are more messages: use a higher --limit, or 0 for all")
			break
		}
		if err == nil {
			err = m.row(table, info, shape.row(info)...)
		}
		if err != nil {
			return listed, err
		}
		if listed++; len(table.rows) == store.MaxBatch {
			if err := m.flush(table); err != nil {
				return listed, err
			}
			table = newTable(shape.headings...)
		}
	}
	return listed, m.flush(table)
}

// stateListing is the table of later list.
func stateListing(now time.Time) listing {
	return listing{[]string{"ID", "STATE", "DUE", ">ATTEMPTS", "PAYLOAD"}, func(info *later.Info) []any {
		return []any{printable(info.ID), info.State, formatWhen(info.Due, now), info.Attempts,
			preview(string(info.Payload), previewWidth)}
	}}
}
