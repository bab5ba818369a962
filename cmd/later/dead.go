package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/durations"
	"github.com/laterq/later/internal/event"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

func (m *Main) deadCommand() *cobra.Command {
	return m.group("dead list|errors|replay|purge|retain QUEUE", "List, group, replay, purge or limit dead messages",
		`A message is dead when its last attempt failed or its worker died during it, when it was not delivered before
its expiry, when a handler buried it, or when its stored bytes cannot be read. A dead message is kept, with the reason,
until it is replayed, purged or cancelled, or exceeds the limits that later dead retain sets.`,
		`  later dead list orders
  later dead replay orders --all --in 5m
  later dead purge orders order-17`,
		m.deadListCommand(), m.deadErrorsCommand(), m.deadReplayCommand(), m.deadPurgeCommand(),
		m.deadRetainCommand())
}

func (m *Main) deadListCommand() *cobra.Command {
	var r rangeFlags
	cmd := m.command("list QUEUE", "List dead messages and the reasons",
		`List prints the dead messages of a queue by time of death, each with its reason, attempts and last error. With
--json it prints every field that later get shows.`,
		`  later dead list orders --from "2030-12-31 00:00" --limit 0`,
		m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
			if err := r.check(); err != nil {
				return err
			}
			q, stats, err := existingQueue(ctx, c, args[0])
			if err != nil {
				return err
			}
			all := allIn(ctx, q, []later.State{later.StateDead}, r)
			return m.listMessages(q, all, r.limit, deadListing(stats.Now))
		}))
	r.add(cmd.Flags(), "died")
	return cmd
}

// deadListing is the table of later dead list.
func deadListing(now time.Time) listing {
	headings := []string{"ID", "DIED", "REASON", ">ATTEMPTS", "LAST ERROR", "PAYLOAD"}
	return listing{headings, func(info *later.Info) []any {
		return []any{printable(info.ID), formatWhen(info.DiedAt, now), info.DeadReason, info.Attempts,
			preview(info.LastError, previewWidth), preview(string(info.Payload), previewWidth)}
	}}
}

func (m *Main) deadReplayCommand() *cobra.Command {
	var all bool
	var w whenFlags
	cmd := m.command("replay QUEUE (ID... | --all) [--in DURATION | --at TIME]",
		"Make dead messages ready or scheduled again",
		`Replay makes dead messages due again, at once or as --in or --at say. Their attempts start at zero, and their
expiry no longer applies. --all replays the messages that are dead when the command starts, in many small steps; if it
fails halfway, the messages replayed so far stay replayed.`,
		`  later dead replay orders order-17
  later dead replay orders --all --in 5m`,
		m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
			when, _, err := w.when()
			if err != nil {
				return err
			}
			q, ids, err := selectDead(ctx, c, args, all)
			if err != nil {
				return err
			}
			n, err := q.Replay(ctx, when, ids...)
			return m.printBulkResult("replayed", q, n, ids, nil, err)
		}))
	cmd.Flags().BoolVar(&all, "all", false, "replay all dead messages of the queue")
	w.add(cmd.Flags())
	return cmd
}

func (m *Main) deadPurgeCommand() *cobra.Command {
	var all, yes bool
	cmd := m.command("purge QUEUE (ID... | --all)", "Remove dead messages permanently",
		`Purge removes dead messages. --all removes the messages that are dead when the command starts, in many small
steps, and asks for confirmation first unless --yes is set.`,
		`  later dead purge orders order-17
  later dead purge orders --all --yes`,
		m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
			q, ids, err := selectDead(ctx, c, args, all)
			if err != nil {
				return err
			}
			if all && !yes {
				stats, err := q.Stats(ctx)
				if err != nil {
					return err
				}
				if err := m.confirm("Permanently remove %d dead messages from queue %q?", stats.Dead,
					q.Name()); err != nil {
					return err
				}
			}
			var resumed []string
			n, err := q.PurgeDead(event.WithResumed(ctx, &resumed), ids...)
			return m.printBulkResult("purged", q, n, ids, resumed, err)
		}))
	cmd.Flags().BoolVar(&all, "all", false, "remove all dead messages of the queue")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	return cmd
}

