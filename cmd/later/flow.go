package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/internal/durations"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

// limitFlags are the flags that change a limit.
var limitFlags = []string{"concurrency", "rate", "burst", "fair", "urgency", "key-concurrency", "key-rate", "key-burst",
	"order"}

// flowTries is how often limits are read again because another program has changed them meanwhile.
const flowTries = 20

// flowFlags are the flags of a change of limits.
type flowFlags struct {
	later.Flow
	order       string
	none, drain bool
	set         *pflag.FlagSet
}

func (m *Main) flowCommand() *cobra.Command {
	var flags flowFlags
	cmd := m.command("flow QUEUE [--concurrency N] [--rate RATE] [--fair] [--urgency] "+
		"[--order ORDER] [--none]",
		"Limit how fast messages of a queue start",
		`Flow limits how many messages of a queue may be in flight at once, and how many may start in a span of time, by
all workers on all machines together. Flags with --key- limit each key of its messages in the same way; see --key of
later send. With --fair or a limit of keys, keys take turns: a customer with ten messages does not wait for one with
ten thousand. Messages without a key take turns as one key without limits. later keys shows the keys that wait, and
gives single keys other limits.

With --order the messages of each key start one at a time, in the order of their due times, and a message that fails is
retried before the next one of its key. When it is dead, --order continue goes on with the next one, and --order halt
halts the key until the dead message is replayed or removed, or until later keys QUEUE KEY --resume. --order none also
removes the concurrency of keys.

With --urgency messages may be urgent, and start before others, or of low urgency, and start after them; see --urgency
of later send. Of eight starts in a row at least one is of a normal message, and of 64 one is of low urgency. Keys take
turns among the messages of each urgency.

Each flag changes one limit and keeps the others; 0 removes it, --fair=false removes the limits of keys and the
urgency, and --none all.
Without a flag it prints the limits with their present state. Flow creates a queue that does not exist, so that you can
limit it before its first message. The shards of a queue share its limits, so none may be smaller than their number;
see later shards.

Every worker obeys a change from its next claim on. Messages that are held back stay ready; later get says which limit
a message waits for. Messages that were in flight before the queue had a limit do not count; --drain waits until they
are done.`,
		`  later flow mail --rate 10/1s --burst 5
  later flow mail --concurrency 20
  later flow mail --key-concurrency 1 --key-rate 1/1m
  later flow mail --fair
  later flow accounts --order halt --drain
  later flow mail --urgency
  later flow mail --none
  later flow mail`,
		nil)
	flags.set = cmd.Flags()
	flags.set.IntVar(&flags.Concurrency, "concurrency", 0, "at most `N` messages in flight at once")
	flags.set.Var(rateValue{&flags.Rate}, "rate", "at most this many starts in a time: 10/1s, 1000/1h")
	flags.set.IntVar(&flags.Rate.Burst, "burst", 0, "`N` may start at once (default 1)")
	flags.set.BoolVar(&flags.Fair, "fair", false, "keys take turns")
	flags.set.BoolVar(&flags.Urgency, "urgency", false, "urgent messages start first")
	flags.set.IntVar(&flags.Key.Concurrency, "key-concurrency", 0, "at most `N` messages of each key in flight")
	flags.set.Var(rateValue{&flags.Key.Rate}, "key-rate", "at most this many starts of each key in a time: 1/1m")
	flags.set.IntVar(&flags.Key.Rate.Burst, "key-burst", 0, "`N` of a key may start at once (default 1)")
	choice(cmd, &flags.order, "order", "", "`ORDER` of the messages of each key: continue, halt or none",
		"continue", "halt", "none")
	flags.set.BoolVar(&flags.none, "none", false, "remove all limits")
	flags.set.BoolVar(&flags.drain, "drain", false, "wait until the messages in flight at the change are done")
	cmd.RunE = m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
		limited := slices.ContainsFunc(limitFlags, flags.set.Changed)
		if flags.none && limited {
			return store.Invalid("--none and a limit are both given: use one of them")
		}
		if flags.drain && !limited {
			return store.Invalid("--drain waits after a change of limits: give a limit, too")
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
		if err == nil && created {
			m.noteNewQueue(ctx, c, args[0], false)
		}
		if err == nil && flags.drain {
			err = m.awaitLeased(ctx, q)
		}
		if err != nil {
			return err
		}
		return m.printFlow(ctx, q)
	})
	return cmd
}

// flowLook is how often the messages in flight are listed while the command waits for them.
const flowLook = 500 * time.Millisecond

// awaitLeased waits until the messages that are leased now have been settled, or their leases have ended.
func (m *Main) awaitLeased(ctx context.Context, q *later.Queue) error {
	before, err := leasedIDs(ctx, q)
	if err != nil || len(before) == 0 {
		return err
	}
	m.note("waiting for %s in flight", messages(len(before)))
	for {
		if err := calls.Sleep(ctx, flowLook); err != nil {
			m.note("the limits are set, and not all messages that were in flight are done")
			return err
		}
		now, err := leasedIDs(ctx, q)
		if err != nil {
			return err
		}
		maps.DeleteFunc(before, func(id string, _ struct{}) bool { _, still := now[id]; return !still })
		if len(before) == 0 {
			return nil
		}
	}
}

