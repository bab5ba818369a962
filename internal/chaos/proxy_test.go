//go:build unix

package chaos

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// echo returns a proxy in front of a server that echoes each line.
func echo(t *testing.T) *proxy {
	t.Helper()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				io.Copy(conn, conn)
			}()
		}
	}()
	p, err := newProxy(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	p.setTarget(server.Addr().String())
	return p
}

type caller struct {
	net.Conn
	lines *bufio.Reader
}

func dial(t *testing.T, p *proxy) caller {
	t.Helper()
	c, err := tryDial(t, p)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func tryDial(t *testing.T, p *proxy) (caller, error) {
	conn, err := net.Dial("tcp", p.addr())
	if err != nil {
		return caller{}, err
	}
	t.Cleanup(func() { conn.Close() })
	return caller{conn, bufio.NewReader(conn)}, nil
}

// call sends a line and waits for the echo.
func (c caller) call(limit time.Duration) error {
	if _, err := c.Write([]byte("line\n")); err != nil {
		return err
	}
	return c.read(limit)
}

func (c caller) read(limit time.Duration) error {
	c.SetReadDeadline(time.Now().Add(limit))
	_, err := c.lines.ReadString('\n')
	return err
}

const soon, long = 50 * time.Millisecond, 10 * time.Second

func wantGood(t *testing.T, c caller) {
	t.Helper()
	if err := c.call(long); err != nil {
		t.Fatalf("call on a healthy network: %v", err)
	}
}

func wantSilence(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("got %v; want silence", err)
	}
}

func wantCut(t *testing.T, err error) {
	t.Helper()
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("got %v; want the connection cut", err)
	}
}

func TestProxyDeliversHeldBackBytesAfterSilence(t *testing.T) {
	p := echo(t)
	c := dial(t, p)
	wantGood(t, c)
	p.set(conditions{silent: true})
	wantSilence(t, c.call(soon))
	p.set(conditions{})
	if err := c.read(long); err != nil {
		t.Fatalf("what was written in the silence did not come back: %v", err)
	}
	wantGood(t, c)
}

func TestProxyHalfOpenConnectionStaysSilentAndNewOnesWork(t *testing.T) {
	p := echo(t)
	c := dial(t, p)
	wantGood(t, c)
	p.halfOpen(1)
	wantSilence(t, c.call(soon))
	wantGood(t, dial(t, p))
	wantSilence(t, c.call(soon))
}

func TestProxyLostReplyCutsConnection(t *testing.T) {
	p := echo(t)
	c := dial(t, p)
	wantGood(t, c)
	p.set(conditions{loseReplies: 1})
	wantCut(t, c.call(long))
	p.set(conditions{})
	wantGood(t, dial(t, p))
}

func TestProxyLateRequestArrivesAfterItsConnectionIsCut(t *testing.T) {
	p := echo(t)
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	p.setTarget(server.Addr().String())
	p.set(conditions{lateRequests: 1})
	client, err := net.Dial("tcp", p.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Write([]byte("late")); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Read(make([]byte, 1)); err == nil {
		t.Error("the client received a reply")
	}
	conn, err := server.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	got := make([]byte, 4)
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "late" {
		t.Errorf("the server got %q, %v", got, err)
	}
}

func TestProxyCutEndsConnections(t *testing.T) {
	p := echo(t)
	c := dial(t, p)
	wantGood(t, c)
	p.cut(1)
	wantCut(t, c.call(long))
	wantGood(t, dial(t, p))
}

func TestProxyDelaysBytes(t *testing.T) {
	p := echo(t)
	c := dial(t, p)
	wantGood(t, c)
	p.set(conditions{delay: soon})
	began := time.Now()
	wantGood(t, c)
	if took := time.Since(began); took < 2*soon {
		t.Errorf("a round trip took %v; want %v at least", took, 2*soon)
	}
}

func TestProxyRefusesConnectionsToDeadServer(t *testing.T) {
	p := echo(t)
	wantGood(t, dial(t, p))
	p.setTarget("127.0.0.1:1") // no server listens there
	c, err := tryDial(t, p)
	if err == nil { // the connection was established before the reset arrived
		err = c.call(long)
	}
	wantCut(t, err)
}

func TestProxyRecognizesClaimsAndExtends(t *testing.T) {
	call := func(args ...string) []byte {
		b := []byte("*9\r\n$7\r\nevalsha\r\n")
		for _, arg := range args {
			b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(arg), arg)
		}
		return b
	}
	for _, test := range []struct {
		args []string
		want bool
	}{
		{[]string{"100", "1500", "h01_dUW9O4do", ""}, true},
		{[]string{"session:1", "123456", "1", "100", "1500", "h01_dUW9O4do", "later:wake:h01_dUW9O4do"}, true},
		{[]string{"100", "2500", "h01_dUW9O4do", ""}, false},
		{[]string{"session:1", "123456", "h01_dUW9O4do", "1500"}, true},
		{[]string{"h01_dUW9O4do", "1500", "h02_dUW9O4do", "1500"}, true},
		{[]string{"h01_dUW9O4do", "2500"}, false},
		{[]string{"id", "1500", "payload"}, false},
		{nil, false},
	} {
		if got := isClaimOrExtend(call(test.args...), 1500*time.Millisecond); got != test.want {
			t.Errorf("%q is a claim or an extend: %t", test.args, got)
		}
	}
}
