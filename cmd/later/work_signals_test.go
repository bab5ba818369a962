//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laterq/later/internal/redistest"
)

func TestSignalDrainsAndLetsCommandsFinish(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		c := newCLI(t)
		c.ok("send", "q", "x")
		gate, open := newGate(t)
		p := c.start("work", "q", "--exec", `echo started; read go < `+gate+`; read line; echo "got $line"`)
		p.await(p.stdout, "started")
		p.signal(signal)
		p.await(p.stderr, "draining; repeat to kill")
		open()
		p.await(p.stdout, "got x")
		p.await(p.stderr, "drained")
		if exit := p.exit(); exit != 0 {
			t.Errorf("%v: exit %d", signal, exit)
		}
		if got := object(t, c.ok("stats", "q", "--json")); got["ready"] != 0.0 || got["leased"] != 0.0 {
			t.Errorf("%v: %v", signal, got)
		}
	}
}

func TestDrainThatTakesTooLongReleasesTheMessageUncounted(t *testing.T) {
	c := newCLI(t)
	hold, awaitEnd := watchGroup(t)
	c.ok("send", "q", "x", "--id", "a")
	p := c.start("work", "q", "--drain", "100ms", "--exec", hold+"; echo started; sleep 300; echo never")
	p.await(p.stdout, "started")
	p.signal(syscall.SIGTERM)
	awaitEnd()
	p.await(p.stderr, "its message is released")
	if exit := p.exit(); exit != 0 {
		t.Errorf("exit %d", exit)
	}
	if got := object(t, c.ok("get", "q", "a", "--json")); got["state"] != "ready" || got["attempts"] != 0.0 {
		t.Errorf("got %v", got)
	}
}

func TestSecondSignalKillsCommandsToo(t *testing.T) {
	for signal, want := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		c := newCLI(t)
		hold, awaitEnd := watchGroup(t)
		c.ok("send", "q", "x")
		p := c.start("work", "q", "--exec", hold+`; trap "" TERM INT; echo started; sleep 300; sleep 300`)
		p.await(p.stdout, "started")
		begin := time.Now()
		p.signal(signal)
		p.await(p.stderr, "draining")
		p.signal(signal)
		if signal == syscall.SIGTERM {
			p.repeatUntilKilled(begin)
		}
		if exit := p.exit(); exit != want {
			t.Errorf("%v: exit %d, want %d", signal, exit, want)
		}
		awaitEnd()
	}
}

// repeatUntilKilled follows a second SIGTERM, and sends another whenever the process says that it ignored one. The
// first was sent after begin.
func (p *process) repeatUntilKilled(begin time.Time) {
	p.t.Helper()
	ignored := 0
	for line := range p.rest(p.stderr) {
		switch {
		case strings.Contains(line, "ignoring a second SIGTERM"):
			ignored++
			p.cmd.Process.Signal(syscall.SIGTERM)
		case strings.Contains(line, "killed"):
			if took := time.Since(begin); ignored == 0 || took < copyWithin {
				p.t.Errorf("killed after %v, when %d copies of SIGTERM were ignored", took, ignored)
			}
			return
		}
	}
	p.t.Error("the process ended without a word")
}

func TestCtrlCKillsAtOnceAfterSIGTERM(t *testing.T) {
	c := newCLI(t)
	c.ok("send", "q", "x")
	p := c.start("work", "q", "--exec", `trap "" TERM INT; echo started; sleep 300`)
	p.await(p.stdout, "started")
	p.signal(syscall.SIGTERM)
	p.await(p.stderr, "draining")
	p.signal(syscall.SIGINT)
	if exit := p.exit(); exit != 130 {
		t.Errorf("exit %d, want 130", exit)
	}
}

func TestSIGTSTPStopsClaimingUntilSIGCONT(t *testing.T) {
	c := newCLI(t)
	c.ok("send", "q", "before")
	p := c.start("work", "q")
	p.await(p.stdout, "before")
	p.signal(syscall.SIGTSTP)
	p.await(p.stderr, "paused, claiming no more messages; kill -CONT")

	left := c.sendWhilePaused("q")
	p.signal(syscall.SIGCONT)
	p.await(p.stderr, "resumed")
	p.await(p.stdout, left)
	p.signal(syscall.SIGTERM)
	if exit := p.exit(); exit != 0 {
		t.Errorf("exit %d", exit)
	}
}

// sendWhilePaused sends messages until one is left to other consumers, and returns its payload. A call in flight
// when the process was paused may take the first ones.
func (c *cli) sendWhilePaused(queue string) (payload string) {
	c.t.Helper()
	q := c.client().Queue(queue)
	for begin := time.Now(); time.Since(begin) < eventTimeout; {
		payload = fmt.Sprintf("meanwhile at %v", time.Since(begin))
		c.ok("send", queue, payload)
		ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
		deliveries, err := q.Receive(ctx, 1)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			continue // taken
		}
		if err == nil {
			err = deliveries[0].Release(c.t.Context())
		}
		if err != nil {
			c.t.Fatal(err)
		}
		return string(deliveries[0].Payload)
	}
	c.t.Fatalf("the paused process takes messages for %v", eventTimeout)
	return ""
}

