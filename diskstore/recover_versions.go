package diskstore

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// versions puts all versions of all keys in order, in a database of its own: a damaged store's tables and logs are read
// one by one, and each may hold some version of any key. The key of a version is the length of the user key, the user
// key, and the inverted sequence number, so that a scan meets the versions of a key one after the other, the newest
// first. The value is the kind of the version and its value.
type versions struct {
	db     *pebble.DB
	batch  *pebble.Batch
	ranges []rangeDeletion // few: of queues that were deleted or repaired
	key    []byte          // scratch
	value  []byte
}

type rangeDeletion struct {
	from, to []byte
	sequence uint64
}

func newVersions(s *Store, dir string) (*versions, error) {
	db, err := pebble.Open(dir, &pebble.Options{FS: s.reserve, DisableWAL: true, FormatMajorVersion: pebbleFormat,
		MemTableSize: s.memTable, Logger: pebbleLogger{s}})
	if err != nil {
		return nil, err
	}
	return &versions{db: db, batch: db.NewBatch()}, nil
}

func (v *versions) close() error { return v.db.Close() }

// add adds a version of a key.
func (v *versions) add(key []byte, sequence uint64, kind pebble.InternalKeyKind, value []byte) error {
	v.key = binary.BigEndian.AppendUint16(v.key[:0], uint16(len(key)))
	v.key = binary.BigEndian.AppendUint64(append(v.key, key...), ^sequence)
	v.value = append(append(v.value[:0], byte(kind)), value...)
	if err := v.batch.Set(v.key, v.value, nil); err != nil || v.batch.Len() < maxGroupBytes {
		return err
	}
	return v.flush()
}

func (v *versions) flush() error {
	err := v.db.Apply(v.batch, pebble.NoSync)
	v.batch.Reset()
	return err
}

// removeRange removes all older versions of the keys in [from, to).
func (v *versions) removeRange(from, to []byte, sequence uint64) {
	v.ranges = append(v.ranges, rangeDeletion{slices.Clone(from), slices.Clone(to), sequence})
}

func (v *versions) isRemoved(key []byte, sequence uint64) bool {
	return slices.ContainsFunc(v.ranges, func(r rangeDeletion) bool {
		return r.sequence > sequence && bytes.Compare(r.from, key) <= 0 && bytes.Compare(key, r.to) < 0
	})
}

// writeNewest writes the newest version of each key to a new store, durably, and returns the number of keys.
func (v *versions) writeNewest(s *Store, interrupted func() error) (n int64, err error) {
	if err := v.flush(); err != nil {
		return 0, err
	}
	it, err := v.db.NewIter(nil)
	if err != nil {
		return 0, err
	}
	w := &survivors{s: s, batch: s.db.NewBatch()}
	for valid := it.First(); valid && err == nil; valid = it.Next() {
		if err = interrupted(); err != nil {
			break
		}
		k, value := it.Key(), it.Value()
		key, sequence := k[2:len(k)-8], ^binary.BigEndian.Uint64(k[len(k)-8:])
		if !w.begun || !bytes.Equal(key, w.key) {
			err = w.begin(key)
		}
		switch kind := pebble.InternalKeyKind(value[0]); {
		case w.ended:
		case v.isRemoved(key, sequence):
			w.ended = true
		case kind == pebble.InternalKeyKindSet, kind == pebble.InternalKeyKindSetWithDelete:
			w.operands, w.ended = append(w.operands, slices.Clone(value[1:])), true
		case kind == pebble.InternalKeyKindMerge:
			w.operands = append(w.operands, slices.Clone(value[1:]))
		default:
			w.ended = true
		}
	}
	if closed := it.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = w.begin(nil)
	}
	if err == nil {
		err = w.flush(pebble.Sync)
	}
	return w.n, err
}

// survivors writes the keys that have a value.
type survivors struct {
	s        *Store
	batch    *pebble.Batch
	n        int64
	begun    bool
	key      []byte
	operands [][]byte // of merges, the newest first, and at the end what they are merged with
	ended    bool     // older versions do not count
}

// begin writes the key whose versions are over, and begins another.
func (w *survivors) begin(key []byte) error {
	if len(w.operands) > 0 {
		slices.Reverse(w.operands)
		w.n++
		if err := w.batch.Set(w.key, bytes.Join(w.operands, nil), nil); err != nil {
			return err
		}
	}
	w.begun, w.key, w.operands, w.ended = true, append(w.key[:0], key...), w.operands[:0], false
	if w.batch.Len() < maxGroupBytes {
		return nil
	}
	return w.flush(pebble.NoSync)
}

func (w *survivors) flush(mode *pebble.WriteOptions) error {
	if err := w.s.db.Apply(w.batch, mode); err != nil {
		return w.s.writeError(err)
	}
	w.batch.Reset()
	return nil
}
