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

// monitor sees every command that a server gets, by MONITOR on a connection of its own.
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
		t.Fatalf("MONITOR gave %q, %v", line, err)
	}
	return m
}

// until gives the commands from where it stands to the one that holds the text.
func (m *monitor) until(text string) (commands []string) {
	m.t.Helper()
	m.conn.SetReadDeadline(time.Now().Add(patience))
	for {
		command, err := m.next()
		if err != nil {
			m.t.Fatalf("no command holds %q: %v", text, err)
		}
		if strings.Contains(command, text) {
			return commands
		}
		commands = append(commands, command)
	}
}

// during gives the commands of the time from now.
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

// next gives the next command of a client; those that scripts call are not counted.
func (m *monitor) next() (string, error) {
	for {
		line, err := m.from.ReadString('\n')
		if err != nil || !strings.Contains(line, " lua] ") {
			return line, err
		}
	}
}
