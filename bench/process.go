package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/shirou/gopsutil/v4/process"
)

// child is a program that the benchmark started: a server, or itself as another client. It does not outlive us.
type child struct {
	cmd    *exec.Cmd
	errors *tail
	exited chan struct{}
}

// startChild starts a program. Ctrl-C does not reach it, and where the system can it dies with us.
func startChild(cmd *exec.Cmd) (*child, error) {
	c := &child{cmd: cmd, errors: &tail{}, exited: make(chan struct{})}
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
	cmd.Stderr = c.errors
	if cmd.Stdout == nil {
		cmd.Stdout = c.errors
	}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // Linux ends it with the thread that started it
		defer runtime.UnlockOSThread()
		defer close(c.exited)
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait() // most are killed
		}
	}()
	return c, <-started
}

// stop kills it and waits until it is gone.
func (c *child) stop() {
	c.cmd.Process.Kill()
	<-c.exited
}

// cpu is the CPU time that it has used.
func (c *child) cpu() (time.Duration, error) {
	p, err := process.NewProcess(int32(c.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	t, err := p.Times()
	if err != nil {
		return 0, err
	}
	return time.Duration((t.User + t.System) * float64(time.Second)), nil
}

// resident is its memory in bytes.
func (c *child) resident() (int64, error) {
	p, err := process.NewProcess(int32(c.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	m, err := p.MemoryInfo()
	if err != nil {
		return 0, err
	}
	return int64(m.RSS), nil
}

// tail keeps the end of what a program prints.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.text = append(t.text, p...); len(t.text) > 4096 {
		t.text = bytes.Clone(t.text[len(t.text)-2048:])
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.text))
}

// startLimit bounds how long a server may take until it answers.
const startLimit = 20 * time.Second

// listening starts a server on a free port and returns when something listens there.
func listening(ctx context.Context, command func(port string) *exec.Cmd) (c *child, addr string, err error) {
	for range 5 { // another process may be faster to take the port
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, "", err
		}
		addr = l.Addr().String()
		l.Close()
		_, port, _ := net.SplitHostPort(addr)
		if c, err = startChild(command(port)); err != nil {
			return nil, "", err
		}
		if c.awaitListening(ctx, addr) {
			return c, addr, nil
		}
		c.stop()
		if ctx.Err() != nil {
			return nil, "", context.Cause(ctx)
		}
	}
	return nil, "", fmt.Errorf("%s does not listen on %s: %s", c.cmd, addr, c.errors)
}

func (c *child) awaitListening(ctx context.Context, addr string) bool {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(startLimit)
	for {
		if conn, err := net.Dial("tcp", addr); err == nil {
			conn.Close()
			select {
			case <-c.exited: // it was somebody else who listens
				return false
			default:
				return true
			}
		}
		select {
		case <-tick.C:
		case <-c.exited:
			return false
		case <-limit:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// asChild in the environment makes this program one of its children; see child.go.
const asChild = "LATER_BENCH_CHILD"

// self is this program again, to do a job in a process of its own until its standard input ends. It prints a
// line when it has begun.
func self(ctx context.Context, job ...string) (*reporter, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, job...)
	cmd.Env = append(os.Environ(), asChild+"=1")
	return startReporter(ctx, cmd)
}

var errGone = errors.New("the process has ended")
