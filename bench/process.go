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

// child is a process started by the benchmark: a server, or this program as another client. It does not outlive this
// process.
type child struct {
	cmd    *exec.Cmd
	errors *tail
	exited chan struct{}
}

// startChild starts a program. It does not receive Ctrl-C, and dies with this process if the system supports that.
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
		runtime.LockOSThread() // Linux kills it when the thread that started it exits
		defer runtime.UnlockOSThread()
		defer close(c.exited)
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait() // most are killed, so the status does not matter
		}
	}()
	return c, <-started
}

// stop kills the process and waits until it has exited.
func (c *child) stop() {
	c.cmd.Process.Kill()
	<-c.exited
}

// cpu returns the CPU time used by the process.
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

// resident returns the resident memory of the process in bytes.
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

// tail keeps the end of a program's output.
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

// startLimit limits how long a server may take until it replies.
const startLimit = 20 * time.Second

// listening starts a server on a free port and returns when it listens there.
func listening(ctx context.Context, command func(port string) *exec.Cmd) (c *child, addr string, err error) {
	for range 5 { // another process may take the port first
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
			case <-c.exited: // another process listens there
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

// asChild is the environment variable that makes this program one of its children; see child.go.
const asChild = "LATER_BENCH_CHILD"

// self starts this program again to run a job in a separate process until its standard input ends. It prints a line
// when it has started.
func self(ctx context.Context, job ...string) (*reporter, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, job...)
	cmd.Env = append(os.Environ(), asChild+"=1")
	return startReporter(ctx, cmd)
}

var errGone = errors.New("the process has exited")
