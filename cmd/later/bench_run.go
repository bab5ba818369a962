package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/benchmark"
	"github.com/laterq/later/store"
)

// benchWorkloads lists the workloads in the order in which they run.
var benchWorkloads = []struct {
	name    string
	measure func(b *bench, ctx context.Context, t *benchmark.Target, q benchQueue) error
}{
	{"send", (*bench).send},
	{"drain", (*bench).drain},
	{"lateness", (*bench).lateness},
	{"idle", (*bench).idle},
	{"memory", (*bench).memory},
	{"herd", (*bench).herd},
}

func benchNames() (names []string) {
	for _, w := range benchWorkloads {
		names = append(names, w.name)
	}
	return names
}

const (
	drainLimit        = time.Minute // how long bench waits for messages that are due
	benchCleanTimeout = time.Minute // how long the deletion of a queue may take
	idleSettle        = time.Second // until a worker is idle
)

type benchQueue = benchmark.BatchQueue

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
	b := &bench{main: m, o: o, client: client}
	name, _ := m.storeName()
	if b.url, err = m.storeURLOf(name); err != nil {
		return err
	}
	if strings.HasPrefix(b.url, "redis") || strings.HasPrefix(b.url, "unix:") {
		if b.redis, err = benchmark.OpenRedis(ctx, b.url); err != nil {
			return err
		}
		defer b.redis.Close()
	}
	if err := b.title(ctx); err != nil {
		return err
	}
	for _, w := range benchWorkloads {
		if !slices.Contains(o.run, w.name) {
			continue
		}
		err := b.withNewQueue(ctx, w.name, func(q benchQueue) error { return w.measure(b, ctx, b.target(q), q) })
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	return nil
}

func (b *bench) target(q benchQueue) *benchmark.Target {
	return &benchmark.Target{
		Load: benchmark.Local{Queue: q}, Size: b.o.size, Handlers: b.o.handlers, Limit: drainLimit, Redis: b.redis,
		CPU: func(ctx context.Context) (client, server time.Duration, err error) {
			client, _ = benchmark.ProcessCPU()
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
func (b *bench) withNewQueue(ctx context.Context, workload string, f func(q benchQueue) error) error {
	name := "bench-" + workload + "-" + strings.ToLower(rand.Text()[:10])
	defer b.progress("")
	err := f(benchmark.Later(b.client, name))
	cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), benchCleanTimeout)
	defer cancel()
	b.progress("deleting queue " + name)
	if left := b.client.Queue(name).Delete(cleaning); left != nil {
		return errors.Join(err, fmt.Errorf("cannot delete queue %s, remove it with later delete %s: %w", name, name, left))
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

type benchTitleJSON struct {
	Store  string `json:"store"`
	Server string `json:"server,omitempty"`
	Go     string `json:"go"`
	CPUs   int    `json:"cpus"`
	Size   int    `json:"size"`
}

func (b *bench) title(ctx context.Context) (err error) {
	title := benchTitleJSON{
		Store: store.RedactURL(b.url), Go: runtime.Version(), CPUs: runtime.GOMAXPROCS(0), Size: b.o.size,
	}
	server := ""
	if b.redis != nil {
		if title.Server, err = b.redis.Version(ctx); err != nil {
			return err
		}
		server = " (" + title.Server + ")"
	}
	return b.main.printResult(title, "Later on %s%s, %d-byte payloads, %d CPUs here",
		title.Store, server, title.Size, title.CPUs)
}

// measure prints a measurement: with --json as an object with its parameters, else as a line that starts with the name.
func (b *bench) measure(
	workload, parameters string, of map[string]any, do func() (benchmark.Values, error),
) error {
	name := workload + parameters
	b.progress(name)
	v, err := do()
	if err != nil {
		return err
	}
	object := map[string]any{"workload": workload}
	for parameter, value := range of {
		object[parameter] = value
	}
	for figure, value := range v {
		object[figure] = json.Number(fmt.Sprintf("%.3f", value))
	}
	b.progress("")
	if err := b.main.printResult(object, "%-26s  %v", name, v); err != nil {
		return err
	}
	b.warn(name, v)
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

func (b *bench) send(ctx context.Context, t *benchmark.Target, _ benchQueue) error {
	for _, c := range []struct {
		name              string
		goroutines, batch int
	}{
		{", 1 goroutine", 1, 1}, {", 32 goroutines", 32, 1}, {", 1000 goroutines", 1000, 1}, {", batches of 1000", 4, 1000},
	} {
		of := map[string]any{"senders": c.goroutines, "batch": c.batch}
		if err := b.measure("send", c.name, of, func() (benchmark.Values, error) {
			return t.MeasureSend(ctx, benchmark.SendConfig{
				Messages: b.o.messages / 4, Goroutines: c.goroutines, Batch: c.batch, Limit: b.o.sendFor,
			})
		}); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) drain(ctx context.Context, t *benchmark.Target, _ benchQueue) error {
	return b.measure("drain", fmt.Sprintf(", %d handlers", t.Handlers), map[string]any{"handlers": t.Handlers},
		func() (benchmark.Values, error) { return t.MeasureDrain(ctx, b.o.messages/2, false) })
}

func (b *bench) herd(ctx context.Context, t *benchmark.Target, _ benchQueue) error {
	return b.measure("herd", fmt.Sprintf(" of %d", b.o.herd), map[string]any{"handlers": t.Handlers},
		func() (benchmark.Values, error) { return t.MeasureDrain(ctx, b.o.herd, true) })
}

func (b *bench) lateness(ctx context.Context, t *benchmark.Target, _ benchQueue) error {
	return b.measure("lateness", fmt.Sprintf(", %d msg/s", b.o.rate), map[string]any{"rate": b.o.rate},
		func() (benchmark.Values, error) {
			v, _, err := t.MeasureLateness(ctx, benchmark.LatenessConfig{
				Rate: b.o.rate, For: b.o.duration, Longest: b.o.delay,
			})
			return v, err
		})
}

func (b *bench) memory(ctx context.Context, t *benchmark.Target, _ benchQueue) error {
	return b.measure("memory", "", nil, func() (benchmark.Values, error) {
		return t.MeasureMemory(ctx, max(1, b.o.messages/4), b.o.size)
	})
}

// idle measures a worker with a client of its own, whose requests to a Redis are counted unless it is a Cluster.
func (b *bench) idle(ctx context.Context, t *benchmark.Target, q benchQueue) (err error) {
	var requests func() int64
	var worker benchmark.Queue = q
	if b.redis != nil {
		if counted, closeAll, err := b.redis.Counted(); err == nil {
			client, err := later.New(counted, later.WithLogger(b.main.logger()))
			if err != nil {
				return errors.Join(err, closeAll())
			}
			defer func() { err = errors.Join(err, client.Close(), closeAll()) }()
			worker, requests = benchmark.Later(client, benchmark.NameOf(q)), b.redis.Requests
		}
	}
	return b.measure("idle", "", nil, func() (benchmark.Values, error) {
		return t.MeasureIdle(ctx, worker, idleSettle, b.o.idleFor, requests)
	})
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
