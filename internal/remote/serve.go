package remote

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"syscall"
	"time"
)

// servedConnection is a connection that carries the calls of a client, at the server.
type servedConnection struct {
	*connection
	server *Server
	name   [maxHead]byte // of the operation
	last   response      // of the last call

	writing sync.Mutex
	beating bool // a call is under way
	beats   *time.Timer
}

// serveConnection upgrades the connection of a request and answers its calls until it ends.
func (s *Server) serveConnection(w http.ResponseWriter) {
	conn, buffers, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer conn.Close()
	if buffers.Reader.Buffered() > 0 {
		return // a client waits for the upgrade
	}
	c := &servedConnection{connection: newConnection(conn), server: s}
	if !s.addConnection(c) {
		return
	}
	defer s.removeConnection(c)
	c.beats = time.AfterFunc(beatEvery, c.beat)
	defer c.endBeats()
	fmt.Fprintf(c.w, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n%s: %v\r\n\r\n",
		upgraded, versionsHeader, ourVersions)
	if c.w.Flush() != nil {
		return
	}
	for c.answerCall() {
	}
}

// answerCall reads a call and answers it. It reports whether others may follow.
func (c *servedConnection) answerCall() bool {
	c.idle = true
	_, err := c.r.Peek(1)
	c.idle = false
	if errors.Is(err, syscall.ECONNRESET) {
		c.last.undo() // its client has left without reading it all
	}
	c.last = response{}
	if err != nil {
		return false
	}
	op, length, err := c.readHead()
	if err != nil {
		return false
	}
	buffer, taken, answered := bodies.Get().(*[]byte), int64(0), false
	defer func() { putBody(buffer) }()
	if length > largeFrame {
		var open bool
		if taken, open, answered = c.admit(op, length); answered || !open {
			return open
		}
		defer func() { c.server.budgetOf(op).give(taken) }()
	}
	*buffer, err = readBody(c.r, (*buffer)[:0], length)
	if err != nil {
		return false
	}
	if op == nil {
		return c.refuse(http.StatusNotFound, "there is no such operation here")
	}
	return c.execute(op, buffer)
}

var errBadFrame = errors.New("a frame is shorter than its name, or too long")

// readHead reads the beginning of a call. op is nil if there is no such operation here.
func (c *servedConnection) readHead() (op callable, length int, err error) {
	n, err := binary.ReadUvarint(c.r)
	if err != nil {
		return nil, 0, err
	}
	named, err := c.r.ReadByte()
	if err != nil {
		return nil, 0, err
	}
	if n < 1+uint64(named) || n > maxHead+maxRequest {
		return nil, 0, errBadFrame
	}
	name := c.name[:named]
	if _, err := io.ReadFull(c.r, name); err != nil {
		return nil, 0, err
	}
	op, _ = endpoints[string(name)].(callable)
	return op, int(n) - 1 - len(name), nil
}

// admit lets the client send the body of a large call when there is room for it. Until then the client hears beats.
// answered is set if the call was refused.
func (c *servedConnection) admit(op callable, length int) (taken int64, open, answered bool) {
	if op == nil {
		return 0, c.refuse(http.StatusNotFound, "there is no such operation here"), true
	}
	c.beginBeats()
	budget := c.server.budgetOf(op)
	taken, err := budget.take(c.server.closing, int64(length)*copies)
	if err != nil {
		return 0, c.refuse(statusOf(err), err.Error()), true
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.send(continueHead, nil) != nil {
		budget.give(taken)
		return 0, false, false
	}
	return taken, true, false
}

// execute answers a call with a request that was read into a buffer.
func (c *servedConnection) execute(op callable, buffer *[]byte) bool {
	s := c.server
	if !s.enter() {
		return false
	}
	defer s.replied()
	ctx, free := context.Background(), func() {}
	switch {
	case op.endsWithClient():
		ctx, free = c.whileOpen()
	case op.undoes() && isGone(c.Conn):
		s.executed()
		return false
	}
	c.beginBeats()
	answer, err := s.execute(ctx, op, buffer)
	free()
	if err != nil {
		return c.refuse(statusOf(err), err.Error())
	}
	err = c.reply(okHead, answer.body)
	answer.free()
	if err != nil {
		answer.undo()
		return false
	}
	answer.body = nil
	c.last = answer
	return true
}

// okHead and continueHead are heads of replies.
var (
	okHead       = binary.AppendUvarint(nil, http.StatusOK)
	continueHead = binary.AppendUvarint(nil, http.StatusContinue)
)

// reply sends a reply, the end of the beats.
func (c *servedConnection) reply(head, body []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.beating = false
	c.beats.Stop()
	return c.send(head, body)
}

func (c *servedConnection) refuse(status int, text string) bool {
	return c.reply(binary.AppendUvarint(nil, uint64(status)), []byte(text)) == nil
}

// beginBeats has the client hear of this process while a call lasts.
func (c *servedConnection) beginBeats() {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.beating = true
	c.beats.Reset(beatEvery)
}

func (c *servedConnection) endBeats() {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.beating = false
	c.beats.Stop()
}

func (c *servedConnection) beat() {
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.beating && c.send(nil, nil) == nil {
		c.beats.Reset(beatEvery)
	}
}

// whileOpen returns a context that ends when the client closes the connection. Call free before the next read.
func (c *servedConnection) whileOpen() (ctx context.Context, free func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	c.idle = true
	go func() {
		defer close(done)
		if _, err := c.r.Peek(1); err != nil {
			cancel()
		}
	}()
	return ctx, func() {
		cancel()
		c.endRead(done)
		c.idle = false
	}
}

// addConnection reports whether the server is open.
func (s *Server) addConnection(c *servedConnection) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.connections[c.connection] = struct{}{}
		s.serving.Add(1)
	}
	return !s.closed
}

func (s *Server) removeConnection(c *servedConnection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.connections, c.connection)
	s.serving.Done()
}
