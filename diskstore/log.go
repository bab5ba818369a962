package diskstore

import (
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2/batchrepr"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// firstSeq is Pebble's first sequence number.
const firstSeq = 10

// logFile is what a look at a log found.
type logFile struct {
	name    string
	number  uint64
	size    int64
	records int
	// first is the sequence number of its first change, next the one behind its last; 0 when it has none.
	first, next uint64
	whole       int64  // here its records end
	clean       bool   // it was closed in good order
	torn        int64  // bytes of the last records, which were never whole
	damage      string // why it is damaged rather than torn; "" when it is not
}

// readLog reads a log of the given run, 0 for one that is not known. An error is one of reading the disk.
func readLog(fs vfs.FS, dir, name string, number, run uint64) (l logFile, err error) {
	f, err := fs.Open(fs.PathJoin(dir, name), vfs.SequentialReadsOption)
	if err != nil {
		return l, err
	}
	defer f.Close()
	l = logFile{name: name, number: number}
	r := recordReader{chunkReader: newChunkReader(f, number, true)}
	last := int64(0) // the last chunk of this log ends here
	r.see = func(c chunk) {
		last = c.end
		if r.gap >= 0 && c.at > r.gap {
			l.prove(&r, c, run)
		}
	}
	for {
		record, err := r.record()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return l, err
		}
		if r.gap < 0 || record.end <= r.gap {
			l.add(record, &run)
		}
	}
	l.size, l.whole = r.size, r.whole
	l.clean = r.trailer >= 0 && r.trailer == r.whole
	if !l.clean && r.gap >= 0 {
		used := max(r.torn, last)
		older, err := r.endsOlder()
		if err != nil {
			return l, err
		}
		if !older {
			used = max(used, r.lastUsed)
		}
		l.torn = max(0, used-r.whole)
	}
	return l, nil
}

// add takes in a record before which nothing is missing.
func (l *logFile) add(r logRecord, run *uint64) {
	h, ok := batchrepr.ReadHeader(r.data)
	if !ok {
		l.found("its record at byte %d is no batch", r.at)
		return
	}
	l.records++
	if m, ok := readMark(r.data); ok && *run == 0 {
		*run = m.run
	}
	if h.Count == 0 {
		return
	}
	switch seq := uint64(h.SeqNum); {
	case l.first == 0:
		l.first = seq
	case seq > l.next:
		l.found("the changes %d to %d are missing before byte %d", l.next, seq-1, r.at)
	}
	l.next = uint64(h.SeqNum) + uint64(h.Count)
}

// prove tells whether a chunk behind what cannot be read shows that it was synced once.
func (l *logFile) prove(r *recordReader, c chunk, run uint64) {
	m, ok := mark{}, false
	if c.part == wholeChunk || c.part == lastChunk {
		m, ok = readMark(c.data)
	}
	if ok && (m.run == run || run == 0) && m.synced > l.next || c.sure && c.synced > r.gap {
		l.found("it cannot be read at byte %d, and what stands at byte %d says that all before had been synced", r.gap, c.at)
	}
}

func (l *logFile) found(format string, args ...any) {
	if l.damage == "" {
		l.damage = fmt.Sprintf(format, args...)
	}
}
