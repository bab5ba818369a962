package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/internal/topic"
	"github.com/laterq/later/internal/view"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

func (m *Main) topicCommand() *cobra.Command {
	return m.group("topic publish|subscribe|unsubscribe|list|history|rewind|configure|delete TOPIC",
		"Publish messages that each subscribed queue receives",
		`A topic distributes messages to queues. Each queue that is subscribed when a message is due receives it,
under the same id, and has its own workers, attempts and dead messages: other systems call it a consumer group.

The workers of subscribed queues distribute the messages; they learn of new subscriptions within about two seconds. A
queue without workers needs a worker of another subscribed queue of the topic.

Until a message is due it is in the queue topic:TOPIC, where later get, list, cancel, reschedule and run-now find it.`,
		`  later topic subscribe orders mail
  later topic subscribe orders audit --where 'region=eu, !test'
  later topic publish orders 'order 17' --in 30m --header region=eu
  later work mail`,
		m.topicPublishCommand(), m.topicSubscribeCommand(), m.topicUnsubscribeCommand(),
		m.topicListCommand(),
		m.topicHistoryCommand(), m.topicRewindCommand(), m.topicConfigureCommand(), m.topicDeleteCommand())
}

func (m *Main) topicPublishCommand() *cobra.Command {
	var o sendOptions
	cmd := m.command("publish TOPIC [PAYLOAD|-] [--in DURATION | --at TIME]",
		"Publish a message, or one per line of standard input",
		fmt.Sprintf(`Publish sends a message to a topic and prints its id. Each queue that is subscribed when the
message is due receives it with its headers and limits. Publish takes PAYLOAD, standard input and flags as later send
does; see its help.

Messages that are due while no queue is subscribed wait for the first subscription, unless later topic configure
--drop-unsubscribed says otherwise; a note on standard error says that there is none. The first message creates the
topic. A topic's name has up to %d bytes.`,
			topic.MaxName),
		`  later topic publish orders 'order 17' --in 30m --id order-17
  later topic publish orders - --header region=eu < order.json
  later cancel topic:orders order-17`,
		run(func(ctx context.Context, args []string) error {
			message, err := m.readMessage(args[1:], &o) // before a store is created
			if err != nil {
				return err
			}
			client, err := m.open(ctx)
			if err != nil {
				return err
			}
			defer client.Close()
			t := client.Topic(args[0])
			err = m.sendTo(ctx, destination{t.Queue().Name(), t.PublishMessage, t.PublishBatch}, message, o.batch)
			if err == nil {
				m.noteUnheard(ctx, client, t)
			}
			return err
		}))
	o.add(cmd.Flags())
	return cmd
}

// existingTopic returns the named topic, its configuration and the counts of its queue. If the topic does not exist, it
// returns ErrNotFound with the names of the existing topics.
func existingTopic(ctx context.Context, c *later.Client, name string) (
	*later.Topic, later.TopicConfig, later.Stats, error,
) {
	t := c.Topic(name)
	cfg, err := t.Config(ctx)
	if err != nil {
		return nil, cfg, later.Stats{}, err
	}
	stats, err := t.Queue().Stats(ctx)
	if err != nil || stats.Exists {
		return t, cfg, stats, err
	}
	names, err := c.Topics(ctx)
	if err != nil {
		return nil, cfg, stats, err
	}
	return nil, cfg, stats, missing("topic", name, names, "later topic list", "later topic subscribe TOPIC QUEUE")
}

// explainNoTopic returns err, or a better error if something was not found because the topic does not exist.
func explainNoTopic(ctx context.Context, c *later.Client, topic string, err error) error {
	if errors.Is(err, later.ErrNotFound) {
		if _, _, _, missing := existingTopic(ctx, c, topic); errors.Is(missing, later.ErrNotFound) {
			return missing
		}
	}
	return err
}

// checkHistory returns ErrNotFound unless the topic retains a history.
func checkHistory(ctx context.Context, t *later.Topic) error {
	cfg, err := t.Config(ctx)
	if err == nil && cfg.HistoryAge == 0 && cfg.HistoryCount == 0 {
		err = notFound("topic %q retains no history: later topic configure %s --history-age DURATION sets one",
			t.Name(), t.Name())
	}
	return err
}

// subscribable returns the names of the queues that can be subscribed to topics.
func subscribable(c *later.Client, ctx context.Context) (names []string, err error) {
	all, err := c.Queues(ctx)
	for _, name := range all {
		if reserved.Check(name, reserved.Subscribe) == "" {
			names = append(names, name)
		}
	}
	return names, err
}

// pastTimeValue is the value of a flag for a time in the past: a time of day means the last one.
type pastTimeValue struct{ timeValue }

func (v pastTimeValue) Set(text string) error {
	t, err := parseTime(text, time.Now().AddDate(0, 0, -1)) // the next one after a day ago
	if err != nil {
		return errors.New(
			`give a time such as 15:04 (the last one), "2030-12-31 15:04:05" (both local) or 2030-12-31T15:04:05Z`)
	}
	*v.t = t
	return nil
}

// startFlags are --from and --from-id.
type startFlags struct {
	at time.Time
	id string
}

func (f *startFlags) add(cmd *cobra.Command, what string) {
	cmd.Flags().Var(pastTimeValue{timeValue{&f.at}}, "from", what+" from this due `TIME` on")
	cmd.Flags().StringVar(&f.id, "from-id", "", what+" from the message with this `ID` on")
}

// start returns the place in the history, and reports whether it was given.
func (f *startFlags) start(cmd *cobra.Command) (start later.HistoryStart, given bool, err error) {
	byTime, byID := cmd.Flags().Changed("from"), cmd.Flags().Changed("from-id")
	switch {
	case byTime && byID:
		return start, true, store.Invalid("--from and --from-id are both given: leave out one of them")
	case byTime && f.at.Before(time.UnixMilli(1)):
		return start, true, store.Invalid("--from is %s: must be a time after 1970", f.at.Format(time.RFC3339))
	case byTime:
		return later.From(f.at), true, nil
	case byID:
		err := store.CheckID(f.id)
		if err != nil {
			err = fmt.Errorf("%w (from --from-id)", err)
		}
		return later.FromID(f.id), true, err
	}
	return start, false, nil
}

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
			topic.MaxSubscriptions),
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
		subscribed := wire.Subscribed{Topic: t.Name(), Queue: args[1], Subscribed: true, Where: where}
		return m.printDone(t.Subscribe(ctx, args[1], opts...), subscribed, "subscribed %s to %s", args[1], t.Name())
	})
	return cmd
}

func (m *Main) topicUnsubscribeCommand() *cobra.Command {
	return m.command("unsubscribe TOPIC QUEUE", "End the subscription of a queue",
		`Unsubscribe ends the subscription of a queue. Messages that the queue has received stay there. Workers
that are distributing messages follow with their next ones.`,
		`  later topic unsubscribe orders mail`,
		m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
			err := explainNoTopic(ctx, c, args[0], c.Topic(args[0]).Unsubscribe(ctx, args[1]))
			return m.printDone(err, wire.Subscribed{Topic: args[0], Queue: args[1]},
				"unsubscribed %s from %s", args[1], args[0])
		}))
}

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
