package redisstore

import (
	"io"
	"net"
	"os"
	"syscall"

	"github.com/laterq/later/internal/rawio"
)

// wire is the connection of a line. package net first tries to read when it is asked to, before there can be a reply,
// and then waits: that is a system call in vain for each call. A wire instead writes the command once the runtime
// notices all that comes afterwards, waits, and reads.
//
// The runtime then forgets what has come before. That can only be that a server or proxy has closed one direction: if
// it has closed both, it answers the command with a reset. So only a connection that was used lately, and whose calls
// have a timeout, is used like this.
type wire struct {
	net.Conn
	raw syscall.RawConn // nil for a connection that does more than the system does, such as TLS
	out []byte          // the command that the next Read writes before it reads
	in  []byte          // the argument of Read
	n   int             // bytes that it has read
	err error

	step func(fd uintptr) (done bool)
}

func newWire(conn net.Conn) *wire {
	w := &wire{Conn: conn}
	switch conn := conn.(type) {
	case *net.TCPConn:
		w.raw, _ = conn.SyscallConn()
	case *net.UnixConn:
		w.raw, _ = conn.SyscallConn()
	}
	w.step = w.exchange
	return w
}

// send sends a command, at once or when its reply is read. lately says that the connection was used lately.
func (w *wire) send(command []byte, lately bool) error {
	if lately && w.raw != nil {
		w.out = command
		return nil
	}
	_, err := w.Conn.Write(command)
	return err
}

func (w *wire) Read(p []byte) (int, error) {
	if w.out == nil {
		return w.Conn.Read(p)
	}
	w.in, w.n, w.err = p, 0, nil
	if err := w.raw.Read(w.step); err != nil {
		return 0, err
	}
	return w.n, w.err
}

// exchange is called before the wait, and after each event.
func (w *wire) exchange(fd uintptr) (done bool) {
	if w.out != nil {
		w.write(fd)
		return w.err != nil
	}
	n, err := rawio.Read(fd, w.in)
	switch {
	case err == syscall.EAGAIN:
		return false
	case err != nil:
		w.err = &net.OpError{Op: "read", Net: "tcp", Addr: w.RemoteAddr(), Err: os.NewSyscallError("read", err)}
	case n == 0:
		w.err = io.EOF
	}
	w.n = max(n, 0)
	return true
}

// write writes the command. package net writes the parts that the system does not take at once, and finds its errors.
func (w *wire) write(fd uintptr) {
	n, _ := rawio.Write(fd, w.out)
	rest := w.out[max(n, 0):]
	w.out = nil
	if len(rest) > 0 {
		_, w.err = w.Conn.Write(rest)
	}
}
