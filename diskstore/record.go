package diskstore

import (
	"encoding/binary"
	"slices"

	"github.com/laterq/later/internal/envelope"
	"github.com/laterq/later/store"
)

// record is what became of a message since it was sent. It is stored only when it holds more than the due time that
// the message was sent with.
type record struct {
	stored     bool // there is a kindRecord key
	due        int64
	attempts   int
	delivered  bool // it came back from a worker otherwise than by Release, or was replayed: it no longer expires
	lastError  string
	deadReason store.DeadReason
	diedAt     int64
}

// deadReasons are stored as their index here.
var deadReasons = []store.DeadReason{"", store.DeadFailed, store.DeadLeaseExpired, store.DeadBuried,
	store.DeadExpired, store.DeadUnreadable}

const recordLength = 2*timeLength + 1 + 1 + 4

// appendRecord writes times of due and death, delivered, reason, attempts, last error.
func appendRecord(b []byte, r *record) []byte {
	b = appendTime(appendTime(b, r.due), r.diedAt)
	b = append(b, boolByte(r.delivered), byte(slices.Index(deadReasons, r.deadReason)))
	b = binary.BigEndian.AppendUint32(b, uint32(r.attempts))
	return append(b, r.lastError...)
}

func parseRecord(b []byte) (record, error) {
	if len(b) < recordLength || int(b[2*timeLength+1]) >= len(deadReasons) {
		return record{}, corrupt("record %x is not of this format", b)
	}
	return record{
		stored:     true,
		due:        readTime(b),
		diedAt:     readTime(b[timeLength:]),
		delivered:  b[2*timeLength] == 1,
		deadReason: deadReasons[b[2*timeLength+1]],
		attempts:   int(binary.BigEndian.Uint32(b[2*timeLength+2:])),
		lastError:  string(b[recordLength:]),
	}, nil
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
	if maxAttempts == 0 {
		maxAttempts = store.DefaultMaxAttempts
	}
	return attempts < maxAttempts
}

func expired(now int64, r *record, m *store.Message) bool {
	switch {
	case r.delivered:
		return false
	case m.ExpireAfter > 0:
		return r.due+store.Millis(m.ExpireAfter) <= now
	case !m.ExpireAt.IsZero():
		return store.UnixMillis(m.ExpireAt) <= now
	}
	return false
}

// meta is what is stored of a queue beside its messages. It is written with every change of the queue.
type meta struct {
	paused     bool
	due        int64 // number of scheduled and ready messages
	dead       int64
	remembered int64 // number of kindForget keys
	mark       int64 // ready counts the due messages up to this millisecond
	ready      int64
	head       int64 // no message is due before this millisecond
	now        int64 // the engine's clock at the last change
}

func (m *meta) numbers() []*int64 {
	return []*int64{&m.due, &m.dead, &m.remembered, &m.mark, &m.ready, &m.head, &m.now}
}

func appendMeta(b []byte, m meta) []byte {
	b = append(b, boolByte(m.paused))
	for _, n := range m.numbers() {
		b = binary.BigEndian.AppendUint64(b, uint64(*n))
	}
	return b
}

// interruptedLength is the length of what a repair puts in place of the counters until it is done: whether the queue
// is paused.
const interruptedLength = 1

var errInterrupted = corrupt("its repair was interrupted: repair it again")

func parseMeta(b []byte) (meta, error) {
	if len(b) == interruptedLength {
		return meta{paused: b[0] == 1}, errInterrupted
	}
	if len(b) != 1+7*8 {
		return meta{}, corrupt("counters %x are not of this format", b)
	}
	m := meta{paused: b[0] == 1}
	for i, n := range m.numbers() {
		*n = int64(binary.BigEndian.Uint64(b[1+8*i:]))
	}
	return m, nil
}
