package e2e

import (
	"bufio"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/internal/redistest"
)

// monitor records every command that a server receives, using MONITOR on a separate connection.
type monitor struct {
	t    *testing.T
	conn net.Conn
	from *bufio.Reader
}

func startMonitor(t *testing.T, srv *redistest.Server) *monitor {
	t.Helper()
	conn, err := net.Dial("tcp", srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	m := &monitor{t: t, conn: conn, from: bufio.NewReader(conn)}
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		t.Fatal(err)
	}
	conn.SetReadDeadline(time.Now().Add(patience))
	if line, err := m.from.ReadString('\n'); line != "+OK\r\n" {
		t.Fatalf("MONITOR returned %q, %v", line, err)
	}
	return m
}

// until returns the commands received before the next one that contains text.
func (m *monitor) until(text string) (commands []string) {
	m.t.Helper()
	m.conn.SetReadDeadline(time.Now().Add(patience))
	for {
		command, err := m.next()
		if err != nil {
			m.t.Fatalf("no command contains %q: %v", text, err)
		}
		if strings.Contains(command, text) {
			return commands
		}
		commands = append(commands, command)
	}
}

// during returns the commands received within d from now.
func (m *monitor) during(d time.Duration) (commands []string) {
	m.t.Helper()
	m.conn.SetReadDeadline(time.Now().Add(d))
	for {
		command, err := m.next()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return commands
		}
		if err != nil {
			m.t.Fatal(err)
		}
		commands = append(commands, command)
	}
}

// next returns the next command sent by a client. It skips commands called by scripts.
func (m *monitor) next() (string, error) {
	for {
		line, err := m.from.ReadString('\n')
		if err != nil || !strings.Contains(line, " lua] ") {
			return line, err
		}
	}
}
