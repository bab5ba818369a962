package redisstore

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/store"
)

// A goroutine that waits for a reply on a connection of go-redis returns after the read timeout, not when its context
// ends. Another goroutine could wait instead, but to hand the call over and back takes as much CPU again as the call. So
// a send that must be prompt uses a connection of its own, which the end of the context interrupts.

// promptKey marks the context of a call that returns as soon as the context ends.
type promptKey struct{}

// SendPromptly implements store.PromptSender.
func (s *Store) SendPromptly(ctx context.Context, queue string, msgs []store.Outgoing) ([]store.SendResult, error) {
	return s.Send(context.WithValue(ctx, promptKey{}, true), queue, msgs)
}

// process executes a command.
func (s *Store) process(ctx context.Context, cmd redis.Cmder) error {
	client, single := s.rdb.(*redis.Client)
	switch {
	case ctx.Value(promptKey{}) == nil:
		return s.rdb.Process(ctx, cmd)
	case !single:
		return promptly(ctx, func(ctx context.Context) error { return s.rdb.Process(ctx, cmd) })
	}
	line, dial := s.lines.take()
	switch {
	case line != nil:
		return s.lines.process(ctx, line, cmd)
	case dial: // which takes longer
		return promptly(ctx, func(ctx context.Context) error { return s.lines.process(ctx, newLine(client), cmd) })
	}
	return promptly(ctx, func(ctx context.Context) error { return s.rdb.Process(ctx, cmd) })
}

// promptly calls f on a goroutine of its own and returns as soon as the context ends. f may still run then.
func promptly(ctx context.Context, f func(ctx context.Context) error) error {
	done := make(chan error, 1)
	go func() { done <- f(context.WithoutCancel(ctx)) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// maxLines is the maximum number of connections of prompt calls.
const maxLines = 4

// lines are the connections of prompt calls.
type lines struct {
	mu     sync.Mutex
	idle   []*line
	inUse  int
	closed bool
}

// line is a connection of one call at a time. It never reconnects.
type line struct {
	client    *redis.Client
	createdAt time.Time
	conn      interruptible
}

func newLine(from *redis.Client) *line {
	l := &line{createdAt: time.Now()}
	l.client = redis.NewClient(dedicatedOptions(from, "-send", func(conn net.Conn) net.Conn {
		l.conn.Conn = conn
		return &l.conn
	}))
	return l
}

// take returns an idle connection, or nil. Then dial says whether the caller may dial one. A connection that was taken
// or dialed is for process.
func (ls *lines) take() (l *line, dial bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for n := len(ls.idle); n > 0; n = len(ls.idle) {
		l := ls.idle[n-1]
		ls.idle = ls.idle[:n-1]
		if time.Since(l.createdAt) < maxConnAge {
			ls.inUse++
			return l, false
		}
		l.client.Close()
	}
	if ls.closed || ls.inUse == maxLines {
		return nil, false
	}
	ls.inUse++
	return nil, true
}

// process executes a command on a connection, and keeps the connection if it still works.
func (ls *lines) process(ctx context.Context, l *line, cmd redis.Cmder) error {
	stop := context.AfterFunc(ctx, l.conn.interrupt)
	err := l.client.Process(ctx, cmd)
	healthy := stop() && (err == nil || !mayHaveExecuted(err))
	ls.mu.Lock()
	ls.inUse--
	keep := healthy && !ls.closed
	if keep {
		ls.idle = append(ls.idle, l)
	}
	ls.mu.Unlock()
	if !keep {
		l.client.Close()
	}
	return err
}

func (ls *lines) close() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.closed = true
	for _, l := range ls.idle {
		l.client.Close()
	}
	ls.idle = nil
}

// interruptible is a connection with reads and writes that another goroutine can end.
type interruptible struct {
	net.Conn
	mu          sync.Mutex
	interrupted bool
}

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// interrupt ends all reads and writes, present and future ones.
func (c *interruptible) interrupt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.interrupted = true
	if c.Conn != nil {
		c.Conn.SetDeadline(past)
	}
}

func (c *interruptible) set(deadline func(time.Time) error, t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.interrupted {
		t = past
	}
	return deadline(t)
}

func (c *interruptible) SetDeadline(t time.Time) error      { return c.set(c.Conn.SetDeadline, t) }
func (c *interruptible) SetReadDeadline(t time.Time) error  { return c.set(c.Conn.SetReadDeadline, t) }
func (c *interruptible) SetWriteDeadline(t time.Time) error { return c.set(c.Conn.SetWriteDeadline, t) }

// NetConn lets go-redis notice that the server has closed an idle connection.
func (c *interruptible) NetConn() net.Conn { return c.Conn }
