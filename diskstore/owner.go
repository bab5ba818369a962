package diskstore

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/laterq/later/store"
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
	for i := range o.files {
		f := &o.files[i]
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
	if err := s.owned.check(); err != nil {
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

// fence lets a store that stopped change nothing more in its directory, which another process may have open by then:
// Pebble may go on in the background.
type fence struct {
	mu sync.RWMutex
	up bool
}

// pass makes a change, unless the fence is up.
func (f *fence) pass(change func() error) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.up {
		return store.ErrClosed
	}
	return change()
}

// raise returns when the changes under way are made, and lets no more pass.
func (f *fence) raise() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.up = true
}

// holderFile names the process that has the directory open, for people. It exists from open to close, so a directory
// that has it and is not locked was left by a crash.
const holderFile = "HOLDER"

// HeldError is the error of opening a directory that is open already, in another process or in this one. It is an
// ErrUnavailable.
type HeldError struct {
	Dir string
	// Holder names the process that has the directory open, for people:
	// "process 123 on host, later work, since 2030-12-31T15:04:05Z". It may be "", or name the last holder, in the
	// moment after another process has locked the directory.
	Holder string
	// Since is when the holder opened the directory, by its clock and to the second; zero where that is unknown.
	Since time.Time
}

// heldBy returns the HeldError for the content of holderFile.
func heldBy(dir, holder string) *HeldError {
	e := &HeldError{Dir: dir, Holder: holder}
	if i := strings.LastIndex(holder, sinceWord); i >= 0 {
		e.Since, _ = time.Parse(time.RFC3339, holder[i+len(sinceWord):])
	}
	return e
}

func (e *HeldError) Error() string {
	holder := "another process"
	if e.Holder != "" {
		holder = e.Holder
	}
	return fmt.Sprintf("%v: %s is open in %s: one process at a time", store.ErrUnavailable, e.Dir, holder)
}

func (e *HeldError) Unwrap() error { return store.ErrUnavailable }

const sinceWord = ", since "

// describeHolder names the process that has the directory open when it does not answer, with advice.
func (s *sharing) describeHolder() string {
	text, err := os.ReadFile(filepath.Join(s.dir, holderFile))
	holder := strings.TrimSpace(string(text))
	if err != nil || holder == "" {
		return fmt.Sprintf("the process that has %s open does not answer", s.dir)
	}
	if pid, ok := pidOf(holder); ok && isStopped(pid) {
		return fmt.Sprintf("%s has %s open and is stopped: continue it with kill -CONT %d, or end it with "+
			"kill -KILL %d, then another process takes over", holder, s.dir, pid, pid)
	}
	return fmt.Sprintf("%s has %s open and does not answer", holder, s.dir)
}

// pidOf returns the number of a process that was described by holder, if that is on this machine.
func pidOf(holder string) (pid int, ok bool) {
	var host string
	if _, err := fmt.Sscanf(holder, "process %d on %s", &pid, &host); err != nil {
		return 0, false
	}
	here, err := os.Hostname()
	return pid, err == nil && strings.TrimSuffix(host, ",") == here
}

// isStopped reports whether a process is stopped, by a signal or a debugger. It is false where that is unknown.
func isStopped(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(text[bytes.LastIndexByte(text, ')')+1:]), " ") // behind the program's name
	return strings.HasPrefix(state, "T") || strings.HasPrefix(state, "t")
}

// holder describes this process.
func holder() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("process %d on %s, %s%s%s\n", os.Getpid(), host, command(os.Args),
		sinceWord, time.Now().Format(time.RFC3339))
}

// command returns the name of a program, with its first argument if that looks like a subcommand; other arguments may
// be secret.
func command(args []string) string {
	name := filepath.Base(args[0])
	if len(args) > 1 && subcommand.MatchString(args[1]) {
		name += " " + args[1]
	}
	return name
}

var subcommand = regexp.MustCompile(`^[a-z][a-z-]{0,15}$`)
