package remote

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/laterq/later/internal/codec"
)

// Between processes of one machine most of what a call costs would be HTTP. So a connection to a socket begins as one
// of HTTP, is upgraded, and then carries one call after the other. A call is a frame with the name of the operation and
// the body of the request, and its reply a frame with a status of HTTP and the body. The goroutine that makes a call
// writes and reads by itself, so a call wakes one goroutine on each side. With HTTP it would wake five in all.

const (
	// connectPath is where a connection is upgraded, below Path, and upgraded the protocol that it then has.
	connectPath = "connect"
	upgraded    = "later-store"
	// maxHead is how many bytes of a frame precede the body of a request: the length of a name, and the name.
	maxHead = 1 + math.MaxUint8
	// maxIdle is how long a connection stays open for calls to come.
	maxIdle = time.Minute
)

// connection carries calls. One goroutine uses it at a time.
type connection struct {
	net.Conn
	r    *bufio.Reader
	w    *bufio.Writer
	used time.Time // when the client's last call ended
}

// send sends a frame of a head and a body.
func (c *connection) send(head, body []byte) error {
	c.w.Write(binary.AppendUvarint(c.w.AvailableBuffer(), uint64(len(head)+len(body))))
	c.w.Write(head)
	c.w.Write(body)
	return c.w.Flush() // returns the error of any of them
}

// past is a deadline that ends what reads or writes at once.
var past = time.Unix(1, 0)

func (c *connection) interrupt() { c.SetDeadline(past) }

// connections are the connections of a client to a socket.
type connections struct {
	dial func(ctx context.Context) (net.Conn, error)

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
	c := &connection{Conn: conn, r: bufio.NewReader(conn), w: bufio.NewWriter(conn)}
	stop := context.AfterFunc(ctx, c.interrupt)
	err = c.upgrade(ctx)
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
func (c *connection) upgrade(ctx context.Context) error {
	fmt.Fprintf(c.w, "POST %s%s HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: %s\r\nContent-Type: %s\r\n"+
		"Content-Length: 0\r\n\r\n", Path, connectPath, upgraded, MediaType)
	if err := c.w.Flush(); err != nil {
		return lostBy(ctx, err, true)
	}
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return lostBy(ctx, err, true)
	}
	if resp.StatusCode == http.StatusSwitchingProtocols && resp.Header.Get("Upgrade") == upgraded {
		return nil
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	return refused(socketURL, resp.StatusCode, resp.Header.Get("Content-Type"), text)
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

// close closes the connections, those in use when their calls end.
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
		return nil, refused(socketURL, http.StatusRequestEntityTooLarge, "", nil)
	}
	c, err := cs.acquire(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, c.interrupt)
	status, answer, err := c.call(ctx, name, body, buffer)
	if stop() && err == nil {
		cs.release(c)
	} else {
		c.Close()
	}
	if err == nil && status != http.StatusOK {
		err = refused(socketURL, status, "", answer)
	}
	return answer, err
}

// call makes a call and returns the status and the body of the reply.
func (c *connection) call(ctx context.Context, name string, body []byte, buffer *[]byte) (status int, answer []byte,
	err error) {
	if err := c.send(append([]byte{byte(len(name))}, name...), body); err != nil {
		return 0, nil, lostBy(ctx, err, true) // the server executes a whole frame or nothing
	}
	if *buffer, err = readFrame(c.r, (*buffer)[:0], maxReply); err != nil {
		return 0, nil, lostBy(ctx, err, false)
	}
	code, n := binary.Uvarint(*buffer)
	if n <= 0 {
		return 0, nil, misunderstood(codec.ErrMalformed)
	}
	return int(code), (*buffer)[n:], nil
}

// serveConnection upgrades the connection of a request and answers its calls until it ends.
func (s *Server) serveConnection(w http.ResponseWriter) {
	conn, buffers, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer conn.Close()
	c := &connection{Conn: conn, r: buffers.Reader, w: buffers.Writer}
	if !s.addConnection(c) {
		return
	}
	defer s.removeConnection(c)
	conn.SetDeadline(time.Time{})
	fmt.Fprintf(c.w, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", upgraded)
	if c.w.Flush() != nil {
		return
	}
	for s.answerCall(c) {
	}
}

// answerCall reads a call and answers it. It reports whether others may follow.
func (s *Server) answerCall(c *connection) bool {
	if _, err := c.r.Peek(1); err != nil {
		return false
	}
	buffer := bodies.Get().(*[]byte)
	defer bodies.Put(buffer)
	frame, err := readFrame(c.r, (*buffer)[:0], maxHead+maxRequest)
	*buffer = frame
	if err != nil || !s.enter() {
		return false
	}
	defer s.calls.Done()
	if len(frame) == 0 || len(frame) < 1+int(frame[0]) {
		return false
	}
	name, body := frame[1:1+frame[0]], frame[1+frame[0]:]
	op, ok := endpoints[string(name)].(callable)
	if !ok {
		return c.refuse(http.StatusNotFound, "there is no such operation here")
	}
	ctx, free := context.Background(), func() {}
	if op.endsWithClient() {
		ctx, free = c.whileOpen()
	}
	defer free()
	answer, err := op.call(ctx, s, body)
	if err != nil {
		return c.refuse(statusOf(err), err.Error())
	}
	return c.send(okHead, answer) == nil
}

// okHead is the head of a reply.
var okHead = binary.AppendUvarint(nil, http.StatusOK)

func (c *connection) refuse(status int, text string) bool {
	return c.send(binary.AppendUvarint(nil, uint64(status)), []byte(text)) == nil
}

// whileOpen returns a context that ends when the client closes the connection. Call free before the next read.
func (c *connection) whileOpen() (ctx context.Context, free func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := c.r.Peek(1); err != nil {
			cancel()
		}
	}()
	return ctx, func() {
		cancel()
		c.SetReadDeadline(past)
		<-done
		c.SetReadDeadline(time.Time{})
	}
}

// addConnection reports whether the server is open.
func (s *Server) addConnection(c *connection) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.connections[c] = struct{}{}
		s.serving.Add(1)
	}
	return !s.closed
}

func (s *Server) removeConnection(c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.connections, c)
	s.serving.Done()
}
