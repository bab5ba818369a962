package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/benchmark"
	"github.com/laterq/later/internal/durations"
	"github.com/laterq/later/internal/wire"
)

type benchQueuesJSON struct {
	Workload      string        `json:"workload"`
	Queues        int           `json:"queues"`
	Rate          int           `json:"rate"`
	Messages      int           `json:"messages"`
	Handled       int           `json:"handled"`
	Doubles       int           `json:"doubles"`
	Early         int           `json:"early"`
	P50           wire.Duration `json:"lateness_p50"`
	P99           wire.Duration `json:"lateness_p99"`
	Max           wire.Duration `json:"lateness_max"`
	Requests      *float64      `json:"requests_per_second,omitempty"`
	IdleRequests  *float64      `json:"idle_requests_per_second,omitempty"`
	IdleClientCPU float64       `json:"idle_client_cpu_ms_per_second"`
	IdleServerCPU *float64      `json:"idle_server_cpu_ms_per_second,omitempty"`
	Bytes         float64       `json:"bytes_per_queue"`
	Goroutines    float64       `json:"goroutines_per_queue"`
	benchCostJSON
}

// queues measures one worker of many queues: first idle, then with messages to random ones of them.
func (b *bench) queues(ctx context.Context, q benchQueue) (err error) {
	name := fmt.Sprintf("%d queues, %d msg/s", b.o.queues, b.o.rate)
	b.progress(name + ": idle")
	client, requests := b.client, func() int64 { return -1 }
	if b.redis != nil {
		if counted, closeAll, refused := b.redis.Counted(); refused == nil { // a Cluster cannot be counted
			if client, err = later.New(counted, later.WithLogger(b.main.logger())); err != nil {
				return errors.Join(err, closeAll())
			}
			defer func() { err = errors.Join(err, client.Close(), closeAll()) }()
			requests = b.redis.Requests
		}
	}
	j := benchQueuesJSON{Workload: "queues", Queues: b.o.queues, Rate: b.o.rate}
	memory, goroutines := inUse()
	queues := benchmark.LaterQueues(client, benchmark.NameOf(q), b.o.queues)
	working, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- queues.Run(working, b.o.handlers) }()
	defer func() {
		stop()
		cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), benchCleanTimeout)
		defer cancel()
		err = errors.Join(err, <-ended, queues.Delete(cleaning))
	}()
	if err := pause(ctx, queuesSettle); err != nil {
		return err
	}
	memoryNow, goroutinesNow := inUse()
	j.Bytes = round3(float64(memoryNow-memory) / float64(b.o.queues))
	j.Goroutines = round3(float64(goroutinesNow-goroutines) / float64(b.o.queues))

	perSecond := func(before int64, took time.Duration) *float64 {
		if before < 0 {
			return nil
		}
		rate := round3(float64(requests()-before) / took.Seconds())
		return &rate
	}
	end, err := b.startCost(ctx)
	if err != nil {
		return err
	}
	before := requests()
	if err := pause(ctx, b.o.idleFor); err != nil {
		return err
	}
	idle, err := end()
	if err != nil {
		return err
	}
	j.IdleRequests = perSecond(before, idle.took)
	j.IdleClientCPU = round3(millis(idle.client) / idle.took.Seconds())
	if idle.hasServer {
		server := round3(millis(idle.server) / idle.took.Seconds())
		j.IdleServerCPU = &server
	}

	b.progress(name)
	if end, err = b.startCost(ctx); err != nil {
		return err
	}
	before = requests()
	d, err := benchmark.Lateness(ctx, queues, benchmark.LatenessConfig{
		Rate: b.o.rate, For: b.o.duration, Longest: b.o.delay, Size: b.o.size, Limit: drainLimit,
	})
	if err != nil {
		return err
	}
	cost, err := end()
	if err != nil {
		return err
	}
	j.Requests = perSecond(before, cost.took)
	j.Messages, j.Handled, j.Doubles, j.Early = d.Sent, len(d.Samples), d.Doubles, d.Early
	at := func(p float64) time.Duration { return benchmark.Quantile(d.Samples, p) }
	j.P50, j.P99, j.Max = wire.Measured(at(0.5)), wire.Measured(at(0.99)), wire.Measured(at(1))
	j.benchCostJSON = cost.json(d.Sent)
	return b.printQueues(name, j, d, cost)
}

func (b *bench) printQueues(name string, j benchQueuesJSON, d benchmark.Delivered, cost benchCost) error {
	at := func(p float64) string { return formatMillis(benchmark.Quantile(d.Samples, p)) }
	text := fmt.Sprintf("p50 %s  p99 %s  max %s  %d of %d early  %.0f%% of a CPU here, idle %.1f%%  "+
		"%.0f bytes and %.1f goroutines per queue", at(0.5), at(0.99), at(1), d.Early, len(d.Samples),
		100*j.ClientCPUs, j.IdleClientCPU/10, j.Bytes, j.Goroutines)
	if j.Requests != nil {
		text += fmt.Sprintf("  %.0f requests per second, idle %.0f", *j.Requests, *j.IdleRequests)
	}
	if j.IdleServerCPU != nil {
		text += fmt.Sprintf("  %.0f%% of a CPU in the server, idle %.1f%%", 100**j.ServerCPUs, *j.IdleServerCPU/10)
	}
	if d.Missing > 0 {
		text += fmt.Sprintf("  %d not delivered within %s", d.Missing, durations.Format(drainLimit))
	}
	if d.Doubles > 0 {
		text += fmt.Sprintf("  %d delivered twice", d.Doubles)
	}
	if err := b.result(j, name, "%s", text); err != nil {
		return err
	}
	b.warn(name, cost)
	return nil
}

// queuesSettle is how long to wait until a worker of many queues has made its first claims.
const queuesSettle = 3 * time.Second

// inUse returns the bytes of the heap and of stacks that are in use, and the number of goroutines.
func inUse() (bytes int64, goroutines int) {
	runtime.GC()
	runtime.GC() // the first shrinks stacks, the second frees what the first found in pools
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc + stats.StackInuse), runtime.NumGoroutine()
}
