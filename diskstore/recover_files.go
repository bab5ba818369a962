package diskstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/batchrepr"
	"github.com/cockroachdb/pebble/v2/objstorage"
	logrecord "github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/sstable/block/blockkind"
	"github.com/cockroachdb/pebble/v2/sstable/colblk"
	"github.com/cockroachdb/pebble/v2/wal"
)

// abortError is an error that ends the recovery, as opposed to that of a damaged file.
type abortError struct{ error }

func (e abortError) Unwrap() error { return e.error }

// readTable reads all versions in a table, block by block.
func (r *recovery) readTable(name string) error {
	if err := r.interrupted(); err != nil {
		return err
	}
	t, err := r.openTableSafely(name)
	if err != nil {
		r.lost("table "+name, err)
		return nil
	}
	defer t.Close()
	if err := r.part(name+": its range deletions", func() error { return r.readRangeDeletions(t) }); err != nil {
		return err
	}
	return r.part("table "+name, func() error { return r.readBlocks(name, t) })
}

// readBlocks reads all blocks that are intact. An iterator that failed does not continue, so there is one for each run
// of intact blocks.
func (r *recovery) readBlocks(name string, t *sstable.Reader) error {
	layout, err := t.Layout()
	if err != nil {
		return err
	}
	separators, err := readSeparators(t, layout)
	if err != nil {
		return err
	}
	var from []byte // where the run begins
	for i, h := range layout.Data {
		after := append(slices.Clone(separators[i]), 0)
		_, err := readBlock(t, h.Handle, blockkind.SSTableData)
		if err != nil {
			r.lost(fmt.Sprintf("%s: the block at byte %d, with keys up to %x,", name, h.Offset, separators[i]), err)
		}
		if err == nil && i < len(layout.Data)-1 {
			continue
		}
		failed := r.readRun(t, from, after)
		if _, aborted := errors.AsType[abortError](failed); aborted || err == nil && failed != nil {
			return failed // else it failed on the damaged block at the end of the run, which was reported
		}
		from = after
	}
	return nil
}

// part reads a part of a file, and reports it if that fails. It returns an abortError's cause.
func (r *recovery) part(what string, read func() error) error {
	err := func() (err error) {
		defer recovered(&err)
		return read()
	}()
	if failed, ok := errors.AsType[abortError](err); ok {
		return failed.error
	}
	if err != nil {
		r.lost(what, err)
	}
	return nil
}

func (r *recovery) openTableSafely(name string) (t *sstable.Reader, err error) {
	defer recovered(&err)
	return r.openTable(name)
}

// readSeparators returns for each data block a key that is not before its last one, and before the next block's first.
func readSeparators(t *sstable.Reader, layout *sstable.Layout) (all [][]byte, err error) {
	for _, h := range layout.Index {
		b, err := readBlock(t, h, blockkind.SSTableIndex)
		if err != nil {
			return nil, err
		}
		var it colblk.IndexIter
		if err := it.Init(t.Comparer, b, block.NoTransforms); err != nil {
			return nil, err
		}
		for valid := it.First(); valid; valid = it.Next() {
			all = append(all, slices.Clone(it.Separator()))
		}
	}
	if len(all) != len(layout.Data) {
		return nil, corrupt("its index has %d separators for %d blocks", len(all), len(layout.Data))
	}
	return all, nil
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

// readRun reads the versions of the keys in [from, to).
func (r *recovery) readRun(t *sstable.Reader, from, to []byte) (err error) {
	it, err := t.NewIter(sstable.NoTransforms, nil, to, sstable.AssertNoBlobHandles)
	if err != nil {
		return err
	}
	defer func() {
		if closed := it.Close(); err == nil {
			err = closed
		}
	}()
	for kv := it.SeekGE(from, 0); kv != nil; kv = it.Next() {
		value, _, err := kv.Value(nil)
		if err != nil {
			return err
		}
		if err := r.versions.add(kv.K.UserKey, uint64(kv.SeqNum()), kv.Kind(), value); err != nil {
			return abortError{err}
		}
	}
	return it.Error()
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
			r.versions.removeRange(span.Start, span.End, uint64(key.SeqNum()))
		}
	}
	return err
}

