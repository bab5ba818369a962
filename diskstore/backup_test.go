package diskstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/laterq/later/store"
)

// isPartial reports whether a path is in the directory of an unfinished backup.
func isPartial(path string) bool { return strings.Contains(path, partialSuffix) }

// noBackup fails the test when an unsuccessful backup left something behind.
func noBackup(t *testing.T, fs vfs.FS, dir string) {
	t.Helper()
	for _, path := range []string{dir, dir + partialSuffix} {
		if _, err := fs.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
}

func TestBackupMadeUnderLoadHasAllThatWasAcknowledgedBefore(t *testing.T) {
	const workers, backups = 4, 5
	clock, dir := newManualClock(), t.TempDir()
	// logs are used again
	s, err := Open(filepath.Join(dir, "store"), withMemTable(256<<10), withReserve(0), WithClock(clock))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	stop := make(chan struct{})
	var ledgers []*ledger
	var group sync.WaitGroup
	for w := range workers {
		l := newLedger()
		ledgers = append(ledgers, l)
		group.Go(func() { l.work(t, s, fmt.Sprint("q", w), stop) })
	}
	var before [backups][]*ledger
	for i := range backups {
		for range 50 { // calls on one more queue, which time the backups
			if err := s.SetPaused(t.Context(), "beside", true); err != nil {
				t.Fatal(err)
			}
		}
		for _, l := range ledgers {
			before[i] = append(before[i], l.copied())
		}
		if err := s.Backup(t.Context(), filepath.Join(dir, fmt.Sprint("backup", i))); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	group.Wait()
	if found := issuesOf(checked(t, s)); len(found) > 0 {
		t.Errorf("the source has %v", found)
	}
	for w, l := range ledgers {
		l.check(t, s, fmt.Sprint("q", w), l)
	}
	for i := range backups {
		path := filepath.Join(dir, fmt.Sprint("backup", i))
		if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("the backup has the mode %v, %v", info.Mode(), err)
		}
		b, err := Open(path, WithClock(clock), withReserve(0))
		if err != nil {
			t.Fatal(err)
		}
		if found := issuesOf(checked(t, b)); len(found) > 0 {
			t.Errorf("backup %d has %v", i, found)
		}
		for w, l := range before[i] {
			l.check(t, b, fmt.Sprint("q", w), ledgers[w])
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	noBackup(t, vfs.Default, filepath.Join(dir, "none"))
}

func TestBackupIsDurableAndApartFromItsStore(t *testing.T) {
	fs, clock := vfs.NewCrashableMem(), newManualClock()
	s := openOn(t, fs, clock, SyncEvery(time.Hour))
	defer s.Close()
	send(t, s, "a")
	if err := s.Backup(t.Context(), "backups/first"); err != nil {
		t.Fatal(err)
	}
	send(t, s, "b")
	after := fs.CrashClone(vfs.CrashCloneCfg{})
	b, err := Open("backups/first", withFS(after), WithClock(clock))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if got := listed(t, b, "q", store.StateReady); len(got) != 1 || got[0] != "a" {
		t.Errorf("the backup has %v, want what was sent before it", got)
	}
}

func TestBackupGoesToANewPlaceOnly(t *testing.T) {
	root := t.TempDir()
	dir, empty, full := filepath.Join(root, "store"), filepath.Join(root, "empty"), filepath.Join(root, "full")
	if err := errors.Join(os.Mkdir(empty, 0o700), os.MkdirAll(filepath.Join(full, "x"), 0o700),
		os.Mkdir(filepath.Join(root, "again"+partialSuffix), 0o700), os.Symlink(root,
			filepath.Join(root, "link"))); err != nil {
		t.Fatal(err)
	}
	s, err := Open(dir, withReserve(0))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	send(t, s, "a")
	for path, want := range map[string]string{
		"":                                     "name one",
		dir:                                    "in each other",
		filepath.Join(dir, "backup"):           "in each other",
		filepath.Join(root, "link/store/x"):    "in each other",
		root:                                   "in each other",
		full:                                   "holds x: give an empty one",
		filepath.Join(root, "again"):           "remove it",
		filepath.Join(full, "..", "link/full"): "holds x",
	} {
		err := s.Backup(t.Context(), path)
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", path, err, want)
		}
	}
	for _, path := range []string{empty, filepath.Join(root, "a/b/c")} {
		if err := s.Backup(t.Context(), path); err != nil {
			t.Fatal(err)
		}
		b, err := Open(path, withReserve(0))
		if err != nil {
			t.Fatal(err)
		}
		if got := listed(t, b, "q", store.StateReady); len(got) != 1 {
			t.Errorf("%s has %v", path, got)
		}
		b.Close()
	}
}

func TestBackupThatFailsLeavesNothing(t *testing.T) {
	broken := errors.New("broken")
	var fails atomic.Int64    // the backup's operation at which the disk fails, counted down
	var verifying atomic.Bool // set when TestBackupOfALogThatIsWrittenToIsMadeAgain makes the copy fail
	disk := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if strings.Contains(op.Path, holderFile) {
			verifying.Store(true)
		}
		cleans := op.Kind == errorfs.OpRemoveAll || op.Kind == errorfs.OpRemove || op.Kind == errorfs.OpStat
		last := op.Kind == errorfs.OpRename && strings.HasSuffix(op.Path, "store")
		if isPartial(op.Path) && !cleans && (last || !verifying.Load()) && fails.Add(-1) == 0 {
			return broken
		}
		return nil
	}))
	s := openOn(t, disk, newManualClock())
	defer s.Close()
	send(t, s, "a", "b")
	failed := 0
	for at := int64(1); ; at++ {
		fails.Store(at)
		verifying.Store(false)
		err := s.Backup(t.Context(), "backup")
		if err == nil && fails.Load() > 0 {
			break // there are no more
		}
		if err == nil { // as with a file that Pebble looks for and that may be missing
			if b, err := Open("backup", withFS(disk)); err != nil {
				t.Errorf("operation %d: %v", at, err)
			} else {
				b.Close()
			}
			if err := disk.RemoveAll("backup"); err != nil {
				t.Fatal(err)
			}
			continue
		}
		failed++
		if !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("operation %d: %v", at, err)
		}
		noBackup(t, disk, "backup")
	}
	if failed < 20 {
		t.Errorf("only %d operations failed", failed)
	}
	send(t, s, "c")
	if got := listed(t, s, "q", store.StateReady); len(got) != 3 {
		t.Errorf("the source has %v", got)
	}
}

