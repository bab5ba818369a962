package diskstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// manifest is Pebble's list of its files: edits, one after the other, each synced before the next is written.
// The format is that of internal/manifest/version_edit.go there. Pebble takes the first edit that cannot be read
// for the end, and then removes the files that it does not know of; so this looks first.
type manifest struct {
	name   string
	size   int64
	edits  int
	tables map[table]uint64  // sizes
	backs  map[uint64]uint64 // sizes of files that are tables in part only
	// minLog is the first log that is not in tables yet, lastSeq the last sequence number that was given then.
	minLog, lastSeq uint64
	torn            int64  // bytes of the last edit, which was never whole
	damage          string // "" when it is not damaged
}

// table is a table's place and number.
type table struct{ level, number uint64 }

// readManifest reads a manifest. An error is one of reading the disk.
func readManifest(fs vfs.FS, dir, name string) (*manifest, error) {
	f, err := fs.Open(fs.PathJoin(dir, name), vfs.SequentialReadsOption)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m := &manifest{name: name, tables: map[table]uint64{}, backs: map[uint64]uint64{}}
	r := recordReader{chunkReader: newChunkReader(f, 0, false)}
	r.see = func(c chunk) {
		if r.gap >= 0 && c.at > r.gap && (c.part == wholeChunk || c.part == firstChunk) {
			m.found("it cannot be read at byte %d, and a later edit stands at byte %d", r.gap, c.at)
		}
	}
	for m.damage == "" {
		record, err := r.record()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if r.gap < 0 || record.end <= r.gap {
			m.edits++
			m.apply(record)
		}
	}
	m.size = r.size
	if r.gap >= 0 {
		m.torn = max(0, r.lastUsed-r.whole)
	}
	if m.edits == 0 {
		m.found("it holds nothing that can be read")
	}
	return m, nil
}

func (m *manifest) found(format string, args ...any) {
	if m.damage == "" {
		m.damage = fmt.Sprintf(format, args...)
	}
}

// live gives the numbers and sizes of the files that hold tables.
func (m *manifest) live() map[uint64]uint64 {
	files := map[uint64]uint64{}
	for t, size := range m.tables {
		if size > 0 {
			files[t.number] = size
		}
	}
	for number, size := range m.backs {
		files[number] = size
	}
	return files
}

// highest gives the highest number of a table.
func (m *manifest) highest() (number uint64) {
	for t := range m.tables {
		number = max(number, t.number)
	}
	return number
}

// apply takes in one edit.
func (m *manifest) apply(r logRecord) {
	e := edit{rest: r.data}
	for len(e.rest) > 0 && !e.bad {
		switch tag := e.number(); tag {
		case 1: // comparer
			e.text()
		case 2:
			m.minLog = e.number()
		case 3, 9: // next file number, previous log
			e.number()
		case 4:
			m.lastSeq = e.number()
		case 5: // compaction pointer
			e.number()
			e.text()
		case 6: // table removed
			delete(m.tables, table{e.number(), e.number()})
		case 7, 100, 102, 103, 104: // table added
			m.add(&e, tag)
		case 105:
			number, size := e.number(), e.number()
			m.backs[number] = size
		case 106:
			delete(m.backs, e.number())
		case 107: // blob file added
			for range 5 {
				e.number()
			}
		case 108: // blob file removed
			e.number()
			e.number()
		default:
			e.bad = true
		}
	}
	if e.bad {
		m.found("its edit at byte %d is none of Pebble's", r.at)
	}
}

// add reads the rest of an edit's tag that adds a table.
func (m *manifest) add(e *edit, tag uint64) {
	t := table{e.number(), e.number()}
	if tag == 102 { // path
		e.number()
	}
	size := e.number()
	points := true
	if tag == 104 {
		points = e.byte()&1 != 0
	}
	if points {
		e.text()
		e.text()
	}
	if tag == 104 { // range keys
		e.text()
		e.text()
	}
	if tag != 7 { // sequence numbers
		e.number()
		e.number()
	}
	if tag == 103 || tag == 104 {
		for {
			field := e.number()
			if field == 1 || e.bad {
				break
			}
			switch field {
			case 66: // a part of a file, see backs
				e.number()
				size = 0
			case 69: // blobs
				e.number()
				for n := e.number(); n > 0 && !e.bad; n-- {
					e.number()
					e.number()
				}
			default:
				e.text()
			}
		}
	}
	m.tables[t] = size
}

// edit reads the parts of an edit.
type edit struct {
	rest []byte
	bad  bool
}

func (e *edit) number() uint64 {
	v, n := binary.Uvarint(e.rest)
	if n <= 0 {
		e.rest, e.bad = nil, true
		return 0
	}
	e.rest = e.rest[n:]
	return v
}

func (e *edit) byte() byte {
	if len(e.rest) == 0 {
		e.bad = true
		return 0
	}
	b := e.rest[0]
	e.rest = e.rest[1:]
	return b
}

func (e *edit) text() {
	if n := e.number(); n <= uint64(len(e.rest)) {
		e.rest = e.rest[n:]
		return
	}
	e.rest, e.bad = nil, true
}
