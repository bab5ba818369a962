package redisstore

import (
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"
)

// wire is the connection of a line. package net first tries to read when it is asked to, before there can be a reply,
// and then waits: that is a system call in vain for each call. A wire instead writes the command once the runtime
// notices what comes afterwards, waits, and reads.
//
// The runtime then forgets what has come before. That can only be that a server or proxy has closed one direction: if
// it has closed both, it answers the command with a reset. So only a connection that was used lately, and whose calls
// have a timeout, is used like this.
type wire struct {
	net.Conn
	raw syscall.RawConn // nil for a connection that does more than the system does, such as TLS
	out []byte          // what the next Read writes before it reads
	in  []byte          // what it reads into
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
	w.in, w.n, w.err = p[:min(len(p), maxRaw)], 0, nil
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
	for {
		n, err := rawCall(syscall.SYS_READ, fd, w.in)
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN:
			return false
		case err != 0:
			w.err = &net.OpError{Op: "read", Net: "tcp", Addr: w.RemoteAddr(), Err: os.NewSyscallError("read", err)}
		case n == 0:
			w.err = io.EOF
		}
		w.n = max(n, 0)
		return true
	}
}

// write writes the command. package net writes the parts that the system does not take at once, and finds its errors.
func (w *wire) write(fd uintptr) {
	n, _ := rawCall(syscall.SYS_WRITE, fd, w.out[:min(len(w.out), maxRaw)])
	rest := w.out[max(n, 0):]
	w.out = nil
	if len(rest) > 0 {
		_, w.err = w.Conn.Write(rest)
	}
}

// maxRaw is the number of bytes that a call may copy while the runtime does not know of it.
const maxRaw = 64 << 10

// rawCall makes a system call that does not block. package syscall would tell the runtime of it, which then wakes a
// thread that looks for calls that block: in a process that does little else, that takes longer than the call.
func rawCall(number, fd uintptr, p []byte) (n int, err syscall.Errno) {
	r, _, err := syscall.RawSyscall(number, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	if err != 0 {
		return -1, err
	}
	return int(r), 0
}
