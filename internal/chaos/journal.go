//go:build unix

package chaos

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Kinds of records. A record is a line: the kind, the time in µs, the message's id ("-" for none) and what else
// is known. Times are those of the machine's clock, which all processes share.
const (
	beginSend   = 's' // id key due(@ms or +ms) flags
	endSend     = 'S' // id outcome
	beginCancel = 'k' // id
	endCancel   = 'K' // id outcome: the state it was in, or the error's code
	beginMove   = 'm' // id due(@ms or +ms): a reschedule
	endMove     = 'M' // id outcome
	claimed     = 'c' // id call now deadline(ms) lease queue due(ms) attempt bytes; now is the engine's clock in µs
	handled     = 'h' // id attempt key whole(1 or 0)
	beginSettle = 'x' // id lease action delay(µs)
	endSettle   = 'X' // id lease outcome
	extended    = 'e' // - call lease deadline(ms) or outcome
	told        = 'L' // id attempt kind: an event that tells the holder that the message is not its own any more
	usage       = 'p' // - resident(KiB) goroutines heap(KiB)
	begun       = 'b' // - role: the process works
	ended       = 'z' // -: the process ended in good order
	mark        = '!' // - kind what...: the run's own record of a fault
)

// What became of a call. Anything else is the code of an error after which nothing is known.
const (
	outcomeOK        = "ok"
	outcomeDuplicate = "duplicate"
	outcomeLost      = "lease_lost"
	outcomeNotFound  = "not_found"
	outcomeLeased    = "leased"
)

// now is the time of records.
func now() int64 { return time.Now().UnixMicro() }

// journal is the append-only file of one process. Each put is one write, so that a process that is killed leaves
// at most its last line torn.
type journal struct {
	mu   sync.Mutex
	file *os.File
	line []byte
}

const journalSuffix = ".journal"

func openJournal(dir, actor string) (*journal, error) {
	file, err := os.OpenFile(filepath.Join(dir, actor+journalSuffix), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return &journal{file: file}, nil
}

// put writes records that are made by add, all in one write. A journal that cannot be written ends the process:
// without it nothing is proved.
func (j *journal) put(fill func(add func(kind byte, at int64, id string, fields ...any))) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.line = j.line[:0]
	fill(func(kind byte, at int64, id string, fields ...any) {
		j.line = appendRecord(j.line, kind, at, id, fields)
	})
	if len(j.line) == 0 {
		return
	}
	if _, err := j.file.Write(j.line); err != nil {
		panic("chaos: write the journal: " + err.Error())
	}
}

// one writes one record.
func (j *journal) one(kind byte, at int64, id string, fields ...any) {
	j.put(func(add func(byte, int64, string, ...any)) { add(kind, at, id, fields...) })
}

func appendRecord(b []byte, kind byte, at int64, id string, fields []any) []byte {
	b = append(b, kind, ' ')
	b = strconv.AppendInt(b, at, 10)
	b = append(append(b, ' '), id...)
	for _, f := range fields {
		b = append(b, ' ')
		switch f := f.(type) {
		case string:
			b = append(b, f...)
		case int:
			b = strconv.AppendInt(b, int64(f), 10)
		case int64:
			b = strconv.AppendInt(b, f, 10)
		default:
			panic("chaos: a record holds text and whole numbers")
		}
	}
	return append(b, '\n')
}

func (j *journal) close() error { return j.file.Close() }

// record is one line of a journal.
type record struct {
	kind   byte
	at     int64
	id     string
	fields []string
}

// field gives a field as text, "" when the record has not so many.
func (r *record) field(i int) string {
	if i < len(r.fields) {
		return r.fields[i]
	}
	return ""
}

// number gives a field as a number, 0 when it is none.
func (r *record) number(i int) int64 {
	n, _ := strconv.ParseInt(r.field(i), 10, 64)
	return n
}

// readJournal calls each for the records whose kind and id are wanted, in the order they were written. A last line that
// was torn by a kill is left out.
func readJournal(path string, wanted func(kind byte, id []byte) bool, each func(record)) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewReaderSize(file, 1<<18)
	for {
		line, err := lines.ReadSlice('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		line = bytes.TrimSuffix(line, []byte("\n"))
		parts := bytes.SplitN(line, []byte(" "), 4)
		if len(parts) < 3 || len(parts[0]) != 1 || !wanted(parts[0][0], parts[2]) {
			continue
		}
		r := record{kind: parts[0][0], id: string(parts[2])}
		r.at, _ = strconv.ParseInt(string(parts[1]), 10, 64)
		if len(parts) > 3 {
			r.fields = strings.Split(string(parts[3]), " ")
		}
		each(r)
	}
}

// journals gives the actors that have a journal in dir, and the bytes of all.
func journals(dir string) (actors []string, size int64, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*"+journalSuffix))
	if err != nil {
		return nil, 0, err
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, 0, err
		}
		size += info.Size()
		actors = append(actors, strings.TrimSuffix(filepath.Base(path), journalSuffix))
	}
	return actors, size, nil
}
