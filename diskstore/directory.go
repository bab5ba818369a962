package diskstore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

// The directory's own files beside Pebble's.
const (
	formatFile = "LATER"  // what this is
	holderFile = "HOLDER" // who has it open, for people
	lockFile   = "LOCK"
	format     = "later diskstore 1\n"
)

// directory is where a store's files are.
type directory struct {
	dir string
	fs  vfs.FS
}

// claimDirectory makes, checks and locks the directory.
func (s *Store) claimDirectory() error {
	if err := s.makeDirectory(); err != nil {
		return fmt.Errorf("%w: making the directory: %w", store.ErrUnavailable, err)
	}
	if err := s.checkFormat(); err != nil {
		return err
	}
	lock, err := s.directory.lock()
	if err != nil {
		if isHeld(err) {
			holder, _ := s.readFile(holderFile)
			return heldBy(s.dir, strings.TrimSpace(holder))
		}
		return fmt.Errorf("%w: locking %s: %w", store.ErrUnavailable, s.dir, err)
	}
	s.lock = lock
	err = s.writeFile(holderFile, holder())
	if _, missing := s.readFile(formatFile); missing != nil && err == nil {
		err = s.writeFile(formatFile, format)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%w: writing to %s: %w", store.ErrUnavailable, s.dir, err), s.releaseDirectory())
	}
	return nil
}

// makeDirectory makes the directory and those above it that are missing, durably, and finds its one true name: a link
// that is changed later leads nobody elsewhere.
func (d *directory) makeDirectory() error {
	var parents []string // of what is missing
	for at := d.dir; ; {
		if _, err := d.fs.Stat(at); !errors.Is(err, fs.ErrNotExist) {
			break // what is wrong with it, if something is, is told below
		}
		parent := d.fs.PathDir(at)
		if parent == at {
			break
		}
		parents = append(parents, parent)
		at = parent
	}
	if err := d.fs.MkdirAll(d.dir, 0o700); err != nil {
		return err
	}
	for _, parent := range parents {
		if err := d.syncDirectory(parent); err != nil {
			return err
		}
	}
	if d.fs != vfs.Default {
		return nil
	}
	dir, err := filepath.Abs(d.dir)
	if err == nil {
		d.dir, err = filepath.EvalSymlinks(dir)
	}
	return err
}

func (d *directory) syncDirectory(path string) error {
	dir, err := d.fs.OpenDir(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// checkFormat refuses a directory that is not Later's, or of another format.
func (d *directory) checkFormat() error {
	found, err := d.readFile(formatFile)
	switch {
	case err == nil && found == format:
		return nil
	case err == nil:
		return fmt.Errorf("%w: %s has the format %q and this version of Later knows %q: use the version that wrote it",
			store.ErrUnsupported, d.dir, strings.TrimSpace(found), strings.TrimSpace(format))
	case !errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%w: reading %s: %w", store.ErrUnavailable, d.dir, err)
	}
	names, err := d.fs.List(d.dir)
	if err != nil {
		return fmt.Errorf("%w: reading %s: %w", store.ErrUnavailable, d.dir, err)
	}
	for _, name := range names {
		if name != lockFile && name != holderFile && name != formatFile+".new" && name != holderFile+".new" {
			if _, err := d.readFile(formatFile); err == nil {
				return d.checkFormat() // another process made the store meanwhile
			}
			return fmt.Errorf("%w: %s holds %s and is no store of Later: give an empty or a new directory",
				store.ErrUnsupported, d.dir, name)
		}
	}
	return nil
}

// releaseDirectory gives the directory free. When Pebble gave up, it has it until the process ends.
func (s *Store) releaseDirectory() error {
	if s.isStuck() {
		return nil
	}
	s.fs.Remove(s.fs.PathJoin(s.dir, holderFile)) // it would only be out of date
	if s.lock == nil {
		return nil
	}
	return s.lock.Close()
}

// HeldError is the error of opening a directory that is open already, in another process or in this one. It is an
// ErrUnavailable.
type HeldError struct {
	Dir string
	// Holder tells who has the directory open, for people: "process 123 on host, later work, since 2030-12-31T15:04:05Z".
	// It may be "", or name the last holder, in the moment after another has locked the directory.
	Holder string
	// Since is when the holder opened the directory, by its clock and to the second; zero where that is unknown.
	Since time.Time
}

// heldBy makes the error of what the holder wrote about itself.
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

// isHeld tells a lock that somebody has from one that cannot be had: that of a file that cannot be opened, or on a
// file system without locks. Of this process Pebble knows it by itself.
func isHeld(err error) bool {
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return false
	}
	errno, ok := errors.AsType[syscall.Errno](err)
	return !ok || slices.Contains(heldErrors, errno)
}

// holder tells who has the directory open.
func holder() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("process %d on %s, %s%s%s\n", os.Getpid(), host, command(os.Args),
		sinceWord, time.Now().Format(time.RFC3339))
}

const sinceWord = ", since "

// command names a program, and its first argument if that looks like a subcommand; others may hold secrets.
func command(args []string) string {
	name := filepath.Base(args[0])
	if len(args) > 1 && subcommand.MatchString(args[1]) {
		name += " " + args[1]
	}
	return name
}

var subcommand = regexp.MustCompile(`^[a-z][a-z-]{0,15}$`)

func (d *directory) readFile(name string) (string, error) {
	f, err := d.fs.Open(d.fs.PathJoin(d.dir, name))
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(f)
	return string(b), errors.Join(err, f.Close())
}

// writeFile writes a file whole or not at all, durably.
func (d *directory) writeFile(name, text string) error {
	path := d.fs.PathJoin(d.dir, name)
	f, err := d.fs.Create(path+".new", vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := d.fs.Rename(path+".new", path); err != nil {
		return err
	}
	return d.syncDirectory(d.dir)
}
