package diskstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	logrecord "github.com/cockroachdb/pebble/v2/record"

	"github.com/laterq/later/store"
)

const logSuffix = ".log"

// logBlock is the size of a log's blocks. A reader that begins with one finds the next record.
const logBlock = 32 << 10

// lostPart is a part of a log that cannot be read.
type lostPart struct {
	from, to int64
	cause    error
	torn     bool // it is the end, as a crash may leave it
}

// logFiles returns the names of the logs, in order.
func (d *directory) logFiles() ([]string, error) {
	names, err := d.filesLike(logSuffix)
	return slices.DeleteFunc(names, func(name string) bool { return logNumber(name) == 0 }), err
}

// logNumber returns the number of a log, which is its name; 0 for another file.
func logNumber(name string) uint64 {
	number, _ := strconv.ParseUint(strings.TrimSuffix(name, logSuffix), 10, 64)
	return number
}

// filesLike returns the names of the files with an ending, in order.
func (d *directory) filesLike(suffix string) ([]string, error) {
	names, err := d.fs.List(d.dir)
	slices.Sort(names)
	return slices.DeleteFunc(names, func(name string) bool { return filepath.Ext(name) != suffix }), d.readError(err)
}

// readLog calls f for each batch of a log, and returns the parts that cannot be read. Behind a record that cannot be
// read it continues with the next block.
func (d *directory) readLog(name string, f func(at int64, batch []byte)) (lost []lostPart, err error) {
	text, err := d.readFile(name)
	if err != nil {
		return nil, d.readError(err)
	}
	var part *lostPart
	for at := int64(0); at < int64(len(text)); {
		records := newLogReader(logrecord.NewReader, strings.NewReader(text[at:]), logNumber(name))
		var end int64
		for {
			end = at + records.Offset()
			var batch []byte
			if batch, err = readRecord(records); err != nil {
				break
			}
			if part != nil {
				part.to = end
				lost, part = append(lost, *part), nil
			}
			f(end, batch)
		}
		if errors.Is(err, io.EOF) {
			if isLogEnd(text[end:]) {
				break
			}
			err = logrecord.ErrInvalidChunk // a flipped bit in the number of a log looks like its end
		}
		if part == nil {
			torn := errors.Is(err, logrecord.ErrUnexpectedEOF)
			part = &lostPart{from: end, to: int64(len(text)), cause: err, torn: torn}
		}
		at = (end/logBlock + 1) * logBlock
	}
	if part != nil {
		lost = append(lost, *part)
	}
	return lost, nil
}

func readRecord(records *logrecord.Reader) ([]byte, error) {
	record, err := records.Next()
	if err != nil {
		return nil, err
	}
	return io.ReadAll(record)
}

// newLogReader returns a reader of the records of a log. The type of the number is internal to Pebble.
func newLogReader[N ~uint64](open func(io.Reader, N) *logrecord.Reader, r io.Reader, number uint64) *logrecord.Reader {
	return open(r, N(number))
}

// isLogEnd reports whether the rest of a log is empty, or begins with the mark of the end, which has neither a checksum
// nor a length.
func isLogEnd(rest string) bool {
	const mark = "\x00\x00\x00\x00" + "\x00\x00"
	return rest == "" || strings.HasPrefix(rest, mark)
}

// checkLog finds out whether a log can be read to its end.
func (d *directory) checkLog(name string, mayBeTorn bool) (store.CheckResult, error) {
	r := store.CheckResult{Severity: store.SeverityOK, Check: "log", Text: name + " has a clean end"}
	lost, err := d.readLog(name, func(int64, []byte) {})
	switch {
	case err != nil || len(lost) == 0:
	case mayBeTorn && lost[0].torn:
		r.Severity = store.SeverityNote
		r.Text = fmt.Sprintf("a crash left the end of %s unfinished, from byte %d; nothing acknowledged was in it",
			name, lost[0].from)
	default:
		r.Severity, r.Count, r.Advice = store.SeverityError, 1, d.recoverAdvice()
		r.Text = fmt.Sprintf("%s is damaged: it cannot be read from byte %d on: %v", name, lost[0].from, lost[0].cause)
	}
	return r, err
}

// relaxedFile exists while the log of a store may be torn by a power failure: with SyncEvery, the disk may keep later
// blocks of it and lose earlier ones. Pebble takes such a log for damaged, because it was told that each block was
// synced.
const relaxedFile = "RELAXED"

const relaxedText = "The log was written with SyncEvery. After a power failure it ends at its first hole.\n"

// cutTornLog cuts the last log at its first hole, if it was written with SyncEvery. Nothing behind the hole was synced.
// Earlier logs are whole, since a log is synced when the next one begins.
func (d *directory) cutTornLog(logger *slog.Logger) error {
	if relaxed, err := d.isRelaxed(); !relaxed || err != nil {
		return err
	}
	logs, err := d.logFiles()
	if err != nil || len(logs) == 0 {
		return err
	}
	name := logs[len(logs)-1]
	lost, err := d.readLog(name, func(int64, []byte) {})
	if err != nil || len(lost) == 0 {
		return err
	}
	at := lost[0].from
	text, err := d.readFile(name)
	if err != nil {
		return d.readError(err)
	}
	if at >= int64(len(text)) {
		return nil // it only ends early, as after every crash
	}
	logger.Info("later: the log ends at its first hole; what was synced is before it", "dir", d.dir, "file", name,
		"byte", at, "of", len(text))
	return d.writeError(d.writeFile(name, text[:at]))
}

func (d *directory) isRelaxed() (bool, error) {
	_, err := d.readFile(relaxedFile)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, d.readError(err)
}

// setRelaxed creates or removes relaxedFile, durably.
func (d *directory) setRelaxed(relaxed bool) error {
	was, err := d.isRelaxed()
	if was == relaxed || err != nil {
		return err
	}
	if relaxed {
		err = d.writeFile(relaxedFile, relaxedText)
	} else {
		err = errors.Join(d.fs.Remove(d.fs.PathJoin(d.dir, relaxedFile)), d.syncDirectory(d.dir))
	}
	return d.writeError(err)
}

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
		if _, err := readRecord(r); err != nil {
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