// leasedIDs returns the ids of the leased messages of a queue.
func leasedIDs(ctx context.Context, q *later.Queue) (map[string]struct{}, error) {
	ids := map[string]struct{}{}
	for info, err := range q.All(ctx, later.ListOptions{State: later.StateLeased, Limit: store.MaxBatch}) {
		if err != nil {
			return nil, err
		}
		ids[info.ID] = struct{}{}
	}
	return ids, nil
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
		err = q.SetFlow(ctx, flow, func(now string) bool { return now == version })
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
	if f.set.Changed("fair") {
		if flow.Fair = f.Fair; !f.Fair {
			flow.Key, flow.Urgency = later.KeyFlow{}, false
		}
	}
	take(f.set, "urgency", &flow.Urgency, f.Urgency)
	take(f.set, "concurrency", &flow.Concurrency, f.Concurrency)
	if err := f.changeOrder(&flow.Key); err != nil {
		return flow, err
	}
	take(f.set, "key-concurrency", &flow.Key.Concurrency, f.Key.Concurrency)
	if err := changeRate(f.set, &flow.Rate, f.Rate, ""); err != nil {
		return flow, err
	}
	return flow, changeRate(f.set, &flow.Key.Rate, f.Key.Rate, "key-")
}

// changeOrder changes the order of keys. The concurrency of 1 that an order implies goes with it.
func (f *flowFlags) changeOrder(key *later.KeyFlow) error {
	if !f.set.Changed("order") {
		return nil
	}
	had := key.Order != later.OrderNone
	if key.Order = later.Order(f.order); f.order == "none" {
		key.Order = later.OrderNone
	}
	if had && key.Order == later.OrderNone {
		key.Concurrency = 0
	}
	if key.Order.Check() != nil {
		return store.Invalid("--order is %q: must be continue, halt or none", f.order)
	}
	return nil
}

// changeRate changes the parts of a rate that are given by flags with a prefix.
func changeRate(flags *pflag.FlagSet, rate *later.Rate, given later.Rate, prefix string) error {
	take(flags, prefix+"rate", &rate.N, given.N)
	take(flags, prefix+"rate", &rate.Per, given.Per)
	take(flags, prefix+"burst", &rate.Burst, given.Burst)
	if rate.N == 0 {
		if given.Burst != 0 {
			return store.Invalid("--%sburst is for a rate: give --%srate, too", prefix, prefix)
		}
		*rate = later.Rate{}
	}
	return nil
}

func (m *Main) printFlow(ctx context.Context, q *later.Queue) error {
	s, err := q.Flow(ctx)
	if err != nil {
		return err
	}
	if m.json {
		return m.printJSON(wire.Limited{Queue: q.Name(), Flow: wire.NewFlowState(s)})
	}
	limits := limitsText(s.Concurrency, s.Leased, s.Rate, s.Next, s.Now)
	if len(limits) == 0 && !s.Fair {
		return m.print("%s has no limits\n", q.Name())
	}
	if len(limits) == 0 {
		return m.print("keys of %s %s\n", q.Name(), turnsText(s))
	}
	text := "is limited to " + strings.Join(limits, " and ")
	if s.Fair {
		text += "; its keys " + turnsText(s)
	}
	return m.print("%s %s\n", q.Name(), text)
}

// limitsText returns the limits of a queue or a key with their state.
func limitsText(concurrency, leased int, rate later.Rate, next, now time.Time) (limits []string) {
	if concurrency > 0 {
		limits = append(limits, fmt.Sprintf("%s in flight (%d now)", messages(concurrency), leased))
	}
	if rate != (later.Rate{}) {
		start := "now"
		if next.After(now) {
			start = formatTime(next, now)
		}
		limits = append(limits, fmt.Sprintf("%v (the next start %s)", rate, start))
	}
	return limits
}

// turnsText says that keys take turns, with the limits of each key and how many wait.
func turnsText(s later.FlowState) string {
	text := "take turns"
	if s.Urgency {
		text += " by urgency"
	}
	var limits []string
	switch {
	case s.Key.Order == later.OrderHalt:
		text += ", each in order until a message of it is dead"
	case s.Key.Order == later.OrderContinue:
		text += ", each in order"
	case s.Key.Concurrency > 0:
		limits = append(limits, messages(s.Key.Concurrency)+" in flight")
	}
	if s.Key.Rate != (later.Rate{}) {
		limits = append(limits, s.Key.Rate.String())
	}
	if len(limits) > 0 {
		text += ", each limited to " + strings.Join(limits, " and ")
	}
	counts := fmt.Sprintf("%d waiting, %d full, %d resting", s.Keys.Waiting, s.Keys.Full, s.Keys.Resting)
	if s.Key.Order == later.OrderHalt {
		counts += fmt.Sprintf(", %d halted", s.Keys.Halted)
	}
	return text + " (" + counts + ")"
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
