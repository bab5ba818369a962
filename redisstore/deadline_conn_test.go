package redisstore

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// tunnel is a connection that refuses deadlines, as that of an SSH client does, and tells of each write.
type tunnel struct {
	net.Conn
	wrote chan<- struct{} // nil for a connection that does not tell
}

func (c tunnel) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	select {
	case c.wrote <- struct{}{}:
	default:
	}
	return n, err
}

var errNoDeadline = errors.New("deadline not supported")

func (tunnel) SetDeadline(time.Time) error      { return errNoDeadline }
func (tunnel) SetReadDeadline(time.Time) error  { return errNoDeadline }
func (tunnel) SetWriteDeadline(time.Time) error { return errNoDeadline }

// A client of a tunnel has timeouts of -2, so that go-redis sets no deadlines.
func TestSendsThroughATunnel(t *testing.T) {
	server := redistest.Start(t, redistest.Args("--appendonly", "yes", "--appendfsync", "always"))
	opt, wrote := *server.Options(), make(chan struct{})
	opt.ReadTimeout, opt.WriteTimeout = -2, -2
	opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return tunnel{conn, wrote}, err
	}
	rdb := redis.NewClient(&opt)
	t.Cleanup(func() { rdb.Close() })
	s := newStore(t, rdb)
	sendPromptly(t, s, "a") // by go-redis
	sendPromptly(t, s, "b")
	if r := sendDurably(t, s, "c", soon(0)); r.Err != nil {
		t.Errorf("durable send: %v", r.Err)
	}

	server.Freeze(t)
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	sent := make(chan error)
	go func() {
		_, err := s.SendPromptly(ctx, "q", []store.Outgoing{{Message: store.Message{ID: "d"}}})
		sent <- err
	}()
	<-wrote
	cancel(gone)
	if err := <-sent; !errors.Is(err, gone) {
		t.Errorf("cancelled send = %v, want the cause", err)
	}
	server.Thaw(t)
	sendPromptly(t, s, "e")
}

func TestDeadlinesOfConnectionsThatRefuseThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer there.Close()
		if got := withDeadlines(here); got != here {
			t.Errorf("a connection with deadlines became a %T", got)
		}
		c, begin := withDeadlines(tunnel{Conn: here}), time.Now()
		want := func(after time.Duration) {
			t.Helper()
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begin) != after {
				t.Errorf("read = %v after %v, want a timeout after %v", err, time.Since(begin), after)
			}
		}
		c.SetDeadline(time.Unix(1, 0))
		synctest.Wait()
		want(0)
		c.SetReadDeadline(begin.Add(time.Second))
		time.Sleep(2 * time.Second) // a deadline without a read closes nothing
		c.SetDeadline(time.Time{})
		go there.Write([]byte("x"))
		if n, err := c.Read(make([]byte, 1)); n != 1 || err != nil {
			t.Errorf("read = %d, %v", n, err)
		}
		c.SetWriteDeadline(begin.Add(3 * time.Second))
		c.SetDeadline(begin.Add(5 * time.Second))
		want(5 * time.Second)
	})
}
