//go:build unix

package diskstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/laterq/later/store"
)

// unreachable returns a file system that fails to open files with a suffix.
func unreachable(fs vfs.FS, suffix string, cause error) vfs.FS {
	return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpOpen && strings.HasSuffix(op.Path, suffix) {
			return &os.PathError{Op: "open", Path: op.Path, Err: cause}
		}
		return nil
	}))
}

// wantRemedy checks the error for a file that cannot be opened: it does not report damage, and it names a remedy.
func wantRemedy(t *testing.T, what string, err error, remedy string) {
	t.Helper()
	if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrCorrupt) ||
		!strings.Contains(fmt.Sprint(err), remedy) || strings.Contains(fmt.Sprint(err), "restore a backup") {
		t.Errorf("%s gives %v, want ErrUnavailable and %q", what, err, remedy)
	}
}

// lastManifest returns the name of the current manifest.
func lastManifest(t *testing.T, fs vfs.FS) string {
	t.Helper()
	names, err := fs.List("later")
	try(t, err)
	for _, name := range names {
		if _, number, ok := strings.Cut(name, ".MANIFEST-"); ok {
			return "MANIFEST-" + number
		}
	}
	t.Fatal("there is no manifest")
	return ""
}

func TestFileThatCannotBeReachedIsNotDamaged(t *testing.T) {
	h := newHarmed(t)
	table, log := h.fs.PathBase(h.tables[0]), h.fs.PathBase(h.log)
	for cause, remedy := range map[error]string{
		syscall.EACCES: "chown -R", syscall.EMFILE: "ulimit -n", syscall.ENFILE: "fs.file-max",
	} {
		for _, name := range []string{formatFile, lastManifest(t, h.fs), table, log} {
			what := fmt.Sprintf("%v of %s: ", cause, name)
			fs := unreachable(same(h.fs), name, cause)
			noIssue := func(f store.CheckResult) {
				if f.Severity == store.SeverityError {
					t.Errorf("%s it is reported that %s", what, f.Text)
				}
			}
			s, err := Open("later", withFS(fs), WithClock(h.clock))
			if err == nil { // a table is opened when it is read
				err = s.Check(t.Context(), store.CheckOptions{}, noIssue)
				s.Close()
			}
			wantRemedy(t, what+"open", err, remedy)
			wantRemedy(t, what+"inspect", inspect(t.Context(), directory{"later", fs}, noIssue), remedy)
			err = recoverStore(t.Context(), directory{"later", fs}, directory{"new", fs}, noIssue)
			wantRemedy(t, what+"recover", err, remedy)
		}
	}
}

// Pebble calls a table damaged that it cannot open.
func TestTableThatCannotBeOpenedIsNotDamaged(t *testing.T) {
	s := openOn(t, vfs.NewMem(), newManualClock())
	defer s.Close()
	cause := fmt.Errorf("%w: %w", pebble.ErrCorruption, &os.PathError{Op: "open", Path: "000014.sst", Err: syscall.EMFILE})
	wantRemedy(t, "a call", s.unreadable(cause), "ulimit -n")
}

func TestStoreThatStopsSaysWhatToDo(t *testing.T) {
	for cause, remedy := range map[error]string{
		syscall.EMFILE: "ulimit -n", syscall.EROFS: "mount", errors.New("bad"): "repair the disk and start the program again",
	} {
		s := openOn(t, vfs.NewMem(), newManualClock())
		wantRemedy(t, "a call", s.fail(cause), remedy)
		s.Close()
	}
}

func TestBackupThatMayNotWriteSaysWhatToDo(t *testing.T) {
	refused := &os.PathError{Op: "mkdir", Path: "backups/1", Err: syscall.EACCES}
	wantRemedy(t, "backup", backupFailed("backups/1", refused), "write access to backups,")
}

func TestDirectoryThatMayNotBeCreatedSaysWhatToDo(t *testing.T) {
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpMkdirAll {
			return &os.PathError{Op: "mkdir", Path: "/data/later", Err: syscall.EACCES}
		}
		return nil
	}))
	_, err := Open("/data/later", withFS(fs))
	wantRemedy(t, "open", err, "write access to /data, or use another directory")
}

func TestFilesAreNotCreatedAmongThoseOfAnotherUser(t *testing.T) {
	if os.Geteuid() != root {
		t.Skip("only root can give a file away")
	}
	const other = 54321
	above := t.TempDir()
	dir := filepath.Join(above, "store")
	s, err := Open(dir)
	try(t, err)
	send(t, s, "m")
	try(t, s.Close())
	refused := func(what, dir string) {
		t.Helper()
		before, _ := os.ReadDir(dir)
		s, err := Open(dir)
		if err == nil {
			s.Close()
		}
		after, _ := os.ReadDir(dir)
		if !errors.Is(err, store.ErrMisconfigured) || !strings.Contains(fmt.Sprint(err), "belongs to user 54321") ||
			!strings.Contains(fmt.Sprint(err), "sudo -u '#54321'") || len(after) != len(before) {
			t.Errorf("open of %s gives %v and leaves %v, want it refused and nothing changed", what, err, after)
		}
	}
	try(t, os.Chown(filepath.Join(dir, formatFile), other, -1))
	refused("another user's store in a directory of root's", dir)
	try(t, os.Chown(filepath.Join(dir, formatFile), root, -1))
	try(t, os.Chown(dir, other, -1))
	refused("a directory of another user", dir)
	refused("a new directory in one of another user", filepath.Join(dir, "new", "store"))
	try(t, os.Chown(dir, root, -1))
	s, err = Open(dir)
	try(t, err)
	try(t, s.Close())
}
