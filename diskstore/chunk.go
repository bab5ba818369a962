package diskstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Logs and manifests are made of blocks, and those of chunks, each with a checksum; a record is one chunk or
// several. The format is Pebble's, see record/record.go there. Its reader stops at the first chunk that is not
// whole and takes that for the end of the file where nothing it looks at says otherwise. This one goes on
// behind, so that a torn tail can be told from damage, and what comes after damage can be saved.
const (
	blockSize = 32 << 10

	plainHeader    = 4 + 2 + 1          // checksum, length, type: manifests
	recycledHeader = plainHeader + 4    // and the log's number: the mark at the end of a log
	syncedHeader   = recycledHeader + 8 // and how far the log was synced when this was written: logs
)

// Where in its record a chunk is.
const (
	wholeChunk = iota + 1
	firstChunk
	middleChunk
	lastChunk
)

// endMark is what a log that is closed ends with, and then the number behind its own.
var endMark = []byte{0, 0, 0, 0, 0, 0, 5}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is Pebble's: see internal/crc there.
func checksum(b []byte) uint32 { return mask(crc32.Update(0, castagnoli, b)) }

func mask(c uint32) uint32 { return (c>>15 | c<<17) + 0xa282ead8 }

// chunk is a piece of a record, which holds until the next one is read.
type chunk struct {
	at, end int64 // where it begins and ends in the file
	part    int   // wholeChunk and so on
	data    []byte
	synced  int64 // up to this offset the file was synced before; 0 in a manifest
	behind  bool  // something between it and the chunk before cannot be read
	sure    bool  // all chunks of its block up to it are whole, so it is not a piece of somebody's payload
}

// chunkReader reads the chunks of a log, or of a manifest, whose number is 0.
type chunkReader struct {
	f      vfs.File
	number uint32
	log    bool

	block   [blockSize]byte
	base    int64 // of the block in the file
	n, next int   // bytes of the block, and where the next chunk begins
	read    bool
	lost    bool // the next chunk is not the one that should follow
	sure    bool // no chunk of the block was missing so far

	// gap is where the first chunk that is not whole begins, -1 when there is none so far: zeros, other bytes
	// or a chunk of the log whose file this once was. trailer is where the mark of an orderly end is, if any.
	gap, trailer int64
	torn         int64 // the chunk at gap, if it is one of this file at all, ends here at most
	size         int64 // bytes read of the file so far, and in the end its size
	lastUsed     int64 // the last byte that is not zero ends here
	recycled     bool  // there are chunks of the log whose file this once was
}

func newChunkReader(f vfs.File, number uint64, log bool) *chunkReader {
	return &chunkReader{f: f, number: uint32(number), log: log, gap: -1, trailer: -1}
}

// chunk gives the next chunk that is whole; io.EOF at the end of the file.
func (r *chunkReader) chunk() (c chunk, err error) {
	for {
		if r.read && r.next < r.n {
			found, ok := r.here(r.next)
			if !ok && !r.filling() {
				r.breaks()
				found, ok = r.search()
			}
			if ok {
				found.behind, found.sure = r.lost, r.sure
				r.next, r.lost = int(found.end-r.base), false
				return found, nil
			}
			r.next = r.n
		}
		if err := r.load(); err != nil {
			return chunk{}, err
		}
	}
}

// load reads the next block.
func (r *chunkReader) load() error {
	if r.read {
		r.base += int64(r.n)
		if r.n < blockSize {
			return io.EOF
		}
	}
	n, err := r.f.ReadAt(r.block[:], r.base)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	r.read, r.sure, r.n, r.next = true, true, n, 0
	r.size = r.base + int64(n)
	if used := len(bytes.TrimRight(r.block[:n], "\x00")); used > 0 {
		r.lastUsed = r.base + int64(used)
	}
	if n == 0 {
		return io.EOF
	}
	return nil
}

// header gives what a type of chunk has before its data, and its part; 0 for a type that this file has none of.
func (r *chunkReader) header(kind byte) (length, part int) {
	part = int(kind-1)%4 + 1
	switch {
	case !r.log && kind >= 1 && kind <= 4:
		return plainHeader, part
	case r.log && kind >= 5 && kind <= 8: // in the first log of a store
		return recycledHeader, part
	case r.log && kind >= 9 && kind <= 12:
		return syncedHeader, part
	}
	return 0, 0
}

