package diskstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/laterq/later/store"
)

// Recover copies all that can still be read of the damaged store in dir, where it changes nothing, to a new store in
// target, which must be missing or empty. It calls report for each lost part of a file, for each change that it had to
// make, and for each queue.
//
// It reads tables block by block and logs record by record, and continues past the damage. In a damaged log, the rest
// of the same block of 32 KiB is lost too. A table is lost whole when its index or footer cannot be read. All writes
// that it finds are done again in their order. So a message may come back that was acked, or in an older state, where
// the damage hit the newer write; a readable message is never lost. When the manifest is damaged or a table is missing,
// all files are read, also old ones that were left over. Then the indexes and counters are derived from the messages:
//
//   - messages that were leased are due again, and the attempt is not counted;
//   - a message that cannot be read goes to dead as unreadable, with its bytes;
//   - a message whose record cannot be read is due as it was sent, and its attempts begin anew;
//   - a queue whose settings are lost is paused;
//   - a queue whose name is lost is called recovered-N.
//
// It needs room for the new store and for a copy of all that it reads, which is in target until the end.
//
// Damage is no error. Errors: ErrInvalid for an unsuitable target; ErrUnavailable when dir is open, as a HeldError, or
// reading or writing fails; ErrUnsupported when dir is no store; the cause of ctx. After an error, remove target.
func Recover(ctx context.Context, dir, target string, report func(store.CheckResult)) error {
	return recoverStore(ctx, directory{dir, defaultFS}, directory{target, defaultFS}, report)
}

func recoverStore(ctx context.Context, from, to directory, report func(store.CheckResult)) error {
	if err := to.checkTarget(from.dir); err != nil {
		return err
	}
	err := from.withFiles(report, func(files files) error {
		s, err := Open(to.dir, withFS(to.fs))
		if err != nil {
			return err
		}
		r := &recovery{directory: from, ctx: ctx, report: report}
		return errors.Join(s.guarded(func() error { return r.copyTo(s, files) }), s.Close())
	})
	if err != nil {
		return err
	}
	s, err := Open(to.dir, withFS(to.fs), beforeLoad(func(s *Store) error { return s.rebuildAll(ctx, report) }))
	if err != nil {
		return err
	}
	err = s.Check(ctx, store.CheckOptions{}, func(f store.CheckResult) {
		if f.Severity == store.SeverityError || f.Check == "queue" {
			report(f)
		}
	})
	return errors.Join(err, s.Close())
}

// recovery copies the readable writes of a damaged store.
type recovery struct {
	directory
	ctx    context.Context
	report func(store.CheckResult)
	writes *writes
	failed error // a file cannot be reached, and may be intact
}

// copyTo copies the readable writes of files to a new store. Logs come first: where a table that was left over has the
// same write merged with others, that counts.
func (r *recovery) copyTo(s *Store, files files) (err error) {
	scratch := s.fs.PathJoin(s.dir, "recovering")
	if r.writes, err = newWrites(r.ctx, s, scratch); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.writes.db.Close(), s.fs.RemoveAll(scratch)) }()
	for i, log := range files.logs {
		r.readLog(log, files.mayBeTorn(i))
	}
	for _, name := range files.tables {
		r.part("table "+name, func() error { return r.readTable(name) })
	}
	if r.failed != nil {
		return r.readError(r.failed)
	}
	n, err := r.writes.replay()
	if err != nil {
		return err
	}
	r.report(store.CheckResult{Severity: store.SeverityOK, Check: "recover", Count: n,
		Text: fmt.Sprintf("writes recovered: %d, from %d tables and %d logs", n, len(files.tables), len(files.logs))})
	return nil
}

// part reads a part of a file, and reports it if that fails. It does nothing after the end of the context, which
// replay reports.
func (r *recovery) part(what string, read func() error) {
	if r.ctx.Err() != nil {
		return
	}
	err := func() (err error) {
		defer recovered(&err)
		return read()
	}()
	if err != nil {
		r.lost(what, err)
	}
}

// lost reports an unreadable part of a file.
func (r *recovery) lost(what string, err error) {
	if isNoAccess(err) {
		r.failed = err
		return
	}
	r.report(store.CheckResult{Severity: store.SeverityError, Check: "recover", Count: 1,
		Text: fmt.Sprintf("%s cannot be read: %v", what, err)})
}

// writes puts all writes of a damaged store in order, in a database of its own, because each of its tables and logs may
// hold writes of any time. Keys are the sequence number of a write and its key; values are its kind and its value. A
// write that is in several files is there once.
type writes struct {
	ctx   context.Context
	s     *Store // the new one, in which the database is
	db    *pebble.DB
	batch *pebble.Batch
	err   error // the first; nothing is added any more
}

func newWrites(ctx context.Context, s *Store, dir string) (*writes, error) {
	db, err := pebble.Open(dir, &pebble.Options{FS: s.reserve, DisableWAL: true, FormatMajorVersion: pebbleFormat,
		MemTableSize: s.memTable, Logger: pebbleLogger{s}})
	if err != nil {
		return nil, s.writeError(err)
	}
	return &writes{ctx: ctx, s: s, db: db, batch: db.NewBatch()}, nil
}

func (w *writes) add(sequence uint64, kind pebble.InternalKeyKind, key, value []byte) {
	if w.err != nil {
		return
	}
	key = append(binary.BigEndian.AppendUint64(nil, sequence), key...)
	w.err = w.batch.Set(key, append([]byte{byte(kind)}, value...), nil)
	if w.err == nil && w.batch.Len() >= maxGroupBytes {
		w.err = w.apply(w.db, w.batch, pebble.NoSync)
	}
}

// apply writes a batch, which is empty then.
func (w *writes) apply(db *pebble.DB, batch *pebble.Batch, mode *pebble.WriteOptions) error {
	if err := context.Cause(w.ctx); err != nil {
		return err
	}
	defer batch.Reset()
	if err := db.Apply(batch, mode); err != nil {
		return w.s.writeError(err)
	}
	return nil
}

// replay does all writes again in the new store, durably, and returns their number.
func (w *writes) replay() (n int64, err error) {
	if w.err == nil {
		w.err = w.apply(w.db, w.batch, pebble.NoSync)
	}
	if w.err != nil {
		return 0, w.err
	}
	r := &reader{s: w.s, src: w.db}
	it, err := r.iterate(nil, nil)
	if err != nil {
		return 0, err
	}
	batch := w.s.db.NewBatch()
	for valid := it.First(); valid && err == nil; valid = it.Next() {
		n++
		if err = replayOne(batch, it.Key()[8:], it.Value()); err == nil && batch.Len() >= maxGroupBytes {
			err = w.apply(w.s.db, batch, pebble.NoSync)
		}
	}
	if err = r.end(it, err); err == nil {
		err = w.apply(w.s.db, batch, pebble.Sync)
	}
	return n, err
}

func replayOne(batch *pebble.Batch, key, value []byte) error {
	switch kind, value := pebble.InternalKeyKind(value[0]), value[1:]; kind {
	case pebble.InternalKeyKindSet, pebble.InternalKeyKindSetWithDelete:
		return batch.Set(key, value, nil)
	case pebble.InternalKeyKindMerge:
		return batch.Merge(key, value, nil)
	case pebble.InternalKeyKindRangeDelete:
		return batch.DeleteRange(key, value, nil)
	default:
		return batch.Delete(key, nil)
	}
}
