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
// ends. Another goroutine could wait instead, but to hand the call over and back takes as much CPU again as the call.
// So a send that must be prompt uses a connection of its own to a single server, which the end of the context
// interrupts.

// promptKey marks the context of a call that returns as soon as the context ends.
type promptKey struct{}

// SendPromptly implements store.PromptSender.
func (s *Store) SendPromptly(ctx context.Context, queue string, msgs []store.Outgoing) ([]store.SendResult, error) {
	return s.Send(context.WithValue(ctx, promptKey{}, true), queue, msgs)
}

// process executes a command.
func (s *Store) process(ctx context.Context, cmd redis.Cmder) error {
	if ctx.Value(promptKey{}) == nil {
		return s.rdb.Process(ctx, cmd)
	}
	// go-redis alone knows which server of Sentinels or of a Cluster to use now.
	if client, ok := s.rdb.(*redis.Client); ok && !s.followsPrimary() {
		line, dial := s.lines.take()
		if dial { // which takes longer
			return promptly(ctx, func(ctx context.Context) error { return s.lines.process(ctx, s.lines.dial(client), cmd) })
		}
		if line != nil {
			return s.lines.process(ctx, line, cmd)
		}
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
		return context.Cause(ctx)
	}
}

// maxLines is the maximum number of connections of prompt calls.
const maxLines = 4

// lines are the connections of prompt calls.
type lines struct {
	mu     sync.Mutex
	idle   []*line
	inUse  map[*line]struct{}
	dials  int // lines that are not dialed yet
	closed bool
}

// line is a connection of one call at a time. It never reconnects.
type line struct {
	client    *redis.Client
	createdAt time.Time
	conn      interruptible
}

// take returns an idle connection, or nil. Then may says whether the caller may dial one. The caller must end both with
// process.
func (ls *lines) take() (l *line, may bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for n := len(ls.idle); n > 0; n = len(ls.idle) {
		l := ls.idle[n-1]
		ls.idle = ls.idle[:n-1]
		if time.Since(l.createdAt) < maxConnAge {
			ls.inUse[l] = struct{}{}
			return l, false
		}
		l.client.Close()
	}
	if ls.closed || len(ls.inUse)+ls.dials == maxLines {
		return nil, false
	}
	ls.dials++
	return nil, true
}

// dial returns a new connection, which its first call dials, after take has permitted it.
func (ls *lines) dial(from *redis.Client) *line {
	l := &line{createdAt: time.Now()}
	l.client = redis.NewClient(dedicatedOptions(from, "-send", l.conn.wrap))
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.dials--
	if ls.inUse == nil {
		ls.inUse = map[*line]struct{}{}
	}
	ls.inUse[l] = struct{}{}
	if ls.closed {
		l.conn.interrupt()
	}
	return l
}

// process executes a command on a connection, and keeps the connection if it certainly works: after most errors
// go-redis has closed it.
func (ls *lines) process(ctx context.Context, l *line, cmd redis.Cmder) error {
	stop := context.AfterFunc(ctx, l.conn.interrupt)
	err := l.client.Process(ctx, cmd)
	works := stop() && (err == nil || redis.HasErrorPrefix(err, "NOSCRIPT") || redis.IsOOMError(err))
	ls.mu.Lock()
	delete(ls.inUse, l)
	keep := works && !ls.closed
	if keep {
		ls.idle = append(ls.idle, l)
	}
	ls.mu.Unlock()
	if !keep {
		l.client.Close()
	}
	return err
}

// close closes idle connections, and ends the calls on the others.
func (ls *lines) close() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.closed = true
	for _, l := range ls.idle {
		l.client.Close()
	}
	ls.idle = nil
	for l := range ls.inUse {
		l.conn.interrupt()
	}
}

// interruptible is a connection with reads and writes that another goroutine can end.
type interruptible struct {
	net.Conn
	mu          sync.Mutex
	interrupted bool
}

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// wrap makes conn the connection.
func (c *interruptible) wrap(conn net.Conn) net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Conn = conn
	if c.interrupted {
		conn.SetDeadline(past)
	}
	return c
}

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
