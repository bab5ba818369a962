package diskstore

import (
	"encoding/binary"
	"fmt"
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
	maxAge     int64 // of dead messages in ms; 0 is no limit
	maxCount   int64 // of dead messages; 0 is no limit
	dropped    int64 // dead messages removed because of these
	due        int64 // number of scheduled and ready messages
	dead       int64
	remembered int64 // number of kindForget keys
	grouped    int64 // number of kindGroup keys
	mark       int64 // ready counts the due messages up to this millisecond
	ready      int64
	head       int64 // no message is due before this millisecond
	now        int64 // the engine's clock at the last change
}

// settings are what the queue's messages do not show, so that a repair keeps it.
func (m *meta) settings() []*int64 { return []*int64{&m.maxAge, &m.maxCount, &m.dropped} }

// fixRetention removes limits of dead messages that cannot have been set, and returns what they were.
func (m *meta) fixRetention() (wrong []string) {
	if m.maxAge < 0 || m.maxAge > store.Millis(store.MaxDelay) {
		wrong = append(wrong, fmt.Sprintf("the maximum age of dead messages is %d ms, so a repair sets none", m.maxAge))
		m.maxAge = 0
	}
	if m.maxCount < 0 || m.maxCount > store.MaxDeadCount {
		wrong = append(wrong, fmt.Sprintf("the maximum number of dead messages is %d, so a repair sets none", m.maxCount))
		m.maxCount = 0
	}
	return wrong
}

func (m *meta) numbers() []*int64 {
	return []*int64{&m.due, &m.dead, &m.remembered, &m.grouped, &m.mark, &m.ready, &m.head, &m.now}
}

func appendMeta(b []byte, m meta) []byte { return appendNumbers(appendSettings(b, m), m.numbers()) }

// appendSettings appends the part of the meta that a repair keeps.
func appendSettings(b []byte, m meta) []byte {
	return appendNumbers(append(b, boolByte(m.paused)), m.settings())
}

func appendNumbers(b []byte, numbers []*int64) []byte {
	for _, n := range numbers {
		b = binary.BigEndian.AppendUint64(b, uint64(*n))
	}
	return b
}

func readNumbers(b []byte, numbers []*int64) {
	for i, n := range numbers {
		*n = int64(binary.BigEndian.Uint64(b[8*i:]))
	}
}

// interruptedLength is the length of what a repair puts in place of the counters until it is done: the settings.
const interruptedLength = 1 + 3*8

var errInterrupted = corrupt("its repair was interrupted: repair it again")

func parseMeta(b []byte) (meta, error) {
	if len(b) != interruptedLength && len(b) != interruptedLength+8*8 {
		return meta{}, corrupt("counters %x are not of this format", b)
	}
	m := meta{paused: b[0] == 1}
	readNumbers(b[1:], m.settings())
	if len(b) == interruptedLength {
		return m, errInterrupted
	}
	readNumbers(b[interruptedLength:], m.numbers())
	return m, nil
}
