package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/laterq/later/internal/benchmark"
	"github.com/laterq/later/internal/durations"
	"github.com/laterq/later/store"
)

// benchOptions are the flags of later bench.
type benchOptions struct {
	run      []string
	quick    bool
	messages int
	size     int
	rate     int
	duration time.Duration
	delay    time.Duration
	herd     int
	handlers int
	pinger   bool

	sendFor time.Duration // limit of each send measurement
	idleFor time.Duration
}

const (
	maxBenchMessages = 10_000_000
	maxBenchRate     = 1_000_000
	maxBenchHandlers = 10_000
	maxBenchDuration = time.Hour
)

func (m *Main) benchCommand() *cobra.Command {
	o := benchOptions{
		run: benchNames, messages: 200_000, size: 100, rate: 500, duration: 10 * time.Second, delay: 3 * time.Second,
		herd: 100_000, handlers: 32,
		sendFor: 3 * time.Second, idleFor: 10 * time.Second,
	}
	cmd := m.command("bench", "Measure your own setup: rates, lateness, idle cost, memory",
		`Bench measures Later on the selected store, from this machine, in about a minute:

  send        messages per second from 1, 32 and 1000 goroutines that each send one at a time, and in batches
  drain       messages per second that --handlers handlers take when all messages are due and handlers do nothing
  lateness    time from a message's due time to its handler, at --rate messages per second with random delays up to
              --delay. It is measured with this machine's clock: with a Redis elsewhere, it includes the
              difference between the two clocks, which can make a message look early
  idle        cost of a worker that has nothing to do
  memory      bytes that a message takes in the store beyond its payload
  herd        --herd messages due in the same millisecond; on Redis also the longest time that another client
              waited for a PING meanwhile

Bench creates its own queues, with random names that begin with bench-, and deletes them at the end, also after Ctrl-C.
It leaves all other queues alone. The store needs room for --messages messages. Server figures come from INFO and
cover the whole server, including its other clients. Figures that a store cannot report are left out.

Bench prints a note when this machine was the bottleneck; the store can then do more than the figures show.`,
		`  later bench
  later bench --store redis://localhost:6379/0 --run lateness --rate 5000 --duration 30s
  later bench --quick --json`,
		func(cmd *cobra.Command, _ []string) error {
			return run(func(ctx context.Context, _ []string) error {
				if o.pinger {
					return m.ping(ctx)
				}
				if o.quick {
					o.shorten(cmd.Flags())
				}
				if err := o.check(); err != nil {
					return err
				}
				return m.bench(ctx, o)
			})(cmd, nil)
		})
	flags := cmd.Flags()
	flags.StringSliceVar(&o.run, "run", o.run, "comma-separated `WORKLOADS` to measure")
	flags.BoolVar(&o.quick, "quick", false, "smaller runs, rough figures in ten seconds")
	flags.IntVar(&o.messages, "messages", o.messages, "send and drain up to `N` messages")
	flags.IntVar(&o.size, "size", o.size, "payloads of `N` bytes")
	flags.IntVar(&o.rate, "rate", o.rate, "lateness: send `N` messages per second")
	durationFlag(flags, &o.duration, "duration", "lateness: how long to send")
	durationFlag(flags, &o.delay, "delay", "lateness: longest random delay")
	flags.IntVar(&o.herd, "herd", o.herd, "herd: `N` messages due at once")
	flags.IntVar(&o.handlers, "handlers", o.handlers, "handle `N` messages at a time")
	flags.BoolVar(&o.pinger, "pinger", false, "used by later bench itself: ping the store until standard input ends")
	flags.MarkHidden("pinger")
	cmd.RegisterFlagCompletionFunc("run", cobra.FixedCompletions(benchNames, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// shorten reduces the numbers that no flag sets.
func (o *benchOptions) shorten(flags *pflag.FlagSet) {
	for flag, value := range map[string]string{"messages": "20000", "duration": "2s", "delay": "1s", "herd": "10000"} {
		if !flags.Changed(flag) {
			flags.Set(flag, value) // which is allowed
		}
	}
	o.sendFor, o.idleFor = 500*time.Millisecond, 2*time.Second
}

func (o *benchOptions) check() error {
	for _, name := range o.run {
		if !slices.Contains(benchNames, name) {
			return store.Invalid("--run has %q: use some of %s", name, strings.Join(benchNames, ", "))
		}
	}
	if len(o.run) == 0 {
		return store.Invalid("--run is empty: use some of %s", strings.Join(benchNames, ", "))
	}
	for _, n := range []struct {
		flag               string
		value, least, most int
	}{
		{"messages", o.messages, 1, maxBenchMessages},
		{"size", o.size, benchmark.MinSize, store.MaxPayload},
		{"rate", o.rate, 1, maxBenchRate},
		{"herd", o.herd, 1, maxBenchMessages},
		{"handlers", o.handlers, 1, maxBenchHandlers},
	} {
		if n.value < n.least || n.value > n.most {
			return store.Invalid("--%s is %d: must be %d to %d", n.flag, n.value, n.least, n.most)
		}
	}
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{{"duration", o.duration}, {"delay", o.delay}} {
		if d.value < time.Millisecond || d.value > maxBenchDuration {
			return store.Invalid("--%s is %s: must be 1ms to %s", d.flag, durations.Format(d.value),
				durations.Format(maxBenchDuration))
		}
	}
	if n := float64(o.rate) * o.duration.Seconds(); n < 1 || n > maxBenchMessages {
		return store.Invalid("--rate %d for --duration %s is %.0f messages: the product must be 1 to %d",
			o.rate, durations.Format(o.duration), n, maxBenchMessages)
	}
	return nil
}

// ping runs in a process of its own during the herd, until standard input ends.
func (m *Main) ping(ctx context.Context) error {
	r, err := benchmark.OpenRedis(ctx, m.selected().url)
	if err != nil {
		return err
	}
	defer r.Close()
	return r.Ping(ctx, m.Stdin, m.Stdout)
}
