package rawio

import (
	"bytes"
	"syscall"
	"testing"
)

func TestReadAndWrite(t *testing.T) {
	var fds [2]int
	if err := syscall.Pipe2(fds[:], syscall.O_NONBLOCK|syscall.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	in, out := uintptr(fds[0]), uintptr(fds[1])
	defer syscall.Close(fds[0])
	p := make([]byte, 2*Max)
	if n, err := Read(in, p); n != -1 || err != syscall.EAGAIN {
		t.Errorf("read of an empty pipe = %d, %v; want -1, %v", n, err, syscall.EAGAIN)
	}
	sent := bytes.Repeat([]byte("later"), Max)[:2*Max]
	if n, err := Write(out, sent); n != Max || err != nil { // a pipe has room for as many
		t.Errorf("write = %d, %v; want %d", n, err, Max)
	}
	if n, err := Read(in, p); n != Max || err != nil || !bytes.Equal(p[:Max], sent[:Max]) {
		t.Errorf("read = %d, %v; want the %d bytes that were written", n, err, Max)
	}
	syscall.Close(fds[1])
	if n, err := Read(in, p); n != 0 || err != nil {
		t.Errorf("read at the end = %d, %v; want 0", n, err)
	}
	if n, err := Read(out, p); n != -1 || err != syscall.EBADF {
		t.Errorf("read of a closed file = %d, %v; want -1, %v", n, err, syscall.EBADF)
	}
}
