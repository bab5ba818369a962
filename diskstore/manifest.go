package diskstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"

	"github.com/cockroachdb/pebble/v2"
	logrecord "github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/wal"
)

// Pebble reads a log or a manifest up to the first record that it cannot read, because a crash may tear the last one.
// That hides damage in two places where these checks find it: before the last record of the manifest, where an older
// list of files would take over silently; and at the end of any file of a store that was closed in good order.

// checkRecords returns an ErrCorrupt that names the damaged file. wasClosed says that the store was closed in good
// order, so that no record may be torn.
func (d *directory) checkRecords(wasClosed bool) error {
	if err := d.checkFileList(wasClosed); err != nil || !wasClosed {
		return err
	}
	logs, err := wal.Scan(wal.Dir{FS: d.fs, Dirname: d.dir})
	if err != nil {
		return d.readError(err)
	}
	for _, log := range logs {
		_, path := log.SegmentLocation(0)
		switch at, err := readLog(log, nil); {
		case isInvalidRecord(err):
			return d.damaged(d.fs.PathBase(path), "it cannot be read from byte %d on", at)
		case err != nil:
			return d.readError(err)
		}
	}
	return nil
}

// checkFileList checks the manifest, which lists Pebble's files, and the marker that names it.
func (d *directory) checkFileList(wasClosed bool) error {
	desc, err := pebble.Peek(d.dir, d.fs)
	if err != nil {
		return d.damaged("marker.manifest", "%v", err)
	}
	if !desc.Exists {
		return d.damaged("marker.manifest", "it is missing")
	}
	if desc.FormatMajorVersion == pebble.FormatDefault {
		return d.damaged("marker.format-version", "it is missing")
	}
	return d.checkManifest(desc.ManifestFilename, wasClosed)
}

// readLog calls f, which may be nil, for each batch of a log. It returns nil at the log's clean end, or the offset at
// which the log cannot be read, with an error for isInvalidRecord.
func readLog(log wal.LogicalLog, f func(batch []byte) error) (at int64, err error) {
	r := log.OpenForRead()
	defer r.Close()
	for {
		batch, offset, err := r.NextRecord()
		if errors.Is(err, io.EOF) {
			return offset.Physical, checkLogEnd(log, offset.Physical)
		}
		if err != nil {
			return offset.Physical, err
		}
		if f == nil {
			continue
		}
		b, err := io.ReadAll(batch)
		if err == nil {
			err = f(b)
		}
		if err != nil {
			return offset.Physical, err
		}
	}
}

// checkLogEnd returns an error for isInvalidRecord if a log does not really end where Pebble sees its end: a flipped
// bit in the log number of a record makes it look like the mark of the end, which has no checksum.
func checkLogEnd(log wal.LogicalLog, at int64) error {
	fs, path := log.SegmentLocation(log.NumSegments() - 1)
	f, err := fs.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if !isLogEnd(f, at) {
		return logrecord.ErrInvalidChunk
	}
	return nil
}

// isLogEnd reports whether the file ends at an offset, or has the mark of the end there, which has neither a checksum
// nor a length.
func isLogEnd(f io.ReaderAt, at int64) bool {
	var mark [4 + 2]byte
	n, _ := f.ReadAt(mark[:], at)
	return n == 0 || mark == [4 + 2]byte{}
}

// isInvalidRecord reports whether a record cannot be read because of its bytes, not because of the disk.
func isInvalidRecord(err error) bool {
	return errors.Is(err, logrecord.ErrInvalidChunk) || errors.Is(err, logrecord.ErrZeroedChunk) ||
		errors.Is(err, logrecord.ErrUnexpectedEOF)
}

func (d *directory) checkManifest(path string, wasClosed bool) error {
	name := d.fs.PathBase(path)
	text, err := d.readFile(name)
	if isNoAccess(err) {
		return d.readError(err)
	}
	if err != nil {
		return d.damaged(name, "%v", err)
	}
	end, torn := intactPart([]byte(text))
	switch {
	case end == 0:
		return d.damaged(name, "it cannot be read")
	case torn && (wasClosed || hasRecord([]byte(text), end+1)):
		return d.damaged(name, "it cannot be read from byte %d on", end)
	}
	return nil
}

// intactPart returns where the intact records of a manifest end, and reports whether something follows that is not one.
func intactPart(b []byte) (end int, torn bool) {
	r := logrecord.NewReader(bytes.NewReader(b), 0)
	for {
		rec, err := r.Next()
		if err == nil {
			_, err = io.Copy(io.Discard, rec)
		}
		if err != nil {
			return end, !errors.Is(err, io.EOF)
		}
		end = int(r.Offset())
	}
}

// hasRecord reports whether an intact record begins at or after an offset. The format is that of LevelDB's log, which
// Pebble's manifests share: in blocks of 32 KiB, a masked CRC-32C, a length, a type of 1 to 4, and the data.
// Source: https://github.com/google/leveldb/blob/main/doc/log_format.md.
func hasRecord(b []byte, from int) bool {
	const block, header = 32 << 10, 4 + 2 + 1
	for at := from; at+header <= len(b); at++ {
		length, kind := int(binary.LittleEndian.Uint16(b[at+4:])), b[at+6]
		end := at + header + length
		if length == 0 || kind < 1 || kind > 4 || end > len(b) || (end-1)/block != at/block {
			continue
		}
		crc := crc32.Checksum(b[at+6:end], castagnoli)
		if (crc>>15|crc<<17)+0xa282ead8 == binary.LittleEndian.Uint32(b[at:]) {
			return true
		}
	}
	return false
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)
