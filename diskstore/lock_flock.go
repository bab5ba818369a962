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
		if err := flock(f, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		locked, err := f.Stat()
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		// The lock counts only if the name still leads to the file that was locked.
		if now, err := os.Stat(name); err == nil && os.SameFile(locked, now) {
			return heldLock{f}, nil
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
}

// lockDirectory locks a directory itself, which lasts even if lockFile is removed. It returns nil where the file system
// cannot do that, as NFS, which would need to write to it.
func lockDirectory(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	err = flock(f, syscall.LOCK_EX|syscall.LOCK_NB)
	switch {
	case err == nil:
		return f, nil
	case isHeld(err):
		return nil, errors.Join(err, f.Close())
	}
	return nil, f.Close()
}

// heldLock is a locked file or directory. Close unlocks it first, because a process that is being started at that
// moment has a copy of the descriptor until it runs its program, and the copy would keep the lock.
type heldLock struct{ *os.File }

func (l heldLock) Close() error {
	return errors.Join(flock(l.File, syscall.LOCK_UN), l.File.Close())
}

func flock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
