package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/benchmark"
)

// childMain is what this program does as its own child, until its standard input ends. Each line of that it answers
// with the CPU time that it has used.
//
//	ping ADDR            ask the Redis there for PING, and print the longest wait in nanoseconds
//	idle SUBJECT ADDR    be a worker of the subject that has nothing to do
func childMain(args []string) error {
	ctx, end := context.WithCancel(context.Background())
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			used, _ := benchmark.ProcessCPU()
			json.NewEncoder(os.Stdout).Encode(reply{Event: "done", CPUMicros: micros(used)})
		}
		end()
	}()
	if len(args) == 2 && args[0] == "ping" {
		r := benchmark.WatchRedis(redis.NewClient(&redis.Options{Addr: args[1]}))
		defer r.Close()
		fmt.Println("began")
		worst, err := r.WorstPing(ctx)
		fmt.Println(worst.Nanoseconds())
		return err
	}
	if len(args) == 3 && args[0] == "idle" {
		s := findSubject(args[1])
		if s == nil || s.connect == nil {
			return fmt.Errorf("no subject %q to connect to", args[1])
		}
		q, closeQueue, err := s.connect(ctx, args[2])
		if err != nil {
			return err
		}
		fmt.Println("began")
		err = q.Work(ctx, handlers, func([]byte) {})
		fmt.Println("ended")
		return errors.Join(err, closeQueue())
	}
	return fmt.Errorf("no job %q", args)
}

// startPinger asks a Redis for PING from a process of its own, as another client would. What it gives ends it and
// tells the longest wait.
func startPinger(ctx context.Context, addr string) (worst func() (time.Duration, error), err error) {
	r, err := self(ctx, "ping", addr)
	if err != nil {
		return nil, err
	}
	return func() (time.Duration, error) {
		defer r.stop()
		line, err := r.finish(ctx)
		if err != nil {
			return 0, err
		}
		var nanos int64
		_, err = fmt.Sscan(string(line), &nanos)
		return time.Duration(nanos), err
	}, nil
}
