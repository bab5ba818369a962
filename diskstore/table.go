package diskstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// tableFile is a table that is read block by block, where Pebble's reader would stop at the first damaged one.
type tableFile struct {
	name string
	f    vfs.File
	size int64
	sums block.ChecksumType

	data   []extent // the blocks that hold changes, in the order of their keys
	others []extent // index, filter and the like
	spans  []span
	lost   []lostPart
}

// extent is a part of a file.
type extent struct{ at, end int64 }

func (e extent) String() string { return fmt.Sprintf("bytes %d to %d", e.at, e.end) }

// lostPart is a part of a file that cannot be read.
type lostPart struct {
	extent
	what          string
	after, before []byte // the keys next to it that can be read, if any
}

// trailerLength is what follows each block of a table: how it is compressed, and a checksum.
const trailerLength = block.TrailerLen

// openTable reads where the blocks of a table are. The error is one of opening the file.
func openTable(fs vfs.FS, dir, name string) (*tableFile, error) {
	f, err := fs.Open(fs.PathJoin(dir, name))
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	t := &tableFile{name: name, f: f, size: info.Size(), sums: block.ChecksumTypeCRC32c}
	if damage := t.readIndex(); damage != nil {
		t.lost = []lostPart{{extent: extent{t.size, t.size}, what: fmt.Sprintf("its index (%v)", damage)}}
		t.data, t.others, t.spans = nil, nil, nil
		if err := t.findBlocks(); err != nil {
			f.Close()
			return nil, err
		}
	}
	return t, nil
}

func (t *tableFile) close() error { return t.f.Close() }