func TestBackupThatIsCancelledLeavesNothing(t *testing.T) {
	var cancel context.CancelCauseFunc
	disk := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if isPartial(op.Path) && cancel != nil {
			cancel(errStop)
		}
		return nil
	}))
	s := openOn(t, disk, newManualClock())
	defer s.Close()
	send(t, s, "a")
	var ctx context.Context
	ctx, cancel = context.WithCancelCause(t.Context())
	defer cancel(nil)
	if err := s.Backup(ctx, "backup"); !errors.Is(err, errStop) {
		t.Errorf("got %v, want the cause", err)
	}
	noBackup(t, disk, "backup")
	if err := s.Backup(ctx, "backup"); !errors.Is(err, errStop) {
		t.Errorf("got %v, want the cause", err)
	}
	s.Close()
	if err := s.Backup(t.Context(), "backup"); !errors.Is(err, store.ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
}

var errStop = errors.New("stop")

func TestBackupNeedsRoom(t *testing.T) {
	disk := &smallDisk{FS: vfs.NewMem()}
	disk.left.Store(minRoom)
	s := openOn(t, disk, newManualClock())
	defer s.Close()
	send(t, s, "a")
	disk.left.Store(backupMargin - 1)
	if err := s.Backup(t.Context(), "backup"); !errors.Is(err, store.ErrFull) ||
		!strings.Contains(err.Error(), "another disk") {
		t.Errorf("got %v, want ErrFull", err)
	}
	noBackup(t, disk, "backup")
}

// torn damages the first logs that are copied into a backup, like writes during the copy can.
type torn struct {
	vfs.FS
	left int
}

func (d *torn) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.Create(name, category)
	_, missing := d.FS.Stat(d.FS.PathJoin("later", d.FS.PathBase(name))) // then it is not a copy
	if err == nil && missing == nil && d.left > 0 && isPartial(name) && strings.HasSuffix(name, ".log") {
		d.left--
		return &tornFile{f}, nil
	}
	return f, err
}

type tornFile struct{ vfs.File }

func (f *tornFile) Write(p []byte) (int, error) {
	p = append([]byte{}, p...)
	for i := range min(len(p), 10) {
		p[len(p)/3+i] ^= 0xff
	}
	return f.File.Write(p)
}

func TestBackupOfALogThatIsWrittenToIsMadeAgain(t *testing.T) {
	for left := range backupTries + 2 {
		disk := &torn{FS: vfs.NewMem()}
		clock := newManualClock()
		s := openOn(t, disk, clock)
		for i := range 100 {
			send(t, s, fmt.Sprintf("m%02d", i))
		}
		disk.left = left
		err := s.Backup(t.Context(), "backup")
		if left > backupTries {
			if !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("got %v, want ErrCorrupt", err)
			}
			noBackup(t, disk, "backup")
		} else if err != nil {
			t.Error(err)
		} else {
			b, err := Open("backup", withFS(disk), WithClock(clock))
			if err != nil {
				t.Fatal(err)
			}
			if got := listed(t, b, "q", store.StateReady); len(got) != 100 {
				t.Errorf("the backup has %d messages", len(got))
			}
			b.Close()
		}
		s.Close()
	}
}
