package diskstore

import (
	"encoding/binary"
	"slices"

	"github.com/laterq/later/internal/envelope"
	"github.com/laterq/later/store"
)

// record is the history of a message since it was sent. It is stored only when it holds more than the due time that the
// message was sent with.
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

// meta is the stored counters and settings of a queue. It is written with every change of the queue.
type meta struct {
	paused     bool
	maxAge     int64 // of dead messages in ms; 0 is no limit
	maxCount   int64 // of dead messages; 0 is no limit
	dropped    int64 // dead messages removed because of these
	due        int64 // number of scheduled and ready messages
	dead       int64
	remembered int64 // number of kindForget keys
	grouped    int64 // number of kindGroup keys
	head       int64 // no message is due before this millisecond
	swept      int64 // see queue
	now        int64 // the engine's clock at the last change
}

// addDue counts a scheduled or ready message.
func (m *meta) addDue(due int64) {
	m.due++
	m.head = min(m.head, due)
}

func (m *meta) numbers() []*int64 {
	return []*int64{&m.maxAge, &m.maxCount, &m.dropped, &m.due, &m.dead, &m.remembered, &m.grouped, &m.head, &m.swept,
		&m.now}
}

func appendMeta(b []byte, m meta) []byte {
	b = append(b, boolByte(m.paused))
	for _, n := range m.numbers() {
		b = binary.BigEndian.AppendUint64(b, uint64(*n))
	}
	return b
}

func parseMeta(b []byte) (m meta, err error) {
	numbers := m.numbers()
	if len(b) != 1+8*len(numbers) {
		return meta{}, corrupt("counters %x are not of this format", b)
	}
	m.paused = b[0] == 1
	for i, n := range numbers {
		*n = int64(binary.BigEndian.Uint64(b[1+8*i:]))
	}
	if m.maxAge < 0 || m.maxAge > store.Millis(store.MaxDelay) || m.maxCount < 0 || m.maxCount > store.MaxDeadCount {
		return meta{}, corrupt("dead messages are limited to %d ms and to %d", m.maxAge, m.maxCount)
	}
	return m, nil
}
