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

// childMain runs this program as its own child until its standard input ends. It replies to each input line with the
// CPU time used so far. The jobs are:
//
//	ping ADDR            send PINGs to the Redis at ADDR, and print the longest wait in nanoseconds
//	count                count, to keep a CPU busy
//	idle SUBJECT ADDR    run an idle worker of the subject
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
	if len(args) == 1 && args[0] == "count" {
		fmt.Println("began")
		for n := 0; ctx.Err() == nil; n++ {
		}
		return nil
	}
	if len(args) == 3 && args[0] == "idle" {
		s := findSubject(args[1])
		if s == nil || s.connect == nil {
			return fmt.Errorf("subject %q cannot be connected to", args[1])
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
	return fmt.Errorf("unknown job %q", args)
}

// startPinger sends PINGs to a Redis from a separate process, like another client. The returned function stops it and
// returns the longest wait.
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

// pingBesideOthers returns the longest wait for a PING to an idle Redis while two other processes keep a CPU busy each,
// as the Redis and the worker of a herd do. It tells how much of the herd's longest wait is due to the machine.
func pingBesideOthers(ctx context.Context, addr string, d time.Duration) (time.Duration, error) {
	for range 2 {
		busy, err := self(ctx, "count")
		if err != nil {
			return 0, err
		}
		defer busy.stop()
	}
	worst, err := startPinger(ctx, addr)
	if err != nil {
		return 0, err
	}
	paused := pause(ctx, d)
	longest, err := worst()
	return longest, errors.Join(paused, err)
}
