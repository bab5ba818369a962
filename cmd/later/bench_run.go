package main

import (
	"bytes"
	"cmp"
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
	measure func(b *bench, ctx context.Context, q benchQueue) error
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
	if isRedis(b.url) {
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
		err := b.withNewQueue(ctx, w.name, func(q benchQueue) error { return w.measure(b, ctx, q) })
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	return nil
}

func isRedis(url string) bool {
	return strings.HasPrefix(url, "redis") || strings.HasPrefix(url, "unix:")
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

// benchCleanTimeout is how long the deletion of a queue may take.
const benchCleanTimeout = time.Minute

// progress shows text on a terminal until the next result or progress.
func (b *bench) progress(text string) {
	if m := b.main; isTerminal(m.Stderr) && !m.json {
		if text != "" {
			text += " ..."
		}
		fmt.Fprintf(m.Stderr, "\r%s%s", text, clearLine)
	}
}

// result prints a measurement: as an object with --json, else as a line that starts with name.
func (b *bench) result(object any, name, format string, args ...any) error {
	b.progress("")
	return b.main.printResult(object, "%-26s  %s", name, fmt.Sprintf(format, args...))
}

type benchTitleJSON struct {
	Store  string `json:"store"`
	Server string `json:"server,omitempty"`
	Go     string `json:"go"`
	CPUs   int    `json:"cpus"`
	Size   int    `json:"size"`
}

func (b *bench) title(ctx context.Context) error {
	title := benchTitleJSON{
		Store: store.RedactURL(b.url), Go: runtime.Version(), CPUs: runtime.GOMAXPROCS(0), Size: b.o.size,
	}
	server := ""
	if b.redis != nil {
		var err error
		if title.Server, err = b.redis.Version(ctx); err != nil {
			return err
		}
		server = " (" + title.Server + ")"
	}
	return b.main.printResult(title, "Later on %s%s, %d-byte payloads, %d CPUs here",
		title.Store, server, title.Size, title.CPUs)
}

// benchCost is the time and CPU that a measurement took.
type benchCost struct {
	took           time.Duration
	client, server time.Duration // CPU time
	hasServer      bool
}

// startCost starts a measurement; end stops it and returns the cost.
func (b *bench) startCost(ctx context.Context) (end func() (benchCost, error), err error) {
	read := func() (now time.Time, client time.Duration, server benchmark.Usage, err error) {
		client, _ = benchmark.ProcessCPU()
		if b.redis != nil {
			server, err = b.redis.Usage(ctx)
		}
		return time.Now(), client, server, err
	}
	begin, client, server, err := read()
	return func() (benchCost, error) {
		now, clientNow, serverNow, err := read()
		return benchCost{now.Sub(begin), clientNow - client, serverNow.CPU - server.CPU, b.redis != nil}, err
	}, err
}

type benchCostJSON struct {
	ClientCPUs float64  `json:"client_cpus"`
	ServerCPUs *float64 `json:"server_cpus,omitempty"`
	ServerCPU  *float64 `json:"server_cpu_us_per_message,omitempty"`
}

// json returns the cost as the number of busy CPUs.
func (c benchCost) json(messages int) benchCostJSON {
	j := benchCostJSON{ClientCPUs: round3(c.client.Seconds() / c.took.Seconds())}
	if c.hasServer {
		cpus, each := round3(c.server.Seconds()/c.took.Seconds()), round3(perMessage(c.server, messages))
		j.ServerCPUs, j.ServerCPU = &cpus, &each
	}
	return j
}

// text returns the server CPU per message, or "" if it is not known.
func (c benchCost) text(messages int) string {
	if !c.hasServer {
		return ""
	}
	return fmt.Sprintf("  %.1f µs of server CPU each", perMessage(c.server, messages))
}

func perMessage(d time.Duration, messages int) float64 {
	return float64(d.Nanoseconds()) / 1000 / float64(max(1, messages))
}

func round3(f float64) float64 { return float64(int64(f*1000+0.5)) / 1000 }

// busy is the share of all CPUs above which the client counts as the bottleneck, unless the server is as busy.
const busy = 0.9

// warn prints a note if the client was the bottleneck.
func (b *bench) warn(what string, c benchCost) {
	cpus := c.client.Seconds() / c.took.Seconds()
	server := c.server.Seconds() / c.took.Seconds()
	allBusy := cpus >= busy*float64(runtime.GOMAXPROCS(0))
	if c.hasServer && c.took >= 100*time.Millisecond && allBusy && server < busy {
		b.main.note("%s: this machine was the bottleneck: %.1f of its %d CPUs were busy, but only %.1f in the server",
			what, cpus, runtime.GOMAXPROCS(0), server)
	}
}

// startPinger starts a process that pings Redis. worst ends it and returns the longest wait.
func (b *bench) startPinger(ctx context.Context) (worst func() (time.Duration, error), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "bench", "--pinger")
	// The URL is passed in the environment, because every user can read a process's arguments.
	cmd.Env = append(slices.Clone(b.main.Env), "LATER_STORE="+b.url)
	ownGroup(cmd) // so that Ctrl-C reaches only this process
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	var out, problem bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problem
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() (time.Duration, error) {
		in.Close()
		if err := cmd.Wait(); err != nil {
			return 0, fmt.Errorf("PING process: %s", cmp.Or(strings.TrimSpace(problem.String()), err.Error()))
		}
		var ms float64
		err := json.Unmarshal(out.Bytes(), &ms)
		return time.Duration(ms * float64(time.Millisecond)), err
	}, nil
}

// directory returns the directory of an embedded store, or "" for other stores.
func (b *bench) directory() string {
	dir, _ := directoryOf(b.url)
	return dir
}
