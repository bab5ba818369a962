//go:build unix

package main

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laterq/later/internal/redistest"
)

// manager receives the reports of a service to systemd.
type manager struct {
	t    *testing.T
	conn *net.UnixConn
}

// newManager has processes that are started afterwards tell it.
func newManager(t *testing.T) *manager {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return &manager{t, conn}
}

// await returns the lines of the next message that has a line.
func (m *manager) await(line string) []string {
	m.t.Helper()
	m.conn.SetReadDeadline(time.Now().Add(eventTimeout))
	var seen []string
	for buffer := make([]byte, 4096); ; {
		n, err := m.conn.Read(buffer)
		if err != nil {
			m.t.Fatalf("no message with %q: %v; got %q", line, err, seen)
		}
		lines := strings.Split(string(buffer[:n]), "\n")
		if slices.Contains(lines, line) {
			return lines
		}
		seen = append(seen, string(buffer[:n]))
	}
}

// ignore reads all further messages, so that no process waits for room to send one.
func (m *manager) ignore() {
	m.conn.SetReadDeadline(time.Time{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		io.Copy(io.Discard, m.conn)
	}()
	m.t.Cleanup(func() {
		m.conn.Close()
		<-done
	})
}

func TestSystemdLearnsOfReadinessReloadAndStop(t *testing.T) {
	for _, args := range [][]string{{"work", "q"}, {"forward", "q", "--to", "queue:other"}} {
		c, m := newCLI(t), newManager(t)
		p := c.start(args...)
		if got := m.await("READY=1"); !strings.HasPrefix(got[1], "STATUS=") || !strings.Contains(got[1], "q") {
			t.Errorf("%s: status is %q", args[0], got)
		}
		before := c.awaitWorkers(1)[0]
		p.signal(syscall.SIGHUP)
		if got := m.await("RELOADING=1"); !strings.HasPrefix(got[1], "MONOTONIC_USEC=") {
			t.Errorf("%s: got %q", args[0], got)
		}
		p.await(p.stderr, "draining to restart")
		m.await("READY=1")
		if after := c.awaitWorkers(1)[0]; after["pid"] != before["pid"] || after["process"] == before["process"] {
			t.Errorf("%s: %v was not executed again: %v", args[0], before, after)
		}
		p.signal(syscall.SIGTERM)
		m.await("STOPPING=1")
		if exit := p.exit(); exit != 0 {
			t.Errorf("exit %d", exit)
		}
	}
}

func TestSystemdLearnsOfPausesAndOfARestartThatIsNotPossible(t *testing.T) {
	c, m := newCLI(t), newManager(t)
	link := filepath.Join(t.TempDir(), "later")
	if err := os.Symlink(os.Args[0], link); err != nil {
		t.Fatal(err)
	}
	p := c.startAs(link, nil, "work", "q", "--name", "a")
	m.await("READY=1")
	c.awaitWorkers(1)
	c.ok("workers", "pause", "a")
	m.await("STATUS=paused")
	p.signal(syscall.SIGCONT)
	m.await("STATUS=working on q")
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGHUP)
	m.await("RELOADING=1")
	if got := m.await("READY=1"); !strings.HasPrefix(got[1], "STATUS=cannot restart: ") {
		t.Errorf("got %q", got)
	}
	c.ok("workers", "drain", "a")
	m.await("STOPPING=1")
	if exit := p.exit(); exit != 0 {
		t.Errorf("exit %d", exit)
	}
}

func TestSystemdWatchdogIsFedDuringADrainAndByAFailingStore(t *testing.T) {
	t.Setenv("WATCHDOG_USEC", "100000")
	srv := redistest.Start(t, redistest.Args("--appendfsync", "always")) // or a kill could lose the lease
	c, m := &cli{t, srv.URL() + "?retry=1s"}, newManager(t)
	c.ok("send", "q", "x")
	gate, open := newGate(t)
	p := c.start("work", "q", "--exec", "echo started; read go < "+gate)
	p.await(p.stdout, "started")
	m.await("WATCHDOG=1")
	srv.Kill()
	p.await(p.stderr, "the store is failing")
	m.await("WATCHDOG=1")
	m.await("WATCHDOG=1")
	srv.Restart(t)
	p.await(p.stderr, "the store is back")
	p.signal(syscall.SIGTERM)
	m.await("STOPPING=1")
	m.await("WATCHDOG=1")
	m.await("WATCHDOG=1")
	m.ignore()
	open()
	if exit := p.exit(); exit != 0 {
		t.Errorf("exit %d", exit)
	}
}

func TestWithoutSystemdSIGHUPDrains(t *testing.T) {
	c := newCLI(t)
	p := c.start("work", "q")
	p.await(p.stderr, "working on q")
	p.signal(syscall.SIGHUP)
	p.await(p.stderr, "draining; repeat to kill")
	if exit := p.exit(); exit != 0 {
		t.Errorf("exit %d", exit)
	}
}
