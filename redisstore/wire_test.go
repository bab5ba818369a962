package redisstore

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// wirePair returns a line of its own connection, which was used lately, and the server's side.
func wirePair(t *testing.T) (l *line, server *net.TCPConn) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	l = &line{wire: newWire(conn), usedAt: time.Now(), timeout: time.Minute}
	l.conn.Conn, l.in = conn, bufio.NewReaderSize(l.wire, lineBuffer)
	t.Cleanup(func() { conn.Close(); accepted.Close() })
	return l, accepted.(*net.TCPConn)
}

// A command reaches the server whole, also if the system takes it in parts, and its reply is read in any pieces.
func TestWiresCarryCommandsAndReplies(t *testing.T) {
	l, server := wirePair(t)
	for _, size := range []int{10, 100, 1000, 8 << 20, 10} {
		text := strings.Repeat("z", size)
		want, err := appendCommand(nil, []any{text})
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error)
		go func() {
			got := make([]byte, len(want))
			_, err := io.ReadFull(server, got)
			if err == nil && string(got) != string(want) {
				err = errors.New("another command")
			}
			for _, b := range []byte("*2\r\n:1\r\n$2\r\nok\r\n") {
				server.Write([]byte{b})
			}
			served <- err
		}()
		reply, err := l.exchange(time.Now(), []any{text})
		if failed := <-served; failed != nil || err != nil || reply.([]any)[1] != "ok" {
			t.Fatalf("%d bytes: %v, %v, %v", size, reply, err, failed)
		}
	}
}

// A wire whose server has closed it, now or before, does not wait.
func TestWiresNoticeTheEndOfTheirConnection(t *testing.T) {
	closes := func(_ *line, s *net.TCPConn) { s.Close() }
	ended := []error{io.EOF, syscall.ECONNRESET, syscall.EPIPE}
	for name, test := range map[string]struct {
		end    func(l *line, server *net.TCPConn)
		during bool
		want   []error
	}{
		"before":          {closes, false, ended},
		"reset before":    {reset, false, ended},
		"during":          {closes, true, ended[:1]},
		"one way, during": {func(_ *line, s *net.TCPConn) { s.CloseWrite() }, true, ended[:1]},
		"reset during":    {reset, true, ended[1:2]},
		"interrupted":     {func(l *line, _ *net.TCPConn) { l.conn.interrupt() }, true, []error{os.ErrDeadlineExceeded}},
		"one way, long before": {func(l *line, s *net.TCPConn) {
			s.CloseWrite()
			l.usedAt = l.usedAt.Add(-usedLately)
		}, false, ended[:1]},
		"one way, before, without a timeout": {func(l *line, s *net.TCPConn) {
			raw, _ := l.conn.Conn.(*net.TCPConn).SyscallConn()
			closed := false
			raw.Read(func(uintptr) (noticed bool) { // by the runtime, which then forgets it
				if noticed = closed; !closed {
					s.CloseWrite()
					closed = true
				}
				return noticed
			})
			l.timeout = 0
		}, false, ended[:1]},
	} {
		t.Run(name, func(t *testing.T) {
			l, server := wirePair(t)
			l.conn.SetDeadline(time.Now().Add(time.Minute))
			if test.during {
				go func() {
					readReply(bufio.NewReaderSize(server, lineBuffer))
					test.end(l, server)
				}()
			} else {
				test.end(l, server)
			}
			reply, err := l.exchange(time.Now(), []any{"command"})
			found := false
			for _, want := range test.want {
				found = found || errors.Is(err, want)
			}
			if _, again := classify(err); !found || !again || !mayHaveExecuted(err) {
				t.Errorf("%v, %v, want one of %v, after which calls are repeated", reply, err, test.want)
			}
		})
	}
}

func reset(_ *line, server *net.TCPConn) {
	server.SetLinger(0)
	server.Close()
}
