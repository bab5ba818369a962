package main

import (
	"bufio"
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"time"
)

// runIdle starts n idle worker processes and measures their cost. The queue has one message, due in an hour.
func runIdle(ctx context.Context, c *cell) error {
	if err := c.FillLater(ctx, 1, c.Size); err != nil {
		return err
	}
	if c.server == nil {
		return c.idleEmbedded(ctx)
	}
	var workers []*reporter
	defer func() {
		for _, w := range workers {
			w.stop()
		}
	}()
	for range c.n {
		w, err := c.startIdle(ctx)
		if err != nil {
			return err
		}
		workers = append(workers, w)
	}
	if err := pause(ctx, c.Settle); err != nil {
		return err
	}
	used := func() (client, server time.Duration, err error) {
		for _, w := range workers {
			answer, err := w.do(ctx, request{Op: "cpu"}, nil)
			if err != nil {
				return 0, 0, err
			}
			client += fromMillis(answer.CPUMicros / 1000)
		}
		server, err = c.server.cpuTime(ctx)
		return client, server, err
	}
	client, server, err := used()
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := pause(ctx, c.IdleFor); err != nil {
		return err
	}
	clientNow, serverNow, err := used()
	if err != nil {
		return err
	}
	seconds := time.Since(begin).Seconds()
	values := map[string]float64{
		serverLoad: millis(serverNow-server) / seconds, clientLoad: millis(clientNow-client) / seconds,
	}
	// MONITOR comes last, because it costs a Redis more than the workers do.
	if c.server.redis != nil {
		if values[commandRate], err = commandsPerSecond(ctx, c.server.addr, c.IdleFor); err != nil {
			return err
		}
	}
	c.emit(c.n, measurement{Values: values})
	return nil
}

// startIdle starts one idle worker process.
func (c *cell) startIdle(ctx context.Context) (*reporter, error) {
	if c.subject.connect != nil {
		return self(ctx, "idle", c.subject.name, c.server.addr)
	}
	node, err := startNode(ctx, c.server.addr)
	if err != nil {
		return nil, err
	}
	if _, err := node.do(ctx, request{Op: "idle", Handlers: handlers}, nil); err != nil {
		node.stop()
		return nil, err
	}
	return node, nil
}

// idleEmbedded runs the worker in this process, the only one that can use an embedded store.
func (c *cell) idleEmbedded(ctx context.Context) error {
	if c.n > 1 {
		return nil
	}
	working, stop := context.WithCancel(ctx)
	worked := make(chan error, 1)
	go func() { worked <- c.load.(local).Work(working, handlers, func([]byte) {}) }()
	err := pause(ctx, c.Settle)
	values := map[string]float64{}
	if err == nil {
		end, costErr := c.cost(ctx)
		begin := time.Now()
		if err = errors.Join(costErr, pause(ctx, c.IdleFor)); err == nil {
			cost := map[string]float64{}
			err = end(1, cost)
			values[clientLoad] = cost[clientCPU] / 1000 / time.Since(begin).Seconds()
		}
	}
	stop()
	if err = errors.Join(err, <-worked); err == nil {
		c.emit(c.n, measurement{Values: values})
	}
	return err
}

// commandsPerSecond counts the commands that clients send to a Redis, using MONITOR. It excludes commands called by
// scripts.
func commandsPerSecond(ctx context.Context, addr string, d time.Duration) (float64, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return 0, err
	}
	var count atomic.Int64
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			if strings.Contains(lines.Text(), "[") && !strings.Contains(lines.Text(), " lua] ") {
				count.Add(1)
			}
		}
	}()
	defer func() {
		conn.Close()
		<-ended
	}()
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		return 0, err
	}
	begin := time.Now()
	err = pause(ctx, d)
	return float64(count.Load()) / time.Since(begin).Seconds(), err
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
