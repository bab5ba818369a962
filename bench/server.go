package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later"
	"github.com/laterq/later/redisstore"
)

// server is a redis-server of the benchmark's own.
type server struct {
	cmd  *exec.Cmd
	dir  string
	addr string
	rdb  *redis.Client
}

func startServer(persist string) (*server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	dir, err := os.MkdirTemp("", "later-bench-")
	if err != nil {
		return nil, err
	}
	args := []string{"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--loglevel", "warning"}
	switch persist {
	case "none":
		args = append(args, "--appendonly", "no")
	case "everysec", "always":
		args = append(args, "--appendonly", "yes", "--appendfsync", persist)
	default:
		return nil, fmt.Errorf("-persist is %q: use none, everysec or always", persist)
	}
	s := &server{dir: dir, addr: fmt.Sprintf("127.0.0.1:%d", port), cmd: exec.Command("redis-server", args...)}
	s.cmd.Stderr = os.Stderr
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start redis-server (apt-get install redis-server, or brew install redis): %w", err)
	}
	s.rdb = redis.NewClient(&redis.Options{Addr: s.addr})
	for range 100 {
		if err = s.rdb.Ping(context.Background()).Err(); err == nil {
			return s, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	s.stop()
	return nil, fmt.Errorf("redis-server does not answer: %w", err)
}

func (s *server) stop() {
	s.rdb.Close()
	s.cmd.Process.Kill()
	s.cmd.Wait()
	os.RemoveAll(s.dir)
}

// empty removes all data.
func (s *server) empty(ctx context.Context) {
	check(s.rdb.FlushAll(ctx).Err())
}

func (s *server) info(ctx context.Context, section, field string) string {
	for line := range strings.SplitSeq(s.rdb.Info(ctx, section).Val(), "\r\n") {
		if v, ok := strings.CutPrefix(line, field+":"); ok {
			return v
		}
	}
	return ""
}

func (s *server) version(ctx context.Context) string { return s.info(ctx, "server", "redis_version") }

// used is the server's memory in bytes.
func (s *server) used(ctx context.Context) float64 {
	v, err := strconv.ParseFloat(s.info(ctx, "memory", "used_memory"), 64)
	check(err)
	return v
}

// cpu is the server's CPU time so far.
func (s *server) cpu(ctx context.Context) time.Duration {
	total := 0.0
	for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
		v, err := strconv.ParseFloat(s.info(ctx, "cpu", field), 64)
		check(err)
		total += v
	}
	return time.Duration(total * float64(time.Second))
}

// client opens Later on the server.
func (s *server) client() (*later.Client, func()) {
	rdb := redis.NewClient(&redis.Options{Addr: s.addr})
	st := redisstore.New(rdb)
	c := later.New(st)
	return c, func() {
		check(c.Close())
		check(st.Close())
		check(rdb.Close())
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
