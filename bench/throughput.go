package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later"
)

const queueName = "bench"

// share calls f n times in all, from so many goroutines, and gives the rate a second.
func share(n, goroutines int, f func()) float64 {
	var next atomic.Int64
	var all sync.WaitGroup
	start := time.Now()
	for range goroutines {
		all.Go(func() {
			for next.Add(1) <= int64(n) {
				f()
			}
		})
	}
	all.Wait()
	return float64(n) / time.Since(start).Seconds()
}

// senders are the numbers of goroutines that send one message at a time.
var senders = []int{1, 32, 1000}

func sendRound(ctx context.Context, b *bench) {
	payload := []byte(strings.Repeat("x", b.size))
	for _, goroutines := range senders {
		n := b.n
		if goroutines == 1 {
			n /= 10
		}
		workload := fmt.Sprintf("send, %d goroutines", goroutines)
		b.empty(ctx)
		before := b.cpu(ctx)
		b.report.add(workload, "ceiling", "msg/s", ceilingSend(ctx, b.rdb, n, goroutines, payload))
		b.report.add(workload, "ceiling", "µs Redis CPU a message", float64((b.cpu(ctx)-before).Microseconds())/float64(n))

		b.empty(ctx)
		c, closeClient := b.client()
		q := c.Queue(queueName)
		before = b.cpu(ctx)
		rate := share(n, goroutines, func() {
			_, err := q.Send(ctx, payload)
			check(err)
		})
		b.report.add(workload, "later", "msg/s", rate)
		b.report.add(workload, "later", "µs Redis CPU a message", float64((b.cpu(ctx)-before).Microseconds())/float64(n))
		closeClient()
	}
}

// fill sends n messages in batches.
func fill(ctx context.Context, q *later.Queue, n, size int, when later.When) {
	payload := []byte(strings.Repeat("x", size))
	for n > 0 {
		batch := make([]later.Outgoing, min(n, 5000))
		for i := range batch {
			batch[i] = later.Outgoing{Payload: payload, When: when}
		}
		_, err := q.SendBatch(ctx, batch)
		check(err)
		n -= len(batch)
	}
}

// drain runs a worker until n messages were handled and settled, and gives the rate a second.
func drain(ctx context.Context, c *later.Client, n int) float64 {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := later.NewWorker(c, later.WorkerConfig{Concurrency: 32})
	var handled atomic.Int64
	w.Handle(queueName, func(context.Context, *later.Message) error {
		if handled.Add(1) == int64(n) {
			cancel()
		}
		return nil
	})
	start := time.Now()
	check(w.Run(ctx))
	rate := float64(n) / time.Since(start).Seconds()
	st, err := c.Queue(queueName).Stats(context.Background())
	check(err)
	if left := st.Ready + st.Leased + st.Scheduled + st.Dead; left != 0 || handled.Load() != int64(n) {
		check(fmt.Errorf("drained %d of %d messages, %d are left", handled.Load(), n, left))
	}
	return rate
}

func drainRound(ctx context.Context, b *bench) {
	payload := []byte(strings.Repeat("x", b.size))
	b.empty(ctx)
	ceilingSend(ctx, b.rdb, b.n, 1000, payload)
	before := b.cpu(ctx)
	b.report.add("drain, 32 handlers", "ceiling", "msg/s", ceilingDrain(ctx, b.rdb, b.n))
	b.report.add("drain, 32 handlers", "ceiling", "µs Redis CPU a message", float64((b.cpu(ctx)-before).Microseconds())/float64(b.n))

	b.empty(ctx)
	c, closeClient := b.client()
	defer closeClient()
	fill(ctx, c.Queue(queueName), b.n, b.size, later.In(0))
	before = b.cpu(ctx)
	b.report.add("drain, 32 handlers", "later", "msg/s", drain(ctx, c, b.n))
	b.report.add("drain, 32 handlers", "later", "µs Redis CPU a message", float64((b.cpu(ctx)-before).Microseconds())/float64(b.n))
}

func memoryRound(ctx context.Context, b *bench) {
	b.empty(ctx)
	c, closeClient := b.client()
	defer closeClient()
	q := c.Queue(queueName)
	_, err := q.Send(ctx, nil, later.In(time.Hour))
	check(err)
	before := b.used(ctx)
	fill(ctx, q, b.n, b.size, later.In(time.Hour))
	b.report.add("memory", "later", "bytes above payload", (b.used(ctx)-before)/float64(b.n)-float64(b.size))
}

// herdRound has all messages due in one millisecond, and asks the server for PING all the while.
func herdRound(ctx context.Context, b *bench) {
	b.empty(ctx)
	c, closeClient := b.client()
	defer closeClient()
	due := time.Now().Add(time.Duration(b.herd/100_000+5) * time.Second).Truncate(time.Millisecond)
	fill(ctx, c.Queue(queueName), b.herd, b.size, later.At(due))
	if time.Now().After(due) {
		check(errors.New("the machine is too slow for the herd: it was due before all of it was sent; use a smaller -herd"))
	}
	time.Sleep(time.Until(due.Add(-time.Second)))
	worst := startPinger(b.addr)
	time.Sleep(time.Until(due))
	rate := drain(ctx, c, b.herd)
	b.report.add("herd", "later", "msg/s", rate)
	b.report.add("herd", "later", "ms worst PING", float64(worst().Microseconds())/1000)
}

// startPinger asks the server for PING all the while, from a process of its own, as another client would. What
// it gives ends it and tells the longest wait.
func startPinger(addr string) (worst func() time.Duration) {
	self, err := os.Executable()
	check(err)
	cmd := exec.Command(self, "-pinger", addr)
	in, err := cmd.StdinPipe()
	check(err)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	check(cmd.Start())
	return func() time.Duration {
		check(in.Close())
		check(cmd.Wait())
		d, err := time.ParseDuration(out.String())
		check(err)
		return d
	}
}

// pinger is that process: it ends with its input.
func pinger(addr string) {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	var ended atomic.Bool
	go func() {
		io.Copy(io.Discard, os.Stdin)
		ended.Store(true)
	}()
	worst := time.Duration(0)
	for !ended.Load() {
		start := time.Now()
		check(rdb.Ping(context.Background()).Err())
		worst = max(worst, time.Since(start))
		time.Sleep(200 * time.Microsecond)
	}
	fmt.Print(worst)
}
