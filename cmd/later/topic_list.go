package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/view"
	"github.com/laterq/later/internal/wire"
)

// maxShownFilter is how many characters of a filter a table shows, which is all of them.
const maxShownFilter = 2048

func (m *Main) topicListCommand() *cobra.Command {
	return m.command("list [TOPIC]", "List topics, or the subscriptions of one",
		`List prints each topic with the number of its subscriptions, the counts of messages that are not
distributed yet, and the number of messages in its history. Dead are messages that expired, and with --drop-unsubscribed
of later topic configure also messages that were due while no queue was subscribed.

With TOPIC it prints the topic's configuration, and its subscriptions with their filters and the counts of the
subscribed queues. With --json both print the same object for each topic, which has everything.`,
		`  later topic list
  later topic list orders
  later topic list orders --json | jq -r .subscriptions[].queue`,
		m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
			if len(args) == 0 {
				return m.listTopics(ctx, c)
			}
			t, cfg, _, err := existingTopic(ctx, c, args[0])
			if err != nil {
				return err
			}
			topic, err := view.Topic(ctx, c, t.Name(), true, everyQueue)
			if err != nil {
				return err
			}
			if m.json {
				return m.printJSON(topic)
			}
			return m.print("%s", describeTopic(topic, cfg))
		}))
}

// listTopics prints all topics. It reports damaged topics, and prints the others.
func (m *Main) listTopics(ctx context.Context, c *later.Client) error {
	names, err := c.Topics(ctx)
	if err != nil {
		return err
	}
	t := newTable("TOPIC", ">SUBSCRIPTIONS", ">SCHEDULED", ">READY", ">LEASED", ">DEAD", ">HISTORY")
	var damaged []error
	for _, name := range names {
		topic, err := view.Topic(ctx, c, name, m.json, everyQueue)
		switch {
		case isDamage(err):
			damaged = append(damaged, err)
			continue
		case err != nil:
			return err
		}
		if err := m.row(t, topic, name, len(topic.Subscriptions), topic.Scheduled, topic.Ready, topic.Leased,
			topic.Dead, topic.History); err != nil {
			return err
		}
	}
	if len(names) == 0 && !m.json {
		m.note("there are no topics yet in %s: later topic subscribe TOPIC QUEUE creates one", m.shownURL())
	}
	return m.reportAllButLast(append(damaged, m.flush(t)))
}

func everyQueue(string) bool { return true }

// describeTopic formats a topic as one line per field, followed by its subscriptions.
func describeTopic(topic wire.Topic, cfg later.TopicConfig) string {
	f := &fields{width: 15}
	f.add("topic", topic.Topic)
	f.addf("not distributed", "%d scheduled, %d ready, %d leased, %d dead",
		topic.Scheduled, topic.Ready, topic.Leased, topic.Dead)
	f.add("unsubscribed", describeUnsubscribed(cfg.DropUnsubscribed))
	f.addf("history", "%s; has %d", describeHistory(cfg), topic.History)
	if len(topic.Subscriptions) == 0 {
		return f.String() + fmt.Sprintf("\nNo queue is subscribed: later topic subscribe %s QUEUE\n", topic.Topic)
	}
	t := newTable("QUEUE", ">SCHEDULED", ">READY", ">LEASED", ">DEAD", "WHERE")
	for _, s := range topic.Subscriptions {
		t.add(s.Queue, s.Scheduled, s.Ready, s.Leased, s.Dead, preview(s.Where, maxShownFilter))
	}
	return f.String() + "\n" + t.String()
}
