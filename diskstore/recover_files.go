package diskstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/batchrepr"
	"github.com/cockroachdb/pebble/v2/objstorage"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/sstable/block/blockkind"
	"github.com/cockroachdb/pebble/v2/sstable/colblk"
)

// readTable reads all writes in a table, block by block.
func (r *recovery) readTable(name string) error {
	t, err := r.openTable(name)
	if err != nil {
		return err
	}
	defer t.Close()
	r.part(name+": its range deletions", func() error { return r.readRangeDeletions(t) })
	return eachBlock(t, func(h block.Handle, from, to []byte) {
		part := fmt.Sprintf("%s: the block at byte %d", name, h.Offset)
		r.part(part, func() error { return r.readWrites(t, h, from, to) })
	})
}

// eachBlock calls f for each data block of a table with the range [from, to) of the keys that are in it.
func eachBlock(t *sstable.Reader, f func(h block.Handle, from, to []byte)) error {
	layout, err := t.Layout()
	if err != nil {
		return err
	}
	var from []byte
	for _, h := range layout.Index {
		index, err := readBlock(t, h, blockkind.SSTableIndex)
		if err != nil {
			return err
		}
		var it colblk.IndexIter
		if err := it.Init(t.Comparer, index, block.NoTransforms); err != nil {
			return err
		}
		for valid := it.First(); valid; valid = it.Next() {
			data, err := it.BlockHandleWithProperties()
			if err != nil {
				return err
			}
			to := append(slices.Clone(it.Separator()), 0) // not before it is the last key of the block
			f(data.Handle, from, to)
			from = to
		}
	}
	return nil
}

// readBlock returns a block after comparing it with its checksum.
func readBlock(t *sstable.Reader, h block.Handle, kind block.Kind) ([]byte, error) {
	handle := objstorage.MakeNoopReadHandle(t.BlockReader().Readable())
	b, err := t.BlockReader().Read(context.Background(), block.NoReadEnv, &handle, h, kind,
		func(*block.Metadata, []byte) error { return nil })
	if err != nil {
		return nil, err
	}
	defer b.Release()
	return slices.Clone(b.BlockData()), nil
}

// readWrites reads the writes to the keys in [from, to), which are in a data block.
func (r *recovery) readWrites(t *sstable.Reader, h block.Handle, from, to []byte) error {
	if _, err := readBlock(t, h, blockkind.SSTableData); err != nil {
		return err
	}
	it, err := t.NewIter(sstable.NoTransforms, nil, to, sstable.AssertNoBlobHandles)
	if err != nil {
		return err
	}
	defer it.Close() // an error is of the next block, into which it looked
	var failed error
	for kv := it.SeekGE(from, 0); kv != nil; kv = it.Next() {
		value, _, err := kv.Value(nil) // which may be in yet another block
		if err != nil {
			failed = err
			continue
		}
		r.writes.add(uint64(kv.SeqNum()), kv.Kind(), kv.K.UserKey, value)
	}
	return failed
}

func (r *recovery) readRangeDeletions(t *sstable.Reader) error {
	it, err := t.NewRawRangeDelIter(context.Background(), sstable.NoFragmentTransforms, sstable.NoReadEnv)
	if it == nil || err != nil {
		return err
	}
	defer it.Close()
	span, err := it.First()
	for ; span != nil && err == nil; span, err = it.Next() {
		for _, key := range span.Keys {
			r.writes.add(uint64(key.SeqNum()), pebble.InternalKeyKindRangeDelete, span.Start, span.End)
		}
	}
	return err
}

// readLog reads all batches of a log. Its end may be torn where a crash left it.
func (r *recovery) readLog(name string, mayBeTorn bool) {
	lost, err := r.directory.readLog(name, func(at int64, batch []byte) {
		r.part(fmt.Sprintf("%s: the record at byte %d", name, at), func() error { return r.readBatch(batch) })
	})
	if err != nil {
		r.lost("log "+name, err)
	}
	for _, p := range lost {
		if !(mayBeTorn && p.torn) {
			r.lost(fmt.Sprintf("%s: from byte %d to %d", name, p.from, p.to), p.cause)
		}
	}
}

// readBatch reads the writes in a batch, which have consecutive sequence numbers.
func (r *recovery) readBatch(b []byte) error {
	header, ok := batchrepr.ReadHeader(b)
	if !ok {
		return corrupt("it has %d bytes", len(b))
	}
	sequence := uint64(header.SeqNum)
	for entries := batchrepr.Read(b); ; {
		kind, key, value, ok, err := entries.Next()
		if !ok {
			return err
		}
		if kind != pebble.InternalKeyKindLogData {
			r.writes.add(sequence, kind, key, value)
			sequence++
		}
	}
}
