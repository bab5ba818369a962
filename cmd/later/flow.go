package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/durations"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

// flowTries is how often limits are read again because another program has changed them meanwhile.
const flowTries = 20

func (m *Main) flowCommand() *cobra.Command {
	var change later.Flow
	var none bool
	cmd := m.command("flow QUEUE [--concurrency N] [--rate RATE] [--burst N] [--none]",
		"Limit how fast messages of a queue start",
		`Flow limits how many messages of a queue may be in flight at once, and how many may start in a span of time, by all
workers on all machines together. Each flag changes one limit and keeps the others; 0 removes it, and --none removes
all. Without a flag it prints the limits with their present state. Flow creates a queue that does not exist, so that
you can limit it before its first message.

Every worker obeys a change from its next claim on. Messages that are held back stay ready; later get says which limit
a message waits for. Messages that were in flight before the queue had a limit do not count.`,
		`  later flow mail --rate 10/1s --burst 5
  later flow mail --concurrency 20
  later flow mail --none
  later flow mail`,
		nil)
	cmd.Flags().IntVar(&change.Concurrency, "concurrency", 0, "at most this many messages in flight at once")
	cmd.Flags().Var(rateValue{&change.Rate}, "rate", "at most this many starts in a time: 10/1s, 1000/1h")
	cmd.Flags().IntVar(&change.Rate.Burst, "burst", 0, "how many may start at once (default 1)")
	cmd.Flags().BoolVar(&none, "none", false, "remove all limits")
	cmd.RunE = m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
		changed := cmd.Flags().Changed
		limited := changed("concurrency") || changed("rate") || changed("burst")
		switch {
		case none && limited:
			return store.Invalid("--none and a limit are both given: use one of them")
		case !none && !limited:
			q, _, err := existingQueue(ctx, c, args[0])
			if err != nil {
				return err
			}
			return m.printFlow(ctx, q)
		}
		q := c.Queue(args[0])
		existed, err := false, error(nil)
		for range flowTries { // the limits that are not given must be the present ones
			var stats later.Stats
			if stats, err = q.Stats(ctx); err != nil {
				return err
			}
			existed = stats.Exists
			version := ""
			if existed {
				version = stats.Flow.Version()
			}
			flow := stats.Flow.Flow
			if none {
				flow = later.Flow{}
			}
			if changed("concurrency") {
				flow.Concurrency = change.Concurrency
			}
			if changed("rate") {
				flow.Rate.N, flow.Rate.Per = change.Rate.N, change.Rate.Per
			}
			if changed("burst") {
				flow.Rate.Burst = change.Rate.Burst
			}
			if flow.Rate.N == 0 && flow.Rate.Per == 0 {
				if changed("burst") && change.Rate.Burst != 0 {
					return store.Invalid("--burst is for a rate: give --rate, too")
				}
				flow.Rate = later.Rate{}
			}
			err = q.SetFlowIf(ctx, flow, func(now string) bool { return now == version })
			if !errors.Is(err, later.ErrConflict) {
				break
			}
		}
		if err != nil {
			return err
		}
		if err := m.printFlow(ctx, q); err != nil {
			return err
		}
		if !existed {
			m.noteNewQueue(ctx, c, args[0], false)
		}
		return nil
	})
	return cmd
}

func (m *Main) printFlow(ctx context.Context, q *later.Queue) error {
	s, err := q.Flow(ctx)
	if err != nil {
		return err
	}
	if m.json {
		return m.printJSON(wire.Limited{Queue: q.Name(), Flow: wire.NewFlowState(s)})
	}
	var limits []string
	if s.Concurrency > 0 {
		limits = append(limits, fmt.Sprintf("%s in flight (%d now)", messages(s.Concurrency), s.Leased))
	}
	if s.Rate != (later.Rate{}) {
		limits = append(limits, fmt.Sprintf("%v (the next start %s)", s.Rate, nextStart(s)))
	}
	if len(limits) == 0 {
		return m.print("%s has no limits\n", q.Name())
	}
	return m.print("%s is limited to %s\n", q.Name(), strings.Join(limits, " and "))
}

// nextStart returns when the rate allows the next start.
func nextStart(s later.FlowState) string {
	if !s.Next.After(s.Now) {
		return "now"
	}
	return formatTime(s.Next, s.Now)
}

// rateValue is the flag of a rate without its burst. 0 is no limit.
type rateValue struct{ rate *later.Rate }

func (v rateValue) String() string {
	if v.rate == nil || v.rate.N == 0 {
		return ""
	}
	return later.Rate{N: v.rate.N, Per: v.rate.Per}.String()
}

func (v rateValue) Type() string { return "RATE" }

func (v rateValue) Set(text string) error {
	if text == "0" {
		v.rate.N, v.rate.Per = 0, 0
		return nil
	}
	n, per, found := strings.Cut(text, "/")
	if !found {
		return store.Invalid("must be a number of messages and a duration, such as 10/1s, or 0 for no limit")
	}
	var err error
	if v.rate.N, err = strconv.Atoi(n); err != nil || v.rate.N == 0 {
		return store.Invalid("%q must be a number of messages above 0, as in 10/1s; --rate 0 removes the limit", n)
	}
	v.rate.Per, err = durations.Parse(per)
	return err
}
