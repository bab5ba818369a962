//go:build unix

package main

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait for an event. It is far beyond what any needs, since a busy machine must not fail a test.
const patience = 30 * time.Second

// process is the program in a process of its own.
type process struct {
	t              *testing.T
	cmd            *exec.Cmd
	out            *os.File // our end of its standard output
	stdout, stderr <-chan string
	exited         chan int
}

// start starts the program on the cli's store.
func (c *cli) start(args ...string) *process {
	c.t.Helper()
	return c.startAs(os.Args[0], nil, args...)
}

// startAs starts it by another name of the test binary and with a standard input.
func (c *cli) startAs(program string, stdin *os.File, args ...string) *process {
	c.t.Helper()
	p := &process{t: c.t, cmd: exec.Command(program, args...), exited: make(chan int, 1)}
	p.cmd.Env = append(os.Environ(), asProgram+"=1", "LATER_STORE="+c.store,
		"GORACE=atexit_sleep_ms=0") // else each process would end a second late
	outRead, outWrite := pipe(c.t)
	errRead, errWrite := pipe(c.t)
	p.cmd.Stdout, p.cmd.Stderr = outWrite, errWrite
	if stdin != nil {
		p.cmd.Stdin = stdin
	}
	if err := p.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	outWrite.Close()
	errWrite.Close()
	p.out, p.stdout, p.stderr = outRead, lines(outRead), lines(errRead)
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.cmd.Wait()
		code := p.cmd.ProcessState.ExitCode()
		if s := p.cmd.ProcessState.Sys().(syscall.WaitStatus); s.Signaled() {
			code = exitBy(s.Signal())
		}
		p.exited <- code
	}()
	c.t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-done
	})
	return p
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r, w
}

// lines gives the lines of r; the channel holds more than any test prints, so that its goroutine ends.
func lines(r io.Reader) <-chan string {
	all := make(chan string, 10_000)
	go func() {
		defer close(all)
		scanner := bufio.NewScanner(r)
		for scanner.Scan() {
			all <- scanner.Text()
		}
	}()
	return all
}

// await reads lines until one has the text, and gives that.
func (p *process) await(from <-chan string, text string) string {
	p.t.Helper()
	limit := time.After(patience)
	var seen []string
	for {
		select {
		case line, ok := <-from:
			if !ok {
				p.t.Fatalf("no line has %q; there were:\n%s", text, strings.Join(seen, "\n"))
			}
			if strings.Contains(line, text) {
				return line
			}
			seen = append(seen, line)
		case <-limit:
			p.t.Fatalf("no line has %q after %v; there were:\n%s", text, patience, strings.Join(seen, "\n"))
		}
	}
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// exit waits for the end and gives the code; that of a shell where a signal ended it.
func (p *process) exit() int {
	p.t.Helper()
	select {
	case code := <-p.exited:
		return code
	case <-time.After(patience):
		p.t.Fatalf("it still runs after %v", patience)
		return 0
	}
}

// watchGroup gives a part of a shell command that holds a pipe open in every process of its group, and a
// function that waits until none of them is left.
func watchGroup(t *testing.T) (hold string, awaitEnd func()) {
	t.Helper()
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := os.OpenFile(fifo, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	// Without a writer a read is at its end at once, so awaitEnd is to be called when the command has begun.
	return "exec 3>" + fifo, func() {
		t.Helper()
		r.SetReadDeadline(time.Now().Add(patience))
		if _, err := io.Copy(io.Discard, r); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("a process of the group is left after %v", patience)
			}
			t.Fatal(err)
		}
	}
}
