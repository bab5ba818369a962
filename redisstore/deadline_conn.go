package redisstore

import (
	"net"
	"os"
	"sync"
	"time"
)

// withDeadlines returns the connection, with deadlines if it refuses them, as connections through an SSH tunnel do.
func withDeadlines(conn net.Conn) net.Conn {
	if conn.SetDeadline(time.Time{}) == nil {
		return conn
	}
	return &deadlineConn{Conn: conn}
}

// deadlineConn has one deadline for reads and writes, the last one that was set. It closes the connection when the
// deadline passes during a read or write.
type deadlineConn struct {
	net.Conn
	mu    sync.Mutex
	timer *time.Timer // of the deadline; nil before the first one
	set   int         // number of deadlines that were set
	over  bool        // the deadline has passed
	busy  int         // reads and writes under way
}

// SetDeadline implements net.Conn.
func (c *deadlineConn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer != nil {
		c.timer.Stop()
	}
	c.set++
	c.over = false
	if t.IsZero() {
		return nil
	}
	set := c.set
	c.timer = time.AfterFunc(time.Until(t), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.set != set {
			return
		}
		c.over = true
		if c.busy > 0 {
			c.Conn.Close()
		}
	})
	return nil
}

// SetReadDeadline implements net.Conn.
func (c *deadlineConn) SetReadDeadline(t time.Time) error { return c.SetDeadline(t) }

// SetWriteDeadline implements net.Conn.
func (c *deadlineConn) SetWriteDeadline(t time.Time) error { return c.SetDeadline(t) }

func (c *deadlineConn) Read(p []byte) (int, error)  { return c.do(c.Conn.Read, p) }
func (c *deadlineConn) Write(p []byte) (int, error) { return c.do(c.Conn.Write, p) }

func (c *deadlineConn) do(op func([]byte) (int, error), p []byte) (int, error) {
	if c.add(1) {
		c.add(-1)
		return 0, os.ErrDeadlineExceeded
	}
	n, err := op(p)
	if over := c.add(-1); over && err != nil {
		err = os.ErrDeadlineExceeded
	}
	return n, err
}

// add changes the number of reads and writes under way, and reports whether the deadline has passed.
func (c *deadlineConn) add(n int) (over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy += n
	return c.over
}
