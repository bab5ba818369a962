package main

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

// keysFlags are the flags of later keys.
type keysFlags struct {
	overridden, halted, inherit, resume bool
	concurrency, weight                 int
	rate                                later.Rate
	set                                 *pflag.FlagSet
}

func (m *Main) keysCommand() *cobra.Command {
	var flags keysFlags
	cmd := m.command("keys QUEUE [KEY] [--overridden] [--halted] [--concurrency N] [--rate RATE] [--weight N] "+
		"[--resume]",
		"List the keys that wait, or give a key limits of its own",
		`Keys lists the keys of a queue that have ready messages, and the reason why each waits: its turn, as many of its
messages in flight as it may have (full), or its rate (resting). A key waits from the claim on that finds its first
message ready. With KEY it prints that key, whether or not it waits.

A key with an order (see later flow --order) also waits while a message of it that has started is not done (held), and
while a dead one halts it (halted). --halted lists the halted keys. --resume lets KEY go on with its next message; to
have the dead one start first, use later dead replay QUEUE ID instead.

Flags give KEY limits that differ from the limits that later flow sets for each key: each flag changes one, and 0
removes the limit of a concurrency or rate. The weight is its share of the starts among the keys that wait: a key with
weight 3 starts three messages for one of a key with weight 1. --inherit removes all limits of its own.`,
		`  later keys mail
  later keys mail customer-7
  later keys mail customer-7 --concurrency 5 --weight 3
  later keys mail customer-7 --inherit
  later keys mail --overridden
  later keys accounts --halted
  later keys accounts account-7 --resume`,
		nil)
	flags.set = cmd.Flags()
	flags.set.BoolVar(&flags.overridden, "overridden", false, "list the keys with limits of their own")
	flags.set.BoolVar(&flags.halted, "halted", false, "list the keys that a dead message halts")
	flags.set.IntVar(&flags.concurrency, "concurrency", 0, "at most `N` messages of the key in flight at once")
	flags.set.Var(rateValue{&flags.rate}, "rate", "at most this many starts of the key in a time: 10/1s")
	flags.set.IntVar(&flags.rate.Burst, "burst", 0, "`N` of the key may start at once (default 1)")
	flags.set.IntVar(&flags.weight, "weight", 0, "share `N` among the keys that wait (default 1)")
	flags.set.BoolVar(&flags.inherit, "inherit", false, "remove the key's own limits")
	flags.set.BoolVar(&flags.resume, "resume", false, "let the halted key go on with its next message")
	cmd.RunE = m.withClient(func(ctx context.Context, c *later.Client, args []string) error {
		if err := flags.check(len(args) == 2); err != nil {
			return err
		}
		q, stats, err := existingQueue(ctx, c, args[0])
		if err != nil {
			return err
		}
		if !stats.Flow.Fair {
			return store.Invalid("keys of queue %q have no limits and take no turns: later flow %s --fair lets them",
				q.Name(), q.Name())
		}
		if len(args) == 1 {
			return m.listKeys(ctx, q, &flags, stats.Ready)
		}
		state, err := keyOf(ctx, q, args[1])
		switch {
		case err == nil && flags.resume:
			if err = q.ResumeKey(ctx, args[1]); err == nil {
				state, err = keyOf(ctx, q, args[1])
			}
		case err == nil && flags.changes():
			state, err = flags.change(ctx, q, state)
		}
		if err != nil {
			return err
		}
		t := newKeyTable()
		m.keyRow(t, q, &state)
		return m.flush(t)
	})
	return cmd
}

// keyChanges are the flags that change a key. Those before --inherit set a limit of its own.
var keyChanges = []string{"concurrency", "rate", "burst", "weight", "inherit", "resume"}

func (f *keysFlags) changes() bool { return slices.ContainsFunc(keyChanges, f.set.Changed) }

func (f *keysFlags) check(key bool) error {
	switch {
	case !key && f.resume:
		return store.Invalid("--resume is given without a key: name it behind the queue")
	case !key && f.changes():
		return store.Invalid("limits are given without a key: name it behind the queue, or set the limits of all keys " +
			"with later flow")
	case key && f.overridden:
		return store.Invalid("--overridden and a key are both given: use one of them")
	case key && f.halted:
		return store.Invalid("--halted and a key are both given: use one of them")
	case f.overridden && f.halted:
		return store.Invalid("--overridden and --halted are both given: use one of them")
	case f.resume:
		return f.alone("resume", keyChanges[:5])
	case f.inherit:
		return f.alone("inherit", keyChanges[:4])
	}
	return nil
}

