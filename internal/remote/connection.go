package remote

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/laterq/later/internal/codec"
)

// Between processes of one machine most of the cost of a call would be HTTP. So a connection to a socket begins as one
// of HTTP, is upgraded, and then carries one call after the other. A call is a frame with the name of the operation and
// the body of the request, and its reply a frame with a status of HTTP and the body. The goroutine that makes a call
// writes and reads by itself, so a call wakes one goroutine on each side. With HTTP it would wake five in all.
//
// A large request is sent in two steps: its length and name, and, when the server answers 100 because it has room for
// it, the body. While a call lasts, empty frames of the server are beats, as in a response of HTTP.

const (
	// connectPath is where a connection is upgraded, below Path, and upgraded the protocol that it then has.
	connectPath = "connect"
	upgraded    = "later-store"
	// maxHead is how many bytes of a frame precede the body of a request: the length of a name, and the name.
	maxHead = 1 + math.MaxUint8
	// maxIdle is how long a connection stays open for calls to come.
	maxIdle = time.Minute
	// maxWrite is how many bytes have to be written within maxSilence.
	maxWrite = 64 << 10
)

// connection carries calls. One goroutine uses it at a time.
type connection struct {
	*paced
	r    *bufio.Reader
	w    *bufio.Writer
	used time.Time // when the client's last call ended
}

func newConnection(conn net.Conn) *connection {
	p := &paced{Conn: conn}
	return &connection{paced: p, r: bufio.NewReader(p), w: bufio.NewWriter(p)}
}

// paced is a connection with reads and writes that have to progress within maxSilence, so that each side notices that
// the other one has stopped.
type paced struct {
	net.Conn
	idle bool // reads may wait for any time; belongs to the reader

	mu          sync.Mutex
	interrupted bool
	readEnded   bool
}

func (p *paced) Read(b []byte) (int, error) {
	deadline := time.Time{}
	if !p.idle {
		deadline = time.Now().Add(maxSilence)
	}
	p.mu.Lock()
	if !p.interrupted && !p.readEnded {
		p.SetReadDeadline(deadline)
	}
	p.mu.Unlock()
	return p.Conn.Read(b)
}

func (p *paced) Write(b []byte) (n int, err error) {
	for {
		p.mu.Lock()
		if !p.interrupted {
			p.SetWriteDeadline(time.Now().Add(maxSilence))
		}
		p.mu.Unlock()
		written, err := p.Conn.Write(b[n:min(len(b), n+maxWrite)])
		n += written
		if err != nil || n == len(b) {
			return n, err
		}
	}
}

// past is a deadline that ends reads and writes at once.
var past = time.Unix(1, 0)

// interrupt ends reads and writes, for good.
func (p *paced) interrupt() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.interrupted = true
	p.SetDeadline(past)
}

// endRead ends reads, and new ones too, until ended is closed.
func (p *paced) endRead(ended <-chan struct{}) {
	p.setReadEnded(true)
	p.SetReadDeadline(past)
	<-ended
	p.setReadEnded(false)
}

func (p *paced) setReadEnded(is bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.readEnded = is
}

// send sends a frame of a head and a body.
func (c *connection) send(head, body []byte) error {
	c.begin(head, body)
	c.w.Write(body)
	return c.w.Flush() // returns the error of any of them
}

// begin sends the beginning of a frame: its length and its head.
func (c *connection) begin(head, body []byte) {
	c.w.Write(binary.AppendUvarint(c.w.AvailableBuffer(), uint64(len(head)+len(body))))
	c.w.Write(head)
}

// connections are the connections of a client to a socket.
type connections struct {
	dial func(ctx context.Context) (net.Conn, error)
	// describe describes the process at the socket when it is silent. It may be nil.
	describe func() string

	mu     sync.Mutex
	closed bool
	free   []*connection // the one that was used last is the last
}

