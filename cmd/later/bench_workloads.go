package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/benchmark"
	"github.com/laterq/later/internal/durations"
	"github.com/laterq/later/internal/wire"
)

// drainLimit is how long bench waits for messages that are due.
const drainLimit = time.Minute

type benchSendJSON struct {
	Workload  string        `json:"workload"`
	Senders   int           `json:"senders"`
	Batch     int           `json:"batch"`
	Messages  int           `json:"messages"`
	Took      wire.Duration `json:"took"`
	PerSecond float64       `json:"messages_per_second"`
	benchCostJSON
}

func (b *bench) send(ctx context.Context, q benchQueue) error {
	for _, c := range []struct {
		name              string
		goroutines, batch int
	}{
		{"send, 1 goroutine", 1, 1},
		{"send, 32 goroutines", 32, 1},
		{"send, 1000 goroutines", 1000, 1},
		{"send, batches of 1000", 4, 1000},
	} {
		b.progress(c.name)
		end, err := b.startCost(ctx)
		if err != nil {
			return err
		}
		sent, err := benchmark.Send(ctx, q, benchmark.SendConfig{
			Messages: b.o.messages / 4, Goroutines: c.goroutines, Batch: c.batch, Size: b.o.size, Limit: b.o.sendFor,
		})
		if err != nil {
			return err
		}
		cost, err := end()
		if err != nil {
			return err
		}
		err = b.result(benchSendJSON{
			"send", c.goroutines, c.batch, sent.Messages, wire.Measured(sent.Took), round3(sent.PerSecond()),
			cost.json(sent.Messages),
		}, c.name, "%9.0f msg/s%s", sent.PerSecond(), cost.text(sent.Messages))
		if err != nil {
			return err
		}
		b.warn(c.name, cost)
	}
	return nil
}

type benchDrainJSON struct {
	Workload  string        `json:"workload"`
	Handlers  int           `json:"handlers"`
	Messages  int           `json:"messages"`
	Handled   int           `json:"handled"`
	Doubles   int           `json:"doubles"`
	Early     int           `json:"early"`
	Left      int           `json:"left"`
	Took      wire.Duration `json:"took"`
	PerSecond float64       `json:"messages_per_second"`
	WorstPing wire.Duration `json:"worst_ping,omitempty"`
	benchCostJSON
}

// printDrained prints the result of Drain or Herd.
func (b *bench) printDrained(workload, name string, d benchmark.Drained, cost benchCost, ping *time.Duration) error {
	j := benchDrainJSON{
		Workload: workload, Handlers: b.o.handlers, Messages: d.Messages, Handled: d.Handled, Doubles: d.Doubles,
		Early: d.Early, Left: d.Left, Took: wire.Measured(d.Took), PerSecond: round3(d.PerSecond()),
		benchCostJSON: cost.json(d.Handled),
	}
	text := fmt.Sprintf("%9.0f msg/s%s", d.PerSecond(), cost.text(d.Handled))
	if ping != nil {
		j.WorstPing = wire.Measured(*ping)
		text += "  worst PING from another client " + formatMillis(*ping)
	}
	if d.Handled < d.Messages {
		text += fmt.Sprintf("  %d of %d handled within %s", d.Handled, d.Messages, durations.Format(drainLimit))
	}
	if d.Doubles > 0 {
		text += fmt.Sprintf("  %d delivered twice", d.Doubles)
	}
	if d.Early > 0 {
		text += fmt.Sprintf("  %d early by this machine's clock", d.Early)
	}
	if err := b.result(j, name, "%s", text); err != nil {
		return err
	}
	b.warn(name, cost)
	return nil
}

func (b *bench) drain(ctx context.Context, q benchQueue) error {
	name := fmt.Sprintf("drain, %d handlers", b.o.handlers)
	b.progress(name)
	d, cost, err := b.measureDrain(ctx, q, benchmark.Drain, b.o.messages/2, nil)
	if err != nil {
		return err
	}
	return b.printDrained("drain", name, d, cost, nil)
}

