package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/wire"
)

func (m *Main) topicSubscribeCommand() *cobra.Command {
	var where string
	var from startFlags
	cmd := m.command("subscribe TOPIC QUEUE [--where FILTER] [--from TIME | --from-id ID]",
		"Deliver a topic's messages to a queue",
		fmt.Sprintf(`Subscribe delivers the messages of a topic to a queue: all that are due from now on, and all
that were kept because no queue was subscribed. It replaces the queue's subscription if there is one. The topic and the
queue need not exist. Workers follow within about two seconds. A topic has up to %d subscriptions.

--where takes a list of conditions on headers, which must all hold:

  region=eu                  the header is eu; region==eu is the same
  priority!=low              the header is not low, or there is none
  kind in (order, refund)    the header is one of these
  kind notin (test)          the header is none of these, or there is none
  trace                      there is such a header
  !debug                     there is none

Names and values are quoted like "a b" if they are empty or have anything but letters, digits and . _ - / : @.

With --from or --from-id the queue first receives the topic's history from a due time or a message on; see later topic
configure. To subscribe a topic to another one, give topic:NAME as the queue.`,
			later.MaxSubscriptions),
		`  later topic subscribe orders mail
  later topic subscribe orders audit --where 'region=eu, kind in (order, refund), !test'
  later topic subscribe orders search --from "2030-12-31 00:00"`,
		nil)
	cmd.Flags().StringVar(&where, "where", "", "only messages with headers that match this `FILTER`")
	from.add(cmd, "also the history")
	cmd.RunE = m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
		t := c.Topic(args[0])
		var opts []later.SubscribeOption
		if where != "" {
			opts = append(opts, later.Where(where))
		}
		start, given, err := from.start(cmd)
		if err != nil {
			return err
		}
		if given {
			if err := checkHistory(ctx, t); err != nil {
				return err
			}
			opts = append(opts, start)
		}
		if err := t.Subscribe(ctx, args[1], opts...); err != nil {
			return err
		}
		return m.printResult(wire.Subscribed{Topic: t.Name(), Queue: args[1], Subscribed: true, Where: where},
			"subscribed %s to %s", args[1], t.Name())
	})
	return cmd
}

func (m *Main) topicUnsubscribeCommand() *cobra.Command {
	return m.command("unsubscribe TOPIC QUEUE", "End the subscription of a queue",
		`Unsubscribe ends the subscription of a queue. Messages that the queue has received stay there. Workers
that are distributing messages follow with their next ones.`,
		`  later topic unsubscribe orders mail`,
		m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
			if err := c.Topic(args[0]).Unsubscribe(ctx, args[1]); err != nil {
				return explainNoTopic(ctx, c, args[0], err)
			}
			return m.printResult(wire.Subscribed{Topic: args[0], Queue: args[1]},
				"unsubscribed %s from %s", args[1], args[0])
		}))
}