// selectDead returns the queue and the ids of the arguments. No ids means all, and requires all to be true.
func selectDead(ctx context.Context, c *later.Client, args []string, all bool) (*later.Queue, []string, error) {
	ids := args[1:]
	switch {
	case all && len(ids) > 0:
		return nil, nil, store.Invalid("--all and ids are both given: use one of them")
	case !all && len(ids) == 0:
		return nil, nil, store.Invalid("no ids: give the ids of dead messages, or --all")
	}
	q, _, err := existingQueue(ctx, c, args[0])
	return q, ids, err
}

// printBulkResult prints how many messages were "replayed" or "purged". It returns an error if some of the ids were not
// dead. resumed are the keys that go on.
func (m *Main) printBulkResult(done string, q *later.Queue, n int, ids, resumed []string, err error) error {
	if err != nil {
		return fmt.Errorf("after %d messages were %s: %w", n, done, err)
	}
	changed := wire.Changed{Queue: q.Name(), Replayed: &n, Resumed: resumed}
	if done == "purged" {
		changed.Replayed, changed.Purged = nil, &n
	}
	text := fmt.Sprintf("%s %d", done, n)
	if len(resumed) > 0 {
		text += "; " + goOn(resumed)
	}
	if err := m.printResult(changed, "%s", text); err != nil {
		return err
	}
	if n < len(ids) {
		return notFound("%d of the %d ids are not dead in queue %q and were left unchanged (see later get)",
			len(ids)-n, len(ids), q.Name())
	}
	return nil
}

// goOn says that halted keys go on, and names up to three.
func goOn(keys []string) string {
	if len(keys) == 1 {
		return "key " + keys[0] + " goes on"
	}
	text := strings.Join(keys[:min(3, len(keys))], ", ")
	if len(keys) > 3 {
		text += ", …"
	}
	return fmt.Sprintf("%d halted keys go on: %s", len(keys), text)
}

func (m *Main) deadRetainCommand() *cobra.Command {
	var r later.Retention
	var forever bool
	cmd := m.command("retain QUEUE [--max-age DURATION] [--max-count N] [--forever]",
		"Limit how long and how many dead messages are kept",
		`Retain limits the dead messages that a queue keeps: by the time since their death, by their number, or
both. New limits replace all earlier ones; --forever removes all limits. Without a flag it prints the limits. Retain
creates a queue that does not exist, so that you can limit it before its first message.

Claims remove the messages that exceed the limits, the oldest deaths first. So a queue without workers keeps its dead
messages. Later stats --json counts the removed messages.`,
		`  later dead retain orders --max-age 30d --max-count 100000
  later dead retain orders --forever
  later dead retain orders`,
		nil)
	durationFlag(cmd.Flags(), &r.MaxAge, "max-age", "keep dead messages for this long")
	cmd.Flags().Int64Var(&r.MaxCount, "max-count", 0, "keep `N` dead messages, the latest deaths")
	cmd.Flags().BoolVar(&forever, "forever", false, "keep all dead messages")
	cmd.RunE = m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
		q, limited := c.Queue(args[0]), slices.ContainsFunc([]string{"max-age", "max-count"}, cmd.Flags().Changed)
		switch {
		case forever && limited:
			return store.Invalid("--forever and a limit are both given: use one of them")
		case limited && r == (later.Retention{}):
			return store.Invalid("the limit is 0: give more, or --forever to keep all dead messages")
		case forever || limited:
			if err := q.SetDeadRetention(ctx, r); err != nil {
				return err
			}
		}
		_, stats, err := existingQueue(ctx, c, args[0])
		if err != nil {
			return err
		}
		return m.printRetention(q, stats)
	})
	return cmd
}

func (m *Main) printRetention(q *later.Queue, stats later.Stats) error {
	var limits []string
	if age := stats.DeadRetention.MaxAge; age > 0 {
		limits = append(limits, "for "+durations.Format(age))
	}
	if n := stats.DeadRetention.MaxCount; n > 0 {
		limits = append(limits, fmt.Sprintf("up to %d", n))
	}
	text := "for ever"
	if len(limits) > 0 {
		text = strings.Join(limits, ", ")
	}
	return m.printResult(wire.Retained{Queue: q.Name(), Retention: wire.NewRetention(stats)},
		"dead messages of %s are kept %s; %d were dropped", q.Name(), text, stats.Dropped)
}
