package diskstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// An open file stays open and locked when its name is removed or reused. So if LOCK is removed, or the directory is
// moved away and replaced by a backup, another process can open that path while this one goes on. Therefore the
// directory itself is locked too, and a process compares its open files with the files at the path: before it lets
// callers go, before it changes a file by its name, and every second. On a difference it stops.

// checkOwnerEvery is how often a store that does nothing makes that comparison.
const checkOwnerEvery = time.Second

// ownership is the open files and locks of a locked directory.
type ownership struct {
	lock  *pebble.Lock
	dir   *os.File // locked; nil where the system cannot lock a directory
	files []ownFile
	kept  []*os.File // open, so that nothing else gets their identities
}

// ownFile is a file, or the directory, as it was when this process opened it.
type ownFile struct {
	name, path string
	id         identity
}

// quickCheck is how many files are looked at before callers go: the directory and lockFile.
const quickCheck = 2

// note remembers a file that this process has just locked or written. Only files of the machine have an identity.
func (o *ownership) note(d *directory, name, path string) error {
	if d.fs != defaultFS {
		return nil
	}
	id, err := identify(path)
	if err != nil {
		return d.readError(err)
	}
	o.files = append(o.files, ownFile{name, path, id})
	return nil
}

// keep notes a file that this process has just written, and keeps it open.
func (o *ownership) keep(d *directory, name string) error {
	if d.fs != defaultFS {
		return nil
	}
	path := d.fs.PathJoin(d.dir, name)
	f, err := os.Open(path)
	if err != nil {
		return d.readError(err)
	}
	o.kept = append(o.kept, f)
	return o.note(d, name, path)
}

// check returns an error that names a file that was removed or replaced since this process opened it.
func (o *ownership) check() error {
	if o == nil {
		return nil
	}
	return o.compare(o.files)
}

// checkQuickly is check for the directory and lockFile only.
func (o *ownership) checkQuickly() error {
	if o == nil {
		return nil
	}
	return o.compare(o.files[:min(quickCheck, len(o.files))])
}

func (o *ownership) compare(files []ownFile) error {
	for i := range files {
		f := &files[i]
		now, err := identify(f.path)
		switch {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
			return notOwned(fmt.Sprintf("%s was removed or moved away", f.name))
		case err == nil && now != f.id:
			return notOwned(fmt.Sprintf("%s was replaced by another one", f.name))
		}
	}
	return nil
}

// notOwned is the error of a directory that is no longer the one that this process opened, with the reason.
type notOwned string

func (e notOwned) Error() string {
	return string(e) + " while the store was open, so another process may have opened it"
}

// close gives everything up.
func (o *ownership) close() error {
	var err error
	for _, f := range o.kept {
		err = errors.Join(err, f.Close())
	}
	if o.lock != nil {
		err = errors.Join(err, o.lock.Close())
	}
	if o.dir != nil {
		err = errors.Join(err, heldLock{o.dir}.Close())
	}
	return err
}

// isOwned reports whether the directory is still the one that this process opened. If it is not, the store stops.
func (s *Store) isOwned() bool {
	if err := s.owned.checkQuickly(); err != nil {
		s.fail(err)
		return false
	}
	return true
}

// guard watches over the directory. When the store stops it gives up the directory, so that another process can open
// it.
func (s *Store) guard() {
	ticker := time.NewTicker(checkOwnerEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if err := s.owned.check(); err != nil {
				s.fail(err)
			}
		case <-s.failed:
			s.end()
			return
		case <-s.closed:
			return
		}
	}
}
