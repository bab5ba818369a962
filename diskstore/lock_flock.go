//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package diskstore

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// Lock implements vfs.FS with flock(2). Pebble's own lock is fcntl's, which the process loses as soon as it closes any
// descriptor of the file: a program that reads its own data directory, for a backup say, would unlock it. An flock
// belongs to the descriptor, so it also excludes a second open in the same process, by whatever path.
func (diskFS) Lock(name string) (io.Closer, error) {
	for {
		f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		if err := flock(f); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		locked, err := f.Stat()
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		// The lock counts only if the name still leads to the file that was locked.
		if now, err := os.Stat(name); err == nil && os.SameFile(locked, now) {
			return f, nil
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
}

func flock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