// readIndex reads where the blocks are from the table's own index.
func (t *tableFile) readIndex() (err error) {
	defer func() { // Pebble's reader is not made for any damage
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	readable, err := sstable.NewSimpleReadable(onlyRead{t.f})
	if err != nil {
		return err
	}
	options := &pebble.Options{}
	options.EnsureDefaults()
	reader, err := sstable.NewReader(context.Background(), readable, options.MakeReaderOptions())
	if err != nil {
		return err
	}
	defer reader.Close()
	layout, err := reader.Layout()
	if err != nil {
		return err
	}
	t.sums = reader.BlockReader().ChecksumType()
	for _, h := range layout.Data {
		t.data = append(t.data, extentOf(h.Handle))
	}
	handles := append(slices.Clone(layout.Index), layout.TopIndex, layout.Properties, layout.MetaIndex, layout.RangeKey,
		layout.ValueIndex)
	handles = append(handles, layout.ValueBlock...)
	for _, h := range layout.Filter {
		handles = append(handles, h.Handle)
	}
	for _, h := range handles {
		if h.Length > 0 {
			t.others = append(t.others, extentOf(h))
		}
	}
	if layout.RangeDel.Length > 0 {
		e := extentOf(layout.RangeDel)
		if _, t.spans, err = t.read(e); err != nil {
			t.lost = append(t.lost, lostPart{extent: e, what: "what says which queues were deleted"})
		}
	}
	return nil
}

// onlyRead lends a file to Pebble's reader, which closes what it reads.
type onlyRead struct{ vfs.File }

func (onlyRead) Close() error { return nil }

func extentOf(h block.Handle) extent {
	return extent{int64(h.Offset), int64(h.Offset + h.Length + trailerLength)}
}

// raw reads a block and compares it with its checksum.
func (t *tableFile) raw(e extent) ([]byte, error) {
	if e.at < 0 || e.end > t.size || e.end-e.at < trailerLength {
		return nil, corrupt("%s has no %v", t.name, e)
	}
	b := make([]byte, e.end-e.at)
	if n, err := t.f.ReadAt(b, e.at); n < len(b) {
		return nil, err
	}
	return b, block.ValidateChecksum(t.sums, b, block.Handle{Offset: uint64(e.at), Length: uint64(len(b) - trailerLength)})
}

// read reads the changes and the deletions of ranges in a block; neither in one that is for something else.
func (t *tableFile) read(e extent) ([]change, []span, error) {
	b, err := t.raw(e)
	if err != nil {
		return nil, nil, err
	}
	return decodeBlock(b)
}

// check compares all blocks with their checksums, and gives how many there are.
func (t *tableFile) check(interrupted func() error) (blocks int, err error) {
	all := slices.Concat(t.data, t.others)
	slices.SortFunc(all, func(a, b extent) int { return int(a.at - b.at) })
	for i, e := range all {
		if i%256 == 0 {
			if err := interrupted(); err != nil {
				return 0, err
			}
		}
		if _, err := t.raw(e); err != nil {
			t.lost = append(t.lost, lostPart{extent: e, what: "a block"})
		}
	}
	return len(all), nil
}

// resyncs are how far behind a damaged block the next one is looked for, and how long it may be, when there is no
// index to tell: first what most are like, and then far, which takes seconds.
var resyncs = []int{16 << 10, 128 << 10}

// findBlocks looks for the blocks by their checksums, one right behind the other.
func (t *tableFile) findBlocks() error {
	b, err := io.ReadAll(io.NewSectionReader(t.f, 0, t.size))
	if err != nil {
		return err
	}
	for at := 0; at+trailerLength < len(b); {
		begin, end := at, endOfBlock(b[at:], len(b))
		for _, limit := range resyncs {
			if end < 0 {
				begin, end = resync(b, at, limit)
			}
		}
		if end < 0 {
			begin = len(b)
		}
		if begin > at && begin < len(b) {
			t.lost = append(t.lost, lostPart{extent: extent{int64(at), int64(begin)}, what: "a block"})
		}
		if end < 0 {
			if rest := len(b) - at; rest > block.TrailerLen+maxFooter {
				t.lost = append(t.lost, lostPart{extent: extent{int64(at), t.size}, what: "the rest"})
			}
			return nil
		}
		t.found(extent{int64(begin), int64(begin + end)}, b[begin:begin+end])
		at = begin + end
	}
	return nil
}

// resync looks for a block of changes behind a place; end is -1 when there is none near.
func resync(b []byte, at, limit int) (begin, end int) {
	for begin = at + 1; begin-at < limit && begin+trailerLength < len(b); begin++ {
		if end = endOfBlock(b[begin:], limit); end < 0 {
			continue
		}
		if changes, _, err := decodeBlock(b[begin : begin+end]); err == nil && len(changes) > 0 {
			return begin, end
		}
	}
	return begin, -1
}

// maxFooter is more than the length of a table's footer, which has no checksum of its own.
const maxFooter = 64

// found takes in a block that findBlocks found.
func (t *tableFile) found(e extent, b []byte) {
	switch changes, spans, err := decodeBlock(b); {
	case err != nil:
		t.lost = append(t.lost, lostPart{extent: e, what: "a block"})
	case len(changes) > 0:
		t.data = append(t.data, e)
	default:
		t.spans = append(t.spans, spans...)
		t.others = append(t.others, e)
	}
}

// endOfBlock gives the first place where what begins b is a block with its trailer, -1 for none up to a limit.
func endOfBlock(b []byte, limit int) int {
	sum := ^uint32(0)
	for i := 0; i+trailerLength <= min(len(b), limit); i++ {
		sum = castagnoli[byte(sum)^b[i]] ^ sum>>8 // now of all up to and with b[i], which may be the compression
		if known(b[i]) && binary.LittleEndian.Uint32(b[i+1:]) == mask(^sum) && i > 0 {
			return i + trailerLength
		}
	}
	return -1
}

// known tells the ways in which Pebble compresses blocks.
func known(compression byte) bool {
	switch block.CompressionIndicator(compression) {
	case block.NoCompressionIndicator, block.SnappyCompressionIndicator, block.ZstdCompressionIndicator, block.MinLZCompressionIndicator:
		return true
	}
	return false
}
