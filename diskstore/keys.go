package diskstore

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/laterq/later/internal/codec"
	"github.com/laterq/later/internal/envelope"
	"github.com/laterq/later/store"
)

// Keys begin with the four bytes of a queue's number, so that a queue is one range, and a byte for the kind.
// Times are six bytes of milliseconds since 1970; all numbers are big endian.
//
//	kindMeta        -           → counters, pause, clock   see meta; limits, see flow.go
//	kindActivity    -           → counts of events         see events.go; as they were at the last close
//	kindCount       level, slot → how many are due         see counts.go
//	kindMessage     id          → due as sent, envelope    every live message, written once
//	kindRecord      id          → record                   only of messages that changed since the send, see record
//	kindDue         due, id     → nothing, or flags, rank  scheduled and ready messages, see order.go
//	kindDead        death, id   → nothing                  dead messages, which all have a record
//	kindLease       lease id    → the held messages        see lease.go
//	kindOriginal    id          → due, attempts, envelope  a held message with a successor, see lease.go
//	kindGroup       group, id   → nothing                  messages in a group, by its number; see look.go
//	kindRemembered  id          → until when               acked ids that are refused, and sends by key; see send.go
//	kindForget      until, id   → nothing                  the same by time
//	kindProperty    name        → value                    properties, see properties.go
//	kindArrived     from        → number                   of the last parcel from there, see parcel.go
//	kindOutbox      -           → number, parcel           the last parcel that has departed, see parcel.go
//	kindKeyFlow     key         → limits                   overrides of keys, see key_flow.go
//	kindKeyState    key         → next start, holder       states of keys, see key_flow.go; whether they are expected
//
// The values of kindMeta, kindKeyFlow and kindKeyState, and the parts of kindOutbox, are written by the codec; kinds of
// which a message has a key of its own have a format of their own.
//
// A message that is neither due nor dead is leased. Queue number 0 is the store itself: kindName there has a key for
// each queue's name with its number, kindSign one for each sign (subqueue.go), kindRequest one for each session with
// its last request (share.go), and kindStamp has the stamp of the last backup.
const (
	kindActivity   = 'a'
	kindCount      = 'c'
	kindDue        = 'd'
	kindArrived    = 'e'
	kindForget     = 'f'
	kindGroup      = 'g'
	kindSign       = 'i' // before kindName
	kindKeyFlow    = 'k'
	kindLease      = 'l'
	kindMessage    = 'm'
	kindName       = 'n'
	kindOriginal   = 'o'
	kindProperty   = 'p'
	kindMeta       = 'q'
	kindRemembered = 'r'
	kindStamp      = 's'
	kindRecord     = 't'
	kindRequest    = 'u'
	kindKeyState   = 'v'
	kindDead       = 'x'
	kindOutbox     = 'y' // after all other kinds
)

const (
	prefixLength = 4 + 1
	timeLength   = 6
)

// never is a time that does not come.
const never = math.MaxInt64

// lastTime is the latest time that a key can hold, later than all that the contract allows.
const lastTime = 1<<(8*timeLength) - 1

func appendKey(b []byte, queue uint32, kind byte) []byte {
	return append(binary.BigEndian.AppendUint32(b, queue), kind)
}

// appendIDKey appends a key that ends with an id or a name.
func appendIDKey(b []byte, queue uint32, kind byte, id string) []byte {
	return append(appendKey(b, queue, kind), id...)
}

// appendTimeKey appends the key of an entry of an index.
func appendTimeKey(b []byte, queue uint32, kind byte, e entry) []byte {
	return append(appendTime(appendKey(b, queue, kind), min(max(e.at, 0), lastTime)), e.id...)
}

func appendTime(b []byte, ms int64) []byte {
	return append(b, byte(ms>>40), byte(ms>>32), byte(ms>>24), byte(ms>>16), byte(ms>>8), byte(ms))
}

func readTime[T ~[]byte | ~string](b T) int64 {
	ms := int64(0)
	for i := range timeLength {
		ms = ms<<8 | int64(b[i])
	}
	return ms
}

// splitKey returns the prefix that all keys have.
func splitKey(key []byte) (queue uint32, kind byte, ok bool) {
	if len(key) < prefixLength {
		return 0, 0, false
	}
	return binary.BigEndian.Uint32(key), key[4], true
}

// entry is an id with the millisecond that orders it; ties are ordered by id.
type entry struct {
	at int64
	id string
}

func (e entry) less(f entry) bool {
	return cmp.Or(cmp.Compare(e.at, f.at), cmp.Compare(e.id, f.id)) < 0
}

// behind returns the first place behind e.
func (e entry) behind() entry { return entry{e.at, e.id + "\x00"} }

// parseEntry returns the entry in a key that appendTimeKey made.
func parseEntry(key []byte) (entry, error) {
	if len(key) < prefixLength+timeLength {
		return entry{}, corrupt("key %x is too short", key)
	}
	key = key[prefixLength:]
	return entry{readTime(key), string(key[timeLength:])}, nil
}

