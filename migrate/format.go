// Package migrate copies or moves the messages of a store to another, writes them to a file, and reads them back. It
// also takes over the messages of other programs' queues in Redis. It may import package later, package store, internal
// packages and go-redis, and no engine. Start with Copy, Export and Import, which share source.go, or with
// FromDelayQueue, FromAsynq and FromZSet, which share from.go.
//
// # Format
//
// An export is JSON, one object a line, the same for every engine. The first line is a header, the last one an end with
// the number of messages between them:
//
//	{"later_export":2,"time":"2030-12-31T23:59:59.000Z"}
//	{"later_limits":"orders","flow":{"rate":{"n":10,"per":"1s"},"fair":true}}
//	{"later_limits":"orders","key":"customer-7","override":{"concurrency":5}}
//	{"queue":"orders","id":"17","state":"scheduled","due":"2031-01-01T08:00:00.000Z","payload_text":"remind"}
//	{"later_export_end":2,"messages":1}
//
// The limits of a queue, and those of single keys, precede its messages. They are left out if an export is filtered.
//
// A message has everything that store.Restore accepts. Times are RFC 3339 with milliseconds, and durations as Go writes
// them, such as 1h30m0s. A payload that a content type says to be JSON is the value payload, other text is
// payload_text, and other bytes are payload_base64. Zero values are left out. Several exports in one input, one after
// the other, are one import.
package migrate

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/laterq/later/internal/jsontext"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

// version is the version of the format.
const version = 2

// header is the first line of an export.
type header struct {
	Version int    `json:"later_export"`
	Time    string `json:"time"`
	// Queues are the queues that were asked for; none means all.
	Queues []string `json:"queues,omitempty"`
}

// end is the last line of an export.
type end struct {
	Version  int   `json:"later_export_end"`
	Messages int64 `json:"messages"`
}

func newHeader(queues []string) []byte {
	return append(jsontext.Append(nil, header{version, wire.FormatTime(time.Now()), queues}), '\n')
}

func newEnd(messages int64) []byte {
	return append(jsontext.Append(nil, end{version, messages}), '\n')
}

// lineKind is the kind of a line, by its first field.
type lineKind uint8

const (
	messageLine lineKind = iota // or none of the others
	headerLine
	endLine
	limitsLine
	blankLine
)

const jsonSpace = " \t\r\n"

func kindOf(line []byte) lineKind {
	line = bytes.TrimLeft(line, jsonSpace)
	if len(line) == 0 {
		return blankLine
	}
	if line[0] != '{' {
		return messageLine
	}
	switch line = bytes.TrimLeft(line[1:], jsonSpace); {
	case bytes.HasPrefix(line, []byte(`"later_export"`)):
		return headerLine
	case bytes.HasPrefix(line, []byte(`"later_export_end"`)):
		return endLine
	case bytes.HasPrefix(line, []byte(`"later_limits"`)):
		return limitsLine
	}
	return messageLine
}

func parseHeader(line []byte) (h header, err error) {
	if err := json.Unmarshal(line, &h); err != nil {
		return h, store.Invalid("header of an export cannot be read: %v", err)
	}
	return h, checkVersion(h.Version)
}

func parseEnd(line []byte) (e end, err error) {
	if err := json.Unmarshal(line, &e); err != nil {
		return e, store.Invalid("end of an export cannot be read: %v", err)
	}
	return e, checkVersion(e.Version)
}

func checkVersion(v int) error {
	if v != version {
		return fmt.Errorf("%w: the export has the format %d and this version of Later knows %d: "+
			"use the version that wrote it",
			store.ErrUnsupported, v, version)
	}
	return nil
}

// lineReader reads lines of bounded length.
type lineReader struct {
	r      *bufio.Reader
	number int64 // of the line that was read last, from 1
	size   int64 // bytes of all lines read so far that have an end
	whole  bool  // the last line has an end
	line   []byte
}

func newLineReader(r io.Reader) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, 64<<10)}
}

// next returns the next line, without its end, until the next call; io.EOF when there is none left.
func (l *lineReader) next() ([]byte, error) {
	l.line = l.line[:0]
	for {
		part, err := l.r.ReadSlice('\n')
		l.line = append(l.line, part...)
		switch {
		case err == nil:
			l.number++
			l.size += int64(len(l.line))
			l.whole = true
			return l.line[:len(l.line)-1], nil
		case errors.Is(err, io.EOF) && len(l.line) > 0:
			l.number++
			l.whole = false
			return l.line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case len(l.line) > wire.MaxMessage+1:
			l.number++
			l.whole = true
			return nil, store.TooLarge("line is longer than %d bytes, which is the limit: give one message a line",
				wire.MaxMessage)
		}
	}
}

var (
	errEmpty    = store.Invalid("input is empty: give the output of later export")
	errNoHeader = store.Invalid(
		`line 1 is not the header of an export, {"later_export":%d,…}: give the output of later export`, version)
)

// CheckHeader returns an error, an ErrInvalid, if r does not begin as an export does. It reads nothing from r: programs
// call it to refuse other input before they open, and so perhaps make, a store.
func CheckHeader(r *bufio.Reader) error {
	begin, err := r.Peek(len(`{"later_export"`))
	switch {
	case len(begin) == 0 && errors.Is(err, io.EOF):
		return errEmpty
	case err != nil && !errors.Is(err, io.EOF):
		return err
	case kindOf(begin) != headerLine:
		return errNoHeader
	}
	return nil
}

// readHeader returns the header of the export that the input must begin with.
func (l *lineReader) readHeader() (h header, err error) {
	line, err := l.next()
	switch {
	case errors.Is(err, io.EOF):
		return h, errEmpty
	case errors.Is(err, store.ErrTooLarge) || err == nil && kindOf(line) != headerLine:
		return h, errNoHeader
	case err != nil:
		return h, err
	}
	if h, err = parseHeader(line); err != nil {
		return h, atLine(1, err)
	}
	return h, nil
}

func atLine(number int64, err error) error { return fmt.Errorf("line %d: %w", number, err) }
