package main

import (
	"bufio"
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laterq/later"
)

// latenessRound sends 500 messages a second for 20 s, each due after a random delay of up to 5 s, and compares
// the time at the handler's start with the due time, by this machine's clock, which is the server's too.
func latenessRound(ctx context.Context, b *bench) {
	const rate, seconds, longest = 500, 20, 5 * time.Second
	b.empty(ctx)
	c, closeClient := b.client()
	defer closeClient()
	q := c.Queue(queueName)

	running, stop := context.WithCancel(ctx)
	var mu sync.Mutex
	var late []time.Duration
	w := later.NewWorker(c, later.WorkerConfig{Concurrency: 32})
	w.Handle(queueName, func(_ context.Context, m *later.Message) error {
		d := time.Since(m.Due)
		mu.Lock()
		defer mu.Unlock()
		if late = append(late, d); len(late) == rate*seconds {
			stop()
		}
		return nil
	})
	var all sync.WaitGroup
	all.Go(func() { check(w.Run(running)) })
	tick := time.NewTicker(time.Second / rate)
	defer tick.Stop()
	payload := []byte(strings.Repeat("x", b.size))
	for range rate * seconds {
		<-tick.C
		all.Go(func() {
			_, err := q.Send(ctx, payload, later.At(time.Now().Add(rand.N(longest))))
			check(err)
		})
	}
	all.Wait()
	slices.Sort(late)
	early := 0
	for _, d := range late {
		if d < 0 {
			early++
		}
	}
	at := func(p float64) float64 { return float64(late[int(p*float64(len(late)-1))].Microseconds()) / 1000 }
	for _, p := range []struct {
		unit string
		at   float64
	}{{"ms p50", 0.5}, {"ms p99", 0.99}, {"ms p99.9", 0.999}, {"ms max", 1}} {
		b.report.add("lateness, 500 msg/s", "later", p.unit, at(p.at))
	}
	b.report.add("lateness, 500 msg/s", "later", "early", float64(early))
}

// idleRound counts the commands that a worker with nothing to do sends in 30 s, as MONITOR shows them, those
// inside scripts left out. One message is scheduled far ahead.
func idleRound(ctx context.Context, b *bench) {
	const settle, watched = 3 * time.Second, 30 * time.Second
	b.empty(ctx)
	c, closeClient := b.client()
	defer closeClient()
	_, err := c.Queue(queueName).Send(ctx, nil, later.In(time.Hour))
	check(err)
	running, stop := context.WithCancel(ctx)
	w := later.NewWorker(c, later.WorkerConfig{})
	w.Handle(queueName, func(context.Context, *later.Message) error { return nil })
	var all sync.WaitGroup
	all.Go(func() { check(w.Run(running)) })
	time.Sleep(settle)

	conn, err := net.Dial("tcp", b.addr)
	check(err)
	_, err = conn.Write([]byte("MONITOR\r\n"))
	check(err)
	var commands atomic.Int64
	all.Go(func() {
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			if strings.Contains(lines.Text(), "[") && !strings.Contains(lines.Text(), " lua] ") {
				commands.Add(1)
			}
		}
	})
	before := b.cpu(ctx) // one command of our own, and one at the end
	time.Sleep(watched)
	used := b.cpu(ctx) - before
	conn.Close()
	stop()
	all.Wait()
	b.report.add("idle worker process", "later", "commands/s", (float64(commands.Load())-2)/watched.Seconds())
	b.report.add("idle worker process", "later", "ms Redis CPU a second", float64(used.Microseconds())/1000/watched.Seconds())
}