func TestSIGUSR2DrainsAndExecutesTheProgramAgain(t *testing.T) {
	c := newCLI(t)
	p := c.start("work", "q", "--exec", "read line; echo $line by $PPID")
	for _, message := range []string{"one", "two", "three"} {
		p.await(p.stderr, "working on q")
		c.ok("send", "q", message)
		line := p.await(p.stdout, message+" by")
		p.signal(syscall.SIGUSR2)
		p.await(p.stderr, "draining to restart")
		p.await(p.stderr, "drained")
		if want := p.cmd.Process.Pid; !strings.HasSuffix(line, fmt.Sprintf(" %d", want)) {
			t.Errorf("%q, want process %d", line, want)
		}
	}
	p.await(p.stderr, "working on q")
	p.signal(syscall.SIGTERM)
	if exit := p.exit(); exit != 0 {
		t.Errorf("exit %d", exit)
	}
}

func TestRestartWithoutAProgramIsRefusedAndWorkContinues(t *testing.T) {
	c := newCLI(t)
	link := filepath.Join(t.TempDir(), "later")
	if err := os.Symlink(os.Args[0], link); err != nil {
		t.Fatal(err)
	}
	p := c.startAs(link, nil, "work", "q")
	p.await(p.stderr, "working on q")
	works := func(message string) {
		t.Helper()
		c.ok("send", "q", message)
		p.await(p.stdout, message)
	}
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGUSR2)
	p.await(p.stderr, "error: cannot restart, continuing")
	works("after a refusal")

	if err := os.WriteFile(link, []byte("no program"), 0o700); err != nil { // fails only when it is executed
		t.Fatal(err)
	}
	p.signal(syscall.SIGUSR2)
	p.await(p.stderr, "drained")
	p.await(p.stderr, "cannot restart, continuing")
	p.await(p.stderr, "working on q")
	works("after a failure")

	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(os.Args[0], link); err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGUSR2)
	p.await(p.stderr, "drained")
	if line := p.await(p.stderr, ""); !strings.Contains(line, "working on q") {
		t.Errorf("logged %q, want a restart", line)
	}
	works("after a restart")
	p.signal(syscall.SIGTERM)
	if exit := p.exit(); exit != 0 {
		t.Errorf("exit %d", exit)
	}
}

func TestCtrlCDuringARestartEndsInstead(t *testing.T) {
	c := newCLI(t)
	c.ok("send", "q", "x")
	p := c.start("work", "q", "--exec", "echo started; sleep 300")
	p.await(p.stdout, "started")
	p.signal(syscall.SIGUSR2)
	p.await(p.stderr, "draining to restart")
	p.signal(syscall.SIGINT)
	p.await(p.stderr, "draining to end instead; repeat to kill")
	p.signal(syscall.SIGINT)
	if exit := p.exit(); exit != 130 {
		t.Errorf("exit %d", exit)
	}
}

func TestWorkEndsQuietlyWhenItsOutputIsClosedAndLosesNothing(t *testing.T) {
	c := newCLI(t)
	p := c.start("work", "q")
	c.ok("send", "q", "read")
	p.await(p.stdout, "read")
	p.await(p.stderr, "working on q")
	p.out.Close()
	c.ok("send", "q", "unread", "--id", "a")
	if exit := p.exit(); exit != 0 {
		t.Errorf("exit %d", exit)
	}
	if line, more := <-p.stderr; more {
		t.Errorf("printed %q", line)
	}
	if got := object(t, c.ok("get", "q", "a", "--json")); got["state"] != "ready" || got["attempts"] != 0.0 {
		t.Errorf("got %v", got)
	}
}

func TestClosedOutputEndsOtherCommandsQuietly(t *testing.T) {
	c := newCLI(t)
	c.ok("send", "q", "x", "--in", "1h")
	for _, args := range [][]string{{"list", "q"}, {"stats", "--watch", "--interval", "5ms"}, {"demo"}, {"--help"}} {
		p := c.start(args...)
		p.out.Close()
		if exit := p.exit(); exit != 0 {
			t.Errorf("%q: exit %d", args, exit)
		}
		for line := range p.rest(p.stderr) {
			t.Errorf("%q printed %q", args, line)
		}
	}
}

func TestWorkerContinuesWhenItsRedisComesBack(t *testing.T) {
	server := redistest.Start(t, redistest.Args("--appendfsync", "always"))
	c := &cli{t, server.URL()}
	p := c.start("work", "q")
	c.ok("send", "q", "before")
	p.await(p.stdout, "before")
	server.Kill()
	server.Restart(t)
	c.ok("send", "q", "after")
	p.await(p.stdout, "after")
	p.signal(syscall.SIGINT)
	if exit := p.exit(); exit != 0 {
		t.Errorf("exit %d", exit)
	}
}

func TestWatchPrintsABlockEachIntervalUntilCtrlC(t *testing.T) {
	c := newCLI(t)
	c.ok("send", "q", "x", "--in", "1h")
	c.damage("bad")
	p := c.start("stats", "--watch", "--interval", "10ms")
	for range 3 {
		p.await(p.stderr, `stats on queue "bad"`)
		p.await(p.stdout, time.Now().Format("2006-"))
		p.await(p.stdout, "QUEUE")
		p.await(p.stdout, "q ")
	}
	p.signal(syscall.SIGINT)
	if exit := p.exit(); exit != 0 {
		t.Errorf("exit %d", exit)
	}
}
