package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/inspect"
	"github.com/laterq/later/internal/view"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

// findOptions are the flags of later find.
type findOptions struct {
	queue       string
	limit, look int
}

func (m *Main) findCommand() *cobra.Command {
	var o findOptions
	cmd := m.command("find TEXT...", "Find messages and names in all queues",
		`Find prints all that a text finds in the store: messages with exactly the id, in any state; then names of
queues, topics, schedules and workers that have all words, and groups and reminder series of exactly the name; then
messages that match all conditions of the text:

  refund                       a word in the id, the group, the key or the payload, whatever its case
  '"out of stock"'             a word with spaces
  id:order-17  payload:refund  this is in the id, in the payload
  error:timeout                this is in the error of a failed attempt
  header:kind=mail             a header with this value
  group:customer-9             messages of a group
  pattern:'"HTTP #"'           a pattern that later dead errors prints with --json
  'attempts>=3'                the number of failed attempts
  'order.total>=100'           a value in a JSON payload, as in later search --payload-json

Several arguments are one text with spaces between them. Ids and the names of groups are looked up, so these take little
time in a store with many messages. The messages that match are read, up to --look of them, in all queues but the
internal ones. A note on standard error says how many were looked at.

No match is not an error: the exit code is 0.`,
		`  later find order 42
  later find 'order.total>=100' error:timeout --look 0
  later find refund --queue orders --json | jq -r 'select(.message).message.id'`,
		m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			if o.queue != "" {
				if _, _, err := existingQueue(ctx, c, o.queue); err != nil {
					return err
				}
			}
			return m.find(ctx, c, strings.Join(args, " "), &o)
		}))
	flags := cmd.Flags()
	flags.StringVar(&o.queue, "queue", "", "search only this `QUEUE`")
	flags.IntVar(&o.limit, "limit", defaultListLimit, "list at most `N` messages that match; 0 for all")
	flags.IntVar(&o.look, "look", 1_000_000, "look at up to `N` messages; 0 for all")
	return cmd
}

func (o *findOptions) check() error {
	switch {
	case o.limit < 0:
		return store.Invalid("--limit is %d: must be 1 or more, or 0 for all", o.limit)
	case o.look < 0:
		return store.Invalid("--look is %d: must be 1 or more, or 0 for all", o.look)
	}
	return nil
}

// orAll returns a limit, for which 0 stands for none.
func orAll(limit int) int {
	if limit == 0 {
		return math.MaxInt
	}
	return limit
}

func (m *Main) find(ctx context.Context, c *later.Client, text string, o *findOptions) error {
	list := &foundList{Main: m, progress: m.newProgress(true)}
	options := inspect.FindOptions{Text: text, Queue: o.queue, Limit: orAll(o.limit), Look: orAll(o.look)}
	for found, err := range inspect.Find(ctx, c, options) {
		if err == nil {
			err = list.add(found)
		}
		if err != nil {
			list.progress.clear()
			if list.table != nil { // results before the error
				return errors.Join(list.flushTable(), err)
			}
			return err
		}
	}
	list.progress.clear()
	return list.end()
}

// foundList prints the results of a Find.
type foundList struct {
	*Main
	table    *table
	found    int
	last     *inspect.Progress
	progress *progress
}

func (l *foundList) add(found *inspect.Found) error {
	if l.table == nil {
		l.table = newTable("FOUND BY", "QUEUE", "ID OR NAME", "STATE", "DUE", "PAYLOAD")
	}
	if p := found.Progress; p != nil {
		l.last = p
		l.progress.show(func(time.Duration) string {
			return fmt.Sprintf("looked at %d of %s", p.Looked.Total(), messages(p.Messages.Total()))
		})
		if found.Stage == inspect.ByName || len(l.table.rows) >= store.MaxBatch {
			return l.flushTable()
		}
		return nil
	}
	l.found++
	line := view.Found[later.Info, wire.Note](found, func(info *later.Info) later.Info { return *info })
	if n := found.Name; n != nil {
		return l.row(l.table, line, n.Kind, n.Queue, printable(n.Name), "", "", "")
	}
	info := found.Message
	return l.row(l.table, line, found.Stage, info.Queue, printable(info.ID), info.State, formatWhen(info.Due, time.Now()),
		preview(string(info.Payload), previewWidth))
}

func (l *foundList) flushTable() error {
	err := l.flush(l.table)
	l.table = nil
	return err
}

// end prints the rest, and says where the search has looked.
func (l *foundList) end() error {
	if l.table != nil {
		if err := l.flushTable(); err != nil {
			return err
		}
	}
	p := l.last
	if l.json {
		return l.printJSON(view.Found[later.Info, wire.Note](&inspect.Found{Stage: p.Stage, Progress: p}, nil))
	}
	text := fmt.Sprintf("looked at %d of %s in %s, for %s", p.Looked.Total(), messages(p.Messages.Total()),
		plural(p.Queues, "queue", "queues"), p.Conditions)
	if l.found == 0 {
		text = "nothing was found: " + text
	}
	if p.LeftOut > 0 {
		text += fmt.Sprintf("; %s cannot be read, see later doctor", plural(p.LeftOut, "queue", "queues"))
	}
	if p.NamesLeftOut > 0 {
		text += fmt.Sprintf("; %s not listed: give more of the name", plural(p.NamesLeftOut, "name is", "names are"))
	}
	if p.Next != "" {
		text += "; others may match: use a higher --limit or --look, or 0 for all"
	}
	l.note("%s", text)
	return nil
}
