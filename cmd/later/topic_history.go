package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/durations"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/internal/view"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

func (m *Main) topicConfigureCommand() *cobra.Command {
	var given later.TopicConfig
	cmd := m.command("configure TOPIC [--drop-unsubscribed] [--history-age DURATION] [--history-count N]",
		"Set how long a topic keeps messages",
		`Configure sets the policy for messages that are due while no queue is subscribed, and how long and how
many distributed messages are retained as history. Settings without a flag stay as they are; without any flag, configure
prints them. It creates a topic that does not exist. Workers follow with their next messages.

Without --drop-unsubscribed messages wait for the first subscription. With it the first subscription makes them dead,
and the topic's queue keeps the last 1,000 of them.

History costs as much memory as the same messages in a queue. By default there is none. The workers of subscribed queues
trim it about every second, and while no messages are due every minute.`,
		`  later topic configure orders --history-age 24h --history-count 100000
  later topic configure orders --history-age 0s --history-count 0
  later topic configure orders --drop-unsubscribed=false`,
		nil)
	flags := cmd.Flags()
	flags.BoolVar(&given.DropUnsubscribed, "drop-unsubscribed", false,
		"messages that are due while no queue is subscribed become dead")
	durationFlag(flags, &given.HistoryAge, "history-age",
		"retain messages for this long after they were due; 0s for no limit")
	flags.Int64Var(&given.HistoryCount, "history-count", 0,
		"retain `N` messages, the latest due times; 0 for no limit")
	cmd.RunE = m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
		t := c.Topic(args[0])
		changes := flags.Changed("drop-unsubscribed") || flags.Changed("history-age") || flags.Changed("history-count")
		if !changes {
			if _, _, _, err := existingTopic(ctx, c, args[0]); err != nil {
				return err
			}
		}
		cfg, err := t.Config(ctx)
		if err != nil {
			return err
		}
		read := cfg.Version()
		take(flags, "drop-unsubscribed", &cfg.DropUnsubscribed, given.DropUnsubscribed)
		take(flags, "history-age", &cfg.HistoryAge, given.HistoryAge)
		take(flags, "history-count", &cfg.HistoryCount, given.HistoryCount)
		if changes {
			// It writes all settings as they were read, so it is refused if another program has changed one since.
			unchanged := func(version string) bool { return version == "" || version == read }
			if err := t.Configure(ctx, cfg, unchanged); err != nil {
				return err
			}
		}
		shown := view.TopicConfig(cfg)
		return m.printResult(wire.ConfiguredTopic{Topic: t.Name(), TopicConfig: shown},
			"topic %s: unsubscribed messages are %s; history: %s",
			t.Name(), describeUnsubscribed(cfg.DropUnsubscribed), describeHistory(cfg))
	})
	return cmd
}

func describeUnsubscribed(drop bool) string {
	if drop {
		return "dropped: dead, the last 1,000 kept"
	}
	return "kept for the first subscription"
}

// describeHistory describes the limits of a topic's history.
func describeHistory(cfg later.TopicConfig) string {
	var limits []string
	if cfg.HistoryAge > 0 {
		limits = append(limits, "for "+durations.Format(cfg.HistoryAge))
	}
	if cfg.HistoryCount > 0 {
		limits = append(limits, fmt.Sprintf("up to %d messages", cfg.HistoryCount))
	}
	if len(limits) == 0 {
		return "none"
	}
	return strings.Join(limits, ", ")
}

func (m *Main) topicDeleteCommand() *cobra.Command {
	var yes bool
	cmd := m.command("delete TOPIC", "Delete a topic with its subscriptions and history",
		`Delete removes a topic with its configuration, its subscriptions, its history and the messages that are
not distributed yet. Messages that queues have received stay there. It asks for confirmation first unless --yes is set.
A message published afterwards creates the topic again.`,
		`  later topic delete orders`,
		m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
			t, _, stats, err := existingTopic(ctx, c, args[0])
			if err != nil {
				return err
			}
			if !yes {
				subscriptions, err := t.Subscriptions(ctx)
				if err != nil {
					return err
				}
				history, err := c.Queue(reserved.History + t.Name()).Stats(ctx)
				if err != nil {
					return err
				}
				if err := m.confirm("Delete topic %q with %d subscriptions, %d messages of history and %s?",
					t.Name(), len(subscriptions), history.Ready, countsOf(stats, nil)); err != nil {
					return err
				}
			}
			return m.printDone(t.Delete(ctx), wire.DeletedTopic{Topic: t.Name(), Deleted: true}, "deleted topic %s", t.Name())
		}))
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	return cmd
}