// here reads the chunk at a place in the block, if there is a whole one.
func (r *chunkReader) here(at int) (c chunk, ok bool) {
	b := r.block[at:r.n]
	if len(b) < plainHeader {
		return chunk{}, false
	}
	header, part := r.header(b[6])
	end := header + int(binary.LittleEndian.Uint16(b[4:]))
	if header == 0 || end > len(b) || r.log && binary.LittleEndian.Uint32(b[7:]) > r.number ||
		binary.LittleEndian.Uint32(b) != checksum(b[6:end]) {
		return chunk{}, false
	}
	if r.log && binary.LittleEndian.Uint32(b[7:]) < r.number {
		r.recycled = true
		return chunk{}, false
	}
	c = chunk{at: r.base + int64(at), end: r.base + int64(at+end), part: part, data: b[header:end]}
	if header == syncedHeader {
		c.synced = int64(binary.LittleEndian.Uint64(b[11:]))
	}
	return c, true
}

// filling tells whether the rest of the block is what a writer leaves where no chunk fits any more.
func (r *chunkReader) filling() bool {
	rest := r.block[r.next:r.n]
	least := plainHeader
	if r.log {
		least = syncedHeader
	}
	return r.n == blockSize && len(rest) < least && len(bytes.TrimRight(rest, "\x00")) == 0
}

// breaks notes that there is no chunk where there should be one, and what is there instead.
func (r *chunkReader) breaks() {
	r.lost, r.sure = true, false
	if r.gap >= 0 {
		return
	}
	r.gap = r.base + int64(r.next)
	b := r.block[r.next:r.n]
	if !r.log || len(b) < recycledHeader {
		return
	}
	header, _ := r.header(b[6])
	switch number := binary.LittleEndian.Uint32(b[7:]); {
	case header == 0:
	case number == r.number+1 && bytes.Equal(b[:7], endMark):
		r.trailer = r.gap
	case number == r.number:
		r.torn = r.gap + min(int64(header)+int64(binary.LittleEndian.Uint16(b[4:])), int64(len(b)))
	}
}

// endsOlder tells, at the end of the file, whether it was that of an older log: it has chunks of that, or ends with
// the mark that it was closed.
func (r *chunkReader) endsOlder() (bool, error) {
	var b [recycledHeader]byte
	if r.recycled || r.size < int64(len(b)) {
		return r.recycled, nil
	}
	if _, err := r.f.ReadAt(b[:], r.size-int64(len(b))); err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	return bytes.Equal(b[:7], endMark) && binary.LittleEndian.Uint32(b[7:]) <= r.number, nil
}

// search looks for a whole chunk further on in the block.
func (r *chunkReader) search() (chunk, bool) {
	for at := r.next + 1; at+plainHeader <= r.n; at++ {
		if c, ok := r.here(at); ok {
			return c, true
		}
	}
	return chunk{}, false
}

// logRecord is a whole record, which holds until the next one is read.
type logRecord struct {
	at, end int64
	data    []byte
	behind  bool // something between it and the record before cannot be read
}

// recordReader puts chunks together.
type recordReader struct {
	*chunkReader
	data []byte
	// whole is where the records that nothing is missing between end.
	whole int64
	// see gets every chunk, also those whose record is not whole.
	see func(c chunk)
}

// record gives the next whole record; io.EOF at the end of the file.
func (r *recordReader) record() (logRecord, error) {
	r.data = r.data[:0]
	begin, inside, behind := int64(0), false, false
	for {
		c, err := r.chunk()
		if err != nil {
			if inside && r.gap < 0 && errors.Is(err, io.EOF) {
				r.gap, r.torn = begin, r.size // it ends in the midst of a record
			}
			return logRecord{}, err
		}
		if r.see != nil {
			r.see(c)
		}
		behind = behind || c.behind
		starts := c.part == wholeChunk || c.part == firstChunk
		switch {
		case starts:
			if inside { // the rest of the record before is missing
				behind = true
				r.miss(begin)
			}
			begin, inside, r.data = c.at, true, r.data[:0]
		case !inside || c.behind: // the beginning is missing
			if !inside {
				r.miss(c.at)
			}
			inside, behind = false, true
			continue
		}
		r.data = append(r.data, c.data...)
		if c.part == wholeChunk || c.part == lastChunk {
			if r.gap < 0 || c.end <= r.gap {
				r.whole = c.end
			}
			return logRecord{begin, c.end, r.data, behind}, nil
		}
	}
}

// miss notes that a part of a record is missing although no chunk is damaged.
func (r *recordReader) miss(at int64) {
	if r.gap < 0 {
		r.gap = at
	}
}
