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

// Kinds of records. A record is a line with the kind, the time in µs, the message's id ("-" if none) and more fields.
// All processes share the machine's clock.
const (
	// id key due(@ms or +ms) flags own-key(its Key) attempts(at most) number(in its call) urgency(or mixed) queue
	beginSend       = 's'
	endSend         = 'S' // id outcome
	beginCancel     = 'k' // id: a cancel, or a purge of a dead message
	endCancel       = 'K' // id outcome: the state before the cancel, or the error's code
	beginReschedule = 'm' // id due(@ms or +ms): reschedule
	endReschedule   = 'M' // id outcome
	beginReplay     = 'r' // id
	endReplay       = 'R' // id outcome
	found           = 'd' // id attempts: it was found dead
	// id call now(engine's, µs) deadline(ms) lease queue due(ms) attempt bytes own-key fence urgency
	claimed      = 'c'
	claimFailed  = 'q' // - call queue outcome: it may have taken effect
	handled      = 'h' // id attempt key whole(1 or 0) fence
	beginSettle  = 'x' // id lease action delay(µs)
	endSettle    = 'X' // id lease outcome
	extended     = 'e' // - call lease deadline(ms) or outcome
	leaseLost    = 'L' // id attempt kind: an event that reports a lost lease
	grouped      = 'y' // id group: it will be sent in the group
	groupChanged = 'U' // - group change(cancel or reschedule) call delay(ms) outcome changed kept
	forwarded    = 'f' // id queue: it left the queue for its destination
	missed       = 'H' // id call: a get did not find it
	reshardedTo  = 'N' // - queue shards outcome: SetShards
	usage        = 'p' // - resident(KiB) goroutines heap(KiB)
	watched      = 'v' // id kind queue attempt pid at(µs): an event that a watcher received
	watchMissed  = 'w' // - number(0 if unknown) queue pid: events that a watcher missed
	beginLocked  = 'i' // id key attempt: a handler has the lock of its key
	endLocked    = 'I' // id key attempt outcome(ok, or lease_lost if the handler was told that the lock is lost)
	lockLost     = 'j' // id key attempt: the handler's context ended because the lock is lost
	lockCall     = 'l' // - call operation key owner outcome
	// - queue call concurrency n per(µs) burst fair(1 or 0), four of keys, order, urgency(1 or 0): SetFlow
	flowSet     = 'F'
	keyFlowSet  = 'O' // - queue call key, and concurrency n per(µs) burst or nothing: SetKeyFlow
	keyResumed  = 'u' // - queue call key outcome: ResumeKey
	obeyed      = 'a' // - command: a worker obeys it
	workerEnded = 'n' // - outcome: Worker.Run returned
	starved     = 'g' // - since: the process did not run since then
	begun       = 'b' // - role pid: the process is running
	ended       = 'z' // -: the process exited cleanly
	runEvent    = '!' // - kind details...: an event of the run, such as a fault
)

// Outcomes of calls. Any other outcome is the code of an error that leaves the effect unknown.
const (
	outcomeOK        = "ok"
	outcomeDuplicate = "duplicate"
	outcomeLost      = "lease_lost"
	outcomeNotFound  = "not_found"
	outcomeLeased    = "leased"
	outcomeInvalid   = "invalid" // of a message with an urgency, by a queue whose flow has none
	outcomeGroup     = "group"   // of a message, by a call for its group, which does not say whether it was changed
)

// now returns the current time for a record.
func now() int64 { return time.Now().UnixMicro() }

// journal is the append-only file of one process. Each put is a single write, so a kill can tear only the last line.
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

// put writes the records added by fill in a single write. It panics if the write fails, because a run without a
// complete journal proves nothing.
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

// one writes a single record.
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
			panic("chaos: record field is neither a string nor an integer")
		}
	}
	return append(b, '\n')
}

func (j *journal) close() error { return j.file.Close() }

// record is a line of a journal.
type record struct {
	kind   byte
	at     int64
	id     string
	fields []string
}

// field returns the i-th field, or "" if there is none.
func (r *record) field(i int) string {
	if i < len(r.fields) {
		return r.fields[i]
	}
	return ""
}

// number returns the i-th field as a number, or 0 if it is not a number.
func (r *record) number(i int) int64 {
	n, _ := strconv.ParseInt(r.field(i), 10, 64)
	return n
}

// readJournal calls each for the wanted records in the order they were written. It ignores a torn last line.
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

// journals returns the actors with a journal in dir, and the total size of the journals in bytes.
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
