package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

// Pauses between looks at messages that move.
const (
	minShardsLook = 10 * time.Millisecond
	maxShardsLook = 500 * time.Millisecond
)

// shardsNote is how long a change takes before the command says what Ctrl-C does.
const shardsNote = time.Second

func (m *Main) shardsCommand() *cobra.Command {
	return m.command("shards QUEUE [N]", "Divide a queue among several shards, or show them",
		`Shards divides the messages of a queue among N shards, 1 to 64, and waits until all messages are in their new
shards. It creates a queue that does not exist. In a Redis Cluster the shards are on as many servers as possible, so
that a queue can do more than one server can. Producers and workers need no change, and go on while messages move. A
message that a worker holds moves once it is settled.

When Ctrl-C ends the command, the change goes on: any process that uses the queue moves its messages. The number can be
changed again 7 minutes after the last message has moved, or later if shards with a slow rate go.

Without N it prints the shards with their counts, how many messages still have to move ("?" if that is not known), and
which shards do not answer.

The limits of later flow are divided among the shards, so none of them may be smaller than N. All messages of a key are
in one shard, in their order: an id of your own begins with the key and a slash. In a queue in which keys take turns, no
message starts until the messages that are due within a minute have moved.`,
		`  later shards orders 4
  later shards orders
  later shards orders 1`,
		m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
			if len(args) == 1 {
				q, _, err := existingQueue(ctx, c, args[0])
				if err != nil {
					return err
				}
				s, err := q.Shards(ctx)
				if err != nil {
					return err
				}
				return m.printShards(q, s)
			}
			n, err := strconv.Atoi(args[1])
			if err != nil {
				return store.Invalid("number of shards is %q: must be 1 to %d", args[1], store.MaxShards)
			}
			return m.setShards(ctx, c, args[0], n)
		}))
}

// setShards changes the number of shards of a queue, and shows how its messages move until all have.
func (m *Main) setShards(ctx context.Context, c *later.Client, name string, n int) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	q := c.Queue(name)
	before, err := q.Stats(ctx)
	if err != nil {
		return err
	}
	if err := store.SetShards(ctx, c.Store(), name, n); err != nil {
		return err
	}
	s, err := m.awaitShards(ctx, q)
	if err != nil {
		m.note("the change of %s to %d shards has begun, and goes on while a process uses the queue; later shards %s "+
			"shows how far it is", name, n, name)
		return cmp.Or(context.Cause(ctx), err)
	}
	if !before.Exists && n > 1 {
		m.noteNewQueue(ctx, c, name, false)
	}
	return m.printShards(q, s)
}

// awaitShards waits until no message of a queue has to move, and returns its shards then.
func (m *Main) awaitShards(ctx context.Context, q *later.Queue) (later.Shards, error) {
	progress := m.newProgress(false)
	defer progress.clear()
	began, noted := time.Now(), false
	for pause := minShardsLook; ; pause = min(2*pause, maxShardsLook) {
		s, err := q.Shards(ctx)
		if err != nil || !s.Moving {
			return s, err
		}
		if !noted && time.Since(began) > shardsNote {
			noted = true
			m.note("messages move: Ctrl-C leaves that to other processes")
		}
		progress.show(func(elapsed time.Duration) string {
			return fmt.Sprintf("%s  %s  %s", preview(q.Name(), 40), movingText(s), elapsed.Round(time.Second))
		})
		if err := calls.Sleep(ctx, pause); err != nil {
			return s, err
		}
	}
}

// movingText says how far messages have moved. Of the messages of a queue that gets more shards, the new ones get their
// share.
func movingText(s later.Shards) string {
	var all, rest, leased int64 // rest is in the shards that come or go
	for i, one := range s.Each {
		n := one.Stats.Scheduled + one.Stats.Ready + one.Stats.Leased + one.Stats.Dead
		all += n
		if i >= min(s.From, s.Number) {
			rest += n
		}
		if i < s.From && (s.From < s.Number || i >= s.Number) { // messages leave it
			leased += one.Stats.Leased
		}
	}
	text := messages(rest) + " still to move"
	if s.From < s.Number {
		text = fmt.Sprintf("%d of about %s moved", rest, messages(all*int64(s.Number-s.From)/int64(s.Number)))
	}
	if leased > 0 {
		text += fmt.Sprintf(", %d in flight", leased)
	}
	return text
}

func (m *Main) printShards(q *later.Queue, s later.Shards) error {
	if m.json {
		return m.printJSON(wire.NewShards(q.Name(), s))
	}
	text := plural(s.Number, "shard", "shards")
	switch {
	case s.Moving:
		text = fmt.Sprintf("is changing from %d to %s since %s: %s", s.From, text, formatTime(s.Since, time.Now()),
			movingText(s))
		if s.Stopped {
			text += "; no message starts until the messages that are due have moved"
		}
	case !s.Since.IsZero():
		text = fmt.Sprintf("has %s, was changed from %d at %s, and cannot change again for some minutes", text, s.From,
			formatTime(s.Since, time.Now()))
	default:
		text = "has " + text
	}
	t := newTable(">shard", "server", ">scheduled", ">ready", ">leased", ">dead", ">to move", "")
	for _, one := range wire.NewShards(q.Name(), s).Each {
		server := cmp.Or(one.Server, "-")
		if one.Error != nil {
			t.add(one.Shard, server, "-", "-", "-", "-", "-", preview(one.Error.Message, 200))
			continue
		}
		leaving := "?"
		if one.Leaving != nil {
			leaving = strconv.FormatInt(*one.Leaving, 10)
		}
		t.add(one.Shard, server, one.Scheduled, one.Ready, one.Leased, one.Dead, leaving, "")
	}
	return m.print("%s %s\n%s", q.Name(), text, t)
}