func (m *Main) topicHistoryCommand() *cobra.Command {
	var r rangeFlags
	cmd := m.command("history TOPIC [--from TIME] [--to TIME]", "List the messages that a topic retains",
		`History prints the distributed messages that a topic retains, by due time; see later topic configure. With
--json it prints every field that later get shows.`,
		`  later topic history orders --from 09:00
  later topic history orders --limit 0 --json`,
		m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
			if err := r.check(); err != nil {
				return err
			}
			t, _, stats, err := existingTopic(ctx, c, args[0])
			if err != nil {
				return err
			}
			all := allIn(ctx, c.Queue(reserved.History+t.Name()), []later.State{later.StateReady}, r)
			listed, err := m.printMessages(all, r.limit, historyListing(stats.Now))
			if listed > 0 || err != nil || m.json {
				return err
			}
			if err := checkHistory(ctx, t); err != nil {
				return err
			}
			m.note("no matching messages in the history of topic %q", t.Name())
			return nil
		}))
	cmd.Flags().Var(pastTimeValue{timeValue{&r.from}}, "from", "only messages due at this time or later")
	cmd.Flags().Var(pastTimeValue{timeValue{&r.to}}, "to", "only messages due before this time")
	r.addLimit(cmd.Flags())
	return cmd
}

// historyListing is the table of later topic history.
func historyListing(now time.Time) listing {
	return listing{[]string{"ID", "DUE", "HEADERS", "PAYLOAD"}, func(info *later.Info) []any {
		return []any{printable(info.ID), formatWhen(info.Due, now), preview(formatHeaders(info.Headers), previewWidth),
			preview(string(info.Payload), previewWidth)}
	}}
}

// formatHeaders formats headers in order of name: kind=x region=eu.
func formatHeaders(headers map[string]string) string {
	all := make([]string, 0, len(headers))
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		all = append(all, name+"="+headers[name])
	}
	return strings.Join(all, " ")
}

func (m *Main) topicRewindCommand() *cobra.Command {
	var from startFlags
	cmd := m.command("rewind TOPIC QUEUE --from TIME | --from-id ID", "Deliver history to a subscribed queue again",
		`Rewind delivers the messages of the topic's history, from a due time or a message on, up to now, to a
subscribed queue again, as far as they match the subscription's filter. The messages start without failed attempts and
no longer expire.

A message that the queue still has, dead ones included, is left alone, and so is one with an id within its dedup window.
To receive dead messages again, use later dead replay.`,
		`  later topic rewind orders search --from 09:00
  later topic rewind orders search --from 2030-12-31T00:00:00Z
  later topic rewind orders search --from-id order-1`,
		nil)
	from.add(cmd, "start")
	cmd.RunE = m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
		start, given, err := from.start(cmd)
		if err != nil {
			return err
		}
		if !given {
			return store.Invalid(
				`no time: give --from, such as --from 09:00 (the last one) or --from "2030-12-31 15:04:05", ` +
					"or --from-id")
		}
		t, _, stats, err := existingTopic(ctx, c, args[0])
		if err != nil {
			return err
		}
		if from.at.After(stats.Now) {
			return store.Invalid("--from is %s, which is in the future: must be a time in the past",
				from.at.Format(time.RFC3339))
		}
		if err := checkHistory(ctx, t); err != nil {
			return err
		}
		r, err := t.Rewind(ctx, args[1], start)
		return m.printDone(err, wire.Rewound{Topic: t.Name(), Queue: args[1], Sent: r.Sent, Kept: r.Kept},
			"sent %d messages to %s; %d were left out, because %s has or remembers them, or its filter does not match",
			r.Sent, args[1], r.Kept, args[1])
	})
	return cmd
}
