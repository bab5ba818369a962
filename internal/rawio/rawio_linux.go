package rawio

import (
	"syscall"
	"unsafe"
)

// Max is the number of bytes that a call copies at most, so that other goroutines need not wait long for its thread.
const Max = 64 << 10

// Read reads up to Max bytes, as syscall.Read does but for interruptions.
func Read(fd uintptr, p []byte) (n int, err error) { return call(syscall.SYS_READ, fd, p) }

// Write writes up to Max bytes, as syscall.Write does but for interruptions.
func Write(fd uintptr, p []byte) (n int, err error) { return call(syscall.SYS_WRITE, fd, p) }

func call(number, fd uintptr, p []byte) (n int, err error) {
	p = p[:min(len(p), Max)]
	for {
		r, _, err := syscall.RawSyscall(number, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
		switch err {
		case 0:
			return int(r), nil
		case syscall.EINTR:
		case syscall.EAGAIN:
			return -1, syscall.EAGAIN // an error value that is not allocated
		default:
			return -1, err
		}
	}
}
