//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package diskstore

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

// replaced opens a store, with a message, and moves its directory away. It returns the path, where nothing is left.
func replaced(t *testing.T) (s *Store, dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "store")
	s, err := Open(dir)
	try(t, err)
	t.Cleanup(func() { s.Close() })
	send(t, s, "m")
	try(t, os.Rename(dir, dir+".away"))
	return s, dir
}

func TestDirectoryStaysLockedWithoutItsLockFile(t *testing.T) {
	d := directory{t.TempDir(), defaultFS}
	first, err := d.lock()
	try(t, err)
	try(t, os.Remove(filepath.Join(d.dir, lockFile)))
	second, err := d.lock()
	if _, held := errors.AsType[*HeldError](err); !held {
		t.Errorf("a second lock gives %v, want a HeldError", err)
	}
	if second != nil {
		second.close()
	}
	try(t, first.close())
	if second, err = d.lock(); err != nil {
		t.Fatalf("the lock is held after it was given up: %v", err)
	}
	try(t, second.close())
}

func TestClaimInADirectoryThatWasReplacedIsRefused(t *testing.T) {
	s, dir := replaced(t)
	try(t, os.Mkdir(dir, 0o700))
	c, err := s.Claim(t.Context(), "q", store.ClaimRequest{Max: 1, Lease: time.Minute})
	if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, store.ErrClosed) {
		t.Errorf("claim gives %v, %v, want that the store stopped", c, err)
	}
}

func TestCloseLeavesTheFilesOfTheNextOwner(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	log := slog.New(slog.DiscardHandler)
	first, err := openShared(t.Context(), dir, log)
	try(t, err)
	try(t, os.Rename(dir, dir+".away"))
	second, err := openShared(t.Context(), dir, log)
	try(t, err)
	defer second.Close()
	try(t, first.Close())
	for _, name := range []string{holderFile, socketFile} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Errorf("the next owner lost its %s: %v", name, err)
		}
	}
}

func TestStoreChangesNoFilesOfTheNextOwner(t *testing.T) {
	s, dir := replaced(t)
	try(t, os.Mkdir(dir, 0o700))
	name := filepath.Join(dir, "file")
	try(t, os.WriteFile(name, nil, 0o600))
	for what, err := range map[string]error{
		"create": func() error { _, err := s.reserve.Create(filepath.Join(dir, "new"), forFlush); return err }(),
		"reuse":  func() error { _, err := s.reserve.ReuseForWrite(name, name+".new", forLog); return err }(),
		"link":   s.reserve.Link(name, name+".new"),
		"rename": s.reserve.Rename(name, name+".new"),
		"remove": s.reserve.Remove(name),
	} {
		if !errors.Is(err, store.ErrClosed) {
			t.Errorf("%s gives %v, want that the store stopped", what, err)
		}
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 || names[0].Name() != "file" {
		t.Errorf("the new directory has %v, %v", names, err)
	}
}

func TestStoreThatStoppedWritesNothingMore(t *testing.T) {
	fs := vfs.NewMem()
	s := openOn(t, fs, newManualClock())
	f, err := s.reserve.Create("later/file", forFlush)
	try(t, err)
	if _, err := f.Write([]byte("before")); err != nil {
		t.Fatal(err)
	}
	s.fail(errors.New("the disk is on fire"))
	s.guards.Wait() // it gives the directory up
	if n, err := f.Write([]byte("after")); n != 0 || !errors.Is(err, store.ErrClosed) {
		t.Errorf("a write gives %d, %v, want ErrClosed", n, err)
	}
	try(t, f.Close())
	next := openOn(t, fs, newManualClock()) // without a Close of the first
	if got := string(readAll(t, fs, "later/file")); got != "before" {
		t.Errorf("the file has %q", got)
	}
	try(t, next.Close())
	try(t, s.Close())
}
