package main

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/inspect"
	"github.com/laterq/later/store"
)

// searchOptions are the flags of later search.
type searchOptions struct {
	state    string
	group    groupFlag
	inRange  rangeFlags
	headers  []string
	json     string
	look     int
	contents inspect.Filter
}

func (m *Main) searchCommand() *cobra.Command {
	var o searchOptions
	cmd := m.command("search QUEUE", "Find messages by their content",
		`Search prints the messages of a queue that meet all conditions, in the order of later list. Without
--state and --group it searches all states. It reads up to --look messages, however few match, and notes on standard
error if others may match, too. The HTTP API has the same conditions.

--payload-json compares a value in a payload that is JSON:

  total >= 100               a number; the operators are =, !=, <, <=, > and >=
  name ~ Ann                 a text that contains another
  order.items[0].price = 5   a value in an object and a list, by a subset of JSONPath (RFC 9535)
  order.items[*].sku = A-7   any of several values
  order['unit-price'] < 2    a name with other characters than letters, digits and _
  paid != true               also met by payloads without the value, or that are not JSON

--error-pattern takes a pattern that later dead errors prints with --json.

No match is not an error: the exit code is 0. With --json, search prints every field that later get shows.`,
		`  later search orders --payload-json 'order.total >= 100' --state scheduled
  later search orders --header kind=refund --header region=eu --limit 0 --look 0
  later search orders --state dead --error timeout --min-attempts 3 --json | jq -r .id`,
		run(func(ctx context.Context, args []string) error {
			filter, err := o.filter() // before a store is created
			if err != nil {
				return err
			}
			c, err := m.open(ctx)
			if err != nil {
				return err
			}
			defer c.Close()
			q, stats, err := existingQueue(ctx, c, args[0])
			if err != nil {
				return err
			}
			return m.search(ctx, &search{client: c, queue: q, filter: filter, options: &o}, stats.Now)
		}))
	o.add(cmd)
	return cmd
}

func (o *searchOptions) add(cmd *cobra.Command) {
	flags, f := cmd.Flags(), &o.contents
	stateFlag(cmd, &o.state)
	o.group.add(cmd, "only the messages of this `group`, in any state")
	o.inRange.add(flags, "due, or dead messages that died,")
	flags.StringVar(&f.ID, "id", "", "this `TEXT` is in the id")
	flags.StringVar(&f.Payload, "payload", "", "this `TEXT` is in the payload")
	flags.StringVar(&o.json, "payload-json", "", "`CONDITION` for a JSON payload, such as 'order.total >= 100'")
	flags.StringArrayVar(&o.headers, "header", nil, "there is this header, as `key=value`; can be repeated")
	flags.StringVar(&f.Error, "error", "", "this `TEXT` is in the error of a failed attempt")
	flags.StringVar(&f.ErrorPattern, "error-pattern", "", "the last error has this `PATTERN`")
	flags.IntVar(&f.MinAttempts, "min-attempts", 0, "at least `N` failed attempts")
	flags.IntVar(&f.MaxAttempts, "max-attempts", 0, "at most `N` failed attempts; 0 for any number")
	flags.IntVar(&o.look, "look", 100_000, "look at up to `N` messages; 0 for all")
}

// filter returns the filter that the flags select. Its state is empty if they select all states.
func (o *searchOptions) filter() (f inspect.Filter, err error) {
	f = o.contents
	f.State, f.From, f.To = later.State(o.state), o.inRange.from, o.inRange.to
	byGroup, err := o.group.given()
	if err != nil {
		return f, err
	}
	f.Group = o.group.name
	if f.Headers, err = parseHeaders(o.headers); err != nil {
		return f, err
	}
	if o.json != "" {
		if f.JSON, err = inspect.ParseCondition(o.json); err != nil {
			return f, fmt.Errorf("--payload-json: %w", err)
		}
	}
	if err := o.inRange.check(); err != nil {
		return f, err
	}
	if o.look < 0 {
		return f, store.Invalid("--look is %d: must be 1 or more, or 0 for all", o.look)
	}
	checked := f
	if !byGroup && f.State == "" {
		checked.State = later.StateReady // any will do
	}
	return f, checked.Check()
}

func (m *Main) search(ctx context.Context, s *search, now time.Time) error {
	f, o := &s.filter, s.options
	states := []later.State{f.State}
	if f.State == "" && f.Group == "" {
		states = allStates
	}
	s.progress = m.newProgress(true)
	err := m.listMessages(s.queue, s.all(ctx, states), o.inRange.limit, stateListing(now))
	s.progress.clear()
	if err == nil && s.ended {
		m.note("looked at %d messages, others may match too: use a higher --look, or 0 for all", s.looked)
	}
	return err
}

// search reads messages, and counts the messages that it looked at.
type search struct {
	client   *later.Client
	queue    *later.Queue
	filter   inspect.Filter
	options  *searchOptions
	looked   int
	ended    bool // by --look
	progress *progress
}

// all returns the messages in the given states that match.
func (s *search) all(ctx context.Context, states []later.State) iter.Seq2[*later.Info, error] {
	return func(yield func(*later.Info, error) bool) {
		for _, state := range states {
			s.filter.State = state
			for options := (inspect.SearchOptions{Limit: s.options.inRange.page()}); ; {
				if options.Look = s.nextLook(); options.Look == 0 {
					s.ended = true
					return
				}
				page, err := inspect.Search(ctx, s.client, s.queue.Name(), s.filter, options)
				if err != nil {
					yield(nil, err)
					return
				}
				s.looked += page.Looked
				s.progress.show(func(time.Duration) string { return fmt.Sprintf("looked at %d messages", s.looked) })
				for _, info := range page.Messages {
					if !yield(info, nil) {
						return
					}
				}
				if options.Cursor = page.Next; page.Next == "" {
					break
				}
			}
		}
	}
}

// nextLook returns how many messages to look at for the next page; 0 ends the search.
func (s *search) nextLook() int {
	const most = 10_000 // so that progress is shown
	if s.options.look == 0 {
		return most
	}
	return min(most, s.options.look-s.looked)
}
