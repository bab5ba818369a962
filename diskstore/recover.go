package diskstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/laterq/later/store"
)

// Recover reads all that can still be read of the damaged store in dir, where it changes nothing, into a new store in
// target, which must be missing or empty. Then it repairs the new store; see Examine. It calls report for each part of
// a file that is lost, for each issue that it repaired, and for what each queue has.
//
// It reads tables block by block and logs record by record, and continues past the damage. Of a damaged log, what
// follows in the same block of 32 KiB is lost too. A table is lost whole when its index or footer cannot be read. Of
// several versions of a key the newest that can be read wins. So a message may come back that was acked, or in an older
// state, where the damage hit what said so; one that can be read is never lost. When the manifest is damaged or a table
// is missing, all files are read, also those that were left over.
//
// It needs room for the new store and for a copy of all that it reads, which is in target until the end.
//
// Damage is no error. Errors: ErrInvalid for an unsuitable target; ErrUnavailable when dir is open, as a HeldError, or
// reading or writing fails; ErrUnsupported when dir is no store; the cause of ctx. After an error, remove target.
func Recover(ctx context.Context, dir, target string, report func(store.Finding)) error {
	return recoverStore(ctx, directory{dir, defaultFS}, directory{target, defaultFS}, report)
}

func recoverStore(ctx context.Context, from, to directory, report func(store.Finding)) (err error) {
	if err := to.checkTarget(from); err != nil {
		return err
	}
	release, err := from.hold()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	if err := from.checkFormat(report); err != nil {
		return err
	}
	s, err := Open(to.dir, withFS(to.fs))
	if err != nil {
		return err
	}
	r := &recovery{directory: from, ctx: ctx, report: report}
	err = s.guarded(func() error { return r.copyTo(s) })
	if err = errors.Join(err, s.Close()); err != nil {
		return err
	}
	return repairRecovered(ctx, to, report)
}

// checkTarget refuses a directory in which no new store can be created.
func (d *directory) checkTarget(from directory) error {
	within := func(a, b string) bool {
		rel, err := filepath.Rel(resolve(a), resolve(b))
		return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
	}
	if within(from.dir, d.dir) || within(d.dir, from.dir) {
		return store.Invalid("of the new directory %s and the damaged one %s, one is in the other: give one elsewhere",
			d.dir, from.dir)
	}
	names, err := d.fs.List(d.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return d.readError(err)
	case len(names) > 0:
		return store.Invalid("the new directory %s holds %s: give an empty one, or one that does not exist", d.dir, names[0])
	}
	return nil
}

// resolve returns the name of a directory without symbolic links, as far as it exists.
func resolve(dir string) string {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return dir
	}
	for rest, at := "", abs; ; rest, at = filepath.Join(filepath.Base(at), rest), filepath.Dir(at) {
		if real, err := filepath.EvalSymlinks(at); err == nil {
			return filepath.Join(real, rest)
		}
		if at == filepath.Dir(at) {
			return abs
		}
	}
}

// recovery copies what can be read of a damaged store.
type recovery struct {
	directory
	ctx      context.Context
	report   func(store.Finding)
	versions *versions
}

// scratchDirectory is where all versions of all keys are put in order, within the new store.
const scratchDirectory = "recovering"

// copyTo copies the newest readable version of each key into a new store.
func (r *recovery) copyTo(s *Store) (err error) {
	files, err := r.files(r.report)
	if err != nil {
		return err
	}
	scratch := s.fs.PathJoin(s.dir, scratchDirectory)
	if r.versions, err = newVersions(s, scratch); err != nil {
		return s.writeError(err)
	}
	defer func() { err = errors.Join(err, r.versions.close(), s.fs.RemoveAll(scratch)) }()
	for _, name := range files.tables {
		if err := r.readTable(name); err != nil {
			return err
		}
	}
	for i, log := range files.logs {
		if err := r.readLog(log, files.mayBeTorn(i)); err != nil {
			return err
		}
	}
	n, err := r.versions.writeNewest(s, r.interrupted)
	if err != nil {
		return err
	}
	r.report(store.Finding{Severity: store.SeverityOK, Check: "recover", Count: n,
		Text: fmt.Sprintf("keys recovered: %d, from %d tables and %d logs", n, len(files.tables), len(files.logs))})
	return nil
}

func (r *recovery) interrupted() error { return context.Cause(r.ctx) }

// lost reports what of a file cannot be read.
func (r *recovery) lost(what string, err error) {
	r.report(store.Finding{Severity: store.SeverityError, Check: "recover", Count: 1,
		Text: fmt.Sprintf("%s cannot be read: %v", what, err)})
}

// repairRecovered repairs the new store, and reports what each queue has.
func repairRecovered(ctx context.Context, d directory, report func(store.Finding)) error {
	s, err := Open(d.dir, withFS(d.fs))
	if err != nil {
		return err
	}
	err = s.Examine(ctx, store.Examination{Repair: true}, func(f store.Finding) {
		if f.Severity == store.SeverityError {
			report(f)
		}
	})
	for cursor, more := "", err == nil; more && err == nil; more = cursor != "" {
		var names []string
		if names, cursor, err = s.Queues(ctx, cursor); err == nil {
			err = reportQueues(ctx, s, names, report)
		}
	}
	return errors.Join(err, s.Close())
}

func reportQueues(ctx context.Context, s *Store, names []string, report func(store.Finding)) error {
	for _, name := range names {
		stats, err := s.Stats(ctx, name)
		if err != nil {
			return err
		}
		n := stats.Scheduled + stats.Ready + stats.Leased + stats.Dead
		report(store.Finding{Severity: store.SeverityOK, Check: "recover", Queue: name, Count: n,
			Text: fmt.Sprintf("messages recovered: %d (%d scheduled, %d ready, %d leased, %d dead)",
				n, stats.Scheduled, stats.Ready, stats.Leased, stats.Dead)})
	}
	return nil
}
