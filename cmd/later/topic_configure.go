package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/durations"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/internal/view"
	"github.com/laterq/later/internal/wire"
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
		"retain this many messages, the latest due times; 0 for no limit")
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
		if flags.Changed("drop-unsubscribed") {
			cfg.DropUnsubscribed = given.DropUnsubscribed
		}
		if flags.Changed("history-age") {
			cfg.HistoryAge = given.HistoryAge
		}
		if flags.Changed("history-count") {
			cfg.HistoryCount = given.HistoryCount
		}
		if changes {
			// It writes all settings as they were read, so it is refused if another program has changed one since.
			unchanged := func(version string) bool { return version == "" || version == read }
			if err := t.ConfigureIf(ctx, cfg, unchanged); err != nil {
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
			if err := t.Delete(ctx); err != nil {
				return err
			}
			return m.printResult(wire.DeletedTopic{Topic: t.Name(), Deleted: true}, "deleted topic %s", t.Name())
		}))
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	return cmd
}
