package redisstore

import (
	"bufio"
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// lines are connections of single calls, on which the store itself speaks the protocol. That takes a tenth less of the
// client's CPU than a call of go-redis.
type lines struct {
	mu     sync.Mutex
	idle   []*line
	all    map[*line]struct{} // idle ones and others
	dials  int                // lines that are not dialed yet
	closed bool
}

// line is a connection of one call at a time. It never reconnects. go-redis dials it, because it knows how to use every
// option of a client, and executes its first call. A client with a limiter executes the others, too.
type line struct {
	client    *redis.Client // nil once the line is without it
	createdAt time.Time
	conn      interruptible
	interrupt func() // that of conn

	timeout  time.Duration // for a call; 0 for none
	deadline time.Time     // of conn; zero for none
	usedAt   time.Time     // when the last call began
	out      []byte
	wire     *wire
	in       *bufio.Reader // of wire
}

const (
	maxLines      = 4 // of a store
	lineBuffer    = 4 << 10
	maxLineBuffer = 64 << 10 // larger ones are not kept
	usedLately    = time.Second
)

// take returns an idle line, or nil. Then may says whether the caller may dial one. The caller must end both, with call
// and first.
func (ls *lines) take(now time.Time) (l *line, may bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for n := len(ls.idle); n > 0; n = len(ls.idle) {
		l := ls.idle[n-1]
		ls.idle = ls.idle[:n-1]
		if now.Sub(l.createdAt) < maxConnAge {
			return l, false
		}
		ls.drop(l)
	}
	if ls.closed || len(ls.all)+ls.dials == maxLines {
		return nil, false
	}
	ls.dials++
	return nil, true
}

// drop closes a line. The lock is held.
func (ls *lines) drop(l *line) {
	delete(ls.all, l)
	l.close()
}

// dial returns a new line, which its first call dials, after take has permitted it.
func (ls *lines) dial(from *redis.Client) *line {
	l := &line{createdAt: time.Now()}
	opt := dedicatedOptions(from, "-send", l.conn.wrap)
	l.client, l.interrupt = redis.NewClient(opt), l.conn.interrupt
	if opt.ReadTimeout > 0 {
		l.timeout = max(opt.ReadTimeout, opt.WriteTimeout)
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.dials--
	if ls.all == nil {
		ls.all = map[*line]struct{}{}
	}
	ls.all[l] = struct{}{}
	if ls.closed {
		l.conn.interrupt()
	}
	return l
}

// first executes the first call of a line.
func (ls *lines) first(ctx context.Context, l *line, args []any) (any, error) {
	reply, err := callBy(ctx, l.client, args)
	healthy := works(err)
	if healthy && l.client.Options().Limiter == nil {
		l.takeOver()
	}
	ls.release(l, healthy)
	return reply, err
}

// call executes a call that began at now. It ends with the context caller, and at the deadline of ctx.
func (ls *lines) call(ctx, caller context.Context, l *line, now time.Time, args []any) (reply any, err error) {
	stop := func() bool { return true }
	if caller.Done() != nil {
		stop = context.AfterFunc(caller, l.interrupt)
	}
	if l.client != nil {
		reply, err = callBy(ctx, l.client, args)
	} else if err = l.limit(ctx, now); err == nil {
		reply, err = l.exchange(now, args)
	}
	ls.release(l, stop() && works(err) && l.isQuiet())
	return reply, err
}

// works reports whether a connection certainly works after a call with this error.
func works(err error) bool {
	return err == nil || redis.HasErrorPrefix(err, "NOSCRIPT") || redis.HasErrorPrefix(err, "OOM")
}

// release makes a line available to other calls if it works, and closes it otherwise.
func (ls *lines) release(l *line, works bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if works && !ls.closed {
		ls.idle = append(ls.idle, l)
	} else {
		ls.drop(l)
	}
}

// close closes idle lines, and ends the calls on the others.
func (ls *lines) close() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.closed = true
	for _, l := range ls.idle {
		ls.drop(l)
	}
	ls.idle = nil
	for l := range ls.all {
		l.conn.interrupt()
	}
}

// takeOver takes the connection from go-redis.
func (l *line) takeOver() {
	l.conn.release()
	l.client.Close()
	l.conn.SetDeadline(time.Time{})
	l.client, l.wire = nil, newWire(l.conn.Conn)
	l.in = bufio.NewReaderSize(l.wire, lineBuffer)
}

func (l *line) close() {
	if l.client != nil {
		l.client.Close()
	} else {
		l.conn.closeAtOnce()
	}
}

// limit sets the deadline of the connection for a call: after the timeout, or an eighth later so that most calls need
// not set it, but not after the deadline of the context.
func (l *line) limit(ctx context.Context, now time.Time) error {
	var soonest, latest time.Time
	if l.timeout > 0 {
		soonest, latest = now.Add(l.timeout), now.Add(l.timeout+l.timeout/8)
	}
	if end, ok := ctx.Deadline(); ok && (latest.IsZero() || end.Before(latest)) {
		latest = end
		if soonest.IsZero() || end.Before(soonest) {
			soonest = end
		}
	}
	if !l.deadline.Before(soonest) && !l.deadline.After(latest) {
		return nil
	}
	l.deadline = latest
	return l.conn.SetDeadline(latest)
}

// isQuiet reports whether the server has sent nothing after a reply, except pushes.
func (l *line) isQuiet() bool {
	if l.client != nil || l.in.Buffered() == 0 {
		return true
	}
	next, err := l.in.Peek(1)
	return err == nil && next[0] == '>'
}

// skipPushes reads the pushes that came after the last reply, so that what came after them is not taken for the next.
func (l *line) skipPushes() error {
	for l.in.Buffered() > 0 {
		r := replyReader{l.in, maxReplyBytes}
		if kind, _, err := r.value(0); err != nil || kind != '>' {
			return &net.OpError{Op: "dial", Err: errors.New("the server sent a reply to no call")} // nothing was sent
		}
	}
	return nil
}

// exchange sends a call that began at now and reads the reply.
func (l *line) exchange(now time.Time, args []any) (reply any, err error) {
	if l.out, err = appendCommand(l.out[:0], args); err != nil {
		return nil, err
	}
	if err := l.skipPushes(); err != nil {
		return nil, err
	}
	// Without a timeout, the call would never end after the server has closed one direction, see wire.
	lately := l.timeout > 0 && now.Sub(l.usedAt) < usedLately
	l.usedAt = now
	if err := l.wire.send(l.out, lately); err != nil {
		return nil, err
	}
	reply, err = readReply(l.in)
	if cap(l.out) > maxLineBuffer {
		l.out = nil
	}
	return reply, err
}

// interruptible is a connection with reads and writes that another goroutine can end.
type interruptible struct {
	net.Conn
	mu          sync.Mutex
	interrupted bool
	released    bool
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

// release makes Close of go-redis' client leave the connection open.
func (c *interruptible) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.released = true
}

// Close is called by go-redis only.
func (c *interruptible) Close() error {
	c.mu.Lock()
	released := c.released
	c.mu.Unlock()
	if released {
		return nil
	}
	return c.closeAtOnce()
}

// closeAtOnce closes the connection. TLS would first tell the server, which takes 5 s if it does not read.
func (c *interruptible) closeAtOnce() error {
	if tls, ok := c.Conn.(interface{ NetConn() net.Conn }); ok {
		return tls.NetConn().Close()
	}
	return c.Conn.Close()
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