// measureDrain runs Drain or Herd and measures its cost, starting when the queue is filled.
func (b *bench) measureDrain(ctx context.Context, q benchQueue,
	f func(context.Context, benchmark.Queue, benchmark.DrainConfig) (benchmark.Drained, error),
	messages int, onFilled func(),
) (d benchmark.Drained, cost benchCost, err error) {
	var end func() (benchCost, error)
	var begun error
	d, err = f(ctx, q, benchmark.DrainConfig{
		Messages: messages, Size: b.o.size, Handlers: b.o.handlers, Limit: drainLimit,
		OnFilled: func() {
			if onFilled != nil {
				onFilled()
			}
			end, begun = b.startCost(ctx)
		},
	})
	if err = errors.Join(err, begun); err == nil {
		cost, err = end()
	}
	return d, cost, err
}

func (b *bench) herd(ctx context.Context, q benchQueue) error {
	name := fmt.Sprintf("herd of %d", b.o.herd)
	b.progress(name)
	if b.redis == nil {
		d, cost, err := b.measureDrain(ctx, q, benchmark.Herd, b.o.herd, nil)
		if err != nil {
			return err
		}
		return b.printDrained("herd", name, d, cost, nil)
	}
	var worst func() (time.Duration, error)
	var started error
	d, cost, err := b.measureDrain(ctx, q, benchmark.Herd, b.o.herd, func() { worst, started = b.startPinger(ctx) })
	if err = errors.Join(err, started); worst != nil {
		ping, failed := worst()
		if err = errors.Join(err, failed); err == nil {
			return b.printDrained("herd", name, d, cost, &ping)
		}
	}
	return err
}

type benchLatenessJSON struct {
	Workload string        `json:"workload"`
	Rate     int           `json:"rate"`
	Messages int           `json:"messages"`
	Handled  int           `json:"handled"`
	Doubles  int           `json:"doubles"`
	Early    int           `json:"early"`
	P50      wire.Duration `json:"lateness_p50"`
	P99      wire.Duration `json:"lateness_p99"`
	P999     wire.Duration `json:"lateness_p999"`
	Max      wire.Duration `json:"lateness_max"`
	benchCostJSON
}

func (b *bench) lateness(ctx context.Context, q benchQueue) error {
	name := fmt.Sprintf("lateness, %d msg/s", b.o.rate)
	b.progress(name)
	end, err := b.startCost(ctx)
	if err != nil {
		return err
	}
	d, err := benchmark.Lateness(ctx, q, benchmark.LatenessConfig{
		Rate: b.o.rate, For: b.o.duration, Longest: b.o.delay, Size: b.o.size, Handlers: b.o.handlers, Limit: drainLimit,
	})
	if err != nil {
		return err
	}
	cost, err := end()
	if err != nil {
		return err
	}
	at := func(p float64) time.Duration { return benchmark.Quantile(d.Samples, p) }
	text := fmt.Sprintf("p50 %s  p99 %s  p99.9 %s  max %s  %d of %d early",
		formatMillis(at(0.5)), formatMillis(at(0.99)), formatMillis(at(0.999)), formatMillis(at(1)), d.Early, len(d.Samples))
	if d.Missing > 0 {
		text += fmt.Sprintf("  %d not delivered within %s", d.Missing, durations.Format(drainLimit))
	}
	if d.Doubles > 0 {
		text += fmt.Sprintf("  %d delivered twice", d.Doubles)
	}
	if late := d.Took - b.o.duration; late > b.o.duration/10 {
		text += fmt.Sprintf("  sending took %s", durations.Format(d.Took))
	}
	err = b.result(benchLatenessJSON{
		Workload: "lateness", Rate: b.o.rate, Messages: d.Sent, Handled: len(d.Samples), Doubles: d.Doubles,
		Early: d.Early,
		P50:   wire.Measured(at(0.5)), P99: wire.Measured(at(0.99)), P999: wire.Measured(at(0.999)), Max: wire.Measured(at(1)),
		benchCostJSON: cost.json(d.Sent),
	}, name, "%s", text)
	if err != nil {
		return err
	}
	b.warn(name, cost)
	return nil
}