// cursor returns the text of a place in a listing: right behind e.
func (e entry) cursor() string { return strconv.FormatInt(e.at, 10) + ":" + e.id }

// parseCursor returns the first place behind the entry of a cursor, or the first of all without a cursor.
func parseCursor(text string) (entry, error) {
	if text == "" {
		return entry{}, nil
	}
	ms, id, ok := strings.Cut(text, ":")
	at, err := strconv.ParseInt(ms, 10, 64)
	if !ok || err != nil {
		return entry{}, badCursor(text)
	}
	return entry{at, id}.behind(), nil
}

func badCursor(text string) error {
	return store.Field("cursor", store.Invalid("cursor %q is not from this store: give the one of the page before, or "+
		"none", text))
}

// numberKey returns the first key of a queue.
func numberKey(number uint32) []byte { return binary.BigEndian.AppendUint32(nil, number) }

// record is the history of a message since it was sent. It is stored only when it holds more than the due time that the
// message was sent with.
type record struct {
	stored     bool // there is a kindRecord key
	due        int64
	rank       rank // not stored here
	attempts   int
	delivered  bool // it came back from a worker otherwise than by Release, or was replayed: it no longer expires
	lastError  string
	failures   string // by envelope.AppendFailures
	deadReason store.DeadReason
	diedAt     int64
}

// deadReasons are stored as their index here.
var deadReasons = []store.DeadReason{"", store.DeadFailed, store.DeadLeaseExpired, store.DeadBuried,
	store.DeadExpired, store.DeadUnreadable}

const recordLength = 2*timeLength + 1 + 1 + 4 + 2

// appendRecord writes times of due and death, delivered, reason, attempts, length of the failures, failures, last
// error.
func appendRecord(b []byte, r *record) []byte {
	b = appendTime(appendTime(b, r.due), r.diedAt)
	b = append(b, boolByte(r.delivered), byte(slices.Index(deadReasons, r.deadReason)))
	b = binary.BigEndian.AppendUint32(b, uint32(r.attempts))
	b = binary.BigEndian.AppendUint16(b, uint16(len(r.failures)))
	return append(append(b, r.failures...), r.lastError...)
}

func parseRecord(b []byte) (record, error) {
	if len(b) < recordLength || int(b[2*timeLength+1]) >= len(deadReasons) {
		return record{}, corrupt("record %x is not of this format", b)
	}
	text := recordLength + int(binary.BigEndian.Uint16(b[recordLength-2:])) // where the last error starts
	if text > len(b) {
		return record{}, corrupt("record %x is shorter than its failures", b)
	}
	return record{
		stored:     true,
		due:        readTime(b),
		diedAt:     readTime(b[timeLength:]),
		delivered:  b[2*timeLength] == 1,
		deadReason: deadReasons[b[2*timeLength+1]],
		attempts:   int(binary.BigEndian.Uint32(b[2*timeLength+2:])),
		failures:   string(b[recordLength:text]),
		lastError:  string(b[text:]),
	}, nil
}

// fail counts a failed attempt.
func (r *record) fail(now int64, s *store.Settlement) {
	r.attempts++
	r.lastError = store.CutReason(s.Reason)
	r.addFailure(store.NewFailure(store.Time(now), r.attempts, s))
}

// giveBack records that the message is given back, or a failed attempt if that has been so for too long.
func (r *record) giveBack(now int64, s *store.Settlement) (tooLong bool) {
	failures, since := s.GiveBack(store.Time(now), envelope.ParseFailures(r.failures))
	if s.Within >= 0 && now-since.UnixMilli() >= store.Millis(s.Within) {
		r.forgetGivenBack()
		r.fail(now, s)
		return true
	}
	r.failures, r.lastError = string(envelope.AppendFailures(nil, failures)), store.CutReason(s.Reason)
	return false
}

// forgetGivenBack removes the failure of being given back, if that is the latest.
func (r *record) forgetGivenBack() {
	failures := envelope.ParseFailures(r.failures)
	if _, ok := store.GivenBack(failures); ok {
		r.failures, r.lastError = string(envelope.AppendFailures(nil, store.WithoutGivenBack(failures))), ""
	}
}

// addFailure adds the latest failure.
func (r *record) addFailure(f store.Failure) {
	r.failures = string(envelope.AppendFailures(nil, store.AddFailure(f, envelope.ParseFailures(r.failures))))
}

