package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/benchmark"
)

// server is the server of one measurement, in its own directory.
type server struct {
	*child
	addr  string
	dir   string
	redis *benchmark.Redis // nil if it is not a Redis
	rdb   *redis.Client
}

// persistence is how a Redis persists its data.
type persistence string

const (
	persistNone     persistence = "off"
	persistEverysec persistence = "AOF everysec"
	persistAlways   persistence = "AOF always"
)

func startRedis(ctx context.Context, persist persistence) (*server, error) {
	args := []string{"--bind", "127.0.0.1", "--save", "", "--loglevel", "warning"}
	switch persist {
	case persistNone:
		args = append(args, "--appendonly", "no")
	case persistEverysec:
		args = append(args, "--appendonly", "yes", "--appendfsync", "everysec")
	case persistAlways:
		args = append(args, "--appendonly", "yes", "--appendfsync", "always")
	}
	s, err := startServer(ctx, func(dir, port string) *exec.Cmd {
		return exec.Command("redis-server", append(args, "--port", port, "--dir", dir)...)
	})
	if err != nil {
		return nil, err
	}
	s.rdb = redis.NewClient(&redis.Options{Addr: s.addr, MaxRetries: -1})
	s.redis = benchmark.WatchRedis(s.rdb)
	if err := s.rdb.Ping(ctx).Err(); err != nil {
		s.close()
		return nil, fmt.Errorf("redis-server at %s: %w", s.addr, err)
	}
	return s, nil
}

// startBeanstalkd starts a beanstalkd that keeps its jobs in memory, and also in a log if binlog is set.
func startBeanstalkd(ctx context.Context, binlog bool) (*server, error) {
	return startServer(ctx, func(dir, port string) *exec.Cmd {
		args := []string{"-l", "127.0.0.1", "-p", port}
		if binlog {
			args = append(args, "-b", dir)
		}
		return exec.Command("beanstalkd", args...)
	})
}

func startServer(ctx context.Context, command func(dir, port string) *exec.Cmd) (*server, error) {
	dir, err := os.MkdirTemp("", "later-bench-")
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir}
	s.child, s.addr, err = listening(ctx, func(port string) *exec.Cmd { return command(dir, port) })
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	return s, nil
}

func (s *server) close() error {
	var err error
	if s.redis != nil {
		err = s.redis.Close()
	}
	s.stop()
	return errors.Join(err, os.RemoveAll(s.dir))
}

// cpuTime returns the CPU time used by the server: as reported by a Redis, or else by the system in steps of 10 ms.
func (s *server) cpuTime(ctx context.Context) (time.Duration, error) {
	if s.redis == nil {
		return s.cpu()
	}
	u, err := s.redis.Usage(ctx)
	return u.CPU, err
}

// memory returns the memory used by the server: used_memory of a Redis, or else its resident memory.
func (s *server) memory(ctx context.Context) (int64, error) {
	if s.redis == nil {
		return s.resident()
	}
	u, err := s.redis.Usage(ctx)
	return u.Memory, err
}

// directorySize returns the total size of the files in a directory.
func directorySize(dir string) (size int64, err error) {
	err = filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			size += info.Size()
		}
		if errors.Is(err, os.ErrNotExist) { // removed in the meantime
			return nil
		}
		return err
	})
	return size, err
}

// installed returns a function that reports whether a program is missing, with a hint how to install it.
func installed(program, how string) func() error {
	return func() error {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%s is not installed (%s)", program, how)
		}
		return nil
	}
}

// versionOf returns the first line that a program prints about its version.
func versionOf(program string, args ...string) string {
	out, err := exec.Command(program, args...).CombinedOutput()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return line
}

// logSlowCalls makes Redis log slow calls from now on.
func (s *server) logSlowCalls(ctx context.Context) error {
	return errors.Join(
		s.rdb.ConfigSet(ctx, "slowlog-log-slower-than", "100").Err(), // microseconds
		s.rdb.ConfigSet(ctx, "slowlog-max-len", "100000").Err(),
		s.rdb.Do(ctx, "slowlog", "reset").Err())
}

// slowestCall returns the duration of the longest call since logSlowCalls.
func (s *server) slowestCall(ctx context.Context) (slowest time.Duration, err error) {
	calls, err := s.rdb.SlowLogGet(ctx, -1).Result()
	for _, c := range calls {
		slowest = max(slowest, c.Duration)
	}
	return slowest, err
}