type benchIdleJSON struct {
	Workload  string        `json:"workload"`
	Took      wire.Duration `json:"took"`
	Requests  *float64      `json:"requests_per_second,omitempty"`
	ClientCPU float64       `json:"client_cpu_ms_per_second"`
	ServerCPU *float64      `json:"server_cpu_ms_per_second,omitempty"`
}

// idleSettle is how long to wait for a worker to become idle.
const idleSettle = time.Second

// idle measures a worker whose only message is due in an hour.
func (b *bench) idle(ctx context.Context, q benchQueue) (err error) {
	b.progress("idle worker")
	if err := benchmark.Fill(ctx, q, 1, b.o.size, benchmark.InAnHour); err != nil {
		return err
	}
	worked, requests := q, func() int64 { return -1 }
	if b.redis != nil {
		if counted, closeAll, err := b.redis.Counted(); err == nil { // a Cluster cannot be counted
			client, err := later.New(counted, later.WithLogger(b.main.logger()))
			if err != nil {
				return errors.Join(err, closeAll())
			}
			defer func() { err = errors.Join(err, client.Close(), closeAll()) }()
			worked, requests = benchmark.Later(client, benchmark.NameOf(q)), b.redis.Requests
		}
	}
	working, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- worked.Work(working, b.o.handlers, func([]byte) {}) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended)
	}()
	if err := pause(ctx, idleSettle); err != nil {
		return err
	}
	end, err := b.startCost(ctx)
	if err != nil {
		return err
	}
	before := requests()
	if err := pause(ctx, b.o.idleFor); err != nil {
		return err
	}
	sent := requests() - before
	cost, err := end()
	if err != nil {
		return err
	}
	seconds := cost.took.Seconds()
	j := benchIdleJSON{
		Workload: "idle", Took: wire.Measured(cost.took), ClientCPU: round3(millis(cost.client) / seconds),
	}
	text := fmt.Sprintf("%.1f ms of CPU per second here", j.ClientCPU)
	if cost.hasServer {
		server := round3(millis(cost.server) / seconds)
		j.ServerCPU = &server
		text += fmt.Sprintf(", %.1f ms in the whole server", server)
	}
	if before >= 0 {
		rate := round3(float64(sent) / seconds)
		j.Requests = &rate
		text = fmt.Sprintf("%.1f requests per second, %s", rate, text)
	}
	return b.result(j, "idle worker", "%s", text)
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

type benchMemoryJSON struct {
	Workload string  `json:"workload"`
	Messages int     `json:"messages"`
	Where    string  `json:"where"`
	Bytes    float64 `json:"bytes_above_payload"`
}

func (b *bench) memory(ctx context.Context, q benchQueue) error {
	b.progress("memory")
	n := max(1, b.o.messages/4)
	if err := benchmark.Fill(ctx, q, 1, b.o.size, benchmark.InAnHour); err != nil { // creates the queue
		return err
	}
	where, before, err := b.used(ctx)
	if err != nil {
		return err
	}
	if err := benchmark.Fill(ctx, q, n, b.o.size, benchmark.InAnHour); err != nil {
		return err
	}
	_, after, err := b.used(ctx)
	if err != nil {
		return err
	}
	each := float64(after-before)/float64(n) - float64(b.o.size)
	return b.result(benchMemoryJSON{"memory", n, where, round3(each)},
		"memory", "%.0f bytes per message beyond the payload, %s", each, where)
}

// used returns how many bytes the store uses, and where.
func (b *bench) used(ctx context.Context) (where string, bytes int64, err error) {
	if b.redis != nil {
		usage, err := b.redis.Usage(ctx)
		return "in the server's memory", usage.Memory, err
	}
	if dir := b.directory(); dir != "" {
		err := filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
			if err == nil && entry.Type().IsRegular() {
				if info, err := entry.Info(); err == nil {
					bytes += info.Size()
				}
			}
			if errors.Is(err, fs.ErrNotExist) { // the store removes files while it runs
				return nil
			}
			return err
		})
		return "on disk", bytes, err
	}
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return "in this process's memory", int64(stats.HeapAlloc), nil
}
