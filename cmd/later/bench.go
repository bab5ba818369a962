package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/benchmark"
	"github.com/laterq/later/internal/durations"
	"github.com/laterq/later/internal/quota"
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

// benchNames are the workloads in the order of their runs.
var benchNames = []string{"send", "drain", "lateness", "idle", "memory", "herd"}

const (
	drainLimit        = time.Minute // how long bench waits for messages that are due
	benchCleanTimeout = time.Minute // how long the deletion of a queue may take
	idleSettle        = time.Second // until a worker is idle
)

// bench is one run of later bench.
type bench struct {
	main   *Main
	o      benchOptions
	url    string
	client *later.Client
	redis  *benchmark.Redis // nil on another store
}

func (m *Main) bench(ctx context.Context, o benchOptions) (err error) {
	ctx, stop := interruptible(ctx)
	defer stop()
	client, err := m.open(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	b := &bench{main: m, o: o, client: client, url: m.selected().url}
	if strings.HasPrefix(b.url, "redis") || strings.HasPrefix(b.url, "unix:") {
		if b.redis, err = benchmark.OpenRedis(ctx, b.url); err != nil {
			return err
		}
		defer b.redis.Close()
	}
	if err := b.title(ctx); err != nil {
		return err
	}
	for _, name := range benchNames {
		if !slices.Contains(o.run, name) {
			continue
		}
		err := b.withNewQueue(ctx, name, func(q benchmark.Queue) error {
			for _, s := range b.steps(ctx, name, b.target(q), q) {
				if err := b.measure(name, s); err != nil {
					return err
				}
			}
			return nil
		})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (b *bench) target(q benchmark.Queue) *benchmark.Target {
	return &benchmark.Target{
		Load: benchmark.Local{Queue: q}, Size: b.o.size, Handlers: b.o.handlers, Limit: drainLimit, Redis: b.redis,
		CPU: func(ctx context.Context) (client, server time.Duration, err error) {
			client, _ = quota.ProcessCPU()
			if b.redis != nil {
				var u benchmark.Usage
				u, err = b.redis.Usage(ctx)
				server = u.CPU
			}
			return client, server, err
		},
		Used: func(ctx context.Context) (int64, error) {
			if b.redis != nil {
				u, err := b.redis.Usage(ctx)
				return u.Memory, err
			}
			if dir, ok := directoryOf(b.url); ok {
				return benchmark.DirectorySize(dir)
			}
			runtime.GC()
			var stats runtime.MemStats
			runtime.ReadMemStats(&stats)
			return int64(stats.HeapAlloc), nil
		},
		Pinger: func(ctx context.Context) (worst func() (time.Duration, error), err error) {
			self, err := os.Executable()
			if err != nil {
				return nil, err
			}
			cmd := exec.CommandContext(ctx, self, "bench", "--pinger")
			// The URL is passed in the environment, because every user can read a process's arguments.
			cmd.Env = append(slices.Clone(b.main.Env), "LATER_STORE="+b.url)
			ownGroup(cmd) // so that Ctrl-C reaches only this process
			return benchmark.StartPinger(cmd)
		},
	}
}

// withNewQueue calls f with a new queue and then deletes the queue.
func (b *bench) withNewQueue(ctx context.Context, workload string, f func(q benchmark.Queue) error) error {
	name := "bench-" + workload + "-" + strings.ToLower(rand.Text()[:10])
	defer b.progress("")
	err := f(benchmark.Later(b.client, name))
	cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), benchCleanTimeout)
	defer cancel()
	b.progress("deleting queue " + name)
	if left := b.client.Queue(name).Delete(cleaning); left != nil {
		return errors.Join(err, fmt.Errorf("cannot delete queue %s, remove it with later delete %s: %w", name,
			name, left))
	}
	return err
}

// progress shows text on a terminal until the next result or progress.
func (b *bench) progress(text string) {
	if m := b.main; isTerminal(m.Stderr) && !m.json {
		if text != "" {
			text += " ..."
		}
		fmt.Fprintf(m.Stderr, "\r%s%s", text, clearLine)
	}
}

func (b *bench) title(ctx context.Context) (err error) {
	name, cpus := store.RedactURL(b.url), runtime.GOMAXPROCS(0)
	title := map[string]any{"store": name, "go": runtime.Version(), "cpus": cpus, "size": b.o.size}
	server := ""
	if b.redis != nil {
		if server, err = b.redis.Version(ctx); err != nil {
			return err
		}
		title["server"], server = server, " ("+server+")"
	}
	return b.main.printResult(title, "Later on %s%s, %d-byte payloads, %d CPUs here", name, server, b.o.size, cpus)
}

// step is one measurement of a workload.
type step struct {
	name string         // the part after the name of the workload
	of   map[string]any // its parameters in JSON
	do   func() (benchmark.Values, error)
}

// measure makes a measurement and prints it: with --json as an object, else as a line that starts with the name.
func (b *bench) measure(workload string, s step) error {
	b.progress(workload + s.name)
	v, err := s.do()
	b.progress("")
	if err != nil {
		return err
	}
	object := map[string]any{"workload": workload}
	maps.Copy(object, s.of)
	for figure, value := range v {
		object[figure] = math.Round(value*1000) / 1000
	}
	if err := b.main.printResult(object, "%-26s  %v", workload+s.name, v); err != nil {
		return err
	}
	b.warn(workload+s.name, v)
	return nil
}

// busy is the share of all CPUs above which the client counts as the bottleneck, unless the server is as busy.
const busy = 0.9

// warn prints a note if the client was the bottleneck. A short measurement does not tell.
func (b *bench) warn(name string, v benchmark.Values) {
	client, cpus := v[benchmark.ClientCPUs], runtime.GOMAXPROCS(0)
	server, has := v[benchmark.ServerCPUs]
	if has && v[benchmark.TookMS] >= 100 && client >= busy*float64(cpus) && server < busy {
		b.main.note("%s: this machine was the bottleneck: %.1f of its %d CPUs were busy, but only %.1f in the server",
			name, client, cpus, server)
	}
}

// steps returns the measurements of a workload.
func (b *bench) steps(ctx context.Context, workload string, t *benchmark.Target, q benchmark.Queue) []step {
	handlers := map[string]any{"handlers": t.Handlers}
	send := func(name string, goroutines, batch int) step {
		return step{name, map[string]any{"senders": goroutines, "batch": batch}, func() (benchmark.Values, error) {
			return t.MeasureSend(ctx, benchmark.SendConfig{
				Messages: b.o.messages / 4, Goroutines: goroutines, Batch: batch, Limit: b.o.sendFor,
			})
		}}
	}
	switch workload {
	case "send":
		return []step{
			send(", 1 goroutine", 1, 1), send(", 32 goroutines", 32, 1), send(", 1000 goroutines", 1000, 1),
			send(", batches of 1000", 4, 1000),
		}
	case "drain":
		return []step{{fmt.Sprintf(", %d handlers", t.Handlers), handlers, func() (benchmark.Values, error) {
			return t.MeasureDrain(ctx, b.o.messages/2, false)
		}}}
	case "herd":
		return []step{{fmt.Sprintf(" of %d", b.o.herd), handlers, func() (benchmark.Values, error) {
			return t.MeasureDrain(ctx, b.o.herd, true)
		}}}
	case "lateness":
		of := map[string]any{"rate": b.o.rate}
		return []step{{fmt.Sprintf(", %d msg/s", b.o.rate), of, func() (benchmark.Values, error) {
			c := benchmark.LatenessConfig{Rate: b.o.rate, For: b.o.duration, Longest: b.o.delay}
			v, _, err := t.MeasureLateness(ctx, c)
			return v, err
		}}}
	case "memory":
		return []step{{do: func() (benchmark.Values, error) {
			return t.MeasureMemory(ctx, max(1, b.o.messages/4), b.o.size)
		}}}
	}
	return []step{{do: func() (benchmark.Values, error) { return b.idle(ctx, t, q) }}}
}

// idle measures a worker with a client of its own. It counts the client's requests to Redis, unless Redis is a Cluster.
func (b *bench) idle(ctx context.Context, t *benchmark.Target, q benchmark.Queue) (v benchmark.Values, err error) {
	var requests func() int64
	worker := q
	if b.redis != nil {
		if counted, closeAll, err := b.redis.Counted(); err == nil {
			client, err := later.New(counted, later.WithLogger(b.main.logger()))
			if err != nil {
				return nil, errors.Join(err, closeAll())
			}
			defer func() { err = errors.Join(err, client.Close(), closeAll()) }()
			worker, requests = benchmark.Later(client, benchmark.NameOf(q)), b.redis.Requests
		}
	}
	return t.MeasureIdle(ctx, worker, idleSettle, b.o.idleFor, requests)
}
