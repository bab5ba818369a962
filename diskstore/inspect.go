package diskstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	logrecord "github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"

	"github.com/laterq/later/store"
)

// Inspect checks the files of a store that is not open, or that cannot be opened because they are damaged. It changes
// nothing, and reports all damaged files where Open stops at the first. Damage is no error but a finding. Errors:
// ErrUnavailable when the directory is open, as a HeldError, or cannot be read; ErrUnsupported when it is no store; the
// cause of ctx.
func Inspect(ctx context.Context, dir string, report func(store.Finding)) error {
	return inspect(ctx, directory{dir, defaultFS}, report)
}

func inspect(ctx context.Context, d directory, report func(store.Finding)) (err error) {
	release, err := d.hold()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	if err := d.checkFormat(report); err != nil {
		return err
	}
	used, err := d.size()
	if err != nil {
		return err
	}
	report(d.roomFinding(used))
	files, err := d.files(report)
	if err != nil {
		return err
	}
	interrupted := func() error { return context.Cause(ctx) }
	if err := d.checkTables(interrupted, files.tables, report); err != nil {
		return err
	}
	for i, log := range files.logs {
		if err := interrupted(); err != nil {
			return err
		}
		report(d.logFinding(log, files.mayBeTorn(i)))
	}
	return nil
}

// checkFormat reports a damaged formatFile. It returns ErrUnsupported for a format of another version.
func (d *directory) checkFormat(report func(store.Finding)) error {
	_, err := d.readFormat()
	if err != nil && errors.Is(err, store.ErrCorrupt) {
		report(store.Finding{Severity: store.SeverityError, Check: "format", Count: 1, Text: err.Error()})
		return nil
	}
	return err
}

// hold keeps other processes from opening the directory, in which it changes nothing. A copy without lockFile and a
// directory that cannot be written to need no lock.
func (d *directory) hold() (release func() error, err error) {
	names, err := d.fs.List(d.dir)
	if err != nil {
		return nil, d.readError(err)
	}
	if !slices.Contains(names, formatFile) {
		return nil, fmt.Errorf("%w: %s has no file %s and is no store of Later", store.ErrUnsupported, d.dir, formatFile)
	}
	none := func() error { return nil }
	if !slices.Contains(names, lockFile) {
		return none, nil
	}
	lock, err := d.lock()
	switch {
	case err == nil:
		return lock.Close, nil
	case isPermission(err):
		return none, nil
	}
	return nil, err
}

// size returns about how many bytes the files take.
func (d *directory) size() (size uint64, err error) {
	names, err := d.fs.List(d.dir)
	if err != nil {
		return 0, d.readError(err)
	}
	for _, name := range names {
		info, err := d.fs.Stat(d.fs.PathJoin(d.dir, name))
		if err == nil && name != reserveName {
			size += uint64(info.Size())
		}
	}
	return size, nil
}

// roomFinding compares the free space with what a store of a size needs.
func (d *directory) roomFinding(used uint64) store.Finding {
	f := store.Finding{Severity: store.SeverityOK, Check: "room"}
	usage, err := d.fs.GetDiskUsage(d.dir)
	switch {
	case errors.Is(err, vfs.ErrUnsupported):
		f.Severity, f.Text = store.SeverityNote, "this file system does not report its free space"
	case err != nil:
		f.Severity, f.Text = store.SeverityWarning, fmt.Sprintf("the free space is unknown: %v", err)
	default:
		f.Count, f.Text = int64(usage.AvailBytes), fmt.Sprintf("the disk has %s left", formatBytes(usage.AvailBytes))
		if need := requiredRoom(used, usage); usage.AvailBytes < need {
			f.Severity = store.SeverityWarning
			f.Text += fmt.Sprintf(", and %s are kept for claims and acks, so sends are refused", formatBytes(need))
			f.Advice = "free some space"
		}
	}
	return f
}

// logFinding reports whether a log can be read to its end.
func (d *directory) logFinding(log wal.LogicalLog, mayBeTorn bool) store.Finding {
	_, path := log.SegmentLocation(0)
	name := d.fs.PathBase(path)
	f := store.Finding{Severity: store.SeverityOK, Check: "log", Text: name + " has a clean end"}
	at, err := readLog(log, nil)
	switch {
	case err == nil:
	case mayBeTorn && errors.Is(err, logrecord.ErrUnexpectedEOF):
		f.Severity = store.SeverityNote
		f.Text = fmt.Sprintf("a crash left the end of %s unfinished, from byte %d; nothing acknowledged was in it", name, at)
	default:
		f.Severity, f.Count, f.Advice = store.SeverityError, 1, d.recoverAdvice()
		f.Text = fmt.Sprintf("%s is damaged: it cannot be read from byte %d on: %v", name, at, err)
	}
	return f
}

