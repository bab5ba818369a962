package diskstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"

	"github.com/cockroachdb/pebble/v2"
	logrecord "github.com/cockroachdb/pebble/v2/record"
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
	logs, err := d.logFiles()
	for i := 0; i < len(logs) && err == nil; i++ {
		var lost []lostPart
		if lost, err = d.readLog(logs[i], func(int64, []byte) {}); len(lost) > 0 {
			err = d.damaged(logs[i], "it cannot be read from byte %d on", lost[0].from)
		}
	}
	return err
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
