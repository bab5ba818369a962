package main

import (
	"context"
	"log/slog"
	"slices"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/nearest"
)

// didYouMeanName is the end of a text about a name that the store does not have: the most similar of its names.
func didYouMeanName(name string, names []string) string {
	if similar, ok := nearest.Word(name, names); ok {
		return "; did you mean " + similar + "?"
	}
	return ""
}

// noteNewQueue notes that a command created a queue, because its name may be mistyped. With onlySimilar it does so only
// if another queue has a similar name.
func (m *Main) noteNewQueue(ctx context.Context, c *later.Client, name string, onlySimilar bool) {
	names, err := c.Queues(ctx)
	if err != nil {
		return // the command has done its work
	}
	similar := didYouMeanName(name, without(names, name))
	if similar != "" || !onlySimilar {
		m.note("queue %q did not exist and was created%s", name, similar)
	}
}

// without returns the names other than name.
func without(names []string, name string) []string {
	return slices.DeleteFunc(names, func(other string) bool { return other == name })
}

// logAbsentQueues logs which of a worker's queues do not exist yet.
func logAbsentQueues(ctx context.Context, c *later.Client, log *slog.Logger, queues []string) {
	names, err := c.Queues(ctx)
	if err != nil {
		return // the worker reports it, and tries again
	}
	for _, queue := range queues {
		if !slices.Contains(names, queue) {
			log.Warn("queue does not exist yet: waiting for its first message"+didYouMeanName(queue, names),
				"queue", queue)
		}
	}
}

// noteUnheard notes that a message was published to a topic without subscriptions.
func (m *Main) noteUnheard(ctx context.Context, c *later.Client, t *later.Topic) {
	subscriptions, err := t.Subscriptions(ctx)
	if err != nil || len(subscriptions) > 0 {
		return // the message is sent
	}
	cfg, err := t.Config(ctx)
	if err != nil {
		return
	}
	names, err := c.Topics(ctx)
	if err != nil {
		return
	}
	what := "waits for the first one"
	if cfg.DropUnsubscribed {
		what = "is dropped if there is none when it is due"
	}
	m.note("topic %q has no subscriptions: a message %s%s", t.Name(), what,
		didYouMeanName(t.Name(), without(names, t.Name())))
}