// files is the tables and logs that a store consists of.
type files struct {
	tables    []string
	logs      []wal.LogicalLog
	wasClosed bool
}

// mayBeTorn reports whether a crash may have left a log without a clean end.
func (f *files) mayBeTorn(i int) bool { return !f.wasClosed && i == len(f.logs)-1 }

// files finds out which files belong to the store; others are left over, and hold what was removed since. It reports
// why nobody knows, and returns all files then.
func (d *directory) files(report func(store.Finding)) (f files, err error) {
	if _, err = d.readFile(holderFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return f, d.readError(err)
	}
	f.wasClosed = err != nil
	logs, err := wal.Scan(wal.Dir{FS: d.fs, Dirname: d.dir})
	if err != nil {
		return f, d.readError(err)
	}
	live := &readOnlyFS{FS: d.fs, logs: map[string]bool{}}
	tables, openErr := d.readTables(live)
	known := openErr == nil
	if damage := d.checkFileList(f.wasClosed); damage != nil {
		openErr, known = damage, false
	} else if !known {
		openErr = fmt.Errorf("%w: %s: %w; %s", store.ErrCorrupt, d.dir, openErr, d.advice())
	}
	if known {
		f.tables = tables
		f.logs = slices.DeleteFunc(logs, func(log wal.LogicalLog) bool {
			_, path := log.SegmentLocation(0)
			return !live.logs[d.fs.PathBase(path)]
		})
		return f, nil
	}
	report(store.Finding{Severity: store.SeverityError, Check: "files", Count: 1, Text: openErr.Error()})
	f.logs = logs
	names, err := d.fs.List(d.dir)
	if err != nil {
		return f, d.readError(err)
	}
	for _, name := range names {
		if filepath.Ext(name) == tableSuffix {
			f.tables = append(f.tables, name)
		}
	}
	slices.Sort(f.tables)
	return f, nil
}

// openError returns the error of opening the store for what Pebble failed with: an ErrCorrupt if a file is damaged.
func (d *directory) openError(cause error) error {
	_, err := d.readTables(&readOnlyFS{FS: d.fs, logs: map[string]bool{}})
	if err == nil && !isCorruption(cause) || isDiskError(cause) {
		return fmt.Errorf("%w: opening %s: %w", store.ErrUnavailable, d.dir, cause)
	}
	logs, scanErr := wal.Scan(wal.Dir{FS: d.fs, Dirname: d.dir})
	for i := 0; i < len(logs) && err == nil && scanErr == nil; i++ {
		if f := d.logFinding(logs[i], i == len(logs)-1); f.Severity == store.SeverityError {
			cause = fmt.Errorf("%s: %w", f.Text, cause)
		}
	}
	return fmt.Errorf("%w: %s: %w; %s", store.ErrCorrupt, d.dir, cause, d.advice())
}

// isDiskError reports whether the disk failed. A missing file is damage.
func isDiskError(err error) bool {
	_, ok := errors.AsType[syscall.Errno](err)
	return ok && !errors.Is(err, fs.ErrNotExist)
}

// readTables returns the tables that the manifest lists.
func (d *directory) readTables(fs *readOnlyFS) (tables []string, err error) {
	defer recovered(&err)
	desc, err := pebble.Peek(d.dir, fs)
	if err != nil || !desc.Exists {
		return nil, cmp.Or(err, errors.New("the manifest is missing"))
	}
	db, err := pebble.Open(d.dir, &pebble.Options{FS: fs, ReadOnly: true, ErrorIfNotExists: true,
		FormatMajorVersion: desc.FormatMajorVersion, Logger: silentLogger{}})
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

// silentLogger drops what Pebble logs.
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
func (d *directory) openTable(name string) (*sstable.Reader, error) {
	f, err := d.fs.Open(d.fs.PathJoin(d.dir, name))
	if err != nil {
		return nil, err
	}
	readable, err := sstable.NewSimpleReadable(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	r, err := sstable.NewReader(context.Background(), readable, tableOptions)
	if err != nil {
		return nil, errors.Join(err, readable.Close())
	}
	return r, nil
}

var tableOptions = func() sstable.ReaderOptions {
	o := &pebble.Options{Logger: silentLogger{}}
	o.EnsureDefaults()
	return o.MakeReaderOptions()
}()
