package delayqueue

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"
)

// bridge is a connection with a RedisCli at its other end. Write executes the commands that are complete and keeps
// their replies for Read, so a bridge without a subscription has no goroutine.
type bridge struct {
	cli RedisCli

	mu       sync.Mutex // guards the fields below
	input    []byte     // of commands, not yet complete
	output   bytes.Buffer
	arrived  chan struct{} // is closed and replaced when there is output, or the bridge is closed
	deadline time.Time     // of reads
	closed   bool
	leave    func() // ends the subscription; nil without one
}

func newBridge(cli RedisCli) *bridge { return &bridge{cli: cli, arrived: make(chan struct{})} }

// Write implements net.Conn. Commands of one connection are written one after the other.
func (b *bridge) Write(p []byte) (int, error) {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return 0, net.ErrClosed
	}
	b.input = append(b.input, p...)
	var commands [][]string
	for {
		args, n, err := parseCommand(b.input)
		if err != nil {
			b.mu.Unlock()
			return 0, err
		}
		if n == 0 {
			break
		}
		b.input = b.input[n:]
		commands = append(commands, args)
	}
	b.mu.Unlock()
	for _, args := range commands {
		b.push(b.execute(args))
	}
	return len(p), nil
}

// push adds output for Read.
func (b *bridge) push(output []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.output.Write(output)
	b.wake()
}

// wake wakes Read. The lock is held.
func (b *bridge) wake() {
	close(b.arrived)
	b.arrived = make(chan struct{})
}

// Read implements net.Conn.
func (b *bridge) Read(p []byte) (int, error) {
	for {
		b.mu.Lock()
		arrived, deadline := b.arrived, b.deadline
		switch {
		case b.output.Len() > 0:
			defer b.mu.Unlock()
			return b.output.Read(p)
		case b.closed:
			b.mu.Unlock()
			return 0, io.EOF
		}
		b.mu.Unlock()
		if deadline.IsZero() {
			<-arrived
			continue
		}
		timer := time.NewTimer(time.Until(deadline))
		select {
		case <-arrived:
			timer.Stop()
		case <-timer.C:
			return 0, os.ErrDeadlineExceeded
		}
	}
}

// Close implements net.Conn.
func (b *bridge) Close() error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return net.ErrClosed
	}
	b.closed = true
	b.wake()
	b.mu.Unlock()
	b.unsubscribe()
	return nil
}

// subscribed reports whether the connection has a subscription.
func (b *bridge) subscribed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.leave != nil
}

// subscribe starts a goroutine that passes on the messages of a channel, and returns the reply. One subscription at a
// time is enough for Later.
func (b *bridge) subscribe(channel string) []byte {
	b.unsubscribe()
	payloads, end, err := b.cli.Subscribe(channel)
	if err != nil {
		return replyError(err)
	}
	stop := make(chan struct{})
	b.mu.Lock()
	b.leave = func() {
		close(stop)
		end()
	}
	b.mu.Unlock()
	go func() {
		for {
			select {
			case payload, open := <-payloads:
				if !open {
					b.Close() // the subscription is lost; the client connects again
					return
				}
				b.push(reply([]any{"message", channel, payload}))
			case <-stop:
				return
			}
		}
	}()
	return reply([]any{"subscribe", channel, int64(1)})
}

// unsubscribe ends the subscription and returns the reply.
func (b *bridge) unsubscribe() []byte {
	b.mu.Lock()
	leave := b.leave
	b.leave = nil
	b.mu.Unlock()
	if leave != nil {
		leave()
	}
	return reply([]any{"unsubscribe", nil, int64(0)})
}

// LocalAddr and RemoteAddr implement net.Conn.
func (b *bridge) LocalAddr() net.Addr  { return bridgeAddr{} }
func (b *bridge) RemoteAddr() net.Addr { return bridgeAddr{} }

type bridgeAddr struct{}

func (bridgeAddr) Network() string { return "rediscli" }
func (bridgeAddr) String() string  { return "rediscli" }

// SetDeadline implements net.Conn. A RedisCli has its own timeouts, so only reads have a deadline.
func (b *bridge) SetDeadline(t time.Time) error { return b.SetReadDeadline(t) }

// SetReadDeadline implements net.Conn.
func (b *bridge) SetReadDeadline(t time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deadline = t
	b.wake()
	return nil
}

// SetWriteDeadline implements net.Conn.
func (b *bridge) SetWriteDeadline(time.Time) error { return nil }

var errProtocol = errors.New("bridge: malformed command")

// parseCommand parses the first command of input and returns its length, or 0 if it is not complete.
func parseCommand(input []byte) (args []string, n int, err error) {
	count, n, err := parseLength(input, '*')
	if n == 0 || err != nil {
		return nil, 0, err
	}
	for range count {
		size, head, err := parseLength(input[n:], '$')
		if head == 0 || err != nil {
			return nil, 0, err
		}
		n += head
		if len(input)-n-2 < size {
			return nil, 0, nil
		}
		args = append(args, string(input[n:n+size]))
		n += size + 2
	}
	if len(args) == 0 {
		return nil, 0, errProtocol
	}
	return args, n, nil
}

// parseLength parses a line of kind and a length, and returns the length of the line, or 0 if it is not complete.
func parseLength(input []byte, kind byte) (length, n int, err error) {
	end := bytes.Index(input, []byte("\r\n"))
	if end < 0 {
		return 0, 0, nil
	}
	if end < 2 || input[0] != kind {
		return 0, 0, errProtocol
	}
	length, err = strconv.Atoi(string(input[1:end]))
	if err != nil || length < 0 {
		return 0, 0, errProtocol
	}
	return length, end + 2, nil
}
