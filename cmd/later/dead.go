package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

func (m *Main) deadCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dead list|replay|purge QUEUE",
		Short: "List, replay or purge dead messages",
		Long: `A message is dead when its last attempt failed or its worker died in it, when it was not delivered before its
expiry, when a handler buried it, or when its stored bytes cannot be read. It stays, with the reason, until
it is replayed, purged or cancelled.`,
		Example: `  later dead list orders
  later dead replay orders --all --in 5m
  later dead purge orders order-17`,
		Args: knownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(m.deadListCommand(), m.deadReplayCommand(), m.deadPurgeCommand())
	return cmd
}

func (m *Main) deadListCommand() *cobra.Command {
	var r rangeFlags
	cmd := &cobra.Command{
		Use:   "list QUEUE",
		Short: "List dead messages with the reason",
		Long: `List lists the dead messages of a queue by time of death: why each died, its attempts and its last error. With
--json each message has all that later get shows.`,
		Example:           `  later dead list orders --from "2030-12-31 00:00" --limit 0`,
		Args:              arguments(1, 1),
		ValidArgsFunction: m.queueNames(false),
		RunE: m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
			if err := r.check(); err != nil {
				return err
			}
			q, stats, err := existing(ctx, c, args[0])
			if err != nil {
				return err
			}
			return m.list(ctx, q, []later.State{later.StateDead}, r, &deadListing{now: stats.Now})
		}),
	}
	r.add(cmd.Flags(), "died")
	return cmd
}

// deadListing is the table of later dead list.
type deadListing struct{ now time.Time }

func (*deadListing) table() *table {
	return newTable("ID", "DIED", "REASON", ">ATTEMPTS", "LAST ERROR", "PAYLOAD")
}

func (l *deadListing) row(info *later.Info) []string {
	return []string{
		printable(info.ID),
		formatTime(info.DiedAt, l.now) + " (" + formatRelative(info.DiedAt, l.now) + ")",
		string(info.DeadReason),
		strconv.Itoa(info.Attempts),
		preview(info.LastError, previewWidth),
		preview(string(info.Payload), previewWidth),
	}
}

func (m *Main) deadReplayCommand() *cobra.Command {
	var all bool
	var w whenFlags
	cmd := &cobra.Command{
		Use:   "replay QUEUE (ID... | --all) [--in DURATION | --at TIME]",
		Short: "Make dead messages live again",
		Long: `Replay makes dead messages live again, due at once or as --in or --at say, with their attempts back at zero; an
expiry that they had no longer counts. --all replays those that are dead when it begins, in many small steps:
when it fails half-way, those before stay replayed.`,
		Example: `  later dead replay orders order-17
  later dead replay orders --all --in 5m`,
		Args:              arguments(1, unlimited),
		ValidArgsFunction: m.queueNames(false),
		RunE: m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
			when, _, err := w.when()
			if err != nil {
				return err
			}
			q, ids, err := selectDead(ctx, c, args, all)
			if err != nil {
				return err
			}
			n, err := q.Replay(ctx, when, ids...)
			return m.bulkDone("replayed", q, n, ids, err)
		}),
	}
	cmd.Flags().BoolVar(&all, "all", false, "replay all dead messages of the queue")
	w.add(cmd.Flags())
	return cmd
}

func (m *Main) deadPurgeCommand() *cobra.Command {
	var all, yes bool
	cmd := &cobra.Command{
		Use:   "purge QUEUE (ID... | --all)",
		Short: "Remove dead messages for good",
		Long: `Purge removes dead messages. It asks before it removes all of them; --yes answers. --all removes those that are
dead when it begins, in many small steps.`,
		Example: `  later dead purge orders order-17
  later dead purge orders --all --yes`,
		Args:              arguments(1, unlimited),
		ValidArgsFunction: m.queueNames(false),
		RunE: m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
			q, ids, err := selectDead(ctx, c, args, all)
			if err != nil {
				return err
			}
			if all && !yes {
				stats, err := q.Stats(ctx)
				if err != nil {
					return err
				}
				if err := m.confirm("Remove %d dead messages of queue %q for good?", stats.Dead, q.Name()); err != nil {
					return err
				}
			}
			n, err := q.PurgeDead(ctx, ids...)
			return m.bulkDone("purged", q, n, ids, err)
		}),
	}
	cmd.Flags().BoolVar(&all, "all", false, "remove all dead messages of the queue")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// selectDead gives the queue and the ids of the arguments; no ids mean all, which must have been said.
func selectDead(ctx context.Context, c *later.Client, args []string, all bool) (*later.Queue, []string, error) {
	ids := args[1:]
	switch {
	case all && len(ids) > 0:
		return nil, nil, store.Invalid("--all and ids are both given: give one")
	case !all && len(ids) == 0:
		return nil, nil, store.Invalid("no ids: give those of dead messages, or --all")
	}
	q, _, err := existing(ctx, c, args[0])
	return q, ids, err
}

// bulkDone tells how many messages something was done to; ids that were not dead are an error.
func (m *Main) bulkDone(done string, q *later.Queue, n int, ids []string, err error) error {
	if err != nil {
		return fmt.Errorf("after %d messages were %s: %w", n, done, err)
	}
	if err := m.printResult(map[string]any{"queue": q.Name(), done: n}, "%s %d", done, n); err != nil {
		return err
	}
	if n < len(ids) {
		return notFound("%d of the %d ids are not dead in queue %q, and nothing was done to them (see later get)",
			len(ids)-n, len(ids), q.Name())
	}
	return nil
}
