package diskstore

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// lockedHere are the directories that this process has locked, whatever they are called. Pebble's lock is fcntl's, which a
// process does not hold against itself, and which it loses for all when it closes the file once; Pebble adds a table
// of the paths, but one directory has many.
var lockedHere struct {
	sync.Mutex
	all []fs.FileInfo
}

var errLockedHere = errors.New("this process has it open already")

// directoryLock is held by who uses a directory.
type directoryLock struct {
	*pebble.Lock
	info fs.FileInfo // nil for a file system of tests
}

// lock locks a directory that exists, or gives an error for isHeld.
func (d *directory) lock() (*directoryLock, error) {
	l := &directoryLock{}
	if d.fs == vfs.Default {
		info, err := os.Stat(d.dir)
		if err != nil {
			return nil, err
		}
		if !noteLocked(info) {
			return nil, errLockedHere
		}
		l.info = info
	}
	var err error
	if l.Lock, err = pebble.LockDirectory(d.dir, d.fs); err != nil {
		forgetLocked(l.info)
		return nil, err
	}
	return l, nil
}

// Close gives the directory free.
func (l *directoryLock) Close() error {
	err := l.Lock.Close()
	forgetLocked(l.info)
	return err
}

// noteLocked notes a directory; false when it is noted already.
func noteLocked(info fs.FileInfo) bool {
	lockedHere.Lock()
	defer lockedHere.Unlock()
	if slices.ContainsFunc(lockedHere.all, func(other fs.FileInfo) bool { return os.SameFile(info, other) }) {
		return false
	}
	lockedHere.all = append(lockedHere.all, info)
	return true
}

func forgetLocked(info fs.FileInfo) {
	lockedHere.Lock()
	defer lockedHere.Unlock()
	lockedHere.all = slices.DeleteFunc(lockedHere.all, func(other fs.FileInfo) bool { return other == info })
}