func boolByte(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// message is a stored message: the due time it was sent with, and its envelope.
type message struct {
	due      int64
	envelope string
}

func appendMessage(b []byte, due int64, m *store.Message) []byte {
	return envelope.Append(appendTime(b, due), m)
}

func parseMessage(b []byte) (message, error) {
	if len(b) < timeLength {
		return message{}, corrupt("message %x has no due time", b)
	}
	return message{readTime(b), string(b[timeLength:])}, nil
}

// attemptsLeft reports whether a message may fail once more.
func attemptsLeft(attempts, maxAttempts int) bool {
	return attempts < cmp.Or(maxAttempts, store.DefaultMaxAttempts)
}

// meta is the stored counters and settings of a queue. It is written with every change of the queue.
type meta struct {
	Paused     bool
	Retention  store.Retention // of dead messages, MaxAge in whole milliseconds
	Dropped    int64           // dead messages removed because of it
	Due        int64           // number of scheduled and ready messages
	Dead       int64
	Remembered int64 // number of kindForget keys
	Grouped    int64 // number of kindGroup keys
	Head       int64 // no message is due before this millisecond
	Swept      int64 // see queue
	Now        int64 // the engine's clock at the last change, in microseconds
	Flow       flow
}

// addDue counts a scheduled or ready message.
func (m *meta) addDue(due int64) {
	m.Due++
	m.Head = min(m.Head, due)
}

func parseMeta(b []byte) (m meta, err error) {
	if !decode(b, &m) || m.Retention.Check() != nil || !m.Flow.isSound() {
		return meta{}, corrupt("counters and limits %x are not of this format", b)
	}
	return m, nil
}

// decode reads a value that codec.Append wrote, and reports whether it is the only encoding of it.
func decode[T any](b []byte, v *T) bool {
	return codec.Decode(b, v) == nil && bytes.Equal(codec.Append(nil, v), b)
}

// formatFile identifies the directory, in up to three lines: the format of the keys, Pebble's format, and
// unfinishedLine while the store is being created.
const formatFile = "LATER"

const (
	// formatVersion is the version of the keys and values in this file. A change of them raises it.
	formatVersion = 16
	// pebbleFormat is the format of Pebble's files. It is pinned, so that a program that selects a newer Pebble for
	// another reason still writes directories that this version reads.
	pebbleFormat = pebble.FormatTableFormatV6

	unfinishedLine = "unfinished\n"
)

// formatText is the content of formatFile.
var formatText = fmt.Sprintf("later diskstore %d\npebble format %d\n", formatVersion, pebbleFormat)

// readFormat reports whether the directory is new: it holds nothing but files of an interrupted first open. A directory
// of another format, or with any other content, is refused with ErrUnsupported.
func (d *directory) readFormat() (isNew bool, err error) {
	text, err := d.readFile(formatFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true, d.checkEmpty()
	case err != nil:
		return false, d.readError(err)
	}
	var keys, files int
	n, _ := fmt.Sscanf(text, "later diskstore %d\npebble format %d\n", &keys, &files)
	switch {
	case n == 0 || n == 1 && keys == formatVersion:
		return false, corrupt("%s of %s is %q, which names no format: restore the directory from a backup",
			formatFile, d.dir, text)
	case keys > formatVersion || files > int(pebbleFormat):
		return false, fmt.Errorf("%w: %s has the format %q and this version of Later reads %q: use the version "+
			"that wrote it, or a later one", store.ErrUnsupported, d.dir, oneLine(text), oneLine(formatText))
	case keys < formatVersion:
		return false, fmt.Errorf("%w: %s has the format %q and this version of Later reads %q: export its messages with "+
			"the version that wrote it, later export --store %s --file FILE, and give them to a new directory with this "+
			"one, later import --store NEWDIR < FILE", store.ErrUnsupported, d.dir, oneLine(text), oneLine(formatText),
			d.url())
	}
	return strings.HasSuffix(text, unfinishedLine), nil
}

func oneLine(text string) string { return strings.ReplaceAll(strings.TrimSpace(text), "\n", ", ") }

// checkEmpty refuses a directory that holds other people's files.
func (d *directory) checkEmpty() error {
	names, err := d.fs.List(d.dir)
	if err != nil {
		return d.readError(err)
	}
	for _, name := range names {
		switch name {
		case lockFile, holderFile, holderFile + newSuffix, formatFile + newSuffix, socketFile, socketFile + newSuffix:
			continue
		case formatFile: // another process has created the store since
			return nil
		}
		return fmt.Errorf("%w: %s holds %s and is not a store of Later: give an empty or a new directory",
			store.ErrUnsupported, d.dir, name)
	}
	return nil
}

// beginCreation marks the directory as unfinished and removes the files of an interrupted creation. Nothing was
// acknowledged in a store that is unfinished.
func (d *directory) beginCreation() error {
	if err := d.writeFile(formatFile, formatText+unfinishedLine); err != nil {
		return d.writeError(err)
	}
	names, err := d.fs.List(d.dir)
	if err != nil {
		return d.readError(err)
	}
	for _, name := range names {
		if name == lockFile || name == holderFile || name == formatFile {
			continue
		}
		if err := d.fs.Remove(d.fs.PathJoin(d.dir, name)); err != nil {
			return d.writeError(err)
		}
	}
	return nil
}