// alone returns an ErrInvalid if one of some other flags is given beside a flag.
func (f *keysFlags) alone(flag string, others []string) error {
	if i := slices.IndexFunc(others, f.set.Changed); i >= 0 {
		return store.Invalid("--%s and --%s are both given: use one of them", flag, others[i])
	}
	return nil
}

// change sets the limits that are given, and returns the new state of the key.
func (f *keysFlags) change(ctx context.Context, q *later.Queue, s later.KeyState) (later.KeyState, error) {
	o, err := f.of(s)
	if err == nil {
		err = q.SetKeyFlow(ctx, s.Key, o)
	}
	if err != nil {
		return s, err
	}
	return keyOf(ctx, q, s.Key)
}

// of returns the override of a key after the change.
func (f *keysFlags) of(s later.KeyState) (o later.KeyOverride, err error) {
	if f.inherit {
		return o, nil
	}
	if s.Override != nil {
		o = *s.Override
	}
	take(f.set, "concurrency", &o.Concurrency, &f.concurrency)
	take(f.set, "weight", &o.Weight, &f.weight)
	if f.set.Changed("rate") || f.set.Changed("burst") {
		rate := s.Rate
		err = changeRate(f.set, &rate, f.rate, "")
		o.Rate = &rate
	}
	return o, err
}

func keyOf(ctx context.Context, q *later.Queue, key string) (later.KeyState, error) {
	if err := store.CheckKey(key); err != nil {
		return later.KeyState{}, err
	}
	keys, err := q.Keys(ctx, later.KeysRequest{Key: key})
	if err == nil && len(keys) == 0 { // its flow was changed meanwhile
		err = store.NotFair(q.Name())
	}
	if err != nil {
		return later.KeyState{}, err
	}
	return keys[0], nil
}

func (m *Main) listKeys(ctx context.Context, q *later.Queue, f *keysFlags, ready int64) error {
	t, none := newKeyTable(), "that wait"
	switch {
	case f.halted:
		none = "that are halted"
	case f.overridden:
		none = "with limits of their own"
	case ready > 0:
		none = "that wait: no worker has looked yet at its " + messages(ready) + " that are due"
	}
	for after := ""; ; {
		keys, err := q.Keys(ctx, later.KeysRequest{Overridden: f.overridden, Halted: f.halted, After: after})
		switch {
		case err != nil:
			return err
		case len(keys) == 0 && after == "" && !m.json:
			return m.print("%s has no keys %s\n", q.Name(), none)
		case len(keys) == 0:
			return m.flush(t)
		}
		for i := range keys {
			if err := m.keyRow(t, q, &keys[i]); err != nil {
				return err
			}
		}
		if after = keys[len(keys)-1].Key; after == "" { // the last page
			return m.flush(t)
		}
	}
}

func newKeyTable() *table {
	return newTable("key", ">waiting", "first due", ">in flight", "waits for", "limits")
}

func (m *Main) keyRow(t *table, q *later.Queue, s *later.KeyState) error {
	shown := wire.NewKey(s)
	concurrency := s.Concurrency
	if s.Order != later.OrderNone {
		concurrency = 0 // 1, as the order implies
	}
	key, first, limits := cmp.Or(s.Key, "(none)"), "-", limitsText(concurrency, s.Leased, s.Rate, s.Next, s.Now)
	if !s.Since.IsZero() {
		first = formatTime(s.Since, s.Now)
	}
	if s.Weight != 1 {
		limits = append(limits, "weight "+strconv.Itoa(s.Weight))
	}
	reason := shown.Reason
	switch reason {
	case "":
		reason = "-"
	case wire.KeyHeld, wire.KeyHalted:
		reason += " by " + s.Holder
	}
	if s.Order != later.OrderNone {
		limits = append(limits, "in order")
	}
	text := strings.Join(limits, " and ")
	if s.Override != nil {
		text += " (its own)"
	}
	return m.row(t, wire.LimitedKey{Queue: q.Name(), Key: shown}, key, s.Waiting, first, s.Leased, reason, text)
}
