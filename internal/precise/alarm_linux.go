package precise

import (
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// timerfd is an alarm that the run-time system's poller watches.
type timerfd struct {
	file *os.File
	raw  syscall.RawConn // of file
	fd   int
}

func newAlarm() (alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	a := &timerfd{file: os.NewFile(uintptr(fd), "timerfd"), fd: fd}
	if a.raw, err = a.file.SyscallConn(); err != nil {
		a.file.Close()
		return nil, err
	}
	return a, nil
}

func (a *timerfd) set(after time.Duration) error {
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(after))}
	return os.NewSyscallError("timerfd_settime", unix.TimerfdSettime(a.fd, 0, &at, nil))
}

// wait reads from the timerfd. It does not tell the runtime of the call, which never blocks: that would wake another
// thread of an idle process.
func (a *timerfd) wait() (err error) {
	var number syscall.Errno
	err = a.raw.Read(func(fd uintptr) (done bool) {
		var expirations [8]byte
		number = syscall.EINTR
		for number == syscall.EINTR {
			_, _, number = syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(&expirations)), 8)
		}
		return number != syscall.EAGAIN
	})
	if err == nil && number != 0 {
		err = os.NewSyscallError("read", number)
	}
	return err
}

func (a *timerfd) close() error { return a.file.Close() }

// isFake reports whether a time that time.Now returned is a synctest bubble's, which begins in the year 2000.
func isFake(now time.Time) bool {
	var real unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME, &real); err != nil {
		return true
	}
	return now.Sub(time.Unix(real.Unix())).Abs() > time.Hour
}
