package diskstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/cockroachdb/pebble/v2"

	"github.com/laterq/later/store"
)

// fail stops the store for good: memory and disk may differ from now on, and after a failed fsync the content of the
// disk is unknown. Every call from now on, and every one under way, returns the cause. fail returns that error.
func (s *Store) fail(cause error) error {
	kind := store.ErrUnavailable
	if isCorruption(cause) {
		kind = store.ErrCorrupt
	}
	s.failing.Do(func() {
		kept := "what was acknowledged before is on the disk"
		if s.syncEvery > 0 {
			kept = fmt.Sprintf("what was acknowledged before is on the disk, except for the last %v", s.syncEvery)
		}
		remedy := cmp.Or(s.remedy(cause), "repair the disk and start the program again")
		s.failure = &stopped{fmt.Errorf("%w: %s stopped: %w; %s: %s", kind, s.dir, cause, kept, remedy)}
		s.logger.Error("later: the store stopped", "dir", s.dir, "cause", cause)
		close(s.failed)
	})
	return s.failure
}

// stopped is the error of a store that stopped for good. To a caller that would retry it is as good as closed.
type stopped struct{ error }

func (s *stopped) Unwrap() error        { return s.error }
func (s *stopped) Is(target error) bool { return target == store.ErrClosed }

func (s *Store) hasFailed() bool { return isClosed(s.failed) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (s *Store) isStuck() bool { return isClosed(s.stuck) }

// guarded calls Pebble. It returns early if Pebble fails for good during the call, or has before.
func (s *Store) guarded(f func() error) error {
	if s.isStuck() {
		return s.failure
	}
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-s.stuck:
		return s.failure
	}
}

// isCorruption reports whether Pebble failed because of damage. Reading some damaged records, it fails with an error of
// the run-time system. It also calls a table damaged that cannot be opened.
func isCorruption(err error) bool {
	_, ok := errors.AsType[runtime.Error](err)
	return ok || pebble.IsCorruptionError(err) && !isNoAccess(err)
}

// formatError is an ErrCorrupt of one value that was read whole, by its checksum, and makes no sense. Other values are
// unaffected.
type formatError string

func (e formatError) Error() string { return fmt.Sprintf("%v: %s", store.ErrCorrupt, string(e)) }
func (e formatError) Unwrap() error { return store.ErrCorrupt }

// corrupt returns a formatError.
func corrupt(format string, args ...any) error { return formatError(fmt.Sprintf(format, args...)) }

func isFormatError(err error) bool {
	_, ok := errors.AsType[formatError](err)
	return ok
}

// unreadable adds the store to an error of reading, if there is one. If a file is damaged it adds advice; other files
// are unaffected.
func (s *Store) unreadable(err error) error {
	if isCorruption(err) {
		return fmt.Errorf("%w: reading %s: %w; %s", store.ErrCorrupt, s.dir, err, s.advice())
	}
	return s.readError(err)
}

// interruptEvery is after how many keys a long read looks whether it should stop.
const interruptEvery = 10_000

// interrupted returns why a long operation should stop, nil if it should not.
func (s *Store) interrupted(ctx context.Context) error {
	switch {
	case isClosed(s.closed):
		return store.ErrClosed
	case s.hasFailed():
		return s.failure
	}
	return context.Cause(ctx)
}

// isNoAccess reports whether this process could not reach a file, which says nothing about its content.
func isNoAccess(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// remedy returns advice for an error of the disk, or "" if there is none.
func (d *directory) remedy(err error) string {
	_, lost := errors.AsType[notOwned](err)
	switch {
	case lost:
		return "start the program again to open the directory that is at the path now, and stop it before you move " +
			"or replace its directory"
	case errors.Is(err, syscall.EROFS):
		return "mount the file system for writing"
	case errors.Is(err, fs.ErrPermission):
		me := os.Geteuid()
		if at, ok := errors.AsType[*fs.PathError](err); ok && at.Op == "mkdir" { // there is nothing yet to give away
			return fmt.Sprintf("give %s write access to %s, or use another directory", describeUser(me),
				filepath.Dir(at.Path))
		}
		return fmt.Sprintf("give %s access to all of it, with chown -R %s %s and chmod -R u+rwX %[3]s",
			describeUser(me), userName(me), d.dir)
	case errors.Is(err, syscall.EMFILE):
		return "this process has too many files open: raise its limit, with ulimit -n 65536 or LimitNOFILE=65536 of " +
			"systemd"
	case errors.Is(err, syscall.ENFILE):
		return "this machine has too many files open: raise its limit, with sysctl fs.file-max on Linux"
	case isFullError(err):
		return "free some space"
	}
	return ""
}

// advised adds advice to an error of the disk.
func (d *directory) advised(err error) error {
	if remedy := d.remedy(err); remedy != "" {
		return fmt.Errorf("%w; %s", err, remedy)
	}
	return err
}

// pebbleLogger logs Pebble's messages.
type pebbleLogger struct{ s *Store }

func (l pebbleLogger) Infof(format string, args ...any) {
	l.s.logger.Debug("pebble: " + fmt.Sprintf(format, args...))
}

func (l pebbleLogger) Errorf(format string, args ...any) {
	l.s.logger.Warn("pebble: " + fmt.Sprintf(format, args...))
}

// Fatalf is Pebble's way out: it expects the process to end, and would do harm if it went on, such as removing files
// that are obsolete by the manifest it could not write. So the store stops, and with it this goroutine of Pebble's,
// which holds its locks: nothing calls Pebble from then on.
func (l pebbleLogger) Fatalf(format string, args ...any) {
	l.s.fail(fmt.Errorf(format, args...))
	l.s.giveUp()
	select {}
}
