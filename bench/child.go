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
