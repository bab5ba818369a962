//go:build unix

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// eventTimeout limits every wait for an event. It is far longer than any needs, so that a busy machine does not fail a
// test.
const eventTimeout = 30 * time.Second

// process is the program running in its own process.
type process struct {
	t              *testing.T
	cmd            *exec.Cmd
	out            *os.File // the test's end of its standard output
	stdout, stderr <-chan string
	exited         chan int
}

// start starts the program on the cli's store.
func (c *cli) start(args ...string) *process {
	c.t.Helper()
	return c.startAs(os.Args[0], nil, args...)
}

// startAs starts the program by another path of the test binary and with a standard input.
func (c *cli) startAs(program string, stdin *os.File, args ...string) *process {
	c.t.Helper()
	p := &process{t: c.t, cmd: exec.Command(program, args...), exited: make(chan int, 1)}
	p.cmd.Env = append(os.Environ(), runAsProgramEnv+"=1", "LATER_STORE="+c.store,
		"GORACE=atexit_sleep_ms=0") // the race detector would delay each exit by a second
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

// lines returns the lines of r. The channel has room for more than any test prints, so that its goroutine ends.
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

// await reads lines until one contains the text, and returns it.
func (p *process) await(from <-chan string, text string) string {
	p.t.Helper()
	limit := time.After(eventTimeout)
	var seen []string
	for {
		select {
		case line, ok := <-from:
			if !ok {
				p.t.Fatalf("no line contains %q; got:\n%s", text, strings.Join(seen, "\n"))
			}
			if strings.Contains(line, text) {
				return line
			}
			seen = append(seen, line)
		case <-limit:
			p.t.Fatalf("no line contains %q after %v; got:\n%s", text, eventTimeout, strings.Join(seen, "\n"))
		}
	}
}

// rest yields the remaining lines. A process that prints none for a while fails the test with its goroutines.
func (p *process) rest(from <-chan string) iter.Seq[string] {
	return func(yield func(string) bool) {
		p.t.Helper()
		for {
			select {
			case line, ok := <-from:
				if !ok || !yield(line) {
					return
				}
			case <-time.After(eventTimeout):
				p.hangs("prints nothing and does not end")
			}
		}
	}
}

// hangs fails the test. It ends the process with SIGQUIT, and shows the rest of its standard error, which has its
// goroutines.
func (p *process) hangs(how string) {
	p.t.Helper()
	p.cmd.Process.Signal(syscall.SIGQUIT)
	var said []string
	for limit := time.After(eventTimeout); ; {
		select {
		case line, ok := <-p.stderr:
			if ok {
				said = append(said, line)
				continue
			}
		case <-limit:
		}
		p.t.Fatalf("the process %s for %v; standard error:\n%s", how, eventTimeout, strings.Join(said, "\n"))
	}
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// exit waits for the process to end and returns its exit code. After a signal it is the code that a shell gives.
func (p *process) exit() int {
	p.t.Helper()
	select {
	case code := <-p.exited:
		return code
	case <-time.After(eventTimeout):
		p.hangs("runs on")
		return 0
	}
}

// newGate returns the path of a pipe from which a shell command can read a line, and a function that writes one. The
// function does not wait for the command, which may have been killed.
func newGate(t *testing.T) (path string, open func()) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "gate")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	gate, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { gate.Close() })
	return path, func() {
		t.Helper()
		if _, err := gate.WriteString("go\n"); err != nil {
			t.Fatal(err)
		}
	}
}

// watchGroup returns a shell command that keeps a pipe open in every process of its group, and a function that waits
// until none of them is left.
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
	// Without a writer a read ends at once, so call awaitEnd only after the command has started.
	return "exec 3>" + fifo, func() {
		t.Helper()
		r.SetReadDeadline(time.Now().Add(eventTimeout))
		if _, err := io.Copy(io.Discard, r); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("a process of the group is left after %v", eventTimeout)
			}
			t.Fatal(err)
		}
	}
}

var residentLine = regexp.MustCompile(`VmRSS:\s+(\d+) kB`)

// residentMiB returns the memory of a process in MiB, on Linux.
func residentMiB(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	found := residentLine.FindSubmatch(text)
	if found == nil {
		return 0, errors.New("no VmRSS in /proc")
	}
	kb, err := strconv.ParseFloat(string(found[1]), 64)
	return kb / 1024, err
}
