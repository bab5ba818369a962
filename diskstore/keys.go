package diskstore

import (
	"cmp"
	"encoding/binary"
	"math"
	"strconv"
	"strings"

	"github.com/laterq/later/store"
)

// Keys begin with the four bytes of a queue's number, so that a queue is one range, and a byte for the kind.
// Times are six bytes of milliseconds since 1970; all numbers are big endian.
//
//	kindMeta        -           → counters, pause, clock   see meta in record.go
//	kindActivity    -           → counts of events         see events.go; as they were at the last close
//	kindCount       slot        → how many are due         see counts.go
//	kindMessage     id          → due as sent, envelope    every live message, written once
//	kindRecord      id          → record                   only of what is not as it was sent, see record.go
//	kindDue         due, id     → nothing, or 1            scheduled and ready messages; 1: there is a record
//	kindDead        death, id   → nothing                  dead messages, which all have a record
//	kindLease       lease id    → what it holds            see lease.go
//	kindOriginal    id          → due, attempts, envelope  a held message with a successor, see lease.go
//	kindGroup       group, id   → nothing                  messages in a group, by its number; see group.go
//	kindRemembered  id          → until when               acked ids that are refused, and sends by key; see once.go
//	kindForget      until, id   → nothing                  the same by time
//	kindProperty    name        → value                    properties, see properties.go
//
// A message that is neither due nor dead is leased. Queue number 0 is the store itself: kindName there has a key for
// each queue's name with its number, kindRequest one for each session with its last request (sessions.go), and
// kindStamp has the stamp of the last backup.
const (
	kindActivity   = 'a'
	kindCount      = 'c'
	kindDue        = 'd'
	kindForget     = 'f'
	kindGroup      = 'g'
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
	kindDead       = 'x'
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
	return store.Field("cursor", store.Invalid("cursor %q is not from this store: give the one of the page before, or none", text))
}

// numberKey returns the first key of a queue.
func numberKey(number uint32) []byte { return binary.BigEndian.AppendUint32(nil, number) }