// logBlock is the size of a log's blocks. A reader that begins with one finds the next record.
const logBlock = 32 << 10

// readLog reads all batches of a log. Behind a record that cannot be read it continues with the next block.
func (r *recovery) readLog(log wal.LogicalLog, mayBeTorn bool) error {
	for i := range log.NumSegments() {
		_, path := log.SegmentLocation(i)
		l := &logFile{recovery: r, name: r.fs.PathBase(path), number: uint64(log.Num)}
		err := r.part("log "+l.name, l.read)
		if err != nil {
			return err
		}
		torn := mayBeTorn && !l.ended && errors.Is(l.cause, logrecord.ErrUnexpectedEOF)
		if l.damaged && !torn {
			r.lost(fmt.Sprintf("%s: from byte %d to its end", l.name, l.from), l.cause)
		}
	}
	return nil
}

// logFile is a log that is read as far as possible.
type logFile struct {
	*recovery
	name   string
	number uint64

	ended   bool // it has the mark of its end
	damaged bool // what was read last is damaged, from a byte on
	from    int64
	cause   error
}

func (l *logFile) read() (err error) {
	f, err := l.fs.Open(l.fs.PathJoin(l.dir, l.name))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	for at := int64(0); at < info.Size(); {
		if err := l.interrupted(); err != nil {
			return abortError{err}
		}
		end, err := l.readFrom(io.NewSectionReader(f, at, info.Size()-at), at)
		if _, aborted := errors.AsType[abortError](err); aborted {
			return err
		}
		if errors.Is(err, io.EOF) {
			if isLogEnd(f, end) {
				l.ended = end < info.Size()
				return nil
			}
			err = logrecord.ErrInvalidChunk
		}
		if !l.damaged {
			l.damaged, l.from, l.cause = true, end, err
		}
		at = (end/logBlock + 1) * logBlock
	}
	return nil
}

// readFrom reads records from a block on, and returns the place of the first that cannot be read.
func (l *logFile) readFrom(blocks io.Reader, begin int64) (at int64, err error) {
	records := newLogReader(logrecord.NewReader, blocks, l.number)
	for {
		at := begin + records.Offset()
		record, err := records.Next()
		if err != nil {
			return at, err
		}
		b, err := io.ReadAll(record)
		if err != nil {
			return at, err
		}
		if l.damaged {
			l.lost(fmt.Sprintf("%s: from byte %d to %d", l.name, l.from, at), l.cause)
			l.damaged = false
		}
		what := fmt.Sprintf("%s: the record at byte %d", l.name, at)
		if err := l.part(what, func() error { return l.readBatch(b) }); err != nil {
			return at, abortError{err}
		}
	}
}

// newLogReader returns a reader of the records of a log. The type of the number is internal to Pebble.
func newLogReader[N ~uint64](open func(io.Reader, N) *logrecord.Reader, r io.Reader, number uint64) *logrecord.Reader {
	return open(r, N(number))
}

// readBatch reads the versions in a batch, which have consecutive sequence numbers.
func (r *recovery) readBatch(b []byte) error {
	header, ok := batchrepr.ReadHeader(b)
	if !ok {
		return corrupt("it has %d bytes", len(b))
	}
	sequence := uint64(header.SeqNum)
	for entries := batchrepr.Read(b); ; {
		kind, key, value, ok, err := entries.Next()
		switch {
		case !ok:
			return err
		case kind == pebble.InternalKeyKindLogData:
			continue
		case kind == pebble.InternalKeyKindRangeDelete:
			r.versions.removeRange(key, value, sequence)
		default:
			if err := r.versions.add(key, sequence, kind, value); err != nil {
				return abortError{err}
			}
		}
		sequence++
	}
}
