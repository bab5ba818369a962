package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/shirou/gopsutil/v4/process"

	"github.com/laterq/later/internal/benchmark"
	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/internal/quota"
	"github.com/laterq/later/internal/redistest"
)

// server is the server of one measurement.
type server struct {
	addr  string
	pid   int
	run   *redistest.Server // nil if it is not a Redis
	redis *benchmark.Redis  // nil if it is not a Redis
	rdb   *redis.Client
	stop  func() error
}

// startRedis starts a Redis with arguments, run by a command if there is one.
func startRedis(under []string, args ...string) (*server, error) {
	r, err := redistest.Run(redistest.Args(args...), redistest.Under(under...))
	if err != nil {
		return nil, err
	}
	rdb := redis.NewClient(r.Options())
	watched := benchmark.WatchRedis(rdb)
	return &server{addr: r.Addr(), pid: r.PID(), run: r, redis: watched, rdb: rdb, stop: func() error {
		err := watched.Close()
		r.Remove()
		return err
	}}, nil
}

// startBeanstalkd starts a beanstalkd on a free port, with a log if binlog is set.
func startBeanstalkd(ctx context.Context, binlog bool) (*server, error) {
	dir, err := os.MkdirTemp("", "later-bench-")
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	addr := l.Addr().String()
	l.Close()
	_, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command("beanstalkd", "-l", "127.0.0.1", "-p", port)
	if binlog {
		cmd.Args = append(cmd.Args, "-b", dir)
	}
	ownGroup(cmd)
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s := &server{addr: addr, pid: cmd.Process.Pid, stop: func() error {
		cmd.Process.Kill()
		cmd.Wait()
		return os.RemoveAll(dir)
	}}
	for range 1000 {
		if conn, err := net.Dial("tcp", addr); err == nil {
			return s, conn.Close()
		}
		if err := calls.Sleep(ctx, 5*time.Millisecond); err != nil {
			break
		}
	}
	return nil, errors.Join(errors.New("beanstalkd does not listen"), s.stop())
}

// ownGroup makes Ctrl-C not reach a program.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// usage returns the CPU time and memory used by the server: as reported by a Redis, or else by the system.
func (s *server) usage(ctx context.Context) (benchmark.Usage, error) {
	if s.redis != nil {
		return s.redis.Usage(ctx)
	}
	return usageOf(s.pid)
}

// usageOf returns the CPU time, in steps of 10 ms, and the resident memory of a process.
func usageOf(pid int) (u benchmark.Usage, err error) {
	p, err := process.NewProcess(int32(pid))
	if err != nil {
		return u, err
	}
	t, err := p.Times()
	if err != nil {
		return u, err
	}
	m, err := p.MemoryInfo()
	if err != nil {
		return u, err
	}
	return benchmark.Usage{CPU: time.Duration((t.User + t.System) * float64(time.Second)), Memory: int64(m.RSS)}, nil
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

// asChild is the environment variable that makes this program one of its children.
const asChild = "LATER_BENCH_CHILD"

// self returns the command that runs this program as a child with a job. The child runs until its standard input ends.
func self(job ...string) (*exec.Cmd, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, job...)
	cmd.Env = append(os.Environ(), asChild+"=1")
	ownGroup(cmd)
	return cmd, nil
}

// childMain does the job of a child:
//
//	ping ADDR            send PINGs to the Redis at ADDR, and print the longest wait
//	idle SUBJECT ADDR    run an idle worker of the subject, and reply to each line of input with its CPU time
func childMain(args []string) error {
	ctx := context.Background()
	if len(args) == 2 && args[0] == "ping" {
		r := benchmark.WatchRedis(redis.NewClient(&redis.Options{Addr: args[1]}))
		defer r.Close()
		return r.Ping(ctx, os.Stdin, os.Stdout)
	}
	if len(args) != 3 || args[0] != "idle" {
		return fmt.Errorf("unknown job %q", args)
	}
	q, closeQueue, err := findSubject(args[1]).connect(ctx, args[2])
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			used, _ := quota.ProcessCPU()
			json.NewEncoder(os.Stdout).Encode(map[string]any{"event": "done", "result": used})
		}
		end()
	}()
	fmt.Println("began")
	return errors.Join(q.Work(ctx, handlers, func([]byte) {}), closeQueue())
}

// reporter is a child that replies to requests, as lines of JSON over its standard input and output.
type reporter struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
}

// startReporter starts a child and returns when it has printed its first line.
func startReporter(cmd *exec.Cmd) (*reporter, error) {
	cmd.Stderr = os.Stderr
	ownGroup(cmd)
	in, lines, err := benchmark.StartChild(cmd)
	if err != nil {
		return nil, err
	}
	r := &reporter{cmd, in, lines}
	if !lines.Scan() {
		r.stop()
		return nil, fmt.Errorf("%s has ended", cmd)
	}
	return r, nil
}

// stop kills the child.
func (r *reporter) stop() {
	r.in.Close()
	r.cmd.Process.Kill()
	r.cmd.Wait()
}

// do sends a request with a configuration, and decodes the result. The child is killed if ctx ends. onFilled may be
// nil.
func (r *reporter) do(ctx context.Context, op string, config, result any, onFilled func()) error {
	defer context.AfterFunc(ctx, func() { r.cmd.Process.Kill() })()
	if err := json.NewEncoder(r.in).Encode(map[string]any{"op": op, "config": config}); err != nil {
		return err
	}
	for r.lines.Scan() {
		var reply struct {
			Event, Error string // the event is filled, done or failed
			Result       json.RawMessage
		}
		if err := json.Unmarshal(r.lines.Bytes(), &reply); err != nil {
			return fmt.Errorf("%s printed %.100q: %w", r.cmd.Path, r.lines.Bytes(), err)
		}
		switch {
		case reply.Event == "failed":
			return errors.New(reply.Error)
		case reply.Event == "filled" && onFilled != nil:
			onFilled()
		case reply.Event == "done" && result != nil:
			return json.Unmarshal(reply.Result, result)
		case reply.Event == "done":
			return nil
		}
	}
	return errors.Join(fmt.Errorf("%s has ended", r.cmd), context.Cause(ctx))
}
