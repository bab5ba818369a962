package diskstore

import (
	"context"
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"
)

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
