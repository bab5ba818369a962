package precise

import (
	"cmp"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laterq/later/internal/rawio"
)

// timerfd is an alarm that the run-time system's poller watches.
type timerfd struct {
	file *os.File
	raw  syscall.RawConn // of file
	fd   int
	read [8]byte
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

func (a *timerfd) wait() error {
	var failed error
	err := a.raw.Read(func(fd uintptr) (done bool) {
		_, failed = rawio.Read(fd, a.read[:])
		return failed != syscall.EAGAIN
	})
	return cmp.Or(err, os.NewSyscallError("read", failed))
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
