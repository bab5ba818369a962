package diskstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

// Inspect checks the files of a store that is not open, or that cannot be opened because they are damaged. It changes
// nothing, and reports all damaged files where Open stops at the first. Damage is not an error but an issue. Errors:
// ErrUnavailable when the directory is open, as a HeldError, or cannot be read; ErrUnsupported when the directory does
// not contain a store; the cause of ctx.
func Inspect(ctx context.Context, dir string, report func(store.CheckResult)) error {
	return inspect(ctx, directory{dir, defaultFS}, report)
}

func inspect(ctx context.Context, d directory, report func(store.CheckResult)) error {
	return d.withFiles(report, func(files files) error {
		if err := d.checkTables(func() error { return context.Cause(ctx) }, files.tables, report); err != nil {
			return err
		}
		for i, log := range files.logs {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			f, err := d.checkLog(log, files.mayBeTorn(i))
			if err != nil {
				return err
			}
			report(f)
		}
		return nil
	})
}

// files is the tables and logs that a store consists of.
type files struct {
	tables    []string
	logs      []string
	wasClosed bool
}

// mayBeTorn reports whether a crash may have left a log without a clean end.
func (f *files) mayBeTorn(i int) bool { return !f.wasClosed && i == len(f.logs)-1 }

// withFiles calls f with the files of a store, while other processes cannot open it. It reports a damaged formatFile,
// and returns ErrUnsupported for a format of another version. Nothing in the directory is changed; a copy without
// lockFile and a directory that cannot be written to are not locked.
func (d *directory) withFiles(report func(store.CheckResult), f func(files) error) (err error) {
	names, err := d.fs.List(d.dir)
	if err != nil {
		return d.readError(err)
	}
	if !slices.Contains(names, formatFile) {
		return fmt.Errorf("%w: %s has no file %s and is no store of Later", store.ErrUnsupported, d.dir, formatFile)
	}
	if slices.Contains(names, lockFile) {
		lock, err := d.lock()
		if err == nil {
			defer lock.close()
		} else if !isPermission(err) {
			return err
		}
	}
	if _, err := d.readFormat(); errors.Is(err, store.ErrCorrupt) {
		report(store.CheckResult{Severity: store.SeverityError, Check: "format", Count: 1, Text: err.Error()})
	} else if err != nil {
		return err
	}
	all, err := d.liveFiles(names, report)
	if err != nil {
		return err
	}
	return f(all)
}

// liveFiles finds the files that belong to the store; others are left over, and hold keys that were removed since. If
// the manifest is damaged or a table is missing that is unknown: it reports the damage, and returns all files.
func (d *directory) liveFiles(names []string, report func(store.CheckResult)) (files, error) {
	f := files{wasClosed: !slices.Contains(names, holderFile)}
	var err error
	if f.logs, err = d.logFiles(); err != nil {
		return f, err
	}
	live := &readOnlyFS{FS: d.fs, logs: map[string]bool{}}
	tables, err := d.readTables(live)
	if isNoAccess(err) {
		return f, d.readError(err)
	}
	if err != nil {
		err = fmt.Errorf("%w: %s: %w; %s", store.ErrCorrupt, d.dir, err, d.advice())
	}
	if damage := cmp.Or(d.checkFileList(f.wasClosed), err); damage != nil {
		report(store.CheckResult{Severity: store.SeverityError, Check: "files", Count: 1, Text: damage.Error()})
		f.tables, err = d.filesLike(tableSuffix)
		return f, err
	}
	f.tables = tables
	f.logs = slices.DeleteFunc(f.logs, func(name string) bool { return !live.logs[name] })
	return f, nil
}

// openError returns the error of opening the store for Pebble's error: an ErrCorrupt if a file is damaged, with the
// name of a damaged log, which Pebble does not tell.
func (d *directory) openError(cause error) error {
	_, err := d.readTables(&readOnlyFS{FS: d.fs, logs: map[string]bool{}})
	errno, failed := errors.AsType[syscall.Errno](cause) // the disk, unless a file is missing
	if err == nil && !isCorruption(cause) || failed && !errors.Is(errno, fs.ErrNotExist) || isNoAccess(err) {
		return fmt.Errorf("%w: opening %s: %w", store.ErrUnavailable, d.dir, d.advised(cause))
	}
	logs, listErr := d.logFiles()
	for i := 0; i < len(logs) && err == nil && listErr == nil; i++ {
		var f store.CheckResult
		if f, err = d.checkLog(logs[i], i == len(logs)-1); f.Severity == store.SeverityError {
			cause = fmt.Errorf("%s: %w", f.Text, cause)
		}
	}
	if isNoAccess(err) {
		return err
	}
	return fmt.Errorf("%w: %s: %w; %s", store.ErrCorrupt, d.dir, cause, d.advice())
}

// readTables returns the tables that the manifest lists. It opens the database for reading, which checks that each is
// there with its size.
func (d *directory) readTables(fs *readOnlyFS) (tables []string, err error) {
	defer recovered(&err)
	desc, err := pebble.Peek(d.dir, fs)
	if err != nil || !desc.Exists {
		return nil, cmp.Or(err, errors.New("the manifest is missing"))
	}
	db, err := pebble.Open(d.dir, &pebble.Options{FS: fs, ReadOnly: true, ErrorIfNotExists: true,
		FormatMajorVersion: desc.FormatMajorVersion, Merger: merger, Logger: silentLogger{}})
	if err != nil {
		return nil, err
	}
	tables, err = liveTables(db)
	return tables, cmp.Or(err, db.Close())
}

// readOnlyFS is a file system that Pebble opens a store on to learn which files belong to it. Logs are empty, so that
// they need not be intact, and it notes which of them are read.
type readOnlyFS struct {
	vfs.FS
	logs map[string]bool
}

func (f *readOnlyFS) Open(path string, opts ...vfs.OpenOption) (vfs.File, error) {
	if name := f.PathBase(path); strings.HasSuffix(name, ".log") {
		f.logs[name] = true
		return vfs.NewMemFile(nil), nil
	}
	return f.FS.Open(path, opts...)
}

// Lock does nothing, because the directory is locked, or cannot be.
func (f *readOnlyFS) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

// silentLogger drops Pebble's log.
type silentLogger struct{}

func (silentLogger) Infof(string, ...any)              {}
func (silentLogger) Errorf(string, ...any)             {}
func (silentLogger) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

const tableSuffix = ".sst"

// liveTables returns the names of the tables of a database.
func liveTables(db *pebble.DB) (tables []string, err error) {
	levels, err := db.SSTables()
	for _, level := range levels {
		for _, t := range level {
			tables = append(tables, fmt.Sprintf("%06d%s", uint64(t.BackingSSTNum), tableSuffix))
		}
	}
	slices.Sort(tables)
	return slices.Compact(tables), err
}

// openTable opens a table by itself.
func (d *directory) openTable(name string) (r *sstable.Reader, err error) {
	defer recovered(&err)
	f, err := d.fs.Open(d.fs.PathJoin(d.dir, name))
	if err != nil {
		return nil, err
	}
	readable, err := sstable.NewSimpleReadable(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	o := &pebble.Options{Merger: merger, Logger: silentLogger{}}
	o.EnsureDefaults()
	if r, err = sstable.NewReader(context.Background(), readable, o.MakeReaderOptions()); err != nil {
		return nil, errors.Join(err, readable.Close())
	}
	return r, nil
}
