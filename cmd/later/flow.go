package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/durations"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

// flowTries is how often limits are read again because another program has changed them meanwhile.
const flowTries = 20

// flowFlags are the flags of a change of limits.
type flowFlags struct {
	later.Flow
	none bool
	set  *pflag.FlagSet
}

func (m *Main) flowCommand() *cobra.Command {
	var flags flowFlags
	cmd := m.command("flow QUEUE [--concurrency N] [--rate RATE] [--burst N] [--none]",
		"Limit how fast messages of a queue start",
		`Flow limits how many messages of a queue may be in flight at once, and how many may start in a span of time, by
all workers on all machines together. Each flag changes one limit and keeps the others; 0 removes it, and --none removes
all. Without a flag it prints the limits with their present state. Flow creates a queue that does not exist, so that
you can limit it before its first message.

Every worker obeys a change from its next claim on. Messages that are held back stay ready; later get says which limit
a message waits for. Messages that were in flight before the queue had a limit do not count.`,
		`  later flow mail --rate 10/1s --burst 5
  later flow mail --concurrency 20
  later flow mail --none
  later flow mail`,
		nil)
	flags.set = cmd.Flags()
	flags.set.IntVar(&flags.Concurrency, "concurrency", 0, "at most this many messages in flight at once")
	flags.set.Var(rateValue{&flags.Rate}, "rate", "at most this many starts in a time: 10/1s, 1000/1h")
	flags.set.IntVar(&flags.Rate.Burst, "burst", 0, "how many may start at once (default 1)")
	flags.set.BoolVar(&flags.none, "none", false, "remove all limits")
	cmd.RunE = m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
		limited := flags.set.Changed("concurrency") || flags.set.Changed("rate") || flags.set.Changed("burst")
		if flags.none && limited {
			return store.Invalid("--none and a limit are both given: use one of them")
		}
		if !flags.none && !limited {
			q, _, err := existingQueue(ctx, c, args[0])
			if err != nil {
				return err
			}
			return m.printFlow(ctx, q)
		}
		q := c.Queue(args[0])
		created, err := flags.change(ctx, q)
		if err == nil {
			err = m.printFlow(ctx, q)
		}
		if err == nil && created {
			m.noteNewQueue(ctx, c, args[0], false)
		}
		return err
	})
	return cmd
}

// change changes the limits of a queue that are given, and no other ones, also while other programs change them. It
// reports whether it has created the queue.
func (f *flowFlags) change(ctx context.Context, q *later.Queue) (created bool, err error) {
	for range flowTries {
		stats, err := q.Stats(ctx)
		if err != nil {
			return false, err
		}
		version := ""
		if stats.Exists {
			version = stats.Flow.Version()
		}
		flow, err := f.of(stats.Flow.Flow)
		if err != nil {
			return false, err
		}
		err = q.SetFlowIf(ctx, flow, func(now string) bool { return now == version })
		if !errors.Is(err, later.ErrConflict) {
			return !stats.Exists, err
		}
	}
	return false, fmt.Errorf("other programs change the limits of queue %q all the time: try again: %w", q.Name(),
		later.ErrConflict)
}

// of returns the limits of a queue after the change.
func (f *flowFlags) of(flow later.Flow) (later.Flow, error) {
	if f.none {
		return later.Flow{}, nil
	}
	if f.set.Changed("concurrency") {
		flow.Concurrency = f.Concurrency
	}
	if f.set.Changed("rate") {
		flow.Rate.N, flow.Rate.Per = f.Rate.N, f.Rate.Per
	}
	if f.set.Changed("burst") {
		flow.Rate.Burst = f.Rate.Burst
	}
	if flow.Rate.N == 0 {
		if f.set.Changed("burst") && f.Rate.Burst != 0 {
			return flow, store.Invalid("--burst is for a rate: give --rate, too")
		}
		flow.Rate = later.Rate{}
	}
	return flow, nil
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
