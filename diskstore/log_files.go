package diskstore

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

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
	if err != nil {
		return nil, d.readError(err)
	}
	slices.Sort(names)
	return slices.DeleteFunc(names, func(name string) bool { return filepath.Ext(name) != suffix }), nil
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
