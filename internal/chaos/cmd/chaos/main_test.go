//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/laterq/later/internal/chaos"
)

// commandEnv makes this test binary run the command.
const commandEnv = "LATER_CHAOS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(commandEnv) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

// started is a running command at the head of its own process group, as a shell starts it.
type started struct {
	cmd    *exec.Cmd
	temp   string
	stdout bytes.Buffer
	stderr *bufio.Scanner
}

func start(t *testing.T, args ...string) *started {
	t.Helper()
	// A generous limit: a command that it kills has failed.
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	c := &started{cmd: exec.CommandContext(ctx, os.Args[0], args...), temp: t.TempDir()}
	c.cmd.Env = append(os.Environ(), commandEnv+"=1", "TMPDIR="+c.temp)
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.cmd.Stdout = &c.stdout
	stderr, err := c.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.stderr = bufio.NewScanner(stderr)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

// await reads standard error until a line contains text.
func (c *started) await(t *testing.T, text string) {
	t.Helper()
	var all []string
	for c.stderr.Scan() {
		all = append(all, c.stderr.Text())
		if strings.Contains(c.stderr.Text(), text) {
			return
		}
	}
	t.Fatalf("it ended and never said %q, but:\n%s", text, strings.Join(all, "\n"))
}

// signal sends a signal to all processes of the group, as a terminal does.
func (c *started) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(-c.cmd.Process.Pid, s); err != nil {
		t.Fatal(err)
	}
}

// wantExit waits for the command to exit.
func (c *started) wantExit(t *testing.T, code int) {
	t.Helper()
	var rest []string
	for c.stderr.Scan() {
		rest = append(rest, c.stderr.Text())
	}
	err := c.cmd.Wait()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if got := c.cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("it ended with %d; want %d; it said:\n%s\n%s", got, code, strings.Join(rest, "\n"), c.stdout.String())
	}
}

// wantServersGone checks that no server directory is left.
func (c *started) wantServersGone(t *testing.T) {
	t.Helper()
	if left, err := filepath.Glob(filepath.Join(c.temp, "later-redis-*")); len(left) > 0 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestInterruptedRunIsVerifiedAndReported interrupts the whole process group. The servers and processes of the run must
// continue until the run stops them.
func TestInterruptedRunIsVerifiedAndReported(t *testing.T) {
	t.Parallel()
	for signal, code := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			results := filepath.Join(t.TempDir(), "results.json")
			c := start(t, "-fault", "consumer-kill", "-runs", "2", "-duration", "1h", "-json", results, "-v")
			c.await(t, "seed 1 kill")
			c.signal(t, signal)
			c.await(t, "interrupt again to stop at once")
			c.wantExit(t, code)
			c.wantServersGone(t)

			file, err := os.Open(results)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			all, err := chaos.Read(file)
			if err != nil || len(all) != 1 {
				t.Fatalf("%d runs have results; want 1: %v", len(all), err)
			}
			r := all[0]
			if !r.OK() || !r.CutShort || r.Planned != 3600 || r.Seconds <= 0 || r.Seconds >= 3600 || r.Injected == 0 {
				t.Errorf("the result is %+v", r)
			}
			if r.Sent == 0 || r.Sent != r.Delivered+r.StillThere+r.Dead+r.Cancelled {
				t.Errorf("of %d messages %d were delivered, %d are still there, %d dead and %d cancelled",
					r.Sent, r.Delivered, r.StillThere, r.Dead, r.Cancelled)
			}
			for _, text := range []string{
				"CUT SHORT after", "| 1 (1 cut short) |", "1 runs were cut short", "1 of 2 runs were started",
			} {
				if !strings.Contains(c.stdout.String(), text) {
					t.Errorf("output lacks %q:\n%s", text, c.stdout.String())
				}
			}
		})
	}
}

func TestSecondInterruptStopsAtOnce(t *testing.T) {
	t.Parallel()
	results := filepath.Join(t.TempDir(), "results.json")
	c := start(t, "-fault", "consumer-kill", "-runs", "1", "-duration", "1h", "-json", results, "-v")
	c.await(t, "seed 1 kill")
	c.signal(t, syscall.SIGINT)
	c.await(t, "interrupt again to stop at once")
	c.signal(t, syscall.SIGINT)
	c.await(t, "nothing was verified")
	c.wantExit(t, 130)
	c.wantServersGone(t)
	if text, err := os.ReadFile(results); len(text) > 0 || err != nil {
		t.Errorf("got results, %v: %s", err, text)
	}
	if strings.Contains(c.stdout.String(), "|") {
		t.Errorf("it printed a table:\n%s", c.stdout.String())
	}
}

// TestUnknownFaultExitsWithTwo checks that the command fails before it starts a server.
func TestUnknownFaultExitsWithTwo(t *testing.T) {
	t.Parallel()
	c := start(t, "-fault", "earthquake", "-runs", "1")
	c.wantExit(t, 2)
}