// acquire returns a connection that is not in use.
func (cs *connections) acquire(ctx context.Context) (*connection, error) {
	cs.mu.Lock()
	if n := len(cs.free); n > 0 {
		c := cs.free[n-1]
		cs.free = cs.free[:n-1]
		cs.mu.Unlock()
		return c, nil
	}
	cs.mu.Unlock()
	conn, err := cs.dial(ctx)
	if err != nil {
		return nil, lostBy(ctx, err, true)
	}
	c := newConnection(conn)
	stop := context.AfterFunc(ctx, c.interrupt)
	err = cs.upgrade(ctx, c)
	if !stop() && err == nil {
		err = lostBy(ctx, net.ErrClosed, true)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// upgrade makes a connection of HTTP one that carries calls.
func (cs *connections) upgrade(ctx context.Context, c *connection) error {
	fmt.Fprintf(c.w, "POST %s%s HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: "+
		"%s\r\nContent-Type: %s\r\n%s: %v\r\nContent-Length: 0\r\n\r\n", Path, connectPath, upgraded, MediaType,
		versionsHeader, ourVersions)
	if err := c.w.Flush(); err != nil {
		return cs.lost(ctx, err, true)
	}
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return cs.lost(ctx, err, true)
	}
	if resp.StatusCode == http.StatusSwitchingProtocols && resp.Header.Get("Upgrade") == upgraded {
		return nil
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	return refused(socketURL, resp.StatusCode, resp.Header, text)
}

// release keeps a connection for calls to come, and closes one that has had none for a while.
func (cs *connections) release(c *connection) {
	c.used = time.Now()
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.closed || len(cs.free) == maxIdleConns {
		c.Close()
		return
	}
	if len(cs.free) > 0 && c.used.Sub(cs.free[0].used) > maxIdle {
		cs.free[0].Close()
		cs.free = slices.Delete(cs.free, 0, 1)
	}
	cs.free = append(cs.free, c)
}

// close closes the connections; a connection in use closes when its call ends.
func (cs *connections) close() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.closed = true
	for _, c := range cs.free {
		c.Close()
	}
	cs.free = nil
}

// call makes one attempt at a call. It returns the body of the reply, which is in the buffer.
func (cs *connections) call(ctx context.Context, name string, body []byte, buffer *[]byte) ([]byte, error) {
	if len(body) > maxRequest {
		return nil, refused(socketURL, http.StatusRequestEntityTooLarge, nil, nil)
	}
	c, err := cs.acquire(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, c.interrupt)
	status, answer, sent, err := c.call(name, body, buffer)
	if stop() && err == nil {
		cs.release(c)
	} else {
		c.Close()
	}
	switch {
	case errors.Is(err, codec.ErrMalformed):
		return nil, misunderstood(err)
	case err != nil:
		return nil, cs.lost(ctx, err, !sent)
	case status != http.StatusOK:
		return nil, refused(socketURL, status, nil, answer)
	}
	return answer, nil
}

// lost returns the error of a call without a reply. It says so if the server has been silent.
func (cs *connections) lost(ctx context.Context, err error, unsent bool) *lostError {
	if ctx.Err() == nil && errors.Is(err, os.ErrDeadlineExceeded) {
		err = cs.silent(errSilent)
	}
	return lostBy(ctx, err, unsent)
}

// silent returns the error of a server that is not heard.
func (cs *connections) silent(err error) error {
	if cs.describe == nil {
		return err
	}
	return fmt.Errorf("%s: %w", cs.describe(), err)
}

// call makes a call and returns the status and the body of the reply. It reports whether the whole request was sent:
// the server executes that or nothing.
func (c *connection) call(name string, body []byte, buffer *[]byte) (status int, answer []byte, sent bool, err error) {
	head := append([]byte{byte(len(name))}, name...)
	c.begin(head, body)
	if len(body) > largeFrame {
		if err := c.w.Flush(); err != nil {
			return 0, nil, false, err
		}
		if status, answer, err = c.receive(buffer); err != nil || status != http.StatusContinue {
			return status, answer, false, err
		}
	}
	c.w.Write(body)
	if err := c.w.Flush(); err != nil {
		return 0, nil, false, err
	}
	status, answer, err = c.receive(buffer)
	return status, answer, true, err
}

// receive returns the status and the body of the next frame that is not a beat.
func (c *connection) receive(buffer *[]byte) (status int, body []byte, err error) {
	for *buffer = (*buffer)[:0]; len(*buffer) == 0; {
		if *buffer, err = readFrame(c.r, *buffer, maxReply); err != nil {
			return 0, nil, err
		}
	}
	code, n := binary.Uvarint(*buffer)
	if n <= 0 {
		return 0, nil, codec.ErrMalformed
	}
	return int(code), (*buffer)[n:], nil
}
